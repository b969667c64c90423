"""Prepares a corpus: text files in, text files without dirt out."""

from keras_transformer.cli.clean import program

if __name__ == "__main__":
    program()
