"""Exports a trained run as a SavedModel for TensorFlow Serving: text in, text out."""

import argparse

from keras_transformer.command_line import add_search_arguments
from keras_transformer.console import import_tensorflow, mistakes_as_lines


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Write EXPORT_DIR/VERSION, a SavedModel that TensorFlow Serving runs as it is: tokenizer, beam "
        "search and detokenizer are inside. It is reloaded and compared with the run before it appears there."
    )
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote")
    parser.add_argument("--export_dir", required=True, help="directory of all versions of this model")
    parser.add_argument("--version", type=int, help="positive integer; the next free one by default")
    add_search_arguments(parser)
    return parser.parse_args()


def main(arguments):
    from keras_transformer.export import export_saved_model
    from keras_transformer.training.checkpoints import RunDirectory
    from keras_transformer.translator import Translator

    translator = Translator.load(arguments.model_dir, arguments.beam_size, arguments.length_penalty)
    sentences = RunDirectory(arguments.model_dir).samples.read_text(encoding="utf-8").split("\n")
    path = export_saved_model(translator, arguments.export_dir, arguments.version, sentences)
    print(f"exported  {path}: translates {len(sentences)} validation sentences as {arguments.model_dir} does")


if __name__ == "__main__":
    with mistakes_as_lines():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
