from serving.metrics import Metrics


def lines_of(metrics, word):
    return [line for line in metrics.page().splitlines() if word in line]


def test_counters_are_written_as_tensorflow_serving_writes_them_and_names_cannot_break_the_page():
    metrics = Metrics()
    for name, status in (("en-de", "OK"), ("en-de", "NOT_FOUND"), ("en-de", "OK"), ('a"\n\\', "OK")):
        metrics.request_ended(name, status, 0.5, "predict", "REST")
    assert lines_of(metrics, "request_count") == [
        "# TYPE :tensorflow:serving:request_count counter",
        ':tensorflow:serving:request_count{model_name="en-de",status="OK"} 2',
        ':tensorflow:serving:request_count{model_name="en-de",status="NOT_FOUND"} 1',
        r':tensorflow:serving:request_count{model_name="a\"\n\\",status="OK"} 1',
    ]


def test_latencies_are_microseconds_in_cumulative_buckets():
    metrics = Metrics()
    metrics.request_ended("m", "OK", 12e-6, "Predict", "GRPC")
    metrics.request_ended("m", "OK", 300e-6, "Predict", "GRPC")
    metrics.request_ended("m", "UNAVAILABLE", 300e-6, "Predict", "GRPC")  # only good answers have a latency
    labels = 'model_name="m",API="Predict",entrypoint="GRPC"'
    lines = lines_of(metrics, "request_latency")
    assert lines[0] == "# TYPE :tensorflow:serving:request_latency histogram"
    name = ":tensorflow:serving:request_latency"
    assert lines[1:3] == [f'{name}_bucket{{{labels},le="10.0"}} 0', f'{name}_bucket{{{labels},le="18.0"}} 1']
    assert lines[-3:] == [
        f'{name}_bucket{{{labels},le="+Inf"}} 2',
        f"{name}_count{{{labels}}} 2",
        f"{name}_sum{{{labels}}} 312",
    ]
