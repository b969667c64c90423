"""train.py killed, stopped and started again, as processes."""

import os
import random
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.errors import CheckpointError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny, warm_start
from tests.training.curves import assert_same_curves, read_events

ROOT = Path(__file__).parent.parent
SETTINGS = {"source_lang": "en", "target_lang": "de", "vocabulary_size": tiny.VOCABULARY, **tiny.SIZES}
SETTINGS |= {"dropout_rate": 0.3, "epochs": 2, "batch_tokens": 41, "warmup_steps": 11, "validation_sentences": 5}
SETTINGS |= {"precision": "float32", "strategy": "one_device", "beam_size": 1}
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


def start(warm, corpus, model_dir, environment=None, **settings):
    """A training process, whose lines can be read from `stdout`."""
    settings = {"dataset": f"files:{corpus}", "model_dir": model_dir, **SETTINGS, **settings}
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    program = tiny.once("train_with_lines.py", lambda path: path.write_text(TRAIN_WITH_A_LINE_AN_UPDATE))
    how = {"cwd": ROOT, "env": os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | (environment or {}), "encoding": "utf-8"}
    command = [*warm_start.command(warm), str(program), *flags]
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


@pytest.mark.slow
def test_a_run_killed_and_stopped_again_and_again_ends_bit_by_bit_as_an_uninterrupted_one(tmp_path, warm):
    corpus, rng = tiny.write_corpus(tmp_path / "corpus"), random.Random(7)
    expected, found = (RunDirectory(tmp_path / name) for name in ("uninterrupted", "interrupted"))
    process = start(warm, corpus, expected.path)
    printed = end(process, None, -1)
    assert process.returncode == 0, printed

    for number, save_minutes in ENDS:
        process = start(warm, corpus, found.path, save_minutes=save_minutes)
        printed = end(process, number, rng.randint(2, 7))
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), printed
        said = re.findall(r"^stopped     update \d+ of \d+ is saved; the same command goes on .*$", printed, re.M)
        assert len(said) == (number != signal.SIGKILL) and "Traceback" not in printed, printed
    process = start(warm, corpus, found.path)
    first_line = process.stdout.readline()
    with pytest.raises(CheckpointError, match="is in use by another training process"):
        with found.claimed():
            pass
    printed = first_line + end(process, None, -1)
    assert process.returncode == 0 and "resuming    after update" in printed, printed

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
