"""The processor time of SavedModels beside that of the first, for one sentence and for batches of 16 and 32.

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
from keras_transformer.files import find_saved_model

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
    return parser.parse_args()


def seconds_of(translate, requests):
    """The processor seconds of some requests, one after the other."""
    started = time.process_time()
    for texts in requests:
        translate(texts)
    return time.process_time() - started


def main(arguments):
    lines = np.array([line.encode() for line in arguments.source.read_text(encoding="utf-8").splitlines()], object)
    ordered = lines[np.argsort([len(line) for line in lines], kind="stable")]
    kinds = {"one sentence": [lines[i : i + 1] for i in np.linspace(0, len(lines) - 1, SINGLES, dtype=int)]}
    for size in BATCH_SIZES:
        starts = np.linspace(0, max(len(lines) - size, 0), BATCHES, dtype=int)
        kinds[f"batch of {size}"] = [ordered[start : start + size] for start in starts]
    pairs = list(itertools.product(map(find_saved_model, arguments.exports), arguments.session_config or [CONFIG]))
    calls = [Session(*pair).signature("serving_default") for pair in pairs]
    for name, requests in kinds.items():
        first, *others = [[call(texts)[0].tolist() for texts in requests] for call in calls]  # the warm-up
        rounds = [[seconds_of(call, requests) for call in calls] for _ in range(ROUNDS)]
        for number, (path, config) in enumerate(pairs):
            ratio = statistics.median(seconds[number] / seconds[0] for seconds in rounds)
            each = statistics.median(seconds[number] for seconds in rounds) / len(requests)
            same = "" if number == 0 else f", {'the same' if others[number - 1] == first else 'other'} translations"
            print(f"{name}: {path} {config.name} {1000 * each:.1f} ms, {ratio:.2f}{same}", flush=True)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
