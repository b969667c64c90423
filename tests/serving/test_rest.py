import concurrent.futures
import gzip
import http.client
import json
import re
import threading
import tracemalloc
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer.translation.options import INPUTS
from serving.errors import HTTP_STATUS, ServingError
from serving.metrics import Metrics
from serving.model_config import ModelConfig
from serving.models import Models
from serving.overload import QueueFullError
from serving.predictor import Limits, Prediction, Predictor
from serving.rest import TooLargeError, inflate
from serving.servable import SOON_DONE
from tests.serving import toy
from tests.serving.live import DEADLINE_SECONDS, HOST, ask, serve
from tests.serving.test_json_tensors import JSON

MODEL = "/v1/models/toy"
PREDICT = f"{MODEL}:predict"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("page")
    (directory / "index.html").write_text("<h1>Translate</h1>")
    (directory / "page.css").write_text("body {}")
    return directory


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    for version in (3, 5):
        toy.write(base_path, version)
    policy = ModelConfig("toy", str(base_path)).policy.__class__(all={})
    metrics = Metrics()
    models = Models([ModelConfig("toy", str(base_path), policy, {"stable": 3})])
    models.start()
    models.wait_until_available()
    predictor = Predictor(models, metrics=metrics)
    yield SimpleNamespace(predictor=predictor, models=models, metrics=metrics)
    predictor.stop()
    models.stop()


@pytest.fixture(scope="module")
def port(backend, page):
    with serve(backend.predictor, backend.models, page, metrics_page=backend.metrics.page) as port:
        yield port


def error_of(port, method, path, body=None, headers=()):
    status, _, reply = ask(port, method, path, body, headers)
    assert list(reply) == ["error"]
    return status, reply["error"]


def test_status_lists_versions_from_new_to_old(port):
    fine = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    five, three = {"version": "5", **fine}, {"version": "3", **fine}
    for path, versions in (("", [five, three]), ("/versions/3", [three]), ("/labels/stable", [three])):
        status, headers, reply = ask(port, "GET", MODEL + path)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert reply == {"model_version_status": versions}


