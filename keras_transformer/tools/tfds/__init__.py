"""The corpora `tfds:NAME`: translation corpora of TensorFlow Datasets."""

from keras_transformer.tools.tfds.corpus import open_tfds

__all__ = ["open_tfds"]
