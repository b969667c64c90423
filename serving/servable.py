"""One version of a model, loaded as TensorFlow Serving loads it: a v1 Session, which threads may share."""

import gc
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401  its ops have to be known before a graph with them is loaded
from grpc import StatusCode

from serving.errors import ServingError, from_tensorflow
from serving.signature import Signature

DEFAULT_SIGNATURE = "serving_default"
SOON_DONE = 16_000  # bytes of input that are computed in a second or two


class Servable:
    """A loaded SavedModel; made by `load`.

    Attributes:
        name: str, of the model.
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
            name: str, of the model.
            version: int.
            directory: path of the SavedModel.
            intra_op_threads: within an op; 0 is all cores. The first Session of a process chooses for all.
            inter_op_threads: of ops side by side, likewise.

        Raises:
            ServingError: if it cannot be loaded.
        """
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=intra_op_threads,
            inter_op_parallelism_threads=inter_op_threads,
            allow_soft_placement=True,
        )
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(directory))
            # TensorFlow's own, such as __saved_model_init_op, are not for requests
            signatures = {key: value for key, value in loaded.signature_def.items() if not key.startswith("__")}
            return cls(name, version, session, signatures)
        except Exception as error:
            session.close()
            raise of_loading(error, directory) from error

    def signature(self, name):
        """The `Signature` of a name; of serving_default if it is empty.

        Raises:
            ServingError: FAILED_PRECONDITION if there is none.
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
            outputs: list of str, all if None.
            timeout_s: seconds after which the computation of more than `SOON_DONE` bytes is given up.

        Returns:
            dict name -> array.

        Raises:
            ServingError: if the request does not fit the signature, or the graph raises.
        """
        signature = self.signature(signature_name)
        return self.compute(signature, signature.checked_inputs(inputs), signature.checked_outputs(outputs), timeout_s)

    def compute(self, signature, inputs, outputs, timeout_s=None):
        """As `run`, with a `Signature` and what it has checked."""
        options = run_options(inputs, timeout_s)
        fetches = {name: signature.fetches[name] for name in outputs}
        feeds = {signature.feeds[name]: array for name, array in inputs.items()}
        try:
            return self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from None

    def close(self):
        """Frees its memory. No request may be under way."""
        self._session.close()
        self._session = None
        gc.collect()  # a Graph is full of cycles


def run_options(inputs, timeout_s):
    """How TensorFlow is to run a request: little work in the thread that asks, more in its pool, for a limited time.

    A small model's ops are over before another thread has woken up to run them: in the caller's own thread a sentence
    takes a third less of the processor. A computation there cannot be interrupted.
    """
    if sum(map(_bytes, inputs.values())) <= SOON_DONE:
        return tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
    return None if timeout_s is None else tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(timeout_s * 1000)))


def _bytes(array):
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def of_loading(error, directory):
    """Any exception that loading from `directory` raised, as a `ServingError`."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error.__context__, tf.errors.OpError):  # then TensorFlow has tried in vain to restore in another way
        error = error.__context__
    if isinstance(error, tf.errors.OpError):
        return from_tensorflow(error)
    is_there = (Path(directory) / "saved_model.pb").exists() or (Path(directory) / "saved_model.pbtxt").exists()
    return ServingError(StatusCode.DATA_LOSS if is_there else StatusCode.NOT_FOUND, str(error).partition("\n")[0])
