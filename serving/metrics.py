"""The server's metrics for Prometheus, under TensorFlow Serving's names: a counter has no `_total`."""

from prometheus_client import CollectorRegistry, Counter, Histogram

LATENCIES = [10 * 1.8**n for n in range(33)]  # Microseconds, up to 24 minutes.
QUEUING_LATENCIES = [100 * 1.2**n for n in range(52)]  # Microseconds, up to 1.1 s.
BATCH_SIZES = [2**n for n in range(14)]
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metrics:
    """The metrics of one server, each an attribute. Latencies are in microseconds."""

    def __init__(self):
        self._registry = CollectorRegistry()
        self._requests = self._counter("serving:request_count", "model_name", "status")
        self._request_latency = self._histogram("serving:request_latency", LATENCIES, "model_name", "API", "entrypoint")
        self.runtime_latency = self._histogram("serving:runtime_latency", LATENCIES, "model_name", "API", "runtime")
        self.load_attempts = self._counter("cc:saved_model:load_attempt_count", "model_path", "status")
        self.warm_up_latency = self._histogram("serving:model_warmup_latency", LATENCIES, "model_path", "status")
        batching = "serving:batching_session"
        self.queuing_latency = self._histogram(f"{batching}:queuing_latency", QUEUING_LATENCIES, "thread_pool_name")
        self.processed_sizes = self._histogram(f"{batching}:processed_batch_size", BATCH_SIZES)

    def request_ended(self, model_name, status, seconds, api, entrypoint):
        """Counts an answered request of a configured model, and the latency of a good answer.

        `api` is "predict" of REST, "Predict" of gRPC, or ""; `entrypoint` is "REST" or "GRPC".
        """
        self._requests.labels(model_name, status).inc()
        if status == "OK":
            self._request_latency.labels(model_name, api, entrypoint).observe(seconds * 1e6)

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
    labels = ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in sample.labels.items())
    value = int(sample.value) if sample.value.is_integer() else f"{sample.value:.6g}"
    return f"{sample.name.removesuffix('_total')}{{{labels}}} {value}"
