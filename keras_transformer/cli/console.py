"""The terminal: no lines of libraries, the log of the library as lines, and one line for a user's mistake."""

import contextlib
import gc
import logging
import os
import shlex
import signal
import sys
from pathlib import Path

from keras_transformer.cli.parser import with_dashes
from keras_transformer.errors import UserError, counted
from keras_transformer.files import FORBIDDEN

# Lines that TensorFlow prints at every start, whatever the log level.
START_UP = (
    b"All log messages before absl::InitializeLog()",
    b"cudart_stub.cc",
    b"cuda_platform.cc",
    b"cuda_executor.cc",
    b"oneDNN custom operations are on",
)


def import_tensorflow():
    """Imports TensorFlow without the lines that its C++ side prints while it starts, whatever the log level.

    TensorFlow takes some seconds. A terminal says so until then.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # stronger than ~/.keras/keras.json
    with _said_meanwhile("loading TensorFlow ..."), _start_up_lines_left_out():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.config.list_physical_devices()
    gc.freeze()  # No collection visits the objects of TensorFlow again: a fifth of the time of a short program.
    tf.get_logger().setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of every SavedModel without gradients


@contextlib.contextmanager
def _said_meanwhile(text):
    """Shows a line on a terminal, and removes it at the end."""
    shown = sys.stderr.isatty()
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print(f"\r{' ' * len(text)}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _start_up_lines_left_out():
    """Filters what C++ writes to file descriptor 2, without `sys.stderr`: all but `START_UP` passes.

    A child process filters. So the last words of a process that aborts are not lost.
    """
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        _pass_on(read_end)
    os.close(read_end)
    saved = os.dup(2)
    os.dup2(write_end, 2)
    os.close(write_end)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.waitpid(child, 0)


def _pass_on(descriptor):
    """In the child: copies all lines but `START_UP` to standard error, until the other end is closed; never returns."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the parent, which then closes its end
        signal.signal(number, signal.SIG_IGN)
    with open(descriptor, "rb") as lines:
        for line in lines:
            if not any(known in line for known in START_UP):
                os.write(2, line)
    os._exit(0)


class _Lines(logging.Handler):
    """Writes the message of every record as a line, above a progress bar if there is one."""

    def __init__(self, stream, flags):
        super().__init__()
        self._stream, self._flags = stream, flags

    def emit(self, record):
        from tqdm import tqdm

        message = with_dashes(str(record.msg), self._flags)  # not in its values: they may be text of a user
        record = logging.makeLogRecord({**vars(record), "msg": message})
        tqdm.write(self.format(record), file=self._stream)
        self._stream.flush()


@contextlib.contextmanager
def program(flags=(), log_to=None):
    """A context for the work of a program.

    The log of the library appears as lines. A user's mistake, such as a directory that may not be read, ends the
    program with one line and exit status 2, Ctrl-C with one line and status 130. The log and the mistakes name flags
    with dashes: see `with_dashes`. SIGTERM ends the program in good order, with status 143. With
    KERAS_TRANSFORMER_DEBUG set, the traceback of a mistake is printed as well; that of a bug always is. A closed pipe
    (`... | head`) is no mistake.

    Args:
        flags: names of the flags of the program, without dashes.
        log_to: stream for the log; standard output by default.
    """
    for stream in (sys.stdout, sys.stderr):  # not every terminal can write every sample
        with contextlib.suppress(AttributeError, OSError):  # a stream of another kind, or one that was moved
            stream.reconfigure(errors="backslashreplace")
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    log, handler = logging.getLogger("keras_transformer"), _Lines(log_to or sys.stdout, flags)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False  # TensorFlow adds a handler to the root when it loads a SavedModel
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at exit
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (UserError, OSError) as error:
        is_mistake = isinstance(error, UserError) or (error.errno in FORBIDDEN and error.filename)
        if os.environ.get("KERAS_TRANSFORMER_DEBUG") or not is_mistake:
            raise
        said = str(error) if isinstance(error, UserError) else f"{error.filename}: {error.strerror}"
        print(f"error: {with_dashes(said, flags)}", file=sys.stderr)
        sys.exit(2)
    finally:
        log.removeHandler(handler)
        log.propagate = True
        signal.signal(signal.SIGTERM, before)


def command(name, *flags):
    """How a user starts another program of ours: in the way that this one was started.

    Args:
        name: such as "export".
        flags: its words, which are quoted for a shell.

    Returns:
        str: "python export.py ...", "python -m keras_transformer export ..." or "keras-transformer export ...".
    """
    started = sys.argv[0]
    program = ["python", "-m", "keras_transformer"] if started.startswith("python -m") else ["keras-transformer"]
    program = ["python", f"{name}.py"] if Path(started).suffix == ".py" else [*program, name]
    return shlex.join([*program, *map(str, flags)])


def describe_scores(evaluation):
    """Puts an evaluation into words.

    Args:
        evaluation: `Evaluation`.

    Returns:
        str of three lines: BLEU and chrF, each with its signature in parentheses, and the share of exact translations.
    """
    return (
        f"BLEU {evaluation.bleu:.1f} ({evaluation.bleu_signature})\n"
        f"chrF {evaluation.chrf:.1f} ({evaluation.chrf_signature})\n"
        f"exact {evaluation.exact:.1%} of {counted(evaluation.sentences, 'sentence')}"
    )
