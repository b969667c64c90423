import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli import console
from keras_transformer.errors import ConfigError, FileError, UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_debug(monkeypatch):
    monkeypatch.delenv("KERAS_TRANSFORMER_DEBUG", raising=False)


@pytest.mark.parametrize("kind", [UserError, ConfigError, FileError])
def test_a_mistake_is_one_line_and_exit_status_2(capsys, kind):
    with pytest.raises(SystemExit) as caught, console.program():
        raise kind("no such thing")
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", "error: no such thing\n")


def test_flags_have_dashes_in_mistakes_and_in_the_log_of_a_program_that_has_them(capsys):
    message = "`d_model` and `pairs` of `train.py --d_ff` with `d_model`=3"
    with pytest.raises(SystemExit), console.program({"d_model", "train"}):
        logging.getLogger("keras_transformer.some.module").info("more `d_model` and %s", "`d_model` in a text")
        raise UserError(message)
    printed = capsys.readouterr()
    assert printed.out.endswith("more --d_model and `d_model` in a text\n")
    assert printed.err == "error: --d_model and `pairs` of `train.py --d_ff` with --d_model=3\n"


def test_ctrl_c_is_one_line_and_exit_status_130(capsys):
    with pytest.raises(SystemExit) as caught, console.program():
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_line_of_the_log_comes_once_beside_the_handlers_of_others(monkeypatch):
    of_others, lines = io.StringIO(), io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(of_others)])  # as absl does
    with console.program(log_to=lines):
        logging.getLogger("keras_transformer.cli").info("one line")
    assert (lines.getvalue(), of_others.getvalue()) == ("one line\n", "")


def test_the_log_of_the_library_is_lines_where_a_program_wants_them(capsys):
    log = logging.getLogger("keras_transformer.some.module")
    handlers = logging.getLogger("keras_transformer").handlers[:]
    for stream, name in ((None, "out"), (sys.stderr, "err")):
        with console.program(log_to=stream):
            logging.getLogger("keras_transformer").removeHandler(handlers[0])  # that of the tests
            log.info("read %d lines", 7)
        assert getattr(capsys.readouterr(), name) == "read 7 lines\n"
    logging.getLogger("keras_transformer").addHandler(handlers[0])


@pytest.mark.parametrize(
    ("started_as", "command"),
    [
        ("train.py", "python export.py"),
        ("/home/me/train.py", "python export.py"),
        ("x/keras-transformer train", "keras-transformer export"),
    ],
)
def test_other_programs_are_named_as_this_one_was_started(monkeypatch, started_as, command):
    monkeypatch.setattr(sys, "argv", [started_as])
    assert console.command("export") == command


@pytest.mark.parametrize("error", [ValueError, OSError, TypeError, KeyError, RuntimeError])
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


@pytest.mark.slow
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


ABORT = """
import os
from keras_transformer.cli.console import _start_up_lines_left_out
with _start_up_lines_left_out():
    os.write(2, b"I0000 1.2 3 cudart_stub.cc:31] Could not find cuda drivers\\nthis processor lacks AVX\\n")
    os.abort()
"""


def test_the_last_words_of_a_process_that_aborts_while_it_starts_are_heard():
    run = subprocess.run([sys.executable, "-c", ABORT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode < 0 and run.stderr == "this processor lacks AVX\n"
