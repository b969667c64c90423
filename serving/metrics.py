"""What happens, as numbers for Prometheus, under the names that TensorFlow Serving gives them.

TensorFlow's names are not those that prometheus-client writes (a counter has no `_total`), so the page is written here.
"""

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.utils import floatToGoString

LATENCIES = [round(10 * 1.8**n, 2) for n in range(33)]  # microseconds, up to 24 minutes
QUEUING_LATENCIES = [round(100 * 1.2**n, 2) for n in range(52)]  # microseconds, up to 1.1 s
BATCH_SIZES = [2**n for n in range(15)]


class Metrics:
    """All that is counted; one per server. Latencies are in microseconds."""

    def __init__(self):
        self._registry = CollectorRegistry()
        self._requests = self._counter("serving:request_count", "model_name", "status")
        self._request_latency = self._histogram("serving:request_latency", LATENCIES, "model_name", "API", "entrypoint")
        self._runtime_latency = self._histogram("serving:runtime_latency", LATENCIES, "model_name", "API", "runtime")
        self._load_attempts = self._counter("cc:saved_model:load_attempt_count", "model_path", "status")
        self._load_latency = self._counter("cc:saved_model:load_latency", "model_path")
        self._warm_up_latency = self._histogram("serving:model_warmup_latency", LATENCIES, "model_path", "status")
        self._queuing_latency = self._histogram(
            "serving:batching_session:queuing_latency", QUEUING_LATENCIES, "thread_pool_name"
        )
        self._batches = self._counter("serving:batching_session:wrapped_run_count")
        self._batch_sizes = self._histogram("serving:batching_session:processed_batch_size", BATCH_SIZES, "model_name")

    def request_ended(self, model_name, status, seconds, entrypoint):
        """An answered request.

        Args:
            model_name: str, of a model that is configured: not any name that a client makes up.
            status: str, such as "OK".
            seconds: from its arrival.
            entrypoint: "REST" or "GRPC".
        """
        self._requests.labels(model_name, status).inc()
        api = "predict" if entrypoint == "REST" else "Predict"
        self._request_latency.labels(model_name, api, entrypoint).observe(seconds * 1e6)

    def batch_ended(self, model_name, rows, seconds):
        """A computation of so many rows."""
        self._batches.inc()
        self._batch_sizes.labels(model_name).observe(rows)
        self._runtime_latency.labels(model_name, "Predict", "TF1").observe(seconds * 1e6)

    def waited(self, thread_pool_name, seconds):
        """A request has left the queue."""
        self._queuing_latency.labels(thread_pool_name).observe(seconds * 1e6)

    def load_ended(self, path, status, seconds):
        """An attempt to load; `status` is "success" or "fail"."""
        self._load_attempts.labels(path, status).inc()
        self._load_latency.labels(path).inc(seconds * 1e6)

    def warm_up_ended(self, path, status, seconds):
        """The warm-up records of a version have been replayed; `status` is "OK" or that of the error."""
        self._warm_up_latency.labels(path, status).observe(seconds * 1e6)

    def forget(self, path):
        """Drops what is known of a version that nobody will ask for any more."""
        for metric in (self._load_attempts, self._load_latency, self._warm_up_latency):
            metric.remove_by_labels({"model_path": path})

    def page(self):
        """The text that Prometheus reads, str."""
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
