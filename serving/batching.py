"""Batching: computes requests together that arrive at the same time. Requests that can share a batch share a queue."""

import functools
import logging
import threading
import time
import weakref
from typing import Any, NamedTuple

import numpy as np
from grpc import StatusCode

from serving.batch_queue import BatchQueue, rows_of
from serving.errors import ServingError
from serving.overload import QueueFullError, Refusals

ALONE = 0.25  # The share of `batch_timeout_micros` that a batch waits while no other batch is computed.
REFILL = 0.5  # The share that a free thread waits to fill its batch in an overload.

LOG = logging.getLogger(__name__)


class Batcher:
    """Threads that take batches from queues. A queue exists as long as it has requests.

    A batch is due when it is full, or when its oldest request has waited for `batch_timeout_micros`. The first free
    thread computes the batch with the oldest request.

    *Relative to TensorFlow Serving*: while no other batch is computed, a batch waits only a quarter of the time,
    because a single request should not wait for others. A queue also has additional room for the rows that idle or
    half-full threads could compute, so a burst is not refused while threads are idle. In an overload a queue has less
    room, because new requests arrive as soon as a thread is free.

    Args:
        parameters: `BatchingParameters`.
        metrics: `Metrics`.
    """

    def __init__(self, parameters, metrics):
        self._parameters = parameters
        self._metrics = metrics
        self._timeout = parameters.batch_timeout_micros * 1e-6
        self._queues = {}
        self._refusals = weakref.WeakKeyDictionary()  # Signature -> `Refusals`, while the signature is served.
        self._condition = threading.Condition()
        self._is_stopped = False
        self._computing = 0  # Rows.
        self._free_since = 0.0  # The time at which a thread last finished a batch.
        self._threads = [
            threading.Thread(target=self._work, name=f"{parameters.thread_pool_name}-{n}", daemon=True)
            for n in range(parameters.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request, signature, inputs, outputs, size):
        """Puts a request into its queue.

        Args:
            request: `Request`.
            signature: `Signature`.
            inputs: dict name -> array, checked.
            outputs: tuple of names, checked.
            size: int, the rows of the request, or 1 if a batch holds one request only.

        Raises:
            QueueFullError: UNAVAILABLE.
            ServingError: UNAVAILABLE if the server stops, INVALID_ARGUMENT if the request is larger than any queue.
        """
        self._check_size(size)
        shapes = tuple(inputs[name].shape[1:] for name in signature.feeds)
        key = _Key(request.servable, signature, outputs, shapes)
        parts = request.parts(inputs, size, self._parameters.most_rows)
        unwanted = []
        try:
            with self._condition:
                if self._is_stopped:
                    raise ServingError(StatusCode.UNAVAILABLE, "The server is shutting down")
                self._make_room(key, size, unwanted)
                queue = self._queues.setdefault(key, BatchQueue(key))
                was_empty = not queue.parts
                queue.extend(parts)
                if was_empty or queue.size >= self._parameters.most_rows:
                    self._condition.notify()
        finally:
            _dismiss(unwanted)

    def stop(self, timeout_s=None):
        """Computes all waiting requests, then ends the threads. After `timeout_s`, waiting requests are UNAVAILABLE."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        with self._condition:
            left = [part for queue in self._queues.values() for part in queue.parts]
            self._queues.clear()
        for part in left:
            if part.request.begin():
                part.request.fail(ServingError(StatusCode.UNAVAILABLE, "The server is shutting down"))

    def _check_size(self, size):
        most = self._parameters.max_batch_size
        if size > most:
            raise ServingError(
                StatusCode.INVALID_ARGUMENT, f"Task size {size} is larger than maximum input batch size {most}"
            )
        if size > (capacity := self._capacity()):
            raise ServingError(
                StatusCode.INVALID_ARGUMENT, f"Task size {size} is larger than the whole queue, {capacity}"
            )

    def _capacity(self):
        """Returns the rows for which a queue has room while nothing is computed."""
        return self._parameters.most_rows * (self._parameters.max_enqueued_batches + len(self._threads))

    def _room(self, key):
        """Returns the rows for which a queue has room now."""
        soon = min(self._soon(key), self._parameters.most_rows * self._parameters.max_enqueued_batches)
        return self._capacity() - self._computing - int(soon)

    def _soon(self, key):
        """Estimates the rows that arrive while a free thread waits, from the rate of recent refusals."""
        refusals = self._refusals.get(key.signature)
        return refusals.rate() * REFILL * self._timeout if refusals else 0

    def _make_room(self, key, size, unwanted):
        queue, room = self._queues.get(key), self._room(key)
        if queue and not queue.has_room(size, room):
            unwanted += queue.drop_unwanted()
            if not queue.has_room(size, room):
                self._refusals.setdefault(key.signature, Refusals()).count()
                enqueued, most = -(-queue.size // self._parameters.most_rows), self._parameters.max_enqueued_batches
                message = (
                    "The batch scheduling queue to which this task was submitted is full; currently "
                    f"{enqueued} batches enqueued and max_enqueued_batches is {most}"
                )
                raise QueueFullError(StatusCode.UNAVAILABLE, message, functools.partial(self._refuses, key))

    def _refuses(self, key):
        """Returns whether a queue has no room for another row, and counts the refusal. Waits for no lock."""
        queue = self._queues.get(key)
        if queue is None or queue.has_room(1, self._room(key)):
            return False
        self._refusals[key.signature].count()
        return True

    def _work(self):
        while taken := self._take():
            queue, parts, unwanted = taken
            rows = rows_of(parts)
            try:
                _dismiss(unwanted)
                parts = [part for part in parts if part.request.begin()]
                answers = self._compute(queue, parts) if parts else []
            finally:
                with self._condition:  # Before a client receives an answer and sends its next request.
                    self._computing -= rows
                    self._free_since = time.monotonic()
            _tell(parts, answers)

    def _take(self):
        """Waits for a batch: (queue, parts to compute, unwanted parts), or None after `stop`."""
        with self._condition:
            while True:
                queue, due = self._oldest()
                if queue is None and self._is_stopped:
                    return None
                if queue is not None and due <= time.monotonic():
                    break
                self._condition.wait(None if queue is None else due - time.monotonic())
            parts, unwanted = queue.take(self._parameters.most_rows)
            if not queue.parts:
                del self._queues[queue.key]
            self._computing += rows_of(parts)
            if self._queues:
                self._condition.notify()  # The next batch may be due.
            return queue, parts, unwanted

    def _oldest(self):
        """Returns the queue whose batch is due first, and the time; (None, None) if nothing waits."""
        due = [(self._due(queue), queue) for queue in self._queues.values()]
        when, queue = min(due, key=lambda pair: pair[0], default=(None, None))
        return queue, when

    def _due(self, queue):
        arrived, missing = queue.parts[0].arrived, self._parameters.most_rows - queue.size
        if missing <= 0 or self._is_stopped:
            return arrived
        due = arrived + self._timeout * (1 if self._computing else ALONE)
        return due if self._soon(queue.key) < missing else max(due, self._free_since + REFILL * self._timeout)

    def _compute(self, queue, parts):
        """Computes a batch: for each part, its outputs or a `ServingError`."""
        servable, signature, outputs, _ = queue.key
        start = time.monotonic()
        for part in parts:
            self._metrics.waited(self._parameters.thread_pool_name, start - part.arrived)
        try:
            sizes = [part.size for part in parts]
            inputs = self._filled_up(_together(parts), sum(sizes))
            found = servable.compute(signature, inputs, outputs, _time_left(parts, start))
            self._metrics.batch_ended(servable.name, sum(sizes), time.monotonic() - start)
            return [found] if inputs is parts[0].inputs else _apart(found, inputs, sizes)
        except ServingError as error:
            code, message = error.code, error.message
        except Exception:
            LOG.exception("a batch of model %s, version %s, failed", servable.name, servable.version)
            code, message = StatusCode.INTERNAL, "The batch could not be computed"
        return [ServingError(code, message) for _ in parts]

    def _filled_up(self, inputs, size):
        allowed = next((allowed for allowed in self._parameters.allowed_batch_sizes if allowed >= size), size)
        if allowed == size:
            return inputs
        return {
            name: np.concatenate([array, np.repeat(array[-1:], allowed - size, axis=0)])
            for name, array in inputs.items()
        }


class _Key(NamedTuple):
    """Requests with equal keys can share a batch."""

    servable: Any
    signature: Any
    outputs: tuple
    shapes: tuple


def _dismiss(parts):
    """Ends the requests of unwanted parts."""
    for part in parts:
        part.request.begin()


def _tell(parts, answers):
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, ServingError):
            part.request.fail(answer)
            continue
        try:
            part.request.answer(part.number, answer)
        except Exception:
            LOG.exception("the parts of an answer of model %s could not be joined", part.request.servable.name)
            part.request.fail(ServingError(StatusCode.INTERNAL, "The parts of the answer do not fit together"))


def _time_left(parts, now):
    """Returns the seconds until the last deadline, or None if a request has no deadline."""
    deadlines = [part.request.deadline for part in parts]
    return None if None in deadlines else max(deadlines) - now


def _together(parts):
    if len(parts) == 1:
        return parts[0].inputs
    return {name: np.concatenate([part.inputs[name] for part in parts]) for name in parts[0].inputs}


def _apart(found, inputs, sizes):
    """Splits the outputs of a batch into the rows of each part. The rows that filled up the batch are dropped."""
    rows = len(next(iter(inputs.values())))
    if any(array.ndim == 0 or len(array) != rows for array in found.values()):
        raise ServingError(
            StatusCode.FAILED_PRECONDITION,
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
            "tensors",
        )
    ends = np.cumsum(sizes)
    return [
        {name: array[end - size : end] for name, array in found.items()}
        for size, end in zip(sizes, ends.tolist(), strict=True)
    ]
