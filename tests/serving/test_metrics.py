from serving.metrics import Metrics


def test_names_cannot_break_the_page():
    metrics = Metrics()
    metrics.request_ended('a"\n\\', "OK", 0.5, "predict", "REST")
    assert r':tensorflow:serving:request_count{model_name="a\"\n\\",status="OK"} 1' in metrics.page().splitlines()
