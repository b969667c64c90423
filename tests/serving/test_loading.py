import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving.errors import ServingError
from serving.loading import MOST_WARM_UP_RECORDS, WARM_UP, Loader
from tests.serving import toy


def record(*texts, signature="translate"):
    log = PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(list(texts), tf.string))
    return log


@pytest.fixture
def with_warm_up(tmp_path):
    """A function from records to the path of a version with them."""

    def write(*logs):
        path = toy.write(tmp_path, 3)
        (path / WARM_UP).parent.mkdir()
        with tf.io.TFRecordWriter(str(path / WARM_UP)) as writer:
            for log in logs:
                writer.write(log.SerializeToString())
        return path

    return write


def refusal(loader, path):
    with pytest.raises(ServingError) as caught:
        loader.load("toy", 3, path)
    return caught.value


def test_a_loaded_version_answers_and_is_counted(with_warm_up):
    loader = Loader()
    path = with_warm_up(record("a", "b"), record("c", signature="explain"))
    servable = loader.load("toy", 3, path)
    found = servable.run("", {"text": np.array([b"x"], object)})
    servable.close()
    assert list(found["translation"]) == [toy.translation("x", 3)]
    page = loader.metrics.page()
    assert f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{path}",status="success"}} 1' in page
    assert f':tensorflow:serving:model_warmup_latency_count{{model_path="{path}",status="OK"}} 1' in page


def test_a_failing_record_fails_the_load(with_warm_up):
    loader = Loader()
    path = with_warm_up(record("a"), record("a", "raise"))
    error = refusal(loader, path)
    assert (error.code, error.message) == (StatusCode.INVALID_ARGUMENT, "warm-up: assertion failed: [a text]")
    assert f'model_warmup_latency_count{{model_path="{path}",status="INVALID_ARGUMENT"}} 1' in loader.metrics.page()
    Loader(warm_ups=0).load("toy", 3, path).close()


def test_a_record_whose_tensor_is_broken_fails_the_load_like_any_other(with_warm_up):
    log = record("a")
    log.predict_log.request.inputs["text"].dtype = 99
    assert refusal(Loader(), with_warm_up(log)).message.startswith("warm-up: ")


def test_records_for_other_calls_are_refused(with_warm_up):
    log = PredictionLog()
    log.classify_log.request.model_spec.name = "toy"
    assert refusal(Loader(), with_warm_up(log)).code == StatusCode.UNIMPLEMENTED


def test_more_records_than_tensorflow_serving_allows_are_refused(with_warm_up):
    path = with_warm_up(*[record("a")] * (MOST_WARM_UP_RECORDS + 1))
    assert refusal(Loader(), path).code == StatusCode.INVALID_ARGUMENT


def test_a_broken_warm_up_file_fails_the_load(with_warm_up):
    path = with_warm_up(record("a"))
    (path / WARM_UP).write_bytes((path / WARM_UP).read_bytes()[:-3])
    assert refusal(Loader(), path).code == StatusCode.DATA_LOSS


def test_a_version_that_cannot_be_loaded_is_counted(tmp_path):
    loader = Loader()
    assert refusal(loader, tmp_path / "3").code == StatusCode.NOT_FOUND
    assert f'load_attempt_count{{model_path="{tmp_path / "3"}",status="fail"}} 1' in loader.metrics.page()
