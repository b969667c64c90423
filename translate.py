"""Translates text with a trained run or an exported SavedModel: a file, a filter between pipes, or a dialogue."""

from keras_transformer.cli.translate import program

if __name__ == "__main__":
    program()
