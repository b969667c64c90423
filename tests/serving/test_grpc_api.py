import contextlib
import threading
import time
from concurrent.futures import Future

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from keras_transformer.translation.options import INPUTS
from serving.errors import ServingError
from serving.grpc_api import LARGE_REQUEST_BYTES, start_grpc_server
from serving.metrics import Metrics
from serving.model_config import ModelConfig
from serving.models import Models
from serving.overload import QueueFullError
from serving.predictor import Prediction, Predictor
from tests.serving import toy

VERSION = 7
SECONDS = 60  # that a test waits at most


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    toy.write(base_path, VERSION)
    models = Models([ModelConfig("toy", str(base_path), labels={"stable": VERSION})])
    models.start()
    models.wait_until_available(SECONDS)
    yield models
    models.stop()


@pytest.fixture(scope="module")
def target(models):
    predictor = Predictor(models)
    server = start_grpc_server(predictor, models, port=0)
    yield f"127.0.0.1:{server.port}"
    server.stop()
    predictor.stop()


@contextlib.contextmanager
def serving(predictor, models=None, **options):
    server = start_grpc_server(predictor, models, port=0, **options)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield server, prediction_service_pb2_grpc.PredictionServiceStub(channel)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def channel(target):
    with grpc.insecure_channel(target) as channel:
        yield channel