def test_metadata_describes_every_signature(port):
    status, _, reply = ask(port, "GET", f"{MODEL}/versions/3/metadata")
    assert status == 200 and list(reply) == ["model_spec", "metadata"]
    assert reply["model_spec"] == {"name": "toy", "signature_name": "", "version": "3"}
    signatures = reply["metadata"]["signature_def"]["signature_def"]
    assert signatures.keys() == {"serving_default", *INPUTS}
    sample = signatures["sample"]
    assert sample.keys() == {"inputs", "outputs", "method_name", "defaults"}
    assert sample["method_name"] == "tensorflow/serving/predict" and sample["defaults"] == {}
    types = {name: tensor["dtype"] for name, tensor in sample["inputs"].items()}
    assert types == {
        name: "DT_FLOAT" if dtype == "float32" else f"DT_{dtype.upper()}" for name, dtype in INPUTS["sample"].items()
    }
    assert sample["inputs"]["text"]["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}


def test_rows_and_columns_get_the_same_translations(port):
    texts = ["ein Haus", "", "ö😀\n"]
    scores = [len(text.encode()) * toy.WEIGHT for text in texts]
    translations = [toy.translation(text, 5).decode() for text in texts]
    rows = [{"translation": t, "score": s} for t, s in zip(translations, scores, strict=True)]
    for body, reply in (
        ({"instances": texts}, {"predictions": rows}),
        ({"instances": [{"text": text} for text in texts]}, {"predictions": rows}),
        ({"signature_name": "translate", "inputs": texts}, {"outputs": {"translation": translations, "score": scores}}),
        ({"inputs": {"text": texts}}, {"outputs": {"translation": translations, "score": scores}}),
        ({"signature_name": "", "instances": texts}, {"predictions": rows}),
    ):
        status, headers, found = ask(port, "POST", PREDICT, body)
        assert (status, headers["Content-Type"], found) == (200, "application/json", reply)


def test_every_signature_answers_with_all_its_inputs(port):
    values = {"text": "a b", "translation": "c", "prefix": "", "seed": 2**40}
    for name, inputs in INPUTS.items():
        row = {key: values.get(key, 0.5 if dtype == "float32" else 2) for key, dtype in inputs.items()}
        status, _, reply = ask(port, "POST", PREDICT, {"signature_name": name, "instances": [row, row]})
        assert status == 200 and reply["predictions"][0] == reply["predictions"][1], name
        status, _, columns = ask(port, "POST", PREDICT, {"signature_name": name, "inputs": {k: [v] for k, v in row.items()}})  # fmt: skip # noqa: E501
        assert status == 200 and {key: [value] for key, value in reply["predictions"][0].items()} == columns["outputs"]


@pytest.mark.parametrize(
    ("path", "version"),
    [
        (PREDICT, 5),
        (f"{MODEL}/versions/3:predict", 3),
        (f"{MODEL}/labels/stable:predict", 3),
        (f"{MODEL}/versions/5:predict", 5),
        ("/V1/Models/toy/Versions/3:Predict", 3),
        ("/v1/models/%74oy:predict", 5),
    ],
)
def test_the_path_says_which_version(port, path, version):
    assert ask(port, "POST", path, {"instances": ["a"]})[2]["predictions"][0]["translation"] == f"{version}:A"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/foo", 400, "Malformed request: GET /v1/foo"),
        ("POST", "/v1/foo", 400, "Malformed request: POST /v1/foo"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("POST", "/v1/models", 400, "Malformed request: POST /v1/models"),
        ("GET", "/v1/models/", 400, "Malformed request: GET /v1/models/"),
        ("GET", PREDICT, 400, f"Malformed request: GET {PREDICT}"),
        ("PUT", PREDICT, 400, f"Malformed request: PUT {PREDICT}"),
        ("DELETE", MODEL, 400, f"Malformed request: DELETE {MODEL}"),
        ("OPTIONS", PREDICT, 400, f"Malformed request: OPTIONS {PREDICT}"),
        ("POST", MODEL, 400, f"Malformed request: POST {MODEL}"),
        ("POST", "/v1/models/toy/version/3:predict", 400, "Malformed request: POST /v1/models/toy/version/3:predict"),
        ("POST", f"{MODEL}/versions/x:predict", 400, f"Malformed request: POST {MODEL}/versions/x:predict"),
        ("POST", f"{PREDICT}?a=1", 400, f"Malformed request: POST {PREDICT}?a=1"),
        ("GET", f"{MODEL}/versions/{2**63}", 400, f"Failed to convert version: {2**63} to numeric."),
        ("GET", f"{MODEL}/versions/4", 404, "Could not find version 4 of model toy"),
        ("GET", "/v1/models/foo", 404, "Could not find any versions of model foo"),
        ("GET", "/v1/models/foo/metadata", 404, "Servable not found for request: Latest(foo)"),
        ("GET", f"{MODEL}/labels/canary", 400, "Unrecognized servable version label: canary"),
        ("POST", f"{MODEL}:classify", 501, "classify is not offered, only predict."),
        ("GET", "/nope", 404, "Not Found"),
    ],
)
def test_other_paths_are_refused(port, method, path, status, message):
    assert error_of(port, method, path) == (status, message)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/foo:predict", b"", 400, "JSON Parse error: The document is empty"),
        (PREDICT, b"{'instances'}", 400, "JSON Parse error: Missing a name for object member. at offset: 1"),
        ("/v1/models/foo:predict", b"[]", 400, "JSON Value: [] Is not object"),
        ("/v1/models/foo:predict", b'{"signature_name": 1}', 400, "'signature_name' key must be a string value."),
        ("/v1/models/foo:predict", b'{"signature_name": "x"}', 404, "Servable not found for request: Latest(foo)"),
        ("/v1/models/foo/versions/50:predict", b"{}", 404, "Servable not found for request: Specific(foo, 50)"),
        (f"{MODEL}/versions/4:predict", b"{}", 404, "Servable not found for request: Specific(toy, 4)"),
        (f"{MODEL}/labels/canary:predict", b"{}", 400, "Unrecognized servable version label: canary"),
        (PREDICT, b'{"signature_name": "x"}', 400, 'Serving signature name: "x" not found in signature def'),
        (PREDICT, b"{}", 400, "Missing 'inputs' or 'instances' key"),
        (PREDICT, b'{"instances": [1]}', 400, "JSON Value: 1 Type: Number is not of expected type: string"),
        (PREDICT, b'{"inputs": "a"}', 400, "text"),
        (PREDICT, b'{"instances": [["a"]]}', 400, "text"),
    ],
)
def test_a_request_is_checked_from_outside_to_inside(port, path, body, status, message):
    found_status, found_message = error_of(port, "POST", path, body)
    assert found_status == status and message in found_message


def test_gzip_bodies_are_inflated(port):
    body = gzip.compress(b'{"instances": ["a"]}')
    headers = {"Content-Encoding": "gzip"}
    assert ask(port, "POST", PREDICT, body, headers)[2]["predictions"][0]["translation"] == "5:A"
    assert error_of(port, "POST", PREDICT, b"{}", headers) == (
        400,
        "The body is not gzip, as its Content-Encoding says.",
    )
    assert error_of(port, "POST", PREDICT, body[:-3], headers) == (400, "The gzip body ends too early.")


def test_a_gzip_bomb_is_refused_before_it_is_inflated():
    bomb = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="1009 bytes"):
            inflate(bomb, 1009)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert inflate(gzip.compress(bytes(1009)), 1009) == bytes(1009)


