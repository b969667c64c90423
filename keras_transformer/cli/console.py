"""The terminal: no lines of libraries, and one line for a user's mistake."""

import contextlib
import logging
import os
import signal
import sys


def import_tensorflow():
    """Imports TensorFlow without the lines that its C++ side prints while it starts, whatever the log level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # stronger than ~/.keras/keras.json
    with _standard_error_closed():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401

        tf.config.list_physical_devices()
    tf.get_logger().setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of every SavedModel without gradients


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


@contextlib.contextmanager
def mistakes_as_lines():
    """Ends the program with one line for a user's mistake (any ValueError or OSError), exit status 2.

    With KERAS_TRANSFORMER_DEBUG set, the traceback is printed as well. A closed pipe (`... | head`) is no mistake.
    """
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at exit
        sys.exit(1)
    except (ValueError, OSError) as error:
        if os.environ.get("KERAS_TRANSFORMER_DEBUG"):
            raise
        is_plain = isinstance(error, OSError) and error.filename  # "[Errno 2] No such file or directory: 'x'"
        print(f"error: {f'{error.filename}: {error.strerror}' if is_plain else error}", file=sys.stderr)
        sys.exit(2)


def exit_on_sigterm():
    """Makes SIGTERM end the program in good order, with exit status 143."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
