"""The terminal: no lines of libraries, the log of the library as lines, and one line for a user's mistake."""

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path


def import_tensorflow():
    """Imports TensorFlow without the lines that its C++ side prints while it starts, whatever the log level.

    TensorFlow takes some seconds. A terminal says so until then.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # stronger than ~/.keras/keras.json
    with _said_meanwhile("loading TensorFlow ..."), _standard_error_closed():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.config.list_physical_devices()
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
def _standard_error_closed():
    """Discards output to file descriptor 2, to which C++ writes without `sys.stderr`."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


class _Lines(logging.Handler):
    """Writes the message of every record as a line, above a progress bar if there is one."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def emit(self, record):
        from tqdm import tqdm

        tqdm.write(self.format(record), file=self._stream)
        self._stream.flush()


@contextlib.contextmanager
def program(log_to=None):
    """A context for the work of a program.

    The log of the library appears as lines. A user's mistake (any ValueError or OSError) ends the program with one line
    and exit status 2, Ctrl-C with one line and status 130. SIGTERM ends it in good order, with status 143. With
    KERAS_TRANSFORMER_DEBUG set, the traceback of a mistake is printed as well. A closed pipe (`... | head`) is none.

    Args:
        log_to: stream for the log; standard output by default.
    """
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    log, handler = logging.getLogger("keras_transformer"), _Lines(log_to or sys.stdout)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at exit
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("KERAS_TRANSFORMER_DEBUG"):
            raise
        is_plain = isinstance(error, OSError) and error.filename  # "[Errno 2] No such file or directory: 'x'"
        print(f"error: {f'{error.filename}: {error.strerror}' if is_plain else error}", file=sys.stderr)
        sys.exit(2)
    finally:
        log.removeHandler(handler)
        signal.signal(signal.SIGTERM, before)


def command(name):
    """How a user starts another program of ours: in the way that this one was started.

    Args:
        name: such as "export".

    Returns:
        str: "python export.py" or "keras-transformer export".
    """
    return f"python {name}.py" if Path(sys.argv[0]).suffix == ".py" else f"keras-transformer {name}"
