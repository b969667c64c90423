import gc
import threading
import weakref

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode

from serving.batching_parameters import BatchingParameters
from serving.errors import ServingError
from serving.metrics import Metrics
from serving.model_config import ModelConfig
from serving.models import Models
from serving.predictor import Limits, ModelSpec, Predictor
from serving.versions import END
from tests.serving import toy
from tests.serving.deadline import wait_for

TOY = ModelSpec("toy")
BATCHING = BatchingParameters(
    max_batch_size=7, batch_timeout_micros=1000, num_batch_threads=2, max_enqueued_batches=100
)
LIMITS = Limits(max_rows=13, max_bytes_per_row=11, max_queued=3)


def texts(*rows):
    return {"text": np.array([row.encode() for row in rows], dtype=object)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("models")
    toy.write(base_path, 3)
    models = Models([ModelConfig("toy", str(base_path), labels={"stable": 3})], poll_seconds=0.01)
    models.start()
    models.wait_until_available(60)
    yield models
    models.stop(60)


@pytest.fixture(params=[None, BATCHING], ids=["alone", "batching"])
def predictor(models, request):
    predictor = Predictor(models, request.param, LIMITS, Metrics())
    yield predictor
    predictor.stop(60)
    assert not models._uses  # nothing was kept, whatever happened


def error_of(predictor, *arguments, **options):
    with pytest.raises(ServingError) as caught:
        predictor.predict(*arguments, **options)
    return caught.value.code, caught.value.message


def test_an_answer_says_which_version_and_signature_gave_it(predictor):
    for model in (TOY, ModelSpec("toy", 3), ModelSpec("toy", label="stable")):
        version, signature_name, outputs = predictor.predict(model, "", texts("ab", "c"))
        assert (version, signature_name) == (3, "serving_default")
        assert list(outputs["translation"]) == [toy.translation("ab", 3), toy.translation("c", 3)]
        np.testing.assert_allclose(outputs["score"], [2 * toy.WEIGHT, toy.WEIGHT])
    assert set(predictor.predict(TOY, "translate", texts("ab"), ["score"]).outputs) == {"score"}


def test_requests_side_by_side_get_their_own_answers_of_every_signature(predictor):
    def ask(number, answers):
        for name in ("translate", "alternatives", "explain"):
            word = f"w{number}"
            outputs = predictor.predict(TOY, name, texts(word)).outputs
            key = {"translate": "translation", "alternatives": "translations", "explain": "pieces"}[name]
            answers.append(outputs[key].ravel()[0] == toy.translation(word, 3) and len(outputs[key]) == 1)

    answers = []
    threads = [threading.Thread(target=ask, args=[number, answers]) for number in range(3)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert answers == [True] * 9


def test_mistakes_are_told_at_once(predictor):
    invalid = StatusCode.INVALID_ARGUMENT
    assert error_of(predictor, ModelSpec("foo"), "", {})[0] == StatusCode.NOT_FOUND
    assert error_of(predictor, TOY, "x", {})[0] == StatusCode.FAILED_PRECONDITION
    assert error_of(predictor, TOY, "", {})[0] == invalid
    assert error_of(predictor, TOY, "", texts("a"), ["x"])[0] == invalid
    assert error_of(predictor, TOY, "", texts(*"abcdefghijklmn")) == (
        invalid,
        "a request may have 13 rows. Received: 14",
    )
    assert error_of(predictor, TOY, "", texts("a", "b" * 12)) == (
        invalid,
        "a text of input text may have 11 bytes. Received: 12",
    )


def test_an_answer_that_takes_too_long_is_not_waited_for(predictor):
    assert error_of(predictor, TOY, "", texts("wait 0.5"), timeout_s=0.05)[0] == StatusCode.DEADLINE_EXCEEDED


def test_what_the_graph_raises_is_the_answer(predictor):
    assert error_of(predictor, TOY, "", texts("raise")) == (StatusCode.INVALID_ARGUMENT, "assertion failed: [a text]")


def test_every_request_for_a_model_that_exists_is_counted_with_its_status(models):
    metrics = Metrics()
    predictor = Predictor(models, None, LIMITS, metrics)
    predictor.predict(TOY, "", texts("a"), entrypoint="REST")
    predictor.predict(TOY, "", texts("a"))
    for model, signature in ((ModelSpec("toy", 50), ""), (TOY, "x"), (ModelSpec("made up"), "")):
        error_of(predictor, model, signature, texts("a"))
    predictor.stop(60)
    page = metrics.page()
    for status, count in (("OK", 2), ("NOT_FOUND", 1), ("FAILED_PRECONDITION", 1)):
        assert f':tensorflow:serving:request_count{{model_name="toy",status="{status}"}} {count}\n' in page
    assert 'request_latency_count{model_name="toy",API="predict",entrypoint="REST"} 1\n' in page
    assert 'runtime_latency_count{model_name="toy",API="Predict",runtime="TF1"} 2\n' in page
    assert "made up" not in page


def test_without_batching_requests_are_computed_alone_and_too_many_are_refused(models):
    predictor = Predictor(models, None, Limits(max_queued=1), Metrics())
    for _ in predictor._batcher._threads:
        busy = predictor.submit(TOY, "", texts("wait 0.5"))
        wait_for(busy.running)
    waiting = predictor.submit(TOY, "", texts("a", "b"))
    assert error_of(predictor, TOY, "", texts("c"))[0] == StatusCode.UNAVAILABLE
    assert len(waiting.result(60).outputs["score"]) == 2
    predictor.stop(60)


def test_a_signature_without_rows_is_not_batched(tmp_path):
    module = tf.Module()
    module.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([], tf.float32, "x")])
    tf.saved_model.save(module, str(tmp_path / "1"), {"serving_default": module.double})
    models = Models([ModelConfig("m", str(tmp_path))])
    models.start()
    models.wait_until_available(60)
    alone, batching = Predictor(models), Predictor(models, BATCHING)
    assert alone.predict(ModelSpec("m"), "", {"x": np.float32(2)}).outputs == {"y": 4.0}
    assert error_of(batching, ModelSpec("m"), "", {"x": np.float32(2)})[0] == StatusCode.INVALID_ARGUMENT
    for one in (alone, batching, models):
        one.stop(60)


