"""The processor time of SavedModels beside that of the first, for one sentence and for batches.

    python -m benchmarks.compare_exports exports/old/1 exports/new/1 --source test.en
    python -m benchmarks.compare_exports exports/mine --source test.en \
        --session_config serving/config/session.gpu.config --session_config serving/config/session.config

The second command compares two configurations of TensorFlow's session. All exports are asked in one process, in turn,
round by round. Each figure is the median over the rounds of a ratio, so it means something on a busy machine, too.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.session import CONFIG, Session
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.errors import check_positive
from keras_transformer.tools.exported import find_saved_model

ROUNDS = 5
SINGLES, BATCHES, BATCH_SIZES = 20, 3, (16, 32)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "exports", nargs="+", type=Path, help="EXPORT_DIR or EXPORT_DIR/VERSION; ratios are to the first"
    )
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    help_text = "ConfigProto of TensorFlow, repeatable (default: serving/config/session.config)"
    parser.add_argument("--session_config", action="append", type=Path, metavar="FILE", help=help_text)
    help_text = f"sentences of a batch (default: {' '.join(map(str, BATCH_SIZES))})"
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=BATCH_SIZES, metavar="N", help=help_text)
    return parser.parse_args()


def seconds_of(translate, requests):
    """The processor seconds of some requests, one after the other."""
    started = time.process_time()
    for texts in requests:
        translate(texts)
    return time.process_time() - started


def in_turn(calls, requests, rounds):
    """The processor time of functions that answer the same requests in turn, round by round.

    Returns:
        list of two floats for each function: the seconds of a request, and the ratio to those of the first function.
        Both are medians over the rounds.
    """
    seconds = [[seconds_of(call, requests) for call in calls] for _ in range(rounds)]
    return [
        (
            statistics.median(row[number] for row in seconds) / len(requests),
            statistics.median(row[number] / row[0] for row in seconds),
        )
        for number in range(len(calls))
    ]


def requests_of(lines, batch_sizes):
    """The requests of each kind, by name: single sentences of the whole list, and batches of about equal lengths."""
    ordered = sorted(lines, key=len)
    kinds = {"one sentence": [lines[i : i + 1] for i in np.linspace(0, len(lines) - 1, SINGLES, dtype=int)]}
    for size in batch_sizes:
        starts = np.linspace(0, max(len(lines) - size, 0), BATCHES, dtype=int)
        kinds[f"batch of {size}"] = [ordered[start : start + size] for start in starts]
    return kinds


def main(arguments):
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    check_positive(batch_sizes=min(arguments.batch_sizes))
    kinds = requests_of([line.encode() for line in lines], arguments.batch_sizes)
    pairs = list(itertools.product(map(find_saved_model, arguments.exports), arguments.session_config or [CONFIG]))
    calls = [Session(*pair).signature("serving_default") for pair in pairs]
    for name, requests in kinds.items():
        requests = [np.array(texts, object) for texts in requests]
        first, *others = [[call(texts)[0].tolist() for texts in requests] for call in calls]  # the warm-up
        measured = in_turn(calls, requests, ROUNDS)
        for number, ((path, config), (each, ratio)) in enumerate(zip(pairs, measured, strict=True)):
            same = "" if number == 0 else f", {'the same' if others[number - 1] == first else 'other'} translations"
            print(f"{name}: {path} {config.name} {1000 * each:.1f} ms, {ratio:.2f}{same}", flush=True)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
