"""What a whole process shares. A program sets its cores and its memory before it trains; the library never does."""

import contextlib
import ctypes
import importlib
import logging
import os
import random
from collections.abc import Iterator
from types import ModuleType

from keras_transformer.errors import ToolError

log = logging.getLogger(__name__)

# Options of mallopt(3): a large array gets no mapping of its own (M_MMAP_MAX), no memory is given back
# (M_TRIM_THRESHOLD), and all threads share one heap (M_ARENA_MAX). A heap of a thread has no place for 64 MB.
MALLOC_OPTIONS = {-4: 0, -1: 2**31 - 1, -8: 1}

TOKENS_PER_REPLICA = 2048  # with fewer, a CPU thread spends its time on starting operations


def available_cores() -> int:
    """The number of CPU cores that this process may use: int."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def replicas_for(batch_tokens: int) -> int:
    """How many replicas, of one core each, a batch of so many tokens keeps busy on this CPU: int, at least 1."""
    return max(1, min(available_cores(), batch_tokens // TOKENS_PER_REPLICA))


def share_cores(name: str, batch_tokens: int) -> None:
    """Without a GPU, makes cores devices of their own, so that each trains a replica with a single thread.

    The products of a small model gain little from a second thread: two replicas of one thread train 1.2 times as fast
    as one replica of two (benchmarks/train_speed.py). Must be called before TensorFlow's first operation.

    Args:
        name: name of the strategy. Only "auto" and "mirrored" change TensorFlow's defaults.
        batch_tokens: tokens of a batch, all replicas together. Each replica needs `TOKENS_PER_REPLICA` of them. If
            there are too few for two replicas, TensorFlow's defaults stay.
    """
    import tensorflow as tf  # here, for a program that needs the number of cores only

    if name in ("auto", "mirrored") and not tf.config.list_physical_devices("GPU"):
        divide_cores(replicas_for(batch_tokens))


def divide_cores(replicas: int) -> None:
    """Makes as many devices of the CPU as there are replicas, which share the cores. One replica has them all."""
    import tensorflow as tf

    if replicas < 2:
        return
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    except RuntimeError:
        log.info("devices     as they are: TensorFlow has started, so its devices cannot be divided any more")
        return
    tf.config.threading.set_intra_op_parallelism_threads(available_cores() // replicas)
    tf.config.threading.set_inter_op_parallelism_threads(replicas)


def keep_freed_memory() -> None:
    """Has the C library keep the memory that is freed, instead of giving it back to the system each time.

    On a CPU, TensorFlow asks for new memory for every large result, in every update. The system must find and clear the
    pages of this memory, which takes a third of the processor time of `--preset quickstart` on two cores. With the
    memory kept, the preset trains 1.7 times as fast, with 14 % more memory (benchmarks/train_speed.py). The setting
    holds for the whole process. Only glibc has it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows
        return
    for option, value in MALLOC_OPTIONS.items():
        mallopt(option, value)


def find_tool(module: str, needed_for: str) -> ModuleType:
    """Imports a module of a tool, when a user asks for the tool. So the core knows the names of tools only.

    Args:
        module: such as "documents.files", below `keras_transformer.tools`.
        needed_for: what the user asked for, such as "--format".

    Returns:
        The module.

    Raises:
        ToolError: if the tool, or a package that the tool needs, is not installed.
    """
    name = module.partition(".")[0]
    try:
        return importlib.import_module(f"keras_transformer.tools.{module}")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.startswith("keras_transformer.tools"):
            raise ToolError(f"{needed_for} needs keras_transformer/tools/{name}, which is not installed") from error
        install = getattr(importlib.import_module(f"keras_transformer.tools.{name}"), "INSTALL", None)
        if install is None:
            raise
        raise ToolError(f"{needed_for} needs the package {missing}, which is not installed: {install}") from error


@contextlib.contextmanager
def random_as_before() -> Iterator[None]:
    """A context after which Python's generator of random numbers is as before. Keras draws from it for every layer."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
