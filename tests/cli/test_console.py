import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli import console
from keras_transformer.errors import FileError, UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_debug(monkeypatch):
    monkeypatch.delenv("KERAS_TRANSFORMER_DEBUG", raising=False)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UserError("no such thing"), 2, "error: no such thing\n"),
        (FileError("no such thing"), 2, "error: no such thing\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (SystemExit(7), 7, ""),
        (PermissionError(13, "Permission denied", "runs/x"), 2, "error: runs/x: Permission denied\n"),
    ],
    ids=repr,
)
def test_a_mistake_and_ctrl_c_are_one_line_with_an_exit_status(capsys, raised, code, said):
    with pytest.raises(SystemExit) as caught, console.program():
        raise raised
    assert caught.value.code == code and capsys.readouterr() == ("", said)


def test_flags_have_dashes_in_mistakes_and_in_the_log_of_a_program_that_has_them(capsys):
    message = "`d_model` and `pairs` of `train.py --d_ff` with `d_model`=3"
    with pytest.raises(SystemExit), console.program({"d_model", "train"}):
        logging.getLogger("keras_transformer.some.module").info("more `d_model` and %s", "`d_model` in a text")
        raise UserError(message)
    printed = capsys.readouterr()
    assert printed.out.endswith("more --d_model and `d_model` in a text\n")
    assert printed.err == "error: --d_model and `pairs` of `train.py --d_ff` with --d_model=3\n"


def test_the_log_of_the_library_is_lines_where_a_program_wants_them_beside_the_handlers_of_others(capsys, monkeypatch):
    of_others, log = io.StringIO(), logging.getLogger("keras_transformer.some.module")
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(of_others)])  # as absl does
    monkeypatch.setattr(logging.getLogger("keras_transformer"), "handlers", [])
    for stream, name in ((None, "out"), (sys.stderr, "err")):
        with console.program(log_to=stream):
            log.info("read %d lines", 7)
        assert getattr(capsys.readouterr(), name) == "read 7 lines\n"
    assert of_others.getvalue() == ""


def test_other_programs_are_named_as_this_one_was_started(monkeypatch):
    for started_as, command in (
        ("/home/me/train.py", "python export.py"),
        ("x/keras-transformer train", "keras-transformer export"),
        ("python -m keras_transformer import", "python -m keras_transformer export"),
    ):
        monkeypatch.setattr(sys, "argv", [started_as])
        assert console.command("export", "--model_dir", Path("runs/my run")) == f"{command} --model_dir 'runs/my run'"


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_our_own_faults_keep_their_traceback_and_those_of_a_user_only_for_debugging(capsys, monkeypatch, error):
    with pytest.raises(error), console.program():
        raise error("a fault")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("KERAS_TRANSFORMER_DEBUG", "1")
    with pytest.raises(UserError), console.program():
        raise UserError("no such thing")


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


START = """
import os, sys
from keras_transformer.cli.console import _start_up_lines_left_out
with _start_up_lines_left_out():
    os.write(2, b"I0000 1.2 3 cudart_stub.cc:31] Could not find cuda drivers\\nthis processor lacks AVX\\n")
    len(sys.argv) > 1 and os.abort()
print("err", file=sys.stderr)
"""


def test_start_up_lines_are_left_out_but_the_last_words_of_a_process_that_aborts_are_heard():
    command = [sys.executable, "-c", START]
    aborted, started = (
        subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
        for words in (["abort"], [])
    )
    assert aborted.returncode < 0 and aborted.stderr == "this processor lacks AVX\n"
    assert (started.returncode, started.stderr) == (0, "this processor lacks AVX\nerr\n")
