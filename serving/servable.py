"""One version of a model, in a v1 Session, as TensorFlow Serving loads it. Threads may share a version."""

from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  its ops have to be known before a graph with them is loaded
from grpc import StatusCode

from serving.errors import ServingError, from_tensorflow, invalid
from serving.languages import languages_of
from serving.private_api import run_unchecked, unchecked

DEFAULT_SIGNATURE = "serving_default"
SOON_DONE = 16_000  # Bytes of input that take at most about two seconds to compute.


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
        """Loads a SavedModel.

        Args:
            name: str, the name of the model.
            version: int.
            directory: path of the SavedModel.
            config: ConfigProto. The first Session sets the threads of ops for the process.
            tags: iterable of str, the tags of the graph to load.

        Raises:
            ServingError: if the SavedModel cannot be loaded.
        """
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            loaded = tf.compat.v1.saved_model.loader.load(session, list(tags), str(directory))
            return cls(name, version, session, dict(loaded.signature_def), languages_of(directory))
        except Exception as error:
            session.close()
            raise of_loading(error, directory) from error

    def signature(self, name):
        """Returns the `Signature` of a name; "" means serving_default.

        Raises:
            ServingError: FAILED_PRECONDITION if the model has no signature of this name, INVALID_ARGUMENT if the graph
                has no tensor of the signature.
        """
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            raise ServingError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        if name not in self._prepared:
            self._prepared[name] = Signature(self._session, self.signatures[name])
        return self._prepared[name]

    def run(self, signature_name, inputs, outputs=None, timeout_s=None):
        """Answers one request: dict name -> array. See `Signature.checked_inputs` and `compute`."""
        signature = self.signature(signature_name)
        return self.compute(signature, signature.checked_inputs(inputs), signature.checked_outputs(outputs), timeout_s)

    def compute(self, signature, inputs, outputs, timeout_s=None):
        """Runs a signature with checked inputs and outputs.

        Short inputs run in the caller's thread, because the ops of a small model end before another thread wakes up. A
        timeout can interrupt only the computation of long inputs.

        Args:
            signature: `Signature`.
            inputs: dict name -> array.
            outputs: tuple of names.
            timeout_s: float, the most seconds of a computation with more than `SOON_DONE` bytes of input.

        Returns:
            dict name -> array.

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
    """A SignatureDef, prepared for fast checks of requests with TensorFlow Serving's messages.

    Args:
        session: Session with the graph.
        definition: SignatureDef.
    """

    def __init__(self, session, definition):
        self.defaults = {name: tf.make_ndarray(value) for name, value in definition.defaults.items()}
        self.feeds = {name: graph_tensor(session, info) for name, info in definition.inputs.items()}
        self.fetches = {name: graph_tensor(session, info) for name, info in definition.outputs.items()}
        self._all_outputs = tuple(sorted(self.fetches))
        self._dtypes = {name: tf.dtypes.as_dtype(info.dtype) for name, info in definition.inputs.items()}
        order = sorted(definition.inputs, key=lambda name: definition.inputs[name].name)
        self._positions = {name: index for index, name in enumerate(order)}

    def checked_inputs(self, inputs):
        """Checks the inputs of a request and adds the defaults of missing inputs. Shapes are left to the graph.

        Args:
            inputs: dict name -> array; strings are bytes objects.

        Returns:
            dict name -> array.

        Raises:
            ServingError: INVALID_ARGUMENT if an input is missing or unknown, or has a wrong dtype.
        """
        if inputs.keys() != self.feeds.keys():
            inputs = self._with_defaults(inputs)
        for name, array in inputs.items():
            expected, received = self._dtypes[name], tf.dtypes.as_dtype(array.dtype)
            if expected != received:
                raise invalid(
                    f"Expects arg[{self._positions[name]}] to be {_spelled(expected)} but {_spelled(received)} is "
                    "provided"
                )
        return inputs

    def checked_outputs(self, outputs):
        """Checks the outputs to fetch: tuple of names. None stands for all outputs.

        Raises:
            ServingError: INVALID_ARGUMENT if a name is unknown or repeated.
        """
        if not outputs:
            return self._all_outputs
        for index, name in enumerate(outputs):
            if name not in self.fetches:
                known = ",".join(sorted(self.fetches))
                raise invalid(
                    f"output tensor alias not found in signature: {name} Outputs expected to be in the set {{{known}}}."
                )
            if name in outputs[:index]:
                raise invalid(f"duplicate output tensor alias: {name}")
        return tuple(sorted(outputs))

    def _with_defaults(self, inputs):
        extra = inputs.keys() - self.feeds.keys()
        missing = self.feeds.keys() - inputs.keys() - self.defaults.keys()
        if extra or missing:
            sent, known, extra, missing = (",".join(sorted(names)) for names in (inputs, self.feeds, extra, missing))
            raise invalid(
                f"input size does not match signature: {len(inputs)}!={len(self.feeds)} len({{{sent}}}) != "
                f"len({{{known}}}). Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
            )
        return {**{name: self.defaults[name] for name in self.feeds.keys() - inputs.keys()}, **inputs}


def graph_tensor(session, info):
    """Returns the tensor of a TensorInfo in the form that `run_unchecked` takes."""
    try:
        return unchecked(session.graph.get_tensor_by_name(info.name))
    except (KeyError, ValueError):
        raise invalid(f"Tensor {info.name} of the signature was not found in the Graph") from None


def of_loading(error, directory):
    """Converts any exception of loading `directory` to a `ServingError`."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error.__context__, tf.errors.OpError):  # The first of two errors of TensorFlow.
        error = error.__context__
    if isinstance(error, tf.errors.OpError):
        return from_tensorflow(error)
    is_there = (Path(directory) / "saved_model.pb").exists() or (Path(directory) / "saved_model.pbtxt").exists()
    return ServingError(StatusCode.DATA_LOSS if is_there else StatusCode.NOT_FOUND, str(error).partition("\n")[0])


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _array(value):
    """Makes an array of a fetched value. A fetched scalar string is bytes."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def _spelled(dtype):
    """Spells a dtype as TensorFlow's C++ does: float, double, int32, string."""
    return {"float32": "float", "float64": "double", "float16": "half"}.get(dtype.name, dtype.name)
