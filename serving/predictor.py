"""Answers requests from REST and gRPC by futures, and computes them in batches by TensorFlow Serving's rules.

Requests for the same signature and outputs share a queue. A queue is a row of batches; the last batch is open. A batch
is due when it is full, when the next batch has begun, or when it has been open for `batch_timeout_micros`.
"""

import collections
import contextlib
import functools
import logging
import os
import sys
import threading
import time
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

import numpy as np
from grpc import StatusCode

from serving.configuration import BatchingParameters
from serving.errors import ServingError, invalid
from serving.messages import DEFAULT_SIGNATURE
from serving.metrics import Metrics

STOPPED = "The server is shutting down"

LOG = logging.getLogger(__name__)


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


class Predictor:
    """Answers requests by threads that compute the batches of all queues, in turn.

    Without `BatchingParameters`, each request is a batch, and there are `threads` threads: 4 for each core by default.
    """

    def __init__(self, models, batching=None, threads=None, metrics=None):
        self._models = models
        self.metrics = metrics or Metrics()
        self._is_alone = batching is None
        self._parameters = batching or BatchingParameters(1, 0, sys.maxsize, threads or 4 * os.cpu_count())
        self._timeout = self._parameters.batch_timeout_micros * 1e-6
        self._queues = {}  # (servable, signature, outputs) -> deque of lists of `_Part`, the next queue first.
        self._condition = threading.Condition()
        self._is_stopped = False
        name, count = self._parameters.thread_pool_name, self._parameters.num_batch_threads
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None):
        """Accepts a request: see `Signature.checked`. No computation begins after `timeout_s` seconds.

        Returns a `concurrent.futures.Future` of a `Prediction` or a ServingError. A client that no longer waits cancels
        the future. Raises ServingError if the request is invalid, or UNAVAILABLE if the queue has no room.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        servable = self._models.acquire(*model)
        try:
            checked = servable.signature(signature_name).checked(inputs, outputs)
            request = Request(servable, signature_name or DEFAULT_SIGNATURE, *checked, deadline)
            self._put(request)
        except BaseException:
            self._models.release(servable)
            raise
        request.future.add_done_callback(functools.partial(self._ended, servable, request.arrived))
        return request.future

    def stop(self, timeout_s=None):
        """Computes all waiting requests, then ends the threads. After `timeout_s`, waiting requests are UNAVAILABLE."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        with self._condition:
            left = [part for batches in self._queues.values() for batch in batches for part in batch]
            self._queues.clear()
        for part in left:
            if part.request.begin():
                part.request.fail(ServingError(StatusCode.UNAVAILABLE, STOPPED))

    def _ended(self, servable, arrived, future):
        self._models.release(servable)
        if not future.cancelled() and future.exception() is None:
            micros = (time.monotonic() - arrived) * 1e6
            self.metrics.runtime_latency.labels(servable.name, "Predict", "TF1").observe(micros)

    def _put(self, request):
        size = 1 if self._is_alone else _rows(request.inputs)
        key = (request.servable, request.signature, request.outputs)
        with self._condition:
            if self._is_stopped:
                raise ServingError(StatusCode.UNAVAILABLE, STOPPED)
            batches = self._queues.get(key) or collections.deque([[]])
            self._check_room(batches, size)
            for part in self._parts(request, size, _size(batches[-1])):
                if _size(batches[-1]) + part.size > self._parameters.most_rows:
                    batches.append([])
                batches[-1].append(part)
            self._queues[key] = batches
            self._condition.notify()

    def _check_room(self, batches, size):
        parameters, rows = self._parameters, self._parameters.most_rows
        if size > parameters.max_batch_size:
            raise invalid(f"A request may have {parameters.max_batch_size} rows. Received: {size}")
        begun = parameters.max_enqueued_batches - len(batches)  # Batches that may be begun.
        if parameters.enable_large_batch_splitting:
            has_room = size <= begun * rows + rows - _size(batches[-1])
        else:
            has_room = begun > 0 or size <= rows - _size(batches[-1])
        if not has_room:
            raise ServingError(StatusCode.UNAVAILABLE, "The queue of batches has no room for this request now.")

    def _parts(self, request, size, open_size):
        """Splits a request: the first part fills the open batch, each further part a batch."""
        most = self._parameters.most_rows
        if size <= most - open_size or not self._parameters.enable_large_batch_splitting:
            return [_Part(request, request.inputs, size)]
        starts = [start for start in range(most - open_size, size, most) if start]
        ends = list(zip([0, *starts], [*starts, size], strict=True))
        return [
            _Part(request, {name: array[a:b] for name, array in request.inputs.items()}, b - a, number, len(ends))
            for number, (a, b) in enumerate(ends)
        ]

    def _work(self):
        while taken := self._take():
            key, batch = taken
            parts = [part for part in batch if part.request.begin()]
            if parts:
                self._answer(key, parts)

    def _take(self):
        """Waits for a batch that is due: (key, batch), or None after `stop`."""
        with self._condition:
            while True:
                now, first_due = time.monotonic(), None
                for key, batches in self._queues.items():
                    is_full = len(batches) > 1 or _size(batches[0]) >= self._parameters.most_rows or self._is_stopped
                    due = now if is_full else batches[0][0].request.arrived + self._timeout
                    if due <= now:
                        return key, self._take_from(key, batches)
                    first_due = due if first_due is None else min(first_due, due)
                if self._is_stopped:
                    return None
                self._condition.wait(None if first_due is None else first_due - now)

    def _take_from(self, key, batches):
        del self._queues[key]
        batch = batches.popleft()
        if batches:
            self._queues[key] = batches  # The last in turn.
        if self._queues:
            self._condition.notify()  # The next batch may be due.
        return batch

    def _answer(self, key, parts):
        servable, signature, outputs = key
        try:
            timeout_s = self._time_left(parts)
            inputs = parts[0].inputs if self._is_alone else self._together(parts)
            found = servable.compute(signature, inputs, outputs, timeout_s)
            answers = [found] if self._is_alone else _apart(found, parts)
            for part, answer in zip(parts, answers, strict=True):
                part.request.answer(answer, part.number, part.count)
        except Exception as error:
            if not isinstance(error, ServingError):
                LOG.exception("a batch of model %s, version %s, failed", servable.name, servable.version)
                error = ServingError(StatusCode.INTERNAL, "The request could not be computed")
            for part in parts:
                part.request.fail(error)

    def _time_left(self, parts):
        """Returns the seconds until the last deadline, or None if a request has no deadline."""
        deadlines = [part.request.deadline for part in parts]
        left = None if None in deadlines else max(deadlines) - time.monotonic()
        if left is not None and left <= 0:
            code = StatusCode.DEADLINE_EXCEEDED if self._is_alone else StatusCode.RESOURCE_EXHAUSTED
            raise ServingError(code, "Timed out before the computation")
        return left

    def _together(self, parts):
        """Joins the inputs of parts: dict name -> array."""
        now, queuing = time.monotonic(), self.metrics.queuing_latency.labels(self._parameters.thread_pool_name)
        for part in parts:
            queuing.observe((now - part.request.arrived) * 1e6)
        self.metrics.processed_sizes.observe(_size(parts))
        if len(parts) == 1:
            return parts[0].inputs
        columns = {name: [part.inputs[name] for part in parts] for name in parts[0].inputs}
        if any(len({array.shape[1:] for array in arrays}) > 1 for arrays in columns.values()):
            raise ServingError(StatusCode.FAILED_PRECONDITION, "Requests of one batch have rows of different shapes.")
        return {name: np.concatenate(arrays) for name, arrays in columns.items()}


