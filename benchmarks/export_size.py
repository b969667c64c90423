"""How much each step of `keras_transformer/export/compact.py` saves in a SavedModel of a trained run.

    python -m benchmarks.export_size --model_dir runs/mine

Exports the run once as TensorFlow writes it, and copies the export for each row of the table: without any step, with
all steps, and with all steps but one. A new process loads each copy and translates a sentence. The rounds go through
all copies one after the other, so that a busy minute hits all of them. The table has the medians of the rounds, in
Markdown. "CPU s" counts the seconds that the processor works for the process: other processes change it less.
"""

import argparse
import contextlib
import multiprocessing
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np

from keras_transformer.cli.console import import_tensorflow

STEPS = ("drop_shapes", "merge_equal", "shorten_names")
COLUMNS = ("load s", "load CPU s", "first sentence s", "first sentence CPU s", "MiB after loading", "MiB after both")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="run directory that train.py wrote")
    parser.add_argument("--sentence", default="A man is riding a bike.", help="sentence to translate first")
    parser.add_argument("--rounds", type=int, default=5, help="times that each copy is loaded (default: 5)")
    return parser.parse_args()


def write_copies(model_dir, directory):
    """Exports a run and copies the export with each choice of steps: name -> path."""
    import_tensorflow()
    from keras_transformer.export import compact
    from keras_transformer.export.saved_model import SavedModelExport
    from keras_transformer.runs import Run

    plain = Path(directory, "plain")
    plain.mkdir()
    with mock.patch("keras_transformer.export.saved_model.compact_saved_model"):
        SavedModelExport(Run(model_dir).translator()).write(plain)
    copies = {"as TensorFlow writes it": plain}
    for name, left_out in {"all steps": None, **{f"without {step}": step for step in STEPS}}.items():
        copies[name] = Path(directory, name)
        shutil.copytree(plain, copies[name])
        with contextlib.ExitStack() as stack:
            if left_out:
                stack.enter_context(mock.patch.object(compact, left_out))
            compact.compact_saved_model(copies[name])
    return copies


def measure(path, sentence):
    """Loads a SavedModel in this process and translates a sentence: the values of `COLUMNS`."""
    import psutil

    import_tensorflow()
    from keras_transformer.export.saved_model import open_like_serving, run

    process = psutil.Process()
    moments = []

    def note():
        moments.append((time.perf_counter(), time.process_time(), process.memory_info().rss / 2**20))

    note()
    with open_like_serving(path) as (session, signatures):
        note()
        run(session, signatures["serving_default"], [sentence])
        note()
    before, loaded, translated = np.array(moments)
    seconds, more = (loaded - before), (translated - loaded)
    return [*seconds[:2], *more[:2], seconds[2], translated[2] - before[2]]


def measure_apart(path, sentence):
    """As `measure`, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(measure, path, sentence).result()


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as directory:
        copies = write_copies(arguments.model_dir, directory)
        rows = {name: [] for name in copies}
        for _ in range(arguments.rounds):
            for name, path in copies.items():
                rows[name].append(measure_apart(path, arguments.sentence))
        print("| steps | saved_model.pb, MB | directory, MB |", " | ".join(COLUMNS), "|")
        print("|---" * (3 + len(COLUMNS)) + "|")
        for name, path in copies.items():
            sizes = {each.name: each.stat().st_size / 1e6 for each in path.rglob("*") if each.is_file()}
            medians = [statistics.median(values) for values in zip(*rows[name], strict=True)]
            figures = [f"{figure:.2f}" for figure in medians[:4]] + [f"{figure:.0f}" for figure in medians[4:]]
            cells = [name, f"{sizes['saved_model.pb']:.2f}", f"{sum(sizes.values()):.2f}", *figures]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