@pytest.mark.slow
def test_twenty_swaps_under_load_lose_no_request_mix_no_versions_and_keep_nothing(tmp_path):
    toy.write(tmp_path, 1)
    models = Models([ModelConfig("toy", str(tmp_path))], poll_seconds=0.01)
    models.start()
    models.wait_until_available(60)
    predictor = Predictor(models, BATCHING, metrics=Metrics())
    is_over, seen, failures = threading.Event(), set(), []

    def client():
        while not is_over.is_set():
            try:
                version, _, outputs = predictor.predict(TOY, "", texts("ab", "c", "d"), timeout_s=60)
                if list(outputs["translation"]) != [toy.translation(text, version) for text in ("ab", "c", "d")]:
                    failures.append((version, outputs))
                seen.add(version)
            except Exception as error:
                failures.append(error)

    clients = [threading.Thread(target=client) for _ in range(3)]
    [thread.start() for thread in clients]
    servables = []
    for version in range(2, 22):
        with models.use("toy") as servable:
            servables.append(weakref.ref(servable))
        del servable
        toy.write(tmp_path, version)
        wait_for(lambda version=version: version in seen and models.status("toy", version - 1)[0].state == END, 60)
    is_over.set()
    [thread.join(60) for thread in clients]
    predictor.stop(60)
    assert failures == [] and seen == set(range(1, 22))
    gc.collect()
    assert [reference() for reference in servables] == [None] * 20
    assert not models._uses and not models._leaving and not predictor._batcher._queues
    models.stop(60)
