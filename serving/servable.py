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
from serving.messages import to_array
from serving.metrics import Metrics
from serving.private_api import run_unchecked, unchecked

DEFAULT_SIGNATURE = "serving_default"
SOON_DONE = 16_000  # Bytes of input that take at most about two seconds to compute.
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
MOST_WARM_UP_RECORDS = 1000

LOG = logging.getLogger(__name__)


class Loader:
    """Loads versions with the options `how` of `Servable.load`, and replays each warm-up record `warm_ups` times."""

    def __init__(self, warm_ups=1, metrics=None, **how):
        self.metrics = metrics or Metrics()
        self._warm_ups = warm_ups
        self._how = how

    def load(self, name, number, path):
        """Returns a `Servable` that has answered its warm-up records.

        Raises:
            ServingError: if the version cannot be loaded, or if a record fails.
        """
        start, status = time.monotonic(), "fail"
        try:
            servable = Servable.load(name, number, path, **self._how)
            status = "success"
        finally:
            self.metrics.load_attempts.labels(str(path), status).inc()
            self.metrics.load_latency.labels(str(path)).inc((time.monotonic() - start) * 1e6)
        if self._warm_ups and (Path(path) / WARM_UP).exists():
            self._warm_up(servable, Path(path))
        LOG.info("loaded version %s of model %s in %.1f s", number, name, time.monotonic() - start)
        return servable

    def _warm_up(self, servable, path):
        start, status = time.monotonic(), StatusCode.OK
        try:
            _replay(servable, path / WARM_UP, self._warm_ups)
        except Exception as error:
            servable.close()
            error = _of_loading(error, path)
            status = error.code
            raise ServingError(error.code, f"warm-up: {error.message}") from None
        finally:
            self.metrics.warm_up_latency.labels(str(path), status.name).observe((time.monotonic() - start) * 1e6)


