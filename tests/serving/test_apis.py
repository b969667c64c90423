"""REST and gRPC of the toy, and of predictors that are made up."""

import http.client
import sys
import threading
from concurrent.futures import Future
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.errors import ServingError
from serving.grpc_api import GrpcServer
from serving.http_server import LONGEST_HEAD, HttpServer
from serving.metrics import Metrics
from serving.predictor import Prediction
from serving.servable import SOON_DONE
from serving.smoke_test import ODD_TEXTS, main
from tests.serving import fake, toy
from tests.serving.live import DEADLINE_SECONDS as SECONDS
from tests.serving.live import HOST, METRICS, ask, backend, connect, refusal, serve, serve_grpc, wait_for

MODEL = "/v1/models/toy"
PREDICT = f"{MODEL}:predict"


def error_of(port, body):
    status, _, reply = ask(port, "POST", PREDICT, body)
    assert list(reply) == ["error"]
    return status, reply["error"]


def test_what_takes_too_long_to_arrive_or_to_answer_is_504(toys):
    with serve(toys.predictor, toys.models, timeout_s=0.3) as port:
        assert error_of(port, {"instances": ["wait 20" + SOON_DONE * " "]})[0] == 504
        with connect(port) as client:
            client.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{".encode())
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 504") and b"did not arrive in 0.3 s" in answer
        assert ask(port, "POST", PREDICT, {"instances": ["a"]})[0] == 200


def test_pages_of_other_sites_may_ask_if_told_so(toys):
    names = [f"Access-Control-Allow-{name}" for name in ("Origin", "Methods", "Headers")]
    with serve(toys.predictor, toys.models, has_cors=True) as open_port:
        for method, path, body in (("OPTIONS", PREDICT, None), ("POST", PREDICT, b"{}"), ("GET", MODEL, None)):
            _, headers, _ = ask(open_port, method, path, body, {"Origin": "http://a"})
            assert [headers[name] for name in names] == ["*", "POST, GET", "Content-Type"]
    assert ask(toys.port, "GET", MODEL)[1][names[0]] is None


def test_the_page_its_models_and_the_metrics_are_there(toys):
    for path, kind, words in (
        ("/", "text/html", b"<title>"),
        ("/page.css", "text/css", b""),
        (METRICS, "text/plain", b"# TYPE :tensorflow:serving:request_count counter\n"),
    ):
        status, headers, content = ask(toys.port, "GET", path)
        assert status == 200 and headers["Content-Type"].startswith(kind) and words in content
    assert ask(toys.port, "GET", "/page/models")[2] == {"models": ["toy"]}
    assert ask(toys.port, "GET", "/nope")[::2] == (404, {"error": "Not Found"})
    metrics = Metrics()
    metrics.request_ended('a"\n\\', "OK", 0.5, "predict", "REST")  # a name cannot break the page
    assert r':tensorflow:serving:request_count{model_name="a\"\n\\",status="OK"} 1' in metrics.page().splitlines()


def test_every_error_of_the_predictor_has_its_status_and_a_mistake_of_ours_tells_no_text(toys, caplog):
    statuses = {"OK": 200, "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504}
    statuses |= {"NOT_FOUND": 404, "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429}
    statuses |= {"FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500}
    statuses |= {"UNAVAILABLE": 503, "DATA_LOSS": 500, "UNAUTHENTICATED": 401}  # those of TensorFlow Serving
    assert {code.name: ServingError(code, "").http_status for code in grpc.StatusCode} == statuses
    full = ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, "The queue is full.")
    with serve(fake.Predictor(Mock(side_effect=[full, KeyError("my secret")])), toys.models) as port:
        assert error_of(port, {"instances": ["a"]}) == (429, full.message)
        assert error_of(port, {"instances": ["my secret"]}) == (500, "Internal error.")
    assert "KeyError in " in caplog.text and "secret" not in caplog.text


def test_a_port_that_is_taken_and_heads_that_are_wrong_are_told(toys):
    taken = f"cannot listen on {HOST}:{toys.port}: Address already in use"
    for host, told in ((HOST, taken), ("1::2", "cannot listen on [1::2]:"), ("a..b", "cannot listen on a..b:")):
        assert told in str(pytest.raises(OSError, HttpServer, None, host, toys.port, 1).value)
    told = str(pytest.raises(OSError, GrpcServer, fake.Held(), None, toys.address).value)
    assert f"must be free. Received: {toys.address}" in told  # and is not shared
    for head in (b"GET / HTTP/1.1\r\nX: " + 2 * LONGEST_HEAD * b"a", b"nonsense\r\n\r\n"):
        with connect(toys.port) as client:
            client.sendall(head)
            assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_what_a_client_waits_for_is_given_up_when_it_goes_or_its_time_is_over(toys):
    predictor = fake.Held()
    with serve(predictor, toys.models, timeout_s=2.0) as port:  # enough for a busy machine to read the body
        connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
        connection.request("POST", PREDICT, b'{"instances": ["a"]}')
        gone = predictor.wait_for(1)
        connection.close()
        wait_for(gone.cancelled)
        assert error_of(port, {"instances": ["a"]}) == (504, "Timed out waiting for the answer.")
        wait_for(predictor.wait_for(2).cancelled)


def request_for(*texts):
    inputs = {"text": tf.make_tensor_proto(texts or ["one"])}
    return predict_pb2.PredictRequest(model_spec={"name": "toy"}, inputs=inputs)


@pytest.fixture
def held():
    """A predictor whose futures a test answers, and its `Predict`."""
    predictor = fake.Held()
    with serve_grpc(predictor, {}) as address, grpc.insecure_channel(address) as channel:
        yield predictor, PredictionServiceStub(channel).Predict


def test_predict_answers_in_typed_fields_and_what_is_not_offered_is_unimplemented(toys):
    response = toys.predict(request_for("one", "größe"))
    assert response.outputs["translation"].string_val == [toy.translation(text, 3) for text in ("one", "größe")]
    assert [dim.size for dim in response.outputs["translation"].tensor_shape.dim] == [2]
    assert response.outputs["score"].float_val == [3 * toy.WEIGHT, 7 * toy.WEIGHT]
    stub = PredictionServiceStub(toys.channel)
    assert refusal(stub.Classify, classification_pb2.ClassificationRequest())[0] == "UNIMPLEMENTED"


ANSWER = Prediction(3, "translate", {"score": np.array([5.0], np.float32)})


def test_the_clients_deadline_bounds_the_run_and_a_call_that_is_cancelled_or_too_late_is_not_run(held):
    predictor, predict = held
    for count, timeout in enumerate((50.0, None), start=1):
        call = predict.future(request_for(), timeout=timeout)
        predictor.wait_for(count).set_result(ANSWER)
        assert call.result(SECONDS).outputs["score"].float_val == [5.0]
    given, none = predictor.timeouts
    assert 25 < given < 51 and none is None
    call, future = predict.future(request_for()), predictor.wait_for(3)
    call.cancel()
    wait_for(future.cancelled)
    call = predict.future(request_for(), timeout=0.2)
    wait_for(predictor.wait_for(4).cancelled)
    assert call.exception(SECONDS).code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_errors_of_the_future_are_answered_and_of_others_the_log_has_the_kind_but_no_text(held, caplog):
    predictor, predict = held
    full = ServingError(grpc.StatusCode.UNAVAILABLE, "The queue is full.")
    for count, error in enumerate((full, ZeroDivisionError("a user's text")), start=1):
        call = predict.future(request_for())
        predictor.wait_for(count).set_exception(error)
        expected = ("UNAVAILABLE", "The queue is full.") if error is full else ("INTERNAL", "Internal error.")
        assert refusal(call.result, SECONDS) == expected
    assert "ZeroDivisionError" in caplog.text and "text" not in caplog.text


def test_a_server_that_stops_answers_what_is_under_way_and_nothing_else():
    predictor = fake.Held()
    server = GrpcServer(predictor, {}, f"{HOST}:0")
    with grpc.insecure_channel(f"{HOST}:{server.port}") as channel:
        predict = PredictionServiceStub(channel).Predict
        call = predict.future(request_for())
        predictor.wait_for(1)
        stopping = threading.Thread(target=server.stop, args=(SECONDS,))
        stopping.start()
        refused = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        wait_for(lambda: predict.future(request_for(), timeout=0.3).exception(SECONDS).code() in refused)
        predictor.futures[0].set_result(ANSWER)
        assert call.result(SECONDS).outputs["score"].float_val == [5.0]
        stopping.join(SECONDS)
        assert not stopping.is_alive()


# The smoke test.


class Spoilt:
    """A predictor that depends on the neighbours of a text, and that refuses control characters."""

    def __init__(self, predictor):
        self._predictor, self.metrics = predictor, predictor.metrics

    def submit(self, model, signature_name, inputs, outputs=None, **options):
        found, future = self._predictor.submit(model, signature_name, inputs, outputs, **options).result(60), Future()
        if any(b"\x1b" in text for text in inputs["text"]):
            raise ServingError(grpc.StatusCode.INTERNAL, "what a text")
        score = found.outputs["score"] - len(inputs["text"])
        future.set_result(found._replace(outputs=found.outputs | {"score": score.astype("float32")}))
        return future


@pytest.fixture
def check(toys, monkeypatch, capsys):
    """Function (predictor, model) -> exit status and the lines of the table of a smoke test of the whole."""

    def run(predictor, model="toy", models=toys.models):
        with serve(predictor, models) as port, serve_grpc(predictor, models) as address:
            flags = ["--url", f"http://{HOST}:{port}", "--grpc", address, "--model_name", model]
            monkeypatch.setattr(sys, "argv", ["smoke_test", *flags])
            status = pytest.raises(SystemExit, main).value.code
        return status, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.parametrize("is_many", [False, True])
def test_our_server_is_as_tensorflow_serving_in_everything_that_is_checked(tmp_path, check, is_many):
    toy.write(tmp_path, 3, is_many)
    with backend({"m": tmp_path}) as found:
        status, lines = check(found.predictor, "m", found.models)
    assert [line for line in lines[:-1] if not line.startswith("ok ")] == []
    assert status == 0 and lines[-1] == f"{len(lines) - 1} of {len(lines) - 1} as TensorFlow Serving"
    assert len(lines) > 30


def test_what_falls_short_is_said_and_nothing_else(toys, check):
    status, lines = check(Spoilt(toys.predictor))
    failed = [line.removeprefix("FAIL ").partition(" found ")[0] for line in lines if line.startswith("FAIL")]
    odd = [f"answers {name}" for name in ODD_TEXTS] + ["a row gives the same alone as beside others"]
    assert status == 1 and sorted(failed) == sorted(f"{api} {promise}" for promise in odd for api in ("REST", "gRPC"))
    status, lines = check(toys.predictor, "other")
    assert status == 1 and any("FAIL gRPC texts give" in line and "Servable not found" in line for line in lines)