@pytest.fixture(scope="module")
def prediction(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def model_service(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def request_for(texts=("one", "größe"), name="toy", signature="", inputs=None, **fields):
    inputs = {"text": list(texts)} if inputs is None else inputs
    protos = {
        key: value if isinstance(value, TensorProto) else tf.make_tensor_proto(value) for key, value in inputs.items()
    }
    return predict_pb2.PredictRequest(model_spec={"name": name, "signature_name": signature}, inputs=protos, **fields)


def failure(call, request, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS, **options)
    return caught.value.code().name, caught.value.details()


def test_predict_answers_with_outputs_version_and_signature(prediction):
    response = prediction.Predict(request_for(), timeout=SECONDS)
    assert {**response.outputs}.keys() == {"translation", "score"}
    texts = [toy.translation(text, VERSION) for text in ("one", "größe")]
    assert response.outputs["translation"].string_val == texts
    assert [dim.size for dim in response.outputs["translation"].tensor_shape.dim] == [2]
    assert response.outputs["score"].float_val == [3 * toy.WEIGHT, 7 * toy.WEIGHT]
    assert response.outputs["score"].dtype == tf.float32.as_datatype_enum
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("toy", VERSION, "serving_default")


def test_a_call_without_a_deadline_is_answered(prediction):
    response = prediction.Predict(request_for(["one"]))
    assert response.outputs["translation"].string_val == [toy.translation("one", VERSION)]


def test_a_large_request_is_answered_and_refused_as_a_small_one(prediction):
    text = "long " * (LARGE_REQUEST_BYTES // 4)
    response = prediction.Predict(request_for([text]), timeout=SECONDS)
    assert response.outputs["translation"].string_val == [toy.translation(text, VERSION)]
    code, message = failure(prediction.Predict, request_for([text], name="another"))
    assert (code, message) == failure(prediction.Predict, request_for(["short"], name="another"))
    assert code == "NOT_FOUND"


def test_predict_finds_version_label_and_signature(prediction):
    request = request_for(signature="alternatives")
    request.model_spec.version.value = VERSION
    response = prediction.Predict(request, timeout=SECONDS)
    assert tf.make_ndarray(response.outputs["translations"]).shape == (2, toy.WIDTH)
    assert response.model_spec.signature_name == "alternatives"
    request = request_for()
    request.model_spec.version_label = "stable"
    assert prediction.Predict(request, timeout=SECONDS).model_spec.version.value == VERSION


def test_all_dtypes_of_a_signature_are_read_from_content_and_typed_fields(prediction):
    inputs = {"temperature": np.float32, "top_k": np.int32, "top_p": np.float32, "seed": np.int64}
    arrays = {name: np.array([2, 3], dtype) for name, dtype in inputs.items()}
    packed = {
        name: TensorProto(
            dtype=tf.dtypes.as_dtype(array.dtype).as_datatype_enum,
            tensor_shape={"dim": [{"size": 2}]},
            tensor_content=array.tobytes(),
        )
        for name, array in arrays.items()
    }
    for given in (arrays, packed):
        response = prediction.Predict(
            request_for(signature="sample", inputs={"text": ["a", "b"], **given}), timeout=SECONDS
        )
        assert response.outputs["translation"].string_val == [
            toy.translation("a", VERSION) + b"#2",
            toy.translation("b", VERSION) + b"#3",
        ]


def test_the_output_filter_chooses(prediction):
    response = prediction.Predict(request_for(output_filter=["score"]), timeout=SECONDS)
    assert {**response.outputs}.keys() == {"score"}
    assert failure(prediction.Predict, request_for(output_filter=["score", "x"])) == (
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: x Outputs expected to be in the set {score,translation}.",
    )


def text_proto(**fields):
    return TensorProto(dtype=tf.string.as_datatype_enum, **fields)


@pytest.mark.parametrize(
    "request_, code, message",
    [
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (request_for(name=""), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (request_for(name="other"), "NOT_FOUND", "Servable not found for request: Latest(other)"),
        (request_for(signature="x"), "FAILED_PRECONDITION", 'Serving signature key "x" not found.'),
        (
            request_for(inputs={}),
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1 len({}) != len({text}). Sent extra: {}. "
            "Missing but required: {text}.",
        ),
        (
            request_for(inputs={"text": [1.0]}),
            "INVALID_ARGUMENT",
            "Expects arg[0] to be string but float is provided",
        ),
        (request_for(inputs={"text": text_proto(tensor_shape={"dim": [{"size": 10**12}]})}), "INVALID_ARGUMENT", None),
        (request_for(inputs={"text": text_proto(tensor_shape={"dim": [{"size": -3}]})}), "INVALID_ARGUMENT", None),
        (request_for(inputs={"text": TensorProto()}), "INVALID_ARGUMENT", None),
        (request_for(inputs={"text": "a scalar"}), "INVALID_ARGUMENT", None),
    ],
    ids=[
        "no spec",
        "no name",
        "other model",
        "signature",
        "missing",
        "dtype",
        "huge",
        "negative",
        "empty proto",
        "rank",
    ],
)
def test_a_request_that_makes_no_sense_gets_tensorflow_servings_code_and_message(prediction, request_, code, message):
    found_code, found_message = failure(prediction.Predict, request_)
    assert found_code == code
    assert found_message == message or (message is None and "text" in found_message)


def test_an_unknown_version_or_label_is_named(prediction):
    request = request_for()
    request.model_spec.version.value = 50
    assert failure(prediction.Predict, request) == ("NOT_FOUND", "Servable not found for request: Specific(toy, 50)")
    request.model_spec.version_label = "canary"
    code, message = failure(prediction.Predict, request)
    assert code == "INVALID_ARGUMENT" and "Unrecognized servable version label: canary" in message


def test_bytes_that_are_no_request_are_the_clients_mistake(channel):
    predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    assert failure(predict, b"\xff\xff\xff") == (
        "INVALID_ARGUMENT",
        "The request is no tensorflow.serving.PredictRequest.",
    )


def test_a_long_message_is_cut_off_so_that_it_arrives(prediction):
    code, message = failure(prediction.Predict, request_for(name="x" * 10**5))
    assert code == "NOT_FOUND" and message.endswith("x...TRUNCATED") and len(message) < 1100


def test_what_is_not_served_is_unimplemented(prediction):
    for call, request in (
        (prediction.Classify, classification_pb2.ClassificationRequest()),
        (prediction.Regress, regression_pb2.RegressionRequest()),
        (prediction.MultiInference, inference_pb2.MultiInferenceRequest()),
    ):
        assert failure(call, request)[0] == "UNIMPLEMENTED"


def metadata_request(field="signature_def", name="toy"):
    return get_model_metadata_pb2.GetModelMetadataRequest(model_spec={"name": name}, metadata_field=[field])


def test_metadata_tells_the_signatures(prediction):
    response = prediction.GetModelMetadata(metadata_request(), timeout=SECONDS)
    assert (response.model_spec.name, response.model_spec.version.value) == ("toy", VERSION)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    inputs = {
        name: {key: tf.dtypes.as_dtype(tensor.dtype) for key, tensor in signature.inputs.items()}
        for name, signature in found.signature_def.items()
    }
    expected = {**INPUTS, "serving_default": {"text": "string"}}
    assert inputs == {name: {key: tf.dtypes.as_dtype(x) for key, x in of.items()} for name, of in expected.items()}


def test_metadata_of_something_else_is_refused(prediction):
    empty = get_model_metadata_pb2.GetModelMetadataRequest
    for request, code, message in (
        (empty(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (metadata_request("x"), "INVALID_ARGUMENT", "Metadata field x is not supported"),
        (metadata_request(name="other"), "NOT_FOUND", "Servable not found for request: Latest(other)"),
        (
            empty(model_spec={"name": "toy"}),
            "INVALID_ARGUMENT",
            "GetModelMetadataRequest must specify at least one metadata_field",
        ),
    ):
        assert failure(prediction.GetModelMetadata, request) == (code, message)


def test_status_tells_the_versions(model_service):
    request = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "toy"})
    (status,) = model_service.GetModelStatus(request, timeout=SECONDS).model_version_status
    assert (status.version, status.state, status.status.error_code) == (VERSION, status.AVAILABLE, 0)
    request.model_spec.version.value = 50
    assert failure(model_service.GetModelStatus, request) == ("NOT_FOUND", "Could not find version 50 of model toy")
    request = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "other"})
    assert failure(model_service.GetModelStatus, request) == (
        "NOT_FOUND",
        "Could not find any versions of model other",
    )
    request = get_model_status_pb2.GetModelStatusRequest()
    assert failure(model_service.GetModelStatus, request) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_health_says_that_it_serves(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"):
        response = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS)
        assert response.status == response.SERVING


class Reloaded:
    """Models that note what they are asked to serve."""

    def reload(self, configs, timeout_s=None):
        self.configs, self.timeout_s = configs, timeout_s
        if configs[0].name == "bad":
            raise ServingError(grpc.StatusCode.FAILED_PRECONDITION, "no such directory")


def test_a_config_that_is_sent_is_served_from_then_on():
    models = Reloaded()
    with serving(Held(), models) as (server, _), grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        reload_config = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
        request = model_management_pb2.ReloadConfigRequest()
        assert failure(reload_config, request)[0] == "INVALID_ARGUMENT"
        config = request.config.model_config_list.config.add(name="de", base_path="/de", model_platform="tensorflow")
        config.version_labels["canary"] = 5
        assert reload_config(request, timeout=SECONDS).status.error_code == 0
        (found,) = models.configs
        assert (found.name, found.base_path, found.labels) == ("de", "/de", {"canary": 5})
        assert SECONDS / 2 < models.timeout_s < SECONDS + 1
        config.name = "bad"
        assert failure(reload_config, request) == ("FAILED_PRECONDITION", "no such directory")


class Held:
    """A predictor that answers when it is told to."""

    def __init__(self):
        self.metrics = Metrics()
        self.futures = []
        self.timeouts = []
        self.changed = threading.Condition()

    def submit(self, model, signature_name, inputs, outputs=None, timeout_s=None):
        with self.changed:
            self.futures.append(Future())
            self.timeouts.append(timeout_s)
            self.changed.notify_all()
        return self.futures[-1]

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.futures) >= count, SECONDS)
        return self.futures[count - 1]


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


