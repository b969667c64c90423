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