class Request:
    """An accepted request. `future` is done once: with its `Prediction`, with an error, or cancelled by its client.

    `inputs` and `outputs` are checked. `deadline` is the `time.monotonic()` at which the client gives up, or None.
    """

    def __init__(self, servable, signature_name, inputs, outputs, deadline):
        self.servable, self.signature_name = servable, signature_name
        self.signature = servable.signature(signature_name)
        self.inputs, self.outputs = inputs, outputs
        self.deadline = deadline
        self.arrived = time.monotonic()
        self.future = Future()
        self._lock = threading.Lock()
        self._answers = {}

    def begin(self):
        """Returns whether to compute the request, or another part of the request."""
        with self._lock:
            future = self.future
            return not future.done() and (future.running() or future.set_running_or_notify_cancel())

    def answer(self, outputs, number=0, parts=1):
        """Records the outputs of a part, a dict name -> array. The last part ends the request."""
        with self._lock:
            self._answers[number] = outputs
            if len(self._answers) < parts:
                return
        outputs = outputs if parts == 1 else _joined([self._answers[number] for number in range(parts)])
        with contextlib.suppress(InvalidStateError):  # Another part has failed.
            self.future.set_result(Prediction(self.servable.version, self.signature_name, outputs))

    def fail(self, error):
        """Ends the request with a `ServingError`."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


class _Part(NamedTuple):
    """Rows of a request that are computed together."""

    request: Any
    inputs: dict
    size: int
    number: int = 0
    count: int = 1


def _size(batch):
    return sum(part.size for part in batch)


def _rows(inputs):
    """Returns the number of rows, which all inputs share."""
    sizes = {len(array) if array.ndim else None for array in inputs.values()}
    if len(sizes) != 1 or None in sizes:
        raise invalid("With batching, a signature must have inputs, and all inputs the same number of rows.")
    return sizes.pop()


def _apart(found, parts):
    """Splits the outputs of a batch into the rows of each part."""
    ends = np.cumsum([part.size for part in parts]).tolist()
    if any(array.ndim == 0 or len(array) != ends[-1] for array in found.values()):
        raise ServingError(StatusCode.FAILED_PRECONDITION, "With batching, an output must have one row per input row.")
    return [
        {name: array[end - part.size : end] for name, array in found.items()}
        for part, end in zip(parts, ends, strict=True)
    ]


def _joined(parts):
    """Joins the outputs of the parts. Narrower outputs are padded with 0 or ""."""
    joined = {}
    for name, first in parts[0].items():
        arrays, filling = [part[name] for part in parts], b"" if first.dtype == object else 0
        widths = np.max([array.shape[1:] for array in arrays], axis=0)
        joined[name] = np.full((sum(map(len, arrays)), *widths), filling, first.dtype)
        starts = np.cumsum([0, *map(len, arrays)])
        for start, array in zip(starts, arrays, strict=False):
            joined[name][(slice(start, start + len(array)), *map(slice, array.shape[1:]))] = array
    return joined
