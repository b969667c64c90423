"""Exports a trained run: a SavedModel for TensorFlow Serving, text in, text out, or a model for CTranslate2."""

from keras_transformer.cli.export import program

if __name__ == "__main__":
    program()