def _replay(servable, path, times):
    """Runs the requests of a file, a TFRecord of PredictionLogs, each `times` times."""
    logs = [PredictionLog.FromString(record) for record in tf.compat.v1.io.tf_record_iterator(str(path))]
    if len(logs) > MOST_WARM_UP_RECORDS:
        raise invalid(f"Number of warmup records exceeds the maximum ({MOST_WARM_UP_RECORDS}) at {path}")
    for log in logs:
        kind = log.WhichOneof("log_type")
        if kind in ("predict_streamed_log", "session_run_log"):
            raise ServingError(StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")
        if kind != "predict_log":
            continue  # A request of an API that this server does not offer.
        request = log.predict_log.request
        inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
        for _ in range(times):
            servable.run(request.model_spec.signature_name, inputs, list(request.output_filter))


class Servable:
    """A loaded SavedModel, created by `load`.

    Attributes:
        name: str, the name of the model.
        version: int.
        signatures: dict name -> SignatureDef.
        languages: `Languages`, or None if the version has no export.json that names them.
        uses: int, the requests that use the version, counted by `Models`.
    """

    def __init__(self, name, version, session, signatures, languages=None):
        self.name = name
        self.version = version
        self.signatures = signatures
        self.languages = languages
        self.uses = 0
        self._session = session
        self._prepared = {}

    @classmethod
    def load(cls, name, version, directory, config=None, tags=("serve",)):
        """Loads a SavedModel: the graph with these tags. The ConfigProto of the first sets the threads for the process.

        Raises:
            ServingError: if the SavedModel cannot be loaded.
        """
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            loaded = tf.compat.v1.saved_model.loader.load(session, list(tags), str(directory))
            return cls(name, version, session, dict(loaded.signature_def), languages_of(directory))
        except Exception as error:
            session.close()
            raise _of_loading(error, directory) from error

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
        another thread wakes up. `timeout_s` can interrupt only the computation of longer inputs.

        Raises:
            ServingError: if the graph raises.
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
        return {name: _array(value) for name, value in zip(outputs, values, strict=True)}

    def close(self):
        """Frees the memory. No request may be running."""
        self._session.close()
        self._session = None
        self._prepared.clear()


class Signature:
    """A SignatureDef of a Session's graph, prepared to check requests fast, with TensorFlow Serving's messages."""

    def __init__(self, session, definition):
        self.feeds = {name: _graph_tensor(session, info) for name, info in definition.inputs.items()}
        self.fetches = {name: _graph_tensor(session, info) for name, info in definition.outputs.items()}
        self._defaults = {name: tf.make_ndarray(value) for name, value in definition.defaults.items()}
        self._tensor_names = {name: info.name for name, info in definition.inputs.items()}
        self._all_outputs = tuple(sorted(self.fetches))
        self._dtypes = {name: tf.dtypes.as_dtype(info.dtype) for name, info in definition.inputs.items()}
        order = sorted(definition.inputs, key=lambda name: definition.inputs[name].name)
        self._positions = {name: index for index, name in enumerate(order)}

    def checked(self, inputs, outputs=None):
        """Checks a request: (dict name -> array, with `defaults`; tuple of names). No outputs stand for all outputs.

        Raises ServingError: INVALID_ARGUMENT for a wrong name or dtype. Shapes are left to the graph.
        """
        inputs, outputs = self.with_defaults(inputs), self._checked_outputs(outputs)
        for name, array in inputs.items():
            expected, received = self._dtypes[name], tf.dtypes.as_dtype(array.dtype)
            if expected != received:
                argument = f"arg[{self._positions[name]}]"
                raise invalid(f"Expects {argument} to be {_spelled(expected)} but {_spelled(received)} is provided")
        return inputs, outputs

    def _checked_outputs(self, outputs):
        if not outputs:
            return self._all_outputs
        for index, name in enumerate(outputs):
            if name not in self.fetches:
                known = f"Outputs expected to be in the set {{{','.join(self._all_outputs)}}}."
                raise invalid(f"output tensor alias not found in signature: {name} {known}")
            if name in outputs[:index]:
                raise invalid(f"duplicate output tensor alias: {name}")
        return tuple(sorted(outputs))

    def with_defaults(self, inputs):
        """Checks the names of a dict of inputs, and adds the defaults of missing ones. Raises as `checked` does."""
        if inputs.keys() == self.feeds.keys():
            return inputs
        extra, missing = inputs.keys() - self.feeds.keys(), self.feeds.keys() - inputs.keys()
        groups = (inputs, self.feeds, extra, missing, self._defaults)
        sent, known, surplus, absent, defaults = (",".join(sorted(names)) for names in groups)
        if len(inputs) > len(self.feeds) or (len(inputs) < len(self.feeds) and not self._defaults):
            raise invalid(
                f"input size does not match signature: {len(inputs)}!={len(self.feeds)} len({{{sent}}}) != "
                f"len({{{known}}}). Sent extra: {{{surplus}}}. Missing but required: {{{absent}}}."
            )
        for name in sorted(missing - self._defaults.keys()):
            raise invalid(
                f"Signature input alias: {name}(feed name: {self._tensor_names[name]}) not found in request and no "
                f"default value provided. Inputs expected to be in the request {{{sent}}}, or default input alias set: "
                f"{defaults}"
            )
        if extra:
            used = ",".join(sorted(inputs.keys() & self.feeds.keys()))
            raise invalid(f"Inputs contains invalid name. Used request inputs: {used}, request input: {sent}")
        return {**{name: self._defaults[name] for name in missing}, **inputs}


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
    is_there = any((Path(directory) / name).exists() for name in ("saved_model.pb", "saved_model.pbtxt"))
    is_broken = is_there and not isinstance(error, RuntimeError)  # With a RuntimeError, it has no such tags.
    return ServingError(StatusCode.DATA_LOSS if is_broken else StatusCode.NOT_FOUND, str(error).partition("\n")[0])


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _array(value):
    """Makes an array of a fetched value. A fetched scalar string is bytes."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def _spelled(dtype):
    """Spells a dtype as TensorFlow's C++ does: float, double, int32, string."""
    return {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)
