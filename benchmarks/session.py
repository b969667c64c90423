"""A SavedModel in process, through the loader that TensorFlow Serving uses."""


class Session:
    """A v1 Session with a SavedModel, whose ops run in the thread that asks; threads may share it.

    Args:
        directory: path of the SavedModel.
    """

    def __init__(self, directory):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  its ops

        threads = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=-1)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=threads)
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(self._session, ["serve"], str(directory))
        self._signatures = loaded.signature_def

    def signature(self, name, inputs=("text",), outputs=("translation", "score")):
        """A function from one array (B,) for each of `inputs` to a list of arrays (B, ...), one for each of `outputs`.

        Text is an array of bytes as objects.
        """
        definition = self._signatures[name]
        fetches = [definition.outputs[each].name for each in outputs]
        return self._session.make_callable(fetches, [definition.inputs[each].name for each in inputs])
