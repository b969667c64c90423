"""Makes synthetic sentence pairs: text of one language in, a corpus out whose source a model has written."""

from importlib import import_module

if __name__ == "__main__":
    import_module("keras_transformer.cli.back_translate").program()  # by its name: nothing here knows what is above it
