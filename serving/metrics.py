"""The server's metrics for Prometheus, under TensorFlow Serving's names.

The names differ from the names that prometheus-client writes: a counter has no `_total`. This module therefore writes
the page.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.utils import floatToGoString

LATENCIES = [round(10 * 1.8**n, 2) for n in range(33)]  # Microseconds, up to 24 minutes.
QUEUING_LATENCIES = [round(100 * 1.2**n, 2) for n in range(52)]  # Microseconds, up to 1.1 s.
BATCH_SIZES = [2**n for n in range(14)]


class Metrics:
    """The metrics of one server. Latencies are in microseconds."""

    def __init__(self):
        self._registry = CollectorRegistry()
        self._requests = self._counter("serving:request_count", "model_name", "status")
        self._request_latency = self._histogram("serving:request_latency", LATENCIES, "model_name", "API", "entrypoint")
        self._runtime_latency = self._histogram("serving:runtime_latency", LATENCIES, "model_name", "API", "runtime")
        self._load_attempts = self._counter("cc:saved_model:load_attempt_count", "model_path", "status")
        self._load_latency = self._counter("cc:saved_model:load_latency", "model_path")
        self._warm_up_latency = self._histogram("serving:model_warmup_latency", LATENCIES, "model_path", "status")
        batching = "serving:batching_session"
        self._queuing_latency = self._histogram(f"{batching}:queuing_latency", QUEUING_LATENCIES, "thread_pool_name")
        self._batches = self._counter(f"{batching}:wrapped_run_count")
        self._input_sizes = self._histogram(f"{batching}:input_batch_size", BATCH_SIZES)
        self._processed_sizes = self._histogram(f"{batching}:processed_batch_size", BATCH_SIZES)
        self._padding_sizes = self._histogram(f"{batching}:padding_size", BATCH_SIZES, "execution_batch_size")

    def request_ended(self, model_name, status, seconds, api, entrypoint):
        """Counts an answered request. Only the latency of good answers counts.

        Args:
            model_name: str, the name of a configured model. Other names come from clients and must not become labels.
            status: str, such as "OK".
            seconds: float, the time since the request arrived.
            api: str, "predict" of REST, "Predict" of gRPC, or "" for other requests of REST.
            entrypoint: "REST" or "GRPC".
        """
        self._requests.labels(model_name, status).inc()
        if status == "OK":
            self._request_latency.labels(model_name, api, entrypoint).observe(seconds * 1e6)

    def ran(self, model_name, seconds):
        """Counts an answered prediction, with the time in the queue and in TensorFlow."""
        self._runtime_latency.labels(model_name, "Predict", "TF1").observe(seconds * 1e6)

    def input_arrived(self, rows):
        """Counts an input of a request that will be batched."""
        self._input_sizes.observe(rows)

    def waited(self, thread_pool_name, seconds):
        """Counts a request that has left the queue."""
        self._queuing_latency.labels(thread_pool_name).observe(seconds * 1e6)

    def batch_formed(self, rows, padding):
        """Counts a batch of `rows` rows, of which `padding` rows fill up the batch."""
        self._processed_sizes.observe(rows)
        self._padding_sizes.labels(str(rows)).observe(padding)

    def batch_computed(self):
        """Counts a computed batch."""
        self._batches.inc()

    def load_ended(self, path, status, seconds):
        """Counts an attempt to load a version; `status` is "success" or "fail"."""
        self._load_attempts.labels(path, status).inc()
        self._load_latency.labels(path).inc(seconds * 1e6)

    def warm_up_ended(self, path, status, seconds):
        """Counts a replay of warm-up records; `status` is "OK" or the status of the error."""
        self._warm_up_latency.labels(path, status).observe(seconds * 1e6)

    def forget(self, path):
        """Drops the metrics of a version that is no longer in use."""
        for metric in (self._load_attempts, self._load_latency, self._warm_up_latency):
            metric.remove_by_labels({"model_path": path})

    def page(self):
        """Writes the page for Prometheus, str."""
        lines = []
        for metric in self._registry.collect():
            lines.append(f"# TYPE {metric.name} {metric.type}")
            lines += [_line(sample) for sample in metric.samples if not sample.name.endswith("_created")]
        return "\n".join(lines) + "\n"

    def _counter(self, name, *labels):
        return Counter(f":tensorflow:{name}", name, labels, registry=self._registry)

    def _histogram(self, name, buckets, *labels):
        return Histogram(f":tensorflow:{name}", name, labels, buckets=buckets, registry=self._registry)


def _line(sample):
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    value = int(sample.value) if sample.value.is_integer() else floatToGoString(sample.value)
    return f"{sample.name.removesuffix('_total')}{{{labels}}} {value}"


def _escaped(value):
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
