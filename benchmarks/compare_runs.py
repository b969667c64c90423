"""Runs of one corpus beside each other: parameters, BLEU, speed of training and of translation, as a table in Markdown.

    python -m benchmarks.compare_runs runs/gru runs/tiny --source val.en --reference val.de

For each run in turn, the script trains a new model of the run's settings for some updates on one device, and translates
the source with the run's own weights and search. Seconds are processor seconds of all cores together, which a busy
machine changes little.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.data.text_files import open_aligned_files

WINDOWS = 1  # Timed windows of updates.
ROUNDS = 2  # Translations of the source that are timed.
COLUMNS = ("run", "parameters", "target tokens trained a second", "sentences a second", "BLEU")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories that train.py wrote")
    parser.add_argument("--source", type=Path, required=True, help="file of sentences to translate, one a line")
    parser.add_argument("--reference", type=Path, required=True, help="file of their translations, line by line")
    return parser.parse_args()


def measure_run(path, texts, references):
    """The parameters of a run, its target tokens/s in training, its sentences/s of translation, and its BLEU."""
    import keras_transformer as kt
    from benchmarks.train_speed import time_updates

    run = kt.Run(path)
    with tempfile.TemporaryDirectory() as directory:
        config = dataclasses.replace(run.config, model_dir=directory, strategy="one_device")
        rates, *_ = time_updates(config, WINDOWS, time.process_time)
    translator, seconds = run.translator(), []
    translations = translator.translate(texts)  # makes the graphs
    for _ in range(ROUNDS):
        started = time.process_time()
        translator.translate(texts)
        seconds.append(time.process_time() - started)
    bleu = kt.measure(translations, references, config.tokenize).bleu
    speed = len(texts) / statistics.median(seconds)
    return translator.model.count_params(), statistics.median(rates), speed, bleu


def main(arguments):
    from keras_transformer.process import keep_freed_memory

    keep_freed_memory()
    texts, references = map(list, zip(*open_aligned_files(arguments.source, arguments.reference), strict=True))
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for path in arguments.runs:
        parameters, rate, speed, bleu = measure_run(path, texts, references)
        print(f"| {path.name} | {parameters / 1e6:.1f} M | {rate:,.0f} | {speed:,.0f} | {bleu:.1f} |", flush=True)


if __name__ == "__main__":
    with program():
        arguments = parse_arguments()
        import_tensorflow()
        main(arguments)
