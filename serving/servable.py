"""One version of a model, in a v1 Session, as TensorFlow Serving loads it. Threads may share a version."""

import logging
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  its ops have to be known before a graph with them is loaded
from grpc import StatusCode
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving.errors import ServingError, from_tensorflow, invalid
from serving.languages import languages_of
from serving.messages import DEFAULT_SIGNATURE, to_array
from serving.metrics import Metrics
from serving.private_api import run_unchecked, unchecked

SOON_DONE = 16_000  # Bytes of input that take at most about two seconds to compute.
NO_REFERENCES = "reference-typed edges"  # In the message of the single-threaded executor.
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"

LOG = logging.getLogger(__name__)


class Loader:
    """Loads versions with a ConfigProto, and replays their warm-up records."""

    def __init__(self, has_warm_up=True, metrics=None, config=None):
        self.metrics = metrics or Metrics()
        self._has_warm_up = has_warm_up
        self._config = config

    def load(self, name, number, path):
        """Returns a `Servable` that has answered its warm-up records. Raises ServingError if that fails."""
        start, status = time.monotonic(), "fail"
        try:
            servable = Servable.load(name, number, path, self._config)
            status = "success"
        finally:
            self.metrics.load_attempts.labels(str(path), status).inc()
        records = Path(path) / WARM_UP
        if self._has_warm_up and records.exists():
            begun, code = time.monotonic(), StatusCode.OK
            try:
                _replay(servable, records)
            except Exception as error:
                servable.close()
                error = _of_loading(error, path)
                code = error.code
                raise ServingError(code, f"warm-up: {error.message}") from None
            finally:
                self.metrics.warm_up_latency.labels(str(path), code.name).observe((time.monotonic() - begun) * 1e6)
        LOG.info("loaded version %s of model %s in %.1f s", number, name, time.monotonic() - start)
        return servable


def _replay(servable, path):
    """Runs the predict requests of a file, a TFRecord of PredictionLogs. Skips other records."""
    for record in tf.compat.v1.io.tf_record_iterator(str(path)):
        request = PredictionLog.FromString(record).predict_log.request
        if request.inputs:
            inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
            servable.run(request.model_spec.signature_name, inputs, list(request.output_filter))


class Servable:
    """A loaded SavedModel, created by `load`.

    `signatures` is a dict, name -> SignatureDef, and `dtypes` a dict, name -> dict, input -> number of the dtype.
    `languages` may be None. `uses` are the requests that use the version, counted by `Models`.
    """

    def __init__(self, name, version, session, signatures, languages=None):
        self.name, self.version, self.signatures, self.languages = name, version, signatures, languages
        self.dtypes = {key: {x: info.dtype for x, info in each.inputs.items()} for key, each in signatures.items()}
        self.uses = 0
        self._session = session
        self._prepared = {}

    @classmethod
    def load(cls, name, version, directory, config=None):
        """Loads a SavedModel, or raises ServingError. The ConfigProto of the first sets the threads for the process."""
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(directory))
            return cls(name, version, session, dict(loaded.signature_def), languages_of(directory))
        except Exception as error:
            session.close()
            if config is None or not config.experimental.executor_type or NO_REFERENCES not in str(error):
                raise _of_loading(error, directory) from error
        LOG.warning("version %s of model %s has variables of TensorFlow 1: the usual executor runs it", version, name)
        usual = tf.compat.v1.ConfigProto()
        usual.CopyFrom(config)
        usual.ClearField("experimental")
        return cls.load(name, version, directory, usual)

    def signature(self, name):
        """Returns the `Signature` of a name; "" means serving_default. Raises ServingError if there is none."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            raise ServingError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        if name not in self._prepared:
            self._prepared[name] = Signature(self._session, self.signatures[name])
        return self._prepared[name]

    def run(self, signature_name, inputs, outputs=None, timeout_s=None):
        """Answers one request: dict name -> array. See `Signature.checked` and `compute`."""
        signature = self.signature(signature_name)
        return self.compute(signature, *signature.checked(inputs, outputs), timeout_s)

    def compute(self, signature, inputs, outputs, timeout_s=None):
        """Runs a signature with checked inputs and outputs: dict name -> array.

        Inputs of at most `SOON_DONE` bytes run in the caller's thread, because the ops of a small model end before
        another thread wakes up. `timeout_s` can interrupt only the computation of longer inputs. Raises ServingError.
        """
        options = tf.compat.v1.RunOptions()
        if sum(map(_bytes, inputs.values())) <= SOON_DONE:
            options.inter_op_thread_pool = -1
        elif timeout_s is not None:
            options.timeout_in_ms = max(1, int(timeout_s * 1000))
        feeds = {signature.feeds[name]: array for name, array in inputs.items()}
        try:
            values = run_unchecked(self._session, options, feeds, [signature.fetches[name] for name in outputs])
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from None
        arrays = [np.array(value, object) if isinstance(value, bytes) else np.asarray(value) for value in values]
        return dict(zip(outputs, arrays, strict=True))

    def close(self):
        """Frees the memory. No request may be running."""
        self._session.close()
        self._session = None
        self._prepared.clear()


class Signature:
    """A SignatureDef of a Session's graph, prepared to check requests fast."""

    def __init__(self, session, definition):
        self.feeds = {name: _graph_tensor(session, info) for name, info in definition.inputs.items()}
        self.fetches = {name: _graph_tensor(session, info) for name, info in definition.outputs.items()}
        self._defaults = {name: tf.make_ndarray(value) for name, value in definition.defaults.items()}
        self._dtypes = {name: tf.dtypes.as_dtype(info.dtype) for name, info in definition.inputs.items()}

    def checked(self, inputs, outputs=None):
        """Checks a request: (dict name -> array, with the defaults; tuple of names). No outputs stand for all outputs.

        Raises ServingError: INVALID_ARGUMENT for a wrong name or dtype. Shapes are left to the graph.
        """
        if inputs.keys() != self.feeds.keys():
            inputs = {**self._defaults, **inputs}
            if inputs.keys() != self.feeds.keys():
                names = (", ".join(sorted(names)) for names in (self.feeds, inputs))
                raise invalid("The signature has the inputs {}. Received: {}".format(*names))
        for name, array in inputs.items():
            expected, received = self._dtypes[name], tf.dtypes.as_dtype(array.dtype)
            if expected != received:
                raise invalid(f"input {name} must be {expected.name}. Received: {received.name}")
        unknown = [name for name in outputs or () if name not in self.fetches]
        if unknown or len({*(outputs or ())}) < len(outputs or ()):
            raise invalid(f"Each output may be named once, of {', '.join(sorted(self.fetches))}. Received: {outputs}")
        return inputs, tuple(sorted(outputs or self.fetches))


def _graph_tensor(session, info):
    """Returns the tensor of a TensorInfo in the form that `run_unchecked` takes."""
    try:
        return unchecked(session.graph.get_tensor_by_name(info.name))
    except (KeyError, ValueError):
        raise invalid(f"Tensor {info.name} of the signature was not found in the Graph") from None


def _of_loading(error, directory):
    """Converts any exception of loading `directory` to a `ServingError`."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error.__context__, tf.errors.OpError):  # The first of two errors of TensorFlow.
        error = error.__context__
    if isinstance(error, tf.errors.OpError):
        return from_tensorflow(error)
    is_there = (Path(directory) / "saved_model.pb").exists()
    return ServingError(StatusCode.DATA_LOSS if is_there else StatusCode.NOT_FOUND, str(error).partition("\n")[0])


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes
