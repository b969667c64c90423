"""One version of a model, in a v1 Session, as TensorFlow Serving loads it. Threads may share a version."""

import gc
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401  its ops have to be known before a graph with them is loaded
from grpc import StatusCode

from serving.errors import ServingError, from_tensorflow
from serving.signature import Signature

DEFAULT_SIGNATURE = "serving_default"
SOON_DONE = 16_000  # Bytes of input that take at most about two seconds to compute.


class Servable:
    """A loaded SavedModel, created by `load`.

    Attributes:
        name: str, the name of the model.
        version: int.
        signatures: dict name -> SignatureDef.
    """

    def __init__(self, name, version, session, signatures):
        self.name = name
        self.version = version
        self.signatures = signatures
        self._session = session
        self._prepared = {key: Signature(definition) for key, definition in signatures.items()}

    @classmethod
    def load(cls, name, version, directory, intra_op_threads=0, inter_op_threads=0):
        """Loads a SavedModel.

        Args:
            name: str, the name of the model.
            version: int.
            directory: path of the SavedModel.
            intra_op_threads: int, the threads of one op; 0 means all cores. The first Session sets the number for the
                process.
            inter_op_threads: int, the ops at a time. The first Session sets the number for the process.

        Raises:
            ServingError: if the SavedModel cannot be loaded.
        """
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=intra_op_threads,
            inter_op_parallelism_threads=inter_op_threads,
            allow_soft_placement=True,
        )
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(directory))
            # Requests must not call TensorFlow's own signatures, such as __saved_model_init_op.
            signatures = {key: value for key, value in loaded.signature_def.items() if not key.startswith("__")}
            return cls(name, version, session, signatures)
        except Exception as error:
            session.close()
            raise of_loading(error, directory) from error

    def signature(self, name):
        """Returns the `Signature` of a name; "" means serving_default.

        Raises:
            ServingError: FAILED_PRECONDITION if the model has no signature of this name.
        """
        try:
            return self._prepared[name or DEFAULT_SIGNATURE]
        except KeyError:
            raise ServingError(
                StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.'
            ) from None

    def run(self, signature_name, inputs, outputs=None, timeout_s=None):
        """Answers one request.

        Args:
            signature_name: str; "" is serving_default.
            inputs: dict name -> array.
            outputs: list of str; None means all outputs.
            timeout_s: float, the most seconds of a computation with more than `SOON_DONE` bytes of input.

        Returns:
            dict name -> array.

        Raises:
            ServingError: if the request does not fit the signature, or if the graph raises.
        """
        signature = self.signature(signature_name)
        return self.compute(signature, signature.checked_inputs(inputs), signature.checked_outputs(outputs), timeout_s)

    def compute(self, signature, inputs, outputs, timeout_s=None):
        """Runs a `Signature` with checked inputs and outputs; see `run`."""
        options = run_options(inputs, timeout_s)
        fetches = {name: signature.fetches[name] for name in outputs}
        feeds = {signature.feeds[name]: array for name, array in inputs.items()}
        try:
            return self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from None

    def close(self):
        """Frees the memory. No request may be running."""
        self._session.close()
        self._session = None
        gc.collect()  # A Graph has many reference cycles.


def run_options(inputs, timeout_s):
    """Returns TensorFlow's options for a request: short inputs run in the caller's thread, long inputs in the pool.

    The ops of a small model end before another thread wakes up. In the caller's thread, a sentence takes a third less
    processor time. A timeout cannot interrupt the caller's thread, but can interrupt the pool.
    """
    if sum(map(_bytes, inputs.values())) <= SOON_DONE:
        return tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
    return None if timeout_s is None else tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(timeout_s * 1000)))


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


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
