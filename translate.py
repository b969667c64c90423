"""Translates text with a trained run or an exported SavedModel: a file, a filter between pipes, or a dialogue."""

import argparse
import itertools
import sys

from keras_transformer.command_line import add_translator_arguments, translator_arguments
from keras_transformer.console import import_tensorflow, mistakes_as_lines

CHUNK = 1024  # lines sorted by length and translated together


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Translate line by line: every line of input gives one line of output, in order. "
        "At a terminal without --input, ask for one line after the other."
    )
    add_translator_arguments(parser)
    parser.add_argument("--input", help="text file, UTF-8, one sentence a line (default: standard input)")
    parser.add_argument("--output", help="file for the translations (default: standard output)")
    return parser.parse_args()


def converse(translator):
    """Translates what is typed, line by line, until the end of input."""
    print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        print(translator.translate([line])[0])


def translate_lines(translator, source, target, progress):
    """Translates every line of a binary stream, a chunk at a time; invalid UTF-8 becomes U+FFFD."""
    lines = (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in source)
    while chunk := list(itertools.islice(lines, CHUNK)):
        for translation in translator.translate(chunk, progress.update):
            target.write(translation.replace("\n", " ").encode("utf-8") + b"\n")
        target.flush()


def main(arguments):
    from tqdm import tqdm

    from keras_transformer.translator import load_translator

    source = open(arguments.input, "rb") if arguments.input else sys.stdin.buffer
    translator = load_translator(**translator_arguments(arguments))
    if not arguments.input and sys.stdin.isatty():
        return converse(translator)
    target = open(arguments.output, "wb") if arguments.output else sys.stdout.buffer
    with tqdm(unit=" sentences", disable=None) as progress:
        translate_lines(translator, source, target, progress)


if __name__ == "__main__":
    with mistakes_as_lines():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
