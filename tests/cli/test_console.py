import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli import console
from keras_transformer.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_debug(monkeypatch):
    monkeypatch.delenv("KERAS_TRANSFORMER_DEBUG", raising=False)


@pytest.mark.parametrize(
    "error", [ValueError("no such thing"), UserError("no such thing"), OSError("no such thing")], ids=repr
)
def test_a_mistake_is_one_line_and_exit_status_2(capsys, error):
    with pytest.raises(SystemExit) as caught, console.program():
        raise error
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", "error: no such thing\n")


def test_a_missing_file_is_named(capsys, tmp_path):
    with pytest.raises(SystemExit), console.program():
        open(tmp_path / "missing.txt")
    assert capsys.readouterr().err == f"error: {tmp_path / 'missing.txt'}: No such file or directory\n"


@pytest.mark.parametrize("error", [TypeError, KeyError, RuntimeError, ZeroDivisionError])
def test_our_own_faults_keep_their_traceback(capsys, error):
    with pytest.raises(error), console.program():
        raise error("a fault")
    assert capsys.readouterr() == ("", "")


def test_an_exit_status_is_kept():
    with pytest.raises(SystemExit) as caught, console.program():
        sys.exit(130)
    assert caught.value.code == 130


def test_without_a_mistake_nothing_happens(capsys):
    with console.program():
        print("done")
    assert capsys.readouterr() == ("done\n", "")


def test_debugging_shows_the_traceback_of_a_mistake(monkeypatch):
    monkeypatch.setenv("KERAS_TRANSFORMER_DEBUG", "1")
    with pytest.raises(UserError), console.program():
        raise UserError("no such thing")


IMPORTS = """
import sys
from keras_transformer.cli.console import import_tensorflow
import_tensorflow()
import keras, tensorflow as tf
tf.constant([2, 3]) + 5
print("out")
print("err", file=sys.stderr)
"""


def test_importing_tensorflow_prints_nothing_and_leaves_standard_error_open():
    ours = ("TF_", "KERAS_", "ABSL_", "PYTHONWARNINGS")  # set by tests/conftest.py or by whoever runs the tests
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, "-c", IMPORTS]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "out\n", "err\n")


SIGTERM = """
import signal
from keras_transformer.cli.console import program
with program():
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        print("closed")
"""


def test_sigterm_closes_what_is_open_and_ends_with_status_143_without_a_traceback():
    run = subprocess.run([sys.executable, "-c", SIGTERM], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (143, "closed\n", "")