ANSWER = Prediction(3, "translate", {"score": np.array([5.0], np.float32)})


def test_the_clients_deadline_bounds_the_run():
    predictor = Held()
    with serving(predictor) as (_, stub):
        for count, timeout in enumerate((50.0, None), start=1):
            call = stub.Predict.future(request_for(), timeout=timeout)
            predictor.wait_for(count).set_result(ANSWER)
            assert call.result(SECONDS).outputs["score"].float_val == [5.0]
        given, none = predictor.timeouts
        assert 25 < given < 51 and none is None


def test_a_call_that_is_cancelled_or_too_late_is_not_run():
    predictor = Held()
    with serving(predictor) as (_, stub):
        call = stub.Predict.future(request_for())
        future = predictor.wait_for(1)
        call.cancel()
        wait_until(future.cancelled)
        call = stub.Predict.future(request_for(), timeout=0.2)
        wait_until(predictor.wait_for(2).cancelled)
        assert call.exception(SECONDS).code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_calls_beyond_the_limit_are_refused_at_once_and_others_are_answered_meanwhile(models):
    predictor = Held()
    with serving(predictor, models, max_calls=2) as (server, stub):
        calls = [stub.Predict.future(request_for()) for _ in range(2)]
        predictor.wait_for(2)
        code, message = failure(stub.Predict, request_for())
        assert code == "UNAVAILABLE" and "2" in message
        assert stub.GetModelMetadata(metadata_request(), timeout=SECONDS).model_spec.name == "toy"
        for future in predictor.futures:
            future.set_result(ANSWER)
        assert [call.result(SECONDS).model_spec.version.value for call in calls] == [3, 3]
        call = stub.Predict.future(request_for())
        predictor.wait_for(3).set_result(ANSWER)
        assert call.result(SECONDS).outputs["score"].float_val == [5.0]


