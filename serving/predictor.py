"""The predictor: accepts requests from REST and gRPC, and answers each by a future."""

import contextlib
import functools
import logging
import os
import threading
import time
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from grpc import StatusCode

from serving.batching import Batcher, widened
from serving.errors import ServingError, invalid
from serving.metrics import Metrics
from serving.servable import DEFAULT_SIGNATURE

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
    """Answers requests, several at a time. Without `BatchingParameters`, each request is computed alone, by a thread.

    A request may have `max_rows` rows, and a text `max_bytes_per_row` bytes; 0 means no limit. `metrics` is public.
    """

    def __init__(self, models, batching=None, threads=None, max_rows=0, max_bytes_per_row=0, metrics=None):
        self._models = models
        self._max_rows = max_rows
        self._max_bytes_per_row = max_bytes_per_row
        self.metrics = metrics or Metrics()
        self._batcher = batching and Batcher(batching, self.metrics)
        self._pool = ThreadPoolExecutor(threads or 4 * os.cpu_count(), "predict")
        self._is_stopped = False

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None):
        """Accepts a request: see `Signature.checked`. No computation begins after `timeout_s` seconds.

        Returns:
            `concurrent.futures.Future` of a `Prediction` or a ServingError. A client that no longer waits cancels the
            future. Then the request is not computed, if the computation has not begun.

        Raises:
            ServingError: if the request is invalid, or UNAVAILABLE if the queue has no room for the request.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        servable = self._models.acquire(*model)
        try:
            if self._is_stopped:
                raise ServingError(StatusCode.UNAVAILABLE, "The server is shutting down")
            signature = servable.signature(signature_name)
            inputs, outputs = signature.checked(inputs, outputs)
            self._check_limits(inputs)
            request = Request(servable, signature_name or DEFAULT_SIGNATURE, inputs, outputs, deadline)
            if self._batcher:
                self._batcher.submit(request)
            else:
                self._pool.submit(_compute_alone, request)
        except BaseException:
            self._models.release(servable)
            raise
        request.future.add_done_callback(functools.partial(self._ended, servable, request.arrived))
        return request.future

    def stop(self, timeout_s=None):
        """Refuses new requests and waits for accepted requests. After `timeout_s`, waiting requests are UNAVAILABLE."""
        self._is_stopped = True
        if self._batcher:
            self._batcher.stop(timeout_s)
        waiter = threading.Thread(target=self._pool.shutdown, daemon=True)
        waiter.start()
        waiter.join(timeout_s)

    def _ended(self, servable, arrived, future):
        self._models.release(servable)
        if not future.cancelled() and future.exception() is None:
            micros = (time.monotonic() - arrived) * 1e6
            self.metrics.runtime_latency.labels(servable.name, "Predict", "TF1").observe(micros)

    def _check_limits(self, inputs):
        for name, array in inputs.items():
            rows = len(array) if array.ndim else 1
            if 0 < self._max_rows < rows:
                raise invalid(f"a request may have {self._max_rows} rows. Received: {rows}")
            if self._max_bytes_per_row and array.dtype == object:
                longest = max(map(len, array.flat), default=0)
                if longest > self._max_bytes_per_row:
                    wish = f"a text of input {name} may have {self._max_bytes_per_row} bytes"
                    raise invalid(f"{wish}. Received: {longest}")


class Request:
    """An accepted request. `future` is done once: with its `Prediction`, with an error, or cancelled by its client.

    Args:
        servable: `Servable`.
        signature_name: str.
        inputs, outputs: dict name -> array, and tuple of names, both checked.
        deadline: `time.monotonic()` at which the client gives up; None means never.
    """

    def __init__(self, servable, signature_name, inputs, outputs, deadline):
        self.servable = servable
        self.signature_name = signature_name
        self.signature = servable.signature(signature_name)
        self.inputs = inputs
        self.outputs = outputs
        self.deadline = deadline
        self.arrived = time.monotonic()
        self.future = Future()
        self._lock = threading.Lock()
        self._answers = {}

    def begin(self):
        """Returns whether to compute the request, or another part of the request."""
        with self._lock:
            is_over = self.future.done()
            return not is_over and (self.future.running() or self.future.set_running_or_notify_cancel())

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


def _compute_alone(request):
    if not request.begin():
        return
    timeout_s = None if request.deadline is None else request.deadline - time.monotonic()
    try:
        if timeout_s is not None and timeout_s <= 0:
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out before the computation")
        request.answer(request.servable.compute(request.signature, request.inputs, request.outputs, timeout_s))
    except ServingError as error:
        request.fail(error)
    except Exception:
        LOG.exception("a request of model %s, version %s, failed", request.servable.name, request.servable.version)
        request.fail(ServingError(StatusCode.INTERNAL, "The request could not be computed"))


def _joined(parts):
    """Joins the outputs of the parts. Narrower outputs are padded with 0 or ""."""
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(arrays):
    widths, filling = np.max([array.shape[1:] for array in arrays], axis=0), b"" if arrays[0].dtype == object else 0
    return np.concatenate([widened(array, widths, filling) for array in arrays])
