"""Scores a run, a SavedModel or a file of translations on a test set with sacreBLEU, alone or against a baseline."""

from keras_transformer.cli.evaluate import program

if __name__ == "__main__":
    program()
