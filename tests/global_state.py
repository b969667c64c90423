"""The state that all code of a process shares, to be compared before and after a call of the library."""

import gc
import logging
import os
import random
import signal
import sys
import warnings

import keras
import matplotlib
import numpy as np
import tensorflow as tf

LOGGERS = (None, "absl", "tensorflow", "keras", "keras_transformer", "matplotlib", "py.warnings")
OF_KERAS = "floatx epsilon image_data_format backend is_interactive_logging_enabled is_traceback_filtering_enabled"
OF_KERAS += " max_epochs max_steps_per_epoch"
KINDS_OF_THREADS = ("intra", "inter")


def global_state():
    """What a library must not leave changed: a dict of name -> value that `==` compares."""
    return {**_of_python(), **_of_packages()}


def living_graphs():
    """The graphs of TensorFlow's functions that something still refers to: a set of their ids."""
    list(iter(gc.collect, 0))  # until nothing is left: the first time ends functions, the next one their graphs
    return {id(thing) for thing in gc.get_objects() if type(thing).__name__ == "FuncGraph"}


def changes(before, after):
    """name -> (value before, value after) of all that differs between two of `global_state`."""
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _of_python():
    loggers = {name: logging.getLogger(name) for name in LOGGERS}
    return {
        "random": random.getstate(),
        "environment": dict(os.environ),
        "current directory": os.getcwd(),
        "system": (list(sys.path), list(sys.argv), sys.getrecursionlimit(), sys.excepthook, sys.displayhook),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "garbage collector": (gc.isenabled(), gc.get_threshold()),
        "affinity": os.sched_getaffinity(0),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "loggers": {
            name: (logger.level, list(logger.handlers), list(logger.filters), logger.propagate, logger.disabled)
            for name, logger in loggers.items()
        },
    }


def _of_packages():
    kind, *state = np.random.get_state()
    return {
        "numpy.random": (kind, [np.asarray(part).tolist() for part in state]),
        "numpy errors and printing": (np.geterr(), np.get_printoptions()),
        "keras": [getattr(keras.config, name)() for name in OF_KERAS.split()],
        "policy of keras": keras.config.dtype_policy().name,
        "custom objects of keras": set(keras.saving.get_custom_objects()),
        "matplotlib": [dict.get(matplotlib.rcParams, name) for name in ("backend", "figure.dpi", "font.size")],
        "seed of tensorflow": tf.compat.v1.get_seed(0)[0],
        "threads": [getattr(tf.config.threading, f"get_{kind}_op_parallelism_threads")() for kind in KINDS_OF_THREADS],
        "devices": [device.name for device in tf.config.list_logical_devices()],
        "functions run eagerly": (tf.config.functions_run_eagerly(), tf.executing_eagerly()),
        "soft placement": tf.config.get_soft_device_placement(),
        "optimizer and jit": (tf.config.optimizer.get_experimental_options(), tf.config.optimizer.get_jit()),
        "tensor float 32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "strategy": tf.distribute.has_strategy(),
        "summary": tf.summary.experimental.get_step(),
    }
