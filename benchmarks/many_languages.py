"""What one direction pays for the tags of many languages: processor time of a model without tags, and with them.

    python -m benchmarks.many_languages --text DIR/val.en

The model has random weights, so every search goes on to its limit: with tags and without, it makes as many steps.
Rounds of all three kinds take turns. "source" has a tag in front of the source; "both" begins the decoder with another
one.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow

LANGUAGES = ("en", "de", "fr", "ja", "pt_BR")
SENTENCES = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="file of sentences; the first 64 are translated")
    parser.add_argument("--preset", default="tiny", help="of the model (default: tiny)")
    parser.add_argument("--vocabulary_size", type=int, default=8000, help="of the model (default: 8000)")
    parser.add_argument("--beam_size", type=int, default=4, help="of the search (default: 4)")
    parser.add_argument("--rounds", type=int, default=7, help="of each kind (default: 7)")
    return parser.parse_args()


def make_translators(arguments, lines):
    """Kind -> function that translates the lines."""
    import keras_transformer as kt
    from keras_transformer.tags import LanguageTags
    from keras_transformer.tokenizer import train_tokenizer

    tokenizer = kt.Tokenizer(train_tokenizer(lines, arguments.vocabulary_size - len(LANGUAGES)))
    model = kt.Transformer.from_preset(arguments.preset, vocabulary_size=arguments.vocabulary_size)
    ids = dict(zip(LANGUAGES, itertools.count(tokenizer.vocabulary_size), strict=False))
    kinds = {"none": None} | {place: LanguageTags(place, ids, ids, ("en", "de")) for place in ("source", "both")}
    translators = {
        kind: kt.Translator(model, tokenizer, beam_size=arguments.beam_size, tags=tags) for kind, tags in kinds.items()
    }
    languages = {kind: {"target_lang": "fr"} if tags else {} for kind, tags in kinds.items()}
    sentences = lines[:SENTENCES]
    return {kind: lambda kind=kind: translators[kind].translate(sentences, **languages[kind]) for kind in kinds}


def main(arguments):
    lines = arguments.text.read_text(encoding="utf-8").splitlines()
    translators = make_translators(arguments, lines)
    for translate in translators.values():
        translate()  # makes the graph
    seconds = {kind: [] for kind in translators}
    for kind in [*translators] * arguments.rounds:
        started = time.process_time()
        translators[kind]()
        seconds[kind].append(time.process_time() - started)
    print(f"| tags | CPU seconds for {len(lines[:SENTENCES])} sentences | ratio |\n|---|---|---|")
    for kind, of_kind in seconds.items():
        ratio = statistics.median(one / other for one, other in zip(of_kind, seconds["none"], strict=True))
        print(f"| {kind} | {statistics.median(of_kind):.2f} | {ratio:.3f} |")


if __name__ == "__main__":
    import_tensorflow()
    main(parse_arguments())
