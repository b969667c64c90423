"""A worker process of bulk translation on this machine: Beam's own, but silent, and gone when its parent is gone."""

import logging
import os
import signal
import sys
import threading
import time

from keras_transformer.cli import console

SECONDS_BETWEEN_LOOKS = 1


def end_with(parent):
    """Ends this process when its parent has ended, even by SIGKILL.

    Otherwise Beam's worker would translate on until all is done that it has been given.

    Args:
        parent: int, the number of the process.
    """
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def main():
    """Works until Beam says that all is done."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    logging.getLogger().addHandler(logging.NullHandler())  # Beam sends the log to the parent, and prints it as well
    console.import_tensorflow()  # before the threads of Beam: it forks
    threading.Thread(target=end_with, args=[parent], daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