def test_a_body_that_is_too_long_is_refused_and_the_connection_goes_on(port):
    connection = http.client.HTTPConnection(HOST, port, timeout=DEADLINE_SECONDS)
    status, _, reply = ask(port, "POST", PREDICT, bytes(3_000_000), connection=connection)
    assert (status, reply) == (413, {"error": "The body must not be longer than 100003 bytes."})
    chunks = iter([b'{"instances": ["a', *[b"b" * 50_000] * 3, b'"]}'])
    status, *_ = ask(port, "POST", PREDICT, chunks, connection=connection)
    assert status == 413
    assert ask(port, "POST", PREDICT, b'{"instances": ["a"]}', connection=connection)[0] == 200


def test_a_long_body_within_the_limit_is_answered(port):
    text = 90_001 * "x"
    assert ask(port, "POST", PREDICT, {"inputs": [text]})[2]["outputs"]["translation"] == [f"5:{text.upper()}"]


def test_an_answer_that_takes_too_long_is_504(backend, page):
    with serve(backend.predictor, backend.models, page, timeout_s=0.2) as port:
        assert error_of(port, "POST", PREDICT, {"instances": ["wait 20" + SOON_DONE * " "]})[0] == 504
        assert ask(port, "POST", PREDICT, {"instances": ["a"]})[0] == 200


def test_pages_of_other_sites_may_ask_if_told_so(backend, page, port):
    names = [f"Access-Control-Allow-{name}" for name in ("Origin", "Methods", "Headers")]
    with serve(backend.predictor, backend.models, page, has_cors=True) as open_port:
        for method, path, body in (("OPTIONS", PREDICT, None), ("POST", PREDICT, b"{}"), ("GET", MODEL, None)):
            _, headers, _ = ask(open_port, method, path, body)
            assert [headers[name] for name in names] == ["*", "POST, GET", "Content-Type"]
        assert ask(open_port, "OPTIONS", PREDICT)[0] == 200
    assert ask(port, "GET", MODEL)[1][names[0]] is None


