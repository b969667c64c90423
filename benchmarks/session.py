"""A SavedModel in process, loaded as TensorFlow Serving loads it with `serving/config/session.config`."""

from pathlib import Path

import numpy as np

import serving
from keras_transformer.translation.options import LANGUAGE_INPUTS

CONFIG = Path(serving.__file__).parent / "config" / "session.config"


class Session:
    """A v1 Session with the SavedModel of a directory. Ops run in the calling thread. Threads may share the session.

    Args:
        directory: path.
        config: path of a file with a ConfigProto.
    """

    def __init__(self, directory, config=CONFIG):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  its ops

        from serving.configuration import read_message

        threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": -1}
        config = read_message(config, tf.compat.v1.ConfigProto(**threads))
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(self._session, ["serve"], str(directory))
        self._signatures = loaded.signature_def

    def signature(self, name, inputs=("text",), outputs=("translation", "score")):
        """Returns a function from one array (B,) per input to a list with one array (B, ...) per output.

        Text is an array of bytes objects. A model of many languages translates in its default direction.
        """
        definition = self._signatures[name]
        fetches = [definition.outputs[each].name for each in outputs]
        languages = [each for each in LANGUAGE_INPUTS if each in definition.inputs]
        feeds = [definition.inputs[each].name for each in (*inputs, *languages)]
        call = self._session.make_callable(fetches, feeds)
        return lambda first, *others: call(first, *others, *(np.full(len(first), b"", object) for _ in languages))
