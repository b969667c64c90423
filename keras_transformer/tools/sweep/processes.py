"""Trains runs in processes of their own: memory and TensorFlow start anew, and a run that fails ends no other."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading

TRAIN = [sys.executable, "-m", "keras_transformer", "train"]


class Trainings:
    """Runs of train.py, so many at a time.

    On Ctrl-C and SIGTERM, each run under way gets a SIGTERM: it saves its state and ends. A second signal is passed on,
    too. A process that loses this one ends with the next line that it prints.

    Args:
        processes: int, runs at a time. They share out the cores of this process, and the GPUs that the environment
            variable CUDA_VISIBLE_DEVICES names.
        on_line: function (name of a run, a line that it prints).
        on_end: function (name of a run, None or why it has failed), called when it has ended.
    """

    def __init__(self, processes, on_line, on_end):
        self.processes = processes
        self.on_line, self.on_end = on_line, on_end
        self._running = {}  # place -> (name, process)
        self._last = {}  # name -> its last line
        self._said = queue.SimpleQueue()  # (place, a line; or None at the end)

    def train(self, runs):
        """Trains all runs.

        Args:
            runs: dict from names to flags of train.py.
        """
        waiting = [*runs.items()]
        try:
            while waiting or self._running:
                free = [place for place in range(self.processes) if place not in self._running]
                for place in free[: len(waiting)]:
                    self._start(place, *waiting.pop(0))
                if ended := self._listen():
                    self.on_end(*ended)
        except BaseException:
            self._stop()
            raise

    def _start(self, place, name, flags):
        with share_of_cores(place, self.processes):
            process = subprocess.Popen(
                [*TRAIN, *flags],
                env=environment(place, self.processes),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C in a terminal is for this process, which passes it on once
            )
        self._running[place] = name, process
        threading.Thread(target=self._read, args=(place, process.stdout), daemon=True).start()

    def _read(self, place, output):
        with output:
            for line in output:
                self._said.put((place, line.rstrip("\n")))
        self._said.put((place, None))

    def _listen(self):
        """Waits for the next line of a run, or for its end: then its name, and None or why it has failed."""
        place, line = self._said.get()
        name, process = self._running[place]
        if line is not None:
            self._last[name] = line if line.strip() else self._last.get(name, "")
            self.on_line(name, line)
            return None
        status = process.wait()
        del self._running[place]
        return name, why(status, self._last.get(name, ""))

    def _stop(self):
        self._terminate()
        try:
            while self._running:
                self._listen()
        except BaseException:
            self._terminate()
            raise

    def _terminate(self):
        for _, process in self._running.values():
            process.terminate()


def why(status, last_line):
    """Why a process has failed, str, from its exit status and the last line that it printed; None if it has not."""
    if status >= 0:
        return (last_line or f"exit status {status}") if status else None
    hint = ", as when memory runs out" if -status == signal.SIGKILL else ""
    return f"ended by {signal.Signals(-status).name}{hint}; its last line: {last_line}"


def share(things, place, processes):
    """The share of a list that one of several processes gets. If there are too few things, processes share one."""
    return things[place::processes] or [things[place % len(things)]]


@contextlib.contextmanager
def share_of_cores(place, processes):
    """A context in which a process that is started gets its share of the cores, where the system allows it."""
    if processes == 1 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share(sorted(cores), place, processes))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def environment(place, processes):
    """The environment of a process. Processes that share a GPU take its memory as they need it."""
    if processes == 1:
        return None
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    shared = {"CUDA_VISIBLE_DEVICES": ",".join(share(gpus.split(","), place, processes))} if gpus else {}
    return {"TF_FORCE_GPU_ALLOW_GROWTH": "true", **os.environ, **shared}