class Full(Held):
    """A predictor whose first request finds the queue full."""

    def __init__(self):
        super().__init__()
        self.is_full = True
        self.was_asked = 0

    def submit(self, *arguments, **options):
        self.was_asked += 1
        if self.was_asked == 1:
            raise QueueFullError(grpc.StatusCode.UNAVAILABLE, "It is full.", lambda: self.is_full)
        future = super().submit(*arguments, **options)
        future.set_result(ANSWER)
        return future


def test_while_the_queue_of_a_signature_is_full_its_requests_are_refused_at_once(monkeypatch):
    monkeypatch.setattr("serving.overload.REMEMBERED", 60)
    predictor = Full()
    with serving(predictor) as (_, stub):
        for _ in range(3):
            assert failure(stub.Predict, request_for()) == ("UNAVAILABLE", "It is full.")
        assert predictor.was_asked == 1
        assert 'request_count{model_name="toy",status="UNAVAILABLE"} 2\n' in predictor.metrics.page()
        predictor.is_full = False
        assert stub.Predict(request_for(), timeout=SECONDS).outputs["score"].float_val == [5.0]


def test_other_signatures_are_answered_meanwhile():
    predictor = Full()
    with serving(predictor) as (_, stub):
        assert failure(stub.Predict, request_for())[0] == "UNAVAILABLE"
        response = stub.Predict(request_for(signature="translate"), timeout=SECONDS)
        assert response.outputs["score"].float_val == [5.0]


def test_if_no_other_signature_was_asked_for_lately_predictions_are_refused_unread_and_the_rest_is_answered(
    monkeypatch, models
):
    monkeypatch.setattr("serving.overload.REMEMBERED", 60)
    monkeypatch.setattr("serving.overload.ALONE", 0)
    predictor, unreadable = Full(), b"\xff" * 1_000_000  # more than a connection takes on before some of it is read
    with serving(predictor, models) as (server, stub), grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert failure(predict, unreadable)[0] == "INVALID_ARGUMENT"
        assert failure(stub.Predict, request_for()) == ("UNAVAILABLE", "It is full.")
        for _ in range(20):
            assert failure(predict, unreadable) == ("UNAVAILABLE", "It is full.")
        assert 'request_count{model_name="toy",status="UNAVAILABLE"} 20\n' in predictor.metrics.page()
        metadata = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec={"name": "toy"}, metadata_field=["signature_def"]
        )
        assert stub.GetModelMetadata(metadata, timeout=SECONDS).model_spec.version.value == VERSION
        predictor.is_full = False
        assert stub.Predict(request_for(), timeout=SECONDS).outputs["score"].float_val == [5.0]


def test_errors_of_the_future_are_answered_and_of_others_the_log_has_the_kind_but_no_text(caplog):
    predictor = Held()
    with serving(predictor) as (_, stub):
        full = ServingError(grpc.StatusCode.UNAVAILABLE, "The queue is full.")
        for count, error in enumerate((full, ZeroDivisionError("a user's text")), start=1):
            call = stub.Predict.future(request_for())
            predictor.wait_for(count).set_exception(error)
            found = call.exception(SECONDS)
            expected = ("UNAVAILABLE", "The queue is full.") if error is full else ("INTERNAL", "Internal error.")
            assert (found.code().name, found.details()) == expected
    assert "ZeroDivisionError" in caplog.text and "text" not in caplog.text


def test_a_server_that_stops_answers_what_is_under_way_and_nothing_else():
    predictor = Held()
    with serving(predictor) as (server, stub):
        call = stub.Predict.future(request_for())
        predictor.wait_for(1)
        stopping = threading.Thread(target=server.stop, args=(SECONDS,))
        stopping.start()
        refused = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        wait_until(lambda: stub.Predict.future(request_for(), timeout=0.3).exception(SECONDS).code() in refused)
        predictor.futures[0].set_result(ANSWER)
        assert call.result(SECONDS).outputs["score"].float_val == [5.0]
        stopping.join(SECONDS)
        assert not stopping.is_alive()


def test_a_port_that_is_taken_is_said_and_not_shared(target):
    with pytest.raises(OSError, match=f"must be free. Received: {target}"):
        start_grpc_server(Held(), None, port=int(target.rpartition(":")[2]))
