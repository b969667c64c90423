"""One deterministic TensorFlow for every test: two CPU devices, one thread, exact float32, seeds."""

import ctypes
import gc
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import filelock
import numpy as np
import psutil
import pytest
from hypothesis import settings

from tests import warm_start

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

# The same examples in every run, however slow the machine.
settings.register_profile("derandomized", derandomize=True, deadline=None)
settings.load_profile("derandomized")

pytest.register_assert_rewrite("tests.layers.contract", "tests.models.contract")

# A process in the background of a shell ignores Ctrl-C. The programs that tests start and stop must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def set_up_tensorflow():
    """All of this has to stand before TensorFlow initialises its devices."""
    import tensorflow as tf

    # Two logical CPUs let strategy tests run replicas.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
    )
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_tensor_float_32_execution(False)  # on a GPU: NumPy is the oracle, to 1e-5
    warm_start.spare_work(tf)


# A worker of pytest-xdist imports TensorFlow here, where pytest captures the lines that TensorFlow's C++ prints.
if "PYTEST_XDIST_WORKER" in os.environ:
    set_up_tensorflow()


PRINTED = logging.Handler()  # prints the log of the library, so that `capsys` has it
PRINTED.emit = lambda record: print(PRINTED.format(record), flush=True)
logging.getLogger("keras_transformer").addHandler(PRINTED)
logging.getLogger("keras_transformer").setLevel(logging.INFO)


# The files that take longest.
LONG = "docs recipe train runs package compiled benchmarks saved_model interruptions second_model tools scripts"
LONG += " notebook litert importing multi_worker engines translator transformer"
LONG = [f"test_{name}" for name in LONG.split()]
PASSED_TESTS_PER_DOT = 50
C_LIBRARY = ctypes.CDLL(None)
GROWTH = 2**27  # bytes


def pytest_configure(config):
    """Sets up TensorFlow in a process that runs tests, and makes the directory that all processes share."""
    config.passed_tests = 0
    config.enough_memory = 3 * GROWTH
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shared = tempfile.TemporaryDirectory(prefix="shared-by-tests-")
        os.environ["SHARED_BY_TESTS"] = shared.name
        config.add_cleanup(shared.cleanup)
        if not getattr(config.option, "numprocesses", None):
            set_up_tensorflow()


def pytest_collection_modifyitems(items):
    """Begins with `LONG`, so that no process works on a long file when the others have nothing left."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_unconfigure():
    """A Ctrl-C that a test raises can meet a callback of the garbage collector. Python reports it at the very end."""
    warnings.filterwarnings("ignore", "(?s)Exception ignored in.*KeyboardInterrupt")


def pytest_report_teststatus(report, config):
    """Prints a dot for every `PASSED_TESTS_PER_DOT` passed tests, and the name of a test that fails, at once.

    A run that is stopped before its end has named its failures. All other results keep their letters.
    """
    if config.option.verbose <= 0 and report.failed and report.when == "call":
        return "failed", f"\nFAILED {report.nodeid}\n", ""
    if config.option.verbose > 0 or report.when != "call" or not report.passed or hasattr(report, "wasxfail"):
        return None
    config.passed_tests += 1
    return "passed", "" if config.passed_tests % PASSED_TESTS_PER_DOT else ".", ""


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same seeds, alone or after others. Keras draws its seeds from Python's `random`."""
    # `keras.utils.set_random_seed` would empty TensorFlow's cache of kernels, and every test would fill it again.
    random.seed(1)
    np.random.seed(1)


@pytest.fixture(autouse=True, scope="module")
def small_garbage(request):
    """Exempts the models of a test module from the collection of garbage, which looked through them for seconds.

    A process that has grown by `GROWTH` first frees what its modules have left: cycles, and the memory that the C
    library keeps. That takes seconds, and minutes for gigabytes, so it is done often, but not after every module.
    """
    yield
    for made in vars(request.module).values():
        if getattr(made, "__module__", None) == request.module.__name__ and hasattr(made, "cache_clear"):
            made.cache_clear()
    if psutil.Process().memory_info().rss > request.config.enough_memory:
        gc.unfreeze()
        gc.collect()
        if hasattr(C_LIBRARY, "malloc_trim"):  # glibc
            C_LIBRARY.malloc_trim(0)
        request.config.enough_memory = psutil.Process().memory_info().rss + GROWTH
    gc.freeze()


@pytest.fixture(scope="session")
def warm():
    """The socket of a process that has imported TensorFlow for all processes of the tests: see warm_start.py."""
    path, root = Path(os.environ["SHARED_BY_TESTS"], "socket"), Path(__file__).parents[1]
    tests = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    with filelock.FileLock(f"{path}.lock"):
        if not path.exists():
            command = [sys.executable, str(root / "tests/warm_start.py"), "serve", str(path), str(tests)]
            how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root)}, **how)
            assert process.stdout.readline() == "ready\n"
    return path
