"""Shows what the heads of a Transformer attend to and do, and which of them are needed."""

from keras_transformer.cli.analyze import program

if __name__ == "__main__":
    program()
