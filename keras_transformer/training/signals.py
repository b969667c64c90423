"""Ctrl-C and SIGTERM, which have to wait while there is something to save first."""

import os
import signal
import threading

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nstopping after this update; once more to stop at once\n"


class HeldSignals:
    """SIGINT and SIGTERM, held between `hold` and `release`, and then delivered as if they had just come.

    What they do is thus up to whoever started the program: KeyboardInterrupt, SystemExit, the death of the process. A
    second one is delivered at once. Only the main thread receives signals: in any other nothing is held.

    Attributes:
        arrived: the signal held, or None.
    """

    def __init__(self):
        self.arrived = None
        self._handlers = {}

    def hold(self):
        """Holds signals from now on."""
        if not self._handlers and threading.current_thread() is threading.main_thread():
            heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._handlers = {number: signal.signal(number, self._note) for number in heeded}

    def release(self):
        """Delivers the signal that was held, if one was; those to come are delivered as they come."""
        self.restore()
        if self.arrived is not None:
            arrived, self.arrived = self.arrived, None
            signal.raise_signal(arrived)

    def restore(self):
        """Holds signals no longer, and delivers none."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number, frame):
        if self.arrived is not None:
            self.release()
        self.arrived = number
        os.write(2, NOTICE)  # not print, which may be what has just been interrupted
