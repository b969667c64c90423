"""The processor time that SavedModels take until they are ready: to load, and to answer their warm-up requests.

    python -m benchmarks.load_time exports/old/1 exports/new/1

Each export is loaded in a new process, as TensorFlow Serving loads it, in turn, round by round. "CPU s" counts the
seconds that the processor works for the process, without the import of TensorFlow. Each ratio is the median over the
rounds of a ratio to the first export, so it means something on a busy machine, too.
"""

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.tools.exported import find_saved_model


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "exports", nargs="+", type=Path, help="EXPORT_DIR or EXPORT_DIR/VERSION; ratios are to the first"
    )
    parser.add_argument("--rounds", type=int, default=3, help="times that each export is loaded (default: 3)")
    return parser.parse_args()


def measure(path):
    """Loads a SavedModel in this process and replays its warm-up requests: CPU seconds of the load and of each."""
    import_tensorflow()
    from keras_transformer.export.saved_model import open_like_serving
    from keras_transformer.export.warmup import read_warm_up, replay

    requests, moments = read_warm_up(path), [time.process_time()]
    with open_like_serving(path) as (session, signatures):
        moments.append(time.process_time())
        for request in requests:
            replay(session, signatures, [request])
            moments.append(time.process_time())
    seconds = [after - before for before, after in zip(moments[:-1], moments[1:], strict=True)]
    return [request.model_spec.signature_name for request in requests], seconds


def measure_apart(path):
    """As `measure`, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(measure, path).result()


def main(arguments):
    paths = [find_saved_model(path) for path in arguments.exports]
    rounds = [[measure_apart(path) for path in paths] for _ in range(arguments.rounds)]
    for number, path in enumerate(paths):
        names, _ = rounds[0][number]
        totals = [sum(each[number][1]) for each in rounds]
        ratio = statistics.median(total / sum(each[0][1]) for total, each in zip(totals, rounds, strict=True))
        print(f"{path}: {statistics.median(totals):.2f} CPU s, {ratio:.2f}")
        load, *runs = (
            statistics.median(seconds) for seconds in zip(*(each[number][1] for each in rounds), strict=True)
        )
        shares = {"load": load}
        for name, seconds in zip(names, runs, strict=True):
            shares[name] = shares.get(name, 0) + seconds
        print("  " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in shares.items()), flush=True)


if __name__ == "__main__":
    with program():
        main(parse_arguments())
