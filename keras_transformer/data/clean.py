"""Prepares a corpus: text files in, text files without dirt out."""

from importlib import import_module

if __name__ == "__main__":
    import_module("keras_transformer.cli.clean").program()  # by its name: nothing here knows what is above it
