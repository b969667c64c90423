"""train.py killed, stopped and started twice, as processes; few starts, since each imports TensorFlow."""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.errors import CheckpointError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny
from tests.training.curves import assert_same_curves, read_events

ROOT = Path(__file__).parent.parent
SETTINGS = {"source_lang": "en", "target_lang": "de", "vocabulary_size": tiny.VOCABULARY, **tiny.SIZES}
SETTINGS |= {"dropout_rate": 0.3, "epochs": 3, "batch_tokens": 41, "warmup_steps": 11, "validation_sentences": 5}
SETTINGS |= {"precision": "float32", "strategy": "one_device"}
# How each start but the last ends, and how often it saves: at the ends of epochs only, or after every update. Ctrl-C:
# tests/training/test_train.py.
ENDS = [(signal.SIGKILL, 10), (signal.SIGKILL, 0), (signal.SIGTERM, 10)]

TRAIN_WITH_A_LINE_AN_UPDATE = """
from keras_transformer.cli import console, train
console.import_tensorflow()
from keras_transformer.training import watchers
watchers.SECONDS_BETWEEN_LINES = 0
train.program()
"""


def start(corpus, model_dir, environment=None, **settings):
    """A training process, whose lines can be read from `stdout`."""
    settings = {"dataset": f"files:{corpus}", "model_dir": model_dir, **SETTINGS, **settings}
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    how = {"cwd": ROOT, "env": os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | (environment or {}), "encoding": "utf-8"}
    command = [sys.executable, "-c", TRAIN_WITH_A_LINE_AN_UPDATE, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)


def end(process, number, lines):
    """Ends a process with a signal after so many lines of its progress. Returns the printed text."""
    printed = []
    for line in process.stdout:
        printed.append(line)
        if re.search(r"\d/\d", line):
            lines -= 1
            if lines == 0:
                process.send_signal(number)
    process.wait()
    return "".join(printed)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(an uninterrupted run, an interrupted one, (printed text, exit status) of each of its starts)."""
    directory = tmp_path_factory.mktemp("interruptions")
    corpus = tiny.write_corpus(directory / "corpus")
    process = start(corpus, directory / "uninterrupted")
    printed = end(process, None, -1)
    assert process.returncode == 0, printed

    rng, starts = random.Random(7), []
    for number, save_minutes in ENDS:
        process = start(corpus, directory / "interrupted", save_minutes=save_minutes)
        starts.append((end(process, number, rng.randint(2, 7)), process.returncode))
    process = start(corpus, directory / "interrupted")
    first_line = process.stdout.readline()
    with pytest.raises(CheckpointError, match="is in use by another training process"):
        with RunDirectory(directory / "interrupted").claimed():
            pass
    starts.append((first_line + end(process, None, -1), process.returncode))
    return RunDirectory(directory / "uninterrupted"), RunDirectory(directory / "interrupted"), starts


@pytest.mark.slow
def test_a_run_killed_again_and_again_goes_on_to_its_end_and_a_signal_leaves_a_line_that_says_how(runs):
    _, _, starts = runs
    for (printed, status), (number, _) in zip(starts, ENDS, strict=False):
        assert status == (-number if number == signal.SIGKILL else 128 + number), printed
        said = re.findall(r"^stopped     update \d+ of \d+ is saved; the same command goes on .*$", printed, re.M)
        assert len(said) == (number != signal.SIGKILL) and "Traceback" not in printed, printed
    printed, status = starts[-1]
    assert status == 0 and "resuming    after update" in printed


@pytest.mark.slow
def test_its_weights_and_curves_and_all_else_are_those_of_an_uninterrupted_run_bit_by_bit(runs):
    expected, found, _ = runs
    for path in (found.last, found.best, *found.epochs()):
        with np.load(path) as one, np.load(expected.checkpoints / path.name) as other:
            assert one.files == other.files
            for name in one.files:
                np.testing.assert_array_equal(one[name], other[name], err_msg=f"{path.name}: {name}")
    models = [load_model(run.model) for run in (found, expected)]
    for one, other in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.path)
    assert_same_curves(found, expected)  # each point once
    assert len(read_events(found.logs / "train")["loss"]) > 1
