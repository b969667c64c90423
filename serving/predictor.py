"""The predictor: accepts requests from REST and gRPC, and answers each by a future."""

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
    """The limits of a request."""

    max_rows: int = 1024
    """most rows of a request"""
    max_bytes_per_row: int = 100_000
    """most bytes of a text"""
    max_queued: int = 256
    """most waiting requests per signature without batching"""


class Predictor:
    """Answers requests, several at a time.

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
            inputs: dict name -> array; strings are bytes objects.
            outputs: list of output names; None means all outputs.
            timeout_s: float, the seconds until the client gives up. No computation begins later, but a running
                computation may end later.
            entrypoint: "GRPC" or "REST", for the metrics.

        Returns:
            `concurrent.futures.Future` of a `Prediction` or a ServingError. A client that no longer waits cancels the
            future.

        Raises:
            QueueFullError: if the queue has no room for the request.
            ServingError: if the request is invalid.
        """
        start = time.monotonic()
        try:
            servable = self._models.acquire(*model)
        except ServingError as error:
            if model.name in self._models:  # Other names come from clients and must not become labels.
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
        """Accepts a request and waits at most `timeout_s`: returns a `Prediction`, or raises ServingError."""
        future = self.submit(model, signature_name, inputs, outputs, timeout_s, entrypoint)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for the answer") from None

    def stop(self, timeout_s=None):
        """Refuses new requests and waits for accepted requests. After `timeout_s`, waiting requests are UNAVAILABLE."""
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
