import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, inference_pb2, predict_pb2, regression_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.errors import ServingError
from serving.grpc_api import GrpcServer
from serving.predictor import Prediction
from tests.serving import fake, toy
from tests.serving.live import HOST, refusal, serve_grpc, wait_for

VERSION = 3
SECONDS = 60  # that a test waits at most


def request_for(*texts):
    return predict_pb2.PredictRequest(
        model_spec={"name": "toy"}, inputs={"text": tf.make_tensor_proto(texts or ["one"])}
    )


@pytest.fixture
def held():
    """A predictor whose futures a test answers, and its `Predict`."""
    predictor = fake.Held()
    with serve_grpc(predictor, {}) as address, grpc.insecure_channel(address) as channel:
        yield predictor, PredictionServiceStub(channel).Predict


def test_predict_answers_in_typed_fields(toys):
    response = toys.predict(request_for("one", "größe"))
    assert response.outputs["translation"].string_val == [toy.translation(text, VERSION) for text in ("one", "größe")]
    assert [dim.size for dim in response.outputs["translation"].tensor_shape.dim] == [2]
    assert response.outputs["score"].float_val == [3 * toy.WEIGHT, 7 * toy.WEIGHT]


def test_what_is_not_offered_is_unimplemented(toys):
    stub = PredictionServiceStub(toys.channel)
    assert refusal(stub.Classify, classification_pb2.ClassificationRequest())[0] == "UNIMPLEMENTED"
    assert refusal(stub.Regress, regression_pb2.RegressionRequest())[0] == "UNIMPLEMENTED"
    assert refusal(stub.MultiInference, inference_pb2.MultiInferenceRequest())[0] == "UNIMPLEMENTED"


ANSWER = Prediction(3, "translate", {"score": np.array([5.0], np.float32)})


def test_the_clients_deadline_bounds_the_run_and_a_call_that_is_cancelled_or_too_late_is_not_run(held):
    predictor, predict = held
    for count, timeout in enumerate((50.0, None), start=1):
        call = predict.future(request_for(), timeout=timeout)
        predictor.wait_for(count).set_result(ANSWER)
        assert call.result(SECONDS).outputs["score"].float_val == [5.0]
    given, none = predictor.timeouts
    assert 25 < given < 51 and none is None
    call = predict.future(request_for())
    future = predictor.wait_for(3)
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


def test_a_port_that_is_taken_is_said_and_not_shared(toys):
    with pytest.raises(OSError, match=f"must be free. Received: {toys.address}"):
        GrpcServer(fake.Held(), None, toys.address)
