"""What both front ends ask: a request for a model, which is answered in the future."""

import time
from concurrent.futures import TimeoutError
from dataclasses import dataclass

from grpc import StatusCode

from serving.batching import Batcher
from serving.batching_parameters import BatchingParameters
from serving.errors import ServingError
from serving.metrics import Metrics
from serving.request import ModelSpec, Prediction, Request
from serving.servable import DEFAULT_SIGNATURE

__all__ = ["Limits", "ModelSpec", "Prediction", "Predictor"]


@dataclass(frozen=True)
class Limits:
    """What a request may ask for, whichever way it comes."""

    max_rows: int = 1024
    """rows of a request"""
    max_bytes_per_row: int = 100_000
    """length of a text"""
    max_queued: int = 256
    """requests that wait, per signature, where they are not put together"""


class Predictor:
    """Answers requests, several side by side.

    Args:
        models: `Models`.
        batching_parameters: `BatchingParameters`; None computes each request alone.
        limits: `Limits`.
        metrics: `Metrics`; also an attribute.
    """

    def __init__(self, models, batching_parameters=None, limits=None, metrics=None):
        self._models = models
        self._limits = limits or Limits()
        self.metrics = metrics or Metrics()
        self._is_batching = batching_parameters is not None
        alone = BatchingParameters(max_batch_size=1, max_enqueued_batches=self._limits.max_queued)
        self._batcher = Batcher(batching_parameters or alone, self.metrics)

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None, entrypoint="GRPC"):
        """Accepts a request.

        Args:
            model: `ModelSpec`.
            signature_name: str; "" is serving_default.
            inputs: dict name -> array; strings are bytes in arrays of objects.
            outputs: list of the names of those wanted; all if None.
            timeout_s: seconds until its client goes. Nothing is begun after that; the future may still come later.
            entrypoint: "GRPC" or "REST", for the metrics.

        Returns:
            `concurrent.futures.Future` of a `Prediction`, or of a ServingError. To cancel it is to say that nobody
            waits any more.

        Raises:
            QueueFullError: if there is no room for it.
            ServingError: if the request cannot be accepted.
        """
        start = time.monotonic()
        try:
            servable = self._models.acquire(*model)
        except ServingError as error:
            if model.name in self._models:  # not any name that a client makes up
                self.metrics.request_ended(model.name, error.code.name, time.monotonic() - start, entrypoint)
            raise

        def on_end(code):
            self._models.release(servable)
            self.metrics.request_ended(model.name, code.name, time.monotonic() - start, entrypoint)

        try:
            signature = servable.signature(signature_name)
            inputs, outputs = signature.checked_inputs(inputs), signature.checked_outputs(outputs)
            self._check_limits(signature, inputs)
            deadline = None if timeout_s is None else start + timeout_s
            request = Request(servable, signature_name or DEFAULT_SIGNATURE, deadline, on_end)
            self._batcher.submit(request, signature, inputs, outputs, self._size(signature, inputs))
        except BaseException as error:
            on_end(error.code if isinstance(error, ServingError) else StatusCode.INTERNAL)
            raise
        return request.future

    def predict(self, model, signature_name, inputs, outputs=None, timeout_s=None, entrypoint="GRPC"):
        """As `submit`, but waits, for `timeout_s` at most: a `Prediction`, or ServingError."""
        future = self.submit(model, signature_name, inputs, outputs, timeout_s, entrypoint)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for the answer") from None

    def stop(self, timeout_s=None):
        """Accepts nothing more, and waits for what has been accepted; what is not begun in time is UNAVAILABLE."""
        self._batcher.stop(timeout_s)

    def _size(self, signature, inputs):
        if not self._is_batching:
            return 1
        if not signature.is_batched:
            raise ServingError(
                StatusCode.INVALID_ARGUMENT, "Batching session Run() input tensors must have at least one dimension"
            )
        return len(next(iter(inputs.values())))

    def _check_limits(self, signature, inputs):
        rows = max((len(inputs[name]) for name in signature.batched_inputs), default=0)
        if rows > self._limits.max_rows:
            raise ServingError(
                StatusCode.INVALID_ARGUMENT, f"a request may have {self._limits.max_rows} rows. Received: {rows}"
            )
        for name, array in inputs.items():
            longest = max(map(len, array.flat), default=0) if array.dtype == object else 0
            if longest > self._limits.max_bytes_per_row:
                raise ServingError(
                    StatusCode.INVALID_ARGUMENT,
                    f"a text of input {name} may have {self._limits.max_bytes_per_row} bytes. Received: {longest}",
                )
