"""Loads a version: the SavedModel, then its warm-up records."""

import logging
import time
from pathlib import Path

import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving.errors import ServingError
from serving.metrics import Metrics
from serving.servable import Servable, of_loading
from serving.tensor_protos import to_array

WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
MOST_WARM_UP_RECORDS = 1000

LOG = logging.getLogger(__name__)


class Loader:
    """The settings for loading versions. The first two, and the metrics, are attributes.

    Args:
        max_num_load_retries: int, the most attempts after the first.
        load_retry_seconds: float, the seconds between two attempts.
        warm_ups: int, how often to replay each warm-up record.
        metrics: `Metrics`.
        **how: dict, `config` and `tags` of `Servable.load`.
    """

    def __init__(self, max_num_load_retries=5, load_retry_seconds=60.0, warm_ups=1, metrics=None, **how):
        self.metrics = metrics or Metrics()
        self.max_num_load_retries = max_num_load_retries
        self.load_retry_seconds = load_retry_seconds
        self._warm_ups = warm_ups
        self._how = how

    def load(self, name, number, path):
        """Returns a `Servable` that has answered its warm-up records.

        Raises:
            ServingError: if the version cannot be loaded, or if a record fails.
        """
        start = time.monotonic()
        status = "fail"
        try:
            servable = Servable.load(name, number, path, **self._how)
            status = "success"
        finally:
            self.metrics.load_attempts.labels(str(path), status).inc()
            self.metrics.load_latency.labels(str(path)).inc((time.monotonic() - start) * 1e6)
        try:
            self._warm_up(servable, Path(path))
        except ServingError:
            servable.close()
            raise
        LOG.info("loaded version %s of model %s in %.1f s", number, name, time.monotonic() - start)
        return servable

    def _warm_up(self, servable, path):
        if not (self._warm_ups and (path / WARM_UP).exists()):
            return
        start, status = time.monotonic(), StatusCode.OK
        try:
            replay(servable, path / WARM_UP, self._warm_ups)
        except Exception as error:
            error = of_loading(error, path)
            status = error.code
            raise ServingError(error.code, f"warm-up: {error.message}") from None
        finally:
            self.metrics.warm_up_latency.labels(str(path), status.name).observe((time.monotonic() - start) * 1e6)


def replay(servable, path, times=1):
    """Runs the requests of a file, a TFRecord of PredictionLogs, through a servable, each `times` times.

    Raises:
        ServingError: if the file cannot be read, if it has too many records or records for other methods than Predict,
            or if a request fails.
    """
    try:
        records = list(tf.compat.v1.io.tf_record_iterator(str(path)))
        logs = [PredictionLog.FromString(record) for record in records]
    except Exception as error:
        raise of_loading(error, path.parents[1]) from None
    if len(logs) > MOST_WARM_UP_RECORDS:
        raise ServingError(
            StatusCode.INVALID_ARGUMENT, f"{path} may have {MOST_WARM_UP_RECORDS} records. Received: {len(logs)}"
        )
    for log in logs:
        if log.WhichOneof("log_type") != "predict_log":
            raise ServingError(
                StatusCode.UNIMPLEMENTED, f"Unsupported log_type for warmup: {log.WhichOneof('log_type')}"
            )
        request = log.predict_log.request
        inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
        for _ in range(times):
            servable.run(request.model_spec.signature_name, inputs, list(request.output_filter))
