"""Trains a Transformer on sentence pairs: data and preset in, run directory out."""

from keras_transformer.cli.train import program

if __name__ == "__main__":
    program()
