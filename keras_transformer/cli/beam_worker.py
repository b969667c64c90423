"""A worker process of bulk translation on this machine: Beam's own, but silent, and gone when its parent is gone."""

import ctypes
import logging
import os
import signal
import sys

from keras_transformer.cli import console

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def end_with_parent():
    """Has the system end this process when its parent ends, even by SIGKILL; on Linux.

    Otherwise the worker would translate on until all is done that it has been given.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main():
    """Works until Beam says that all is done."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    logging.getLogger().addHandler(logging.NullHandler())  # Beam sends the log to the parent, and prints it as well
    console.import_tensorflow()  # before the threads of Beam: it forks
    from apache_beam.runners.worker import sdk_worker_main

    sys.stderr = open(os.devnull, "w")  # Beam sends every traceback there, too
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
