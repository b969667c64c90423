"""Scores a trained run or an exported SavedModel on a test set: BLEU and chrF with their signatures, speed."""

import argparse
import time
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow, mistakes_as_lines
from keras_transformer.cli.flags import (
    add_translator_arguments,
    check_ranges,
    check_width,
    search_options,
    translator_arguments,
)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Translate a test set and score it with sacreBLEU.")
    add_translator_arguments(parser)
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    parser.add_argument(
        "--tokenize",
        default="13a",
        help="sacreBLEU's word splitting: 13a for raw text, none for text that is tokenised already, zh, ja-mecab, ...",
    )
    parser.add_argument("--output", help="file to keep the translations in")
    arguments = parser.parse_args()
    check_ranges(arguments)
    return arguments


def main(arguments):
    from tqdm import tqdm

    from keras_transformer.data.text_files import open_aligned_files
    from keras_transformer.evaluation import describe, evaluate
    from keras_transformer.translation.translator import load_translator

    sources, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    evaluate(references[:1], references[:1], arguments.tokenize)  # a wrong --tokenize is found before the long work
    translator = load_translator(**translator_arguments(arguments))
    options = search_options(arguments)
    check_width(translator, beam_size=options.get("beam_size"))
    translator.translate(sources[:1], **options)  # the graph is built at the first call
    started = time.perf_counter()
    with tqdm(total=len(sources), unit=" sentences", disable=None) as progress:
        translations = translator.translate(sources, progress.update, **options)
    seconds = time.perf_counter() - started
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.writelines(f"{translation}\n" for translation in translations)
    print(describe(evaluate(translations, references, arguments.tokenize)))
    print(f"{len(sources) / seconds:.1f} sentences/s")


if __name__ == "__main__":
    with mistakes_as_lines():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
