"""A SavedModel in process, loaded as TensorFlow Serving loads it."""


class Session:
    """A v1 Session with the SavedModel of a directory. Ops run in the calling thread. Threads may share the session."""

    def __init__(self, directory):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  its ops

        threads = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=-1)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=threads)
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(self._session, ["serve"], str(directory))
        self._signatures = loaded.signature_def

    def signature(self, name, inputs=("text",), outputs=("translation", "score")):
        """Returns a function from one array (B,) per input to a list with one array (B, ...) per output.

        Text is an array of bytes objects.
        """
        definition = self._signatures[name]
        fetches = [definition.outputs[each].name for each in outputs]
        return self._session.make_callable(fetches, [definition.inputs[each].name for each in inputs])
