"""Makes synthetic sentence pairs: text of one language in, a corpus out whose source a model has written."""

from keras_transformer.cli.back_translate import program

if __name__ == "__main__":
    program()
