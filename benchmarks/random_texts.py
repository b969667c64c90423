"""Checks that no text makes a SavedModel raise or return an invalid answer.

    python -m benchmarks.random_texts --saved_model exports/mine/1

Hypothesis generates the texts: any Unicode, bytes that are not Unicode, words with odd characters between them, and one
text in a thousand with up to 20,000 characters. The SavedModel receives batches, as from a server with batching. If a
batch raises, the script prints the smallest failing text.
"""

import argparse
import functools
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.session import Session
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive

ROWS = 32  # Rows of a batch.
LONGEST = 20_000  # Characters.
LONG_ONES = 3  # Percentage of batches that have a long text.
WORDS = (
    "A",
    "man",
    "in",
    "Prof.",
    "3.",
    "14:35",
    "!",
    "?",
    "。",
    "「",
    "</s>",
    "<0x80>",
    "▁",
    "\n",
    "\u2028",
    "\ufdd0",
    "\uffff",
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved_model", type=Path, required=True, help="EXPORT_DIR/VERSION that export.py wrote")
    parser.add_argument("--texts", type=int, default=10_000, help="least number of texts (default: 10000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the texts (default: 1)")
    return parser.parse_args()


def batches():
    """Returns a strategy for lists of `ROWS` texts, as bytes."""
    from hypothesis import strategies as st

    def of_any_length(strategy, longest):
        return st.integers(0, longest).flatmap(lambda n: strategy(min_size=n, max_size=n))

    words = of_any_length(functools.partial(st.lists, st.sampled_from(WORDS)), 30)
    short = words.map(" ".join) | words.map("".join) | of_any_length(st.text, 30)
    long = st.builds(
        lambda text, length: (text * LONGEST)[:length], st.text(min_size=1, max_size=50), st.integers(1, LONGEST)
    )
    encoded = short.map(str.encode) | of_any_length(st.binary, 30)
    usual = st.lists(encoded, min_size=ROWS, max_size=ROWS)
    with_a_long_one = st.builds(lambda texts, text: [*texts[1:], text.encode()], usual, long)
    return st.integers(1, 100).flatmap(lambda percent: with_a_long_one if percent <= LONG_ONES else usual)


def check(texts, translations, scores):
    """Raises AssertionError if the answers are invalid."""
    assert len(translations) == len(scores) == len(texts)
    assert np.isfinite(scores).all()
    for translation in translations:
        translation.decode("utf-8")


def main(arguments):
    import hypothesis
    from tqdm import tqdm

    check_positive(texts=arguments.texts)
    translate = Session(arguments.saved_model).signature("serving_default")
    number, characters, started = 0, 0, time.perf_counter()
    with tqdm(total=arguments.texts, unit=" texts", disable=None) as progress:

        def holds(texts):
            nonlocal number, characters
            check(texts, *translate(np.array(texts, dtype=object)))
            number, characters = number + len(texts), characters + sum(len(text) for text in texts)
            progress.update(len(texts))

        examples = -(-arguments.texts // ROWS)
        options = {"deadline": None, "database": None, "suppress_health_check": list(hypothesis.HealthCheck)}
        run = hypothesis.given(batches())(holds)
        hypothesis.seed(arguments.seed)(hypothesis.settings(max_examples=examples, **options)(run))()
    minutes = (time.perf_counter() - started) / 60
    print(f"{number:,} texts of {characters:,} bytes in {minutes:.1f} minutes: no text raised, every score is finite")


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import_tensorflow()
        main(arguments)
