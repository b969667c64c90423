"""Batching by TensorFlow Serving's rules: computes requests together that arrive at about the same time.

Requests for the same signature and outputs share a queue. A queue is a row of batches; the last batch is open. A batch
is due when it is full, when the next batch has begun, or when it has been open for `batch_timeout_micros`.
"""

import collections
import logging
import threading
import time
from typing import Any, NamedTuple

import numpy as np
from grpc import StatusCode

from serving.errors import ServingError, invalid

MOST_PADDED = 6  # Dimensions.

LOG = logging.getLogger(__name__)


class Batcher:
    """Threads that compute batches of all queues, in turn. Created from `BatchingParameters` and `Metrics`."""

    def __init__(self, parameters, metrics):
        self._parameters = parameters
        self._metrics = metrics
        self._timeout = parameters.batch_timeout_micros * 1e-6
        self._queues = {}  # (servable, signature, outputs) -> deque of `_Batch`, the next queue first.
        self._condition = threading.Condition()
        self._is_stopped = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{parameters.thread_pool_name}-{n}", daemon=True)
            for n in range(parameters.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request):
        """Puts a `Request` into its queue.

        Raises:
            ServingError: INVALID_ARGUMENT if the request has no rows that can be joined, or too many; UNAVAILABLE if
                the queue is full or the server stops.
        """
        size = _rows(request.inputs)
        for _ in request.inputs:
            self._metrics.input_sizes.observe(size)
        key = (request.servable, request.signature, request.outputs)
        with self._condition:
            if self._is_stopped:
                raise ServingError(StatusCode.UNAVAILABLE, "The server is shutting down")
            batches = self._queues.get(key) or collections.deque([_Batch()])
            self._check_room(batches, size)
            for part in self._parts(request, size, batches[-1].size):
                if batches[-1].size + part.size > self._parameters.most_rows:
                    batches.append(_Batch())
                batches[-1].add(part)
            self._queues[key] = batches
            self._condition.notify()

    def stop(self, timeout_s=None):
        """Computes all waiting requests, then ends the threads. After `timeout_s`, waiting requests are UNAVAILABLE."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        with self._condition:
            left = [part for batches in self._queues.values() for batch in batches for part in batch.parts]
            self._queues.clear()
        for part in left:
            if part.request.begin():
                part.request.fail(ServingError(StatusCode.UNAVAILABLE, "The server is shutting down"))

    def _check_room(self, batches, size):
        most, rows, full = self._parameters.max_enqueued_batches, self._parameters.most_rows, None
        if size > self._parameters.max_batch_size:
            limit = self._parameters.max_batch_size
            raise invalid(f"Task size {size} is larger than maximum input batch size {limit}")
        if self._parameters.enable_large_batch_splitting:
            capacity = (most - len(batches)) * rows + rows - batches[-1].size
            if size > capacity:
                full = (
                    f"task size is {size} but scheduling capacity is only {capacity} (num_enqueued_batches="
                    f"{len(batches)}, max_enqueued_batches={most}, open_batch_size={batches[-1].size}, "
                    f"max_execution_batch_size={rows})"
                )
        elif batches[-1].size + size > rows and len(batches) >= most:
            full = f"currently {len(batches)} batches enqueued and max_enqueued_batches is {most}"
        if full:
            message = f"The batch scheduling queue to which this task was submitted is full; {full}"
            raise ServingError(StatusCode.UNAVAILABLE, message)

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
            parts = [part for part in batch.parts if part.request.begin()]
            if parts:
                self._answer(key, parts)

    def _take(self):
        """Waits for a batch that is due: (key, batch), or None after `stop`."""
        with self._condition:
            while True:
                now, first_due = time.monotonic(), None
                for key, batches in self._queues.items():
                    is_full = len(batches) > 1 or batches[0].size >= self._parameters.most_rows or self._is_stopped
                    due = now if is_full else batches[0].since + self._timeout
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
        now, queuing = time.monotonic(), self._metrics.queuing_latency.labels(self._parameters.thread_pool_name)
        for part in parts:
            queuing.observe((now - part.request.arrived) * 1e6)
        try:
            inputs, size = self._together(parts)
            found = servable.compute(signature, inputs, outputs, _time_left(parts, now))
            self._metrics.batches.inc()
            for part, answer in zip(parts, _apart(found, parts, size), strict=True):
                part.request.answer(answer, part.number, part.count)
        except ServingError as error:
            _fail(parts, error.code, error.message)
        except Exception:
            LOG.exception("a batch of model %s, version %s, failed", servable.name, servable.version)
            _fail(parts, StatusCode.INTERNAL, "The batch could not be computed")

    def _together(self, parts):
        """Joins the inputs of parts and fills them up to an allowed size: (dict name -> array, rows)."""
        rows = sum(part.size for part in parts)
        size = next((allowed for allowed in self._parameters.allowed_batch_sizes if allowed >= rows), rows)
        self._metrics.processed_sizes.observe(size)
        self._metrics.padding_sizes.labels(f"{size}").observe(size - rows)
        inputs = {}
        for name in parts[0].inputs:
            arrays = [part.inputs[name] for part in parts]
            if len({array.shape[1:] for array in arrays}) > 1:
                arrays = _same_width(name, arrays, self._parameters.pad_variable_length_inputs)
            filling = [arrays[-1][:1]] * (size - rows)
            inputs[name] = np.concatenate([*arrays, *filling]) if len(arrays) + len(filling) > 1 else arrays[0]
        return inputs, size


class _Batch:
    """Parts of requests. `since` is the time of the first."""

    def __init__(self):
        self.parts = []
        self.size = 0
        self.since = 0.0

    def add(self, part):
        self.since = self.since or time.monotonic()
        self.parts.append(part)
        self.size += part.size


class _Part(NamedTuple):
    """Rows of a request that are computed together."""

    request: Any
    inputs: dict
    size: int
    number: int = 0
    count: int = 1


def _rows(inputs):
    if not inputs:
        raise invalid("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in inputs.values()):
        raise invalid("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) > 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def _same_width(name, arrays, may_pad):
    """Pads arrays of different widths to a common width, each with its own first value, as TensorFlow Serving does."""
    if not may_pad:
        raise ServingError(
            StatusCode.FAILED_PRECONDITION,
            f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. Set "
            "pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal dimensions "
            "starting with the first dim.",
        )
    if len({array.ndim for array in arrays}) > 1:
        raise ServingError(StatusCode.INTERNAL, f"Tensors with name '{name}' have different ranks")
    if arrays[0].ndim > MOST_PADDED:
        raise invalid("Only tensors with rank from 1 to 6 can be padded.")
    widths = np.max([array.shape[1:] for array in arrays], axis=0)
    if widths.all() and any(len(array) and not array.size for array in arrays):
        raise invalid("Got empty tensor in batch of non-empty tensors.")
    return [widened(array, widths, array.flat[0] if array.size else 0) for array in arrays]


def widened(array, widths, filling):
    """Fills up the rows of an array to larger widths."""
    whole = np.full((len(array), *widths), filling, array.dtype)
    whole[(slice(None), *map(slice, array.shape[1:]))] = array
    return whole


def _time_left(parts, now):
    """Returns the seconds until the last deadline, or None if a request has no deadline."""
    deadlines = [part.request.deadline for part in parts]
    if None in deadlines:
        return None
    if max(deadlines) <= now:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "Run() timeout exceeded while waiting in batching queue")
    return max(deadlines) - now


def _apart(found, parts, size):
    """Splits the outputs of a batch into the rows of each part. The rows that filled up the batch are dropped."""
    for array in found.values():
        if array.ndim == 0:
            raise ServingError(StatusCode.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if len(array) != size:
            raise ServingError(
                StatusCode.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
                "tensors",
            )
    if len(parts) == 1 and parts[0].size == size:
        return [found]
    ends = np.cumsum([part.size for part in parts]).tolist()
    return [
        {name: array[end - part.size : end] for name, array in found.items()}
        for part, end in zip(parts, ends, strict=True)
    ]


def _fail(parts, code, message):
    for part in parts:
        part.request.fail(ServingError(code, message))