def test_the_page_its_models_and_the_metrics_are_there(port):
    ask(port, "POST", PREDICT, {"instances": ["a"]})
    status, headers, content = ask(port, "GET", "/")
    assert (status, content) == (200, b"<h1>Translate</h1>") and headers["Content-Type"].startswith("text/html")
    assert ask(port, "GET", "/page.css")[2] == b"body {}"
    assert ask(port, "GET", "/page/models")[2] == {"models": ["toy"]}
    status, headers, content = ask(port, "GET", "/monitoring/prometheus/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    assert re.search(rb"^# TYPE :tensorflow:serving:request_count counter$", content, re.MULTILINE)


def test_rows_and_texts_beyond_the_limits_are_refused(backend, page):
    predictor = Predictor(backend.models, limits=Limits(max_rows=3, max_bytes_per_row=7))
    with serve(predictor, backend.models, page) as port:
        for texts, status in ((3 * ["a"], 200), (4 * ["a"], 400), (["1234567"], 200), (["a", "öööö"], 400)):
            assert ask(port, "POST", PREDICT, {"instances": texts})[0] == status
    predictor.stop()


def test_what_finds_the_queue_full_is_503_at_once(backend, page):
    predictor, asked = Predictor(backend.models, limits=Limits(max_queued=1)), 11
    with serve(predictor, backend.models, page) as port:
        with concurrent.futures.ThreadPoolExecutor(asked) as clients:
            replies = [clients.submit(ask, port, "POST", PREDICT, {"instances": ["wait 1"]}) for _ in range(asked)]
            statuses = [reply.result()[0] for reply in concurrent.futures.as_completed(replies)]
        assert statuses == sorted(statuses, reverse=True) and {*statuses} == {200, 503}
        assert ask(port, "POST", PREDICT, {"instances": ["a"]})[0] == 200
    predictor.stop()


class Answers:
    """A predictor with prepared futures."""

    def __init__(self, *futures):
        self.metrics = Metrics()
        self.futures = iter(futures)
        self.was_asked = threading.Event()

    def submit(self, *arguments, **options):
        self.was_asked.set()
        future = next(self.futures)
        if isinstance(future, Exception):
            raise future
        return future


def failed(error):
    future = concurrent.futures.Future()
    future.set_exception(error)
    return future


def test_every_error_of_the_predictor_has_its_status(backend, page):
    codes = [code for code in HTTP_STATUS if code != grpc.StatusCode.OK]
    errors = [ServingError(code, f"It is {code.name}.") for code in codes]
    with serve(Answers(*errors, *map(failed, errors)), backend.models, page) as port:
        for code in codes + codes:
            expected = HTTP_STATUS[code], f"It is {code.name}."
            assert error_of(port, "POST", PREDICT, {"instances": ["a"]}) == expected


def test_while_the_queue_is_full_requests_to_that_model_are_refused_unread(backend, page, monkeypatch):
    monkeypatch.setattr("serving.overload.REMEMBERED", 60)
    answer = concurrent.futures.Future()
    answer.set_result(Prediction(3, "translate", {"x": np.array([b"fine"], object)}))
    full = threading.Event()
    full.set()
    refusal = QueueFullError(grpc.StatusCode.UNAVAILABLE, "It is full.", full.is_set)
    predictor = Answers(refusal, answer)
    with serve(predictor, backend.models, page, metrics_page=predictor.metrics.page) as port:
        for body in ({"instances": ["a"]}, {"instances": ["b"]}, b"no JSON"):  # only the first is read
            assert error_of(port, "POST", PREDICT, body) == (503, "It is full.")
        assert ask(port, "GET", MODEL)[0] == 200
        counted = b'request_count{model_name="toy",status="UNAVAILABLE"} 2\n'  # the first is counted by who refuses it
        assert counted in ask(port, "GET", "/monitoring/prometheus/metrics")[2]
        full.clear()
        assert ask(port, "POST", PREDICT, {"instances": ["a"]})[2] == {"predictions": ["fine"]}


def test_a_request_whose_room_is_taken_after_its_head_has_arrived_is_refused_unread(backend, page, monkeypatch):
    monkeypatch.setattr("serving.overload.REMEMBERED", 60)
    is_full = iter([False, True])
    predictor = Answers(QueueFullError(grpc.StatusCode.UNAVAILABLE, "It is full.", lambda: next(is_full)))
    with serve(predictor, backend.models, page) as port:
        for body in ({"instances": ["a"]}, b"no JSON"):
            assert error_of(port, "POST", PREDICT, body) == (503, "It is full.")


def test_a_mistake_of_ours_is_500_and_the_log_does_not_tell_the_text(backend, page, caplog):
    with serve(Answers(failed(KeyError("my secret"))), backend.models, page) as port:
        assert error_of(port, "POST", PREDICT, {"instances": ["my secret"]}) == (500, "Internal error.")
    assert "KeyError in " in caplog.text and "secret" not in caplog.text


def test_a_predictor_that_never_answers_is_504_too(backend, page):
    future = concurrent.futures.Future()
    with serve(Answers(future), backend.models, page, timeout_s=0.11) as port:
        expected = 504, "The answer took longer than 0.11 s."
        assert error_of(port, "POST", PREDICT, {"instances": ["a"]}) == expected
    assert future.cancelled()


def test_what_a_client_waits_for_is_given_up_when_it_goes(backend, page):
    future, answer = concurrent.futures.Future(), concurrent.futures.Future()
    answer.set_result(Prediction(3, "translate", {"x": np.array([b"fine"], object)}))
    predictor, given_up = Answers(future, answer), threading.Event()
    future.add_done_callback(lambda _: given_up.set())
    with serve(predictor, backend.models, page, timeout_s=10 * DEADLINE_SECONDS) as port:
        connection = http.client.HTTPConnection(HOST, port, timeout=DEADLINE_SECONDS)
        connection.request("POST", PREDICT, b'{"instances": ["a"]}')
        assert predictor.was_asked.wait(DEADLINE_SECONDS)
        connection.close()
        assert given_up.wait(DEADLINE_SECONDS) and future.cancelled()
        assert ask(port, "POST", PREDICT, {"instances": ["a"]})[2] == {"predictions": ["fine"]}


KEYS = st.sampled_from(["instances", "inputs", "signature_name", "x"])
BODIES = st.dictionaries(KEYS, JSON | st.sampled_from([*INPUTS])) | JSON


def damaged(body, place):
    """A body, and what becomes of it when a byte is lost, changed or doubled, or the connection is cut."""
    place %= len(body) or 1
    yield from (body, body[:place], body[place:], body[:place] + body[place + 1 :], body[: place + 1] + body[place:])
    yield from (body[:place] + bytes([byte]) + body[place + 1 :] for byte in b'\xff\x00"[{\\')


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BODIES, st.integers(0, 999), st.sampled_from([PREDICT, f"{MODEL}/labels/stable:predict"]))
def test_no_body_is_a_500_or_a_hang(fuzz_connection, body, place, path):
    for content in damaged(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"), place):
        status, _, reply = ask(None, "POST", path, content, connection=fuzz_connection)
        assert status in (200, 400), (content, status, reply)
        assert list(reply) in (["error"], ["predictions"], ["outputs"])


@pytest.fixture(scope="module")
def fuzz_connection(port):
    return http.client.HTTPConnection(HOST, port, timeout=DEADLINE_SECONDS)
