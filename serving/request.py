"""A request that waits for its answer, in one or more parts."""

import threading
import time
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from grpc import StatusCode

from serving.errors import ServingError


class ModelSpec(NamedTuple):
    """The model of a request: its newest version, unless a version or a label is given."""

    name: str
    version: int | None = None
    label: str | None = None


class Prediction(NamedTuple):
    """An answer: output name -> array, with its version and signature."""

    version: int
    signature_name: str
    outputs: dict


class Request:
    """An accepted request. It ends once: with its answer, with an error, or unwanted.

    A request is unwanted if its client has gone or its deadline has passed.

    Args:
        servable: `Servable`.
        signature_name: str.
        deadline: `time.monotonic()` at which the client gives up; None means never.
        on_end: function of a StatusCode, called once before the future is done.

    Attributes:
        future: `concurrent.futures.Future` of a `Prediction`. If the client cancels the future before the computation
            begins, the request is not computed.
    """

    def __init__(self, servable, signature_name, deadline, on_end):
        self.servable = servable
        self.signature_name = signature_name
        self.deadline = deadline
        self.future = Future()
        self._on_end = on_end
        self._lock = threading.Lock()
        self._is_begun = self._is_over = False
        self._answers = {}
        self._number_of_parts = 0

    def parts(self, inputs, size, most_rows):
        """Splits the request into `Part`s of at most `most_rows` rows."""
        self._number_of_parts = max(1, -(-size // most_rows))
        if self._number_of_parts == 1:
            return [Part(self, 0, inputs, size)]
        return [
            Part(self, n, {name: array[start : start + most_rows] for name, array in inputs.items()}, stop - start)
            for n, start in enumerate(range(0, size, most_rows))
            for stop in [min(start + most_rows, size)]
        ]

    def is_unwanted(self, now):
        """Returns whether the client has gone or the deadline has passed."""
        return self.future.cancelled() or (self.deadline is not None and now >= self.deadline)

    def begin(self):
        """Returns whether to compute a part of the request. Ends an unwanted request."""
        with self._lock:
            is_first, self._is_begun = not self._is_begun, True
        if is_first and not self.future.set_running_or_notify_cancel():
            self._end(StatusCode.CANCELLED, lambda: None)
        elif self.is_unwanted(time.monotonic()):
            message = "Run() timeout exceeded while waiting in batching queue"
            self.fail(ServingError(StatusCode.DEADLINE_EXCEEDED, message))
        return not self._is_over

    def answer(self, number, outputs):
        """Records the outputs of a part. The last part ends the request."""
        with self._lock:
            self._answers[number] = outputs
            if len(self._answers) < self._number_of_parts:
                return
        outputs = _joined([self._answers[n] for n in range(self._number_of_parts)])
        prediction = Prediction(self.servable.version, self.signature_name, outputs)
        self._end(StatusCode.OK, lambda: self.future.set_result(prediction))

    def fail(self, error):
        """Ends the request with a `ServingError`."""
        self._end(error.code, lambda: self.future.set_exception(error))

    def _end(self, code, tell):
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._on_end(code)
        tell()


class Part:
    """Rows of a request that are computed together. `size` is the room that the part takes in a batch."""

    __slots__ = ("arrived", "inputs", "number", "request", "size")

    def __init__(self, request, number, inputs, size):
        self.request = request
        self.number = number
        self.inputs = inputs
        self.size = size
        self.arrived = time.monotonic()


def _joined(parts):
    """Joins the outputs of the parts. Shorter outputs are padded with 0 or ""."""
    if len(parts) == 1:
        return parts[0]
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(arrays):
    shape = np.max([array.shape for array in arrays], axis=0)
    shape[0] = sum(len(array) for array in arrays)
    whole = np.full(shape, b"" if arrays[0].dtype == object else 0, arrays[0].dtype)
    start = 0
    for array in arrays:
        whole[(slice(start, start + len(array)), *map(slice, array.shape[1:]))] = array
        start += len(array)
    return whole
