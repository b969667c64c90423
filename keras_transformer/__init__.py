"""The Transformer of "Attention Is All You Need" as a Keras 3 / TensorFlow translation toolkit."""

__version__ = "0.1.0"
