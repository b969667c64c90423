"""One deterministic TensorFlow for every test: two CPU devices, one thread, exact float32, seeds."""

import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import random
import signal

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings

# The same examples in every run, however slow the machine.
settings.register_profile("derandomized", derandomize=True, deadline=None)
settings.load_profile("derandomized")

pytest.register_assert_rewrite("tests.layers.contract", "tests.models.contract")

# A process in the background of a shell ignores Ctrl-C. The programs that tests start and stop must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# All of this has to stand before TensorFlow initialises its devices. Two logical CPUs let strategy tests run replicas.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
)
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.experimental.enable_tensor_float_32_execution(False)  # on a GPU: NumPy is the oracle, to 1e-5


class _Printed(logging.Handler):
    """Prints the log of the library, so that `capsys` has it."""

    def emit(self, record):
        print(self.format(record), flush=True)


logging.getLogger("keras_transformer").addHandler(_Printed())
logging.getLogger("keras_transformer").setLevel(logging.INFO)


PASSED_TESTS_PER_DOT = 50


def pytest_configure(config):
    """Counts the passed tests for `pytest_report_teststatus`."""
    config.passed_tests = 0


def pytest_report_teststatus(report, config):
    """Prints a dot for every `PASSED_TESTS_PER_DOT` passed tests. All other results keep their letters."""
    if config.option.verbose > 0 or report.when != "call" or not report.passed or hasattr(report, "wasxfail"):
        return None
    config.passed_tests += 1
    return "passed", "" if config.passed_tests % PASSED_TESTS_PER_DOT else ".", ""


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same seeds, alone or after others.

    Keras draws the seeds of its initialisers and dropout layers from Python's `random`.

    Not `keras.utils.set_random_seed`, `keras.utils.clear_session` or `tf.random.set_seed`: all three empty TensorFlow's
    cache of kernels, and with its kernel dies the resource of every `SentencepieceTokenizer` made before.
    """
    random.seed(1)
    np.random.seed(1)
