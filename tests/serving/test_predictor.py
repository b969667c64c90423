import gc
import threading
import weakref

import numpy as np
import pytest
from grpc import StatusCode

from serving.configuration import BatchingParameters, ModelConfig
from serving.models import END, Models
from serving.predictor import ModelSpec, Predictor
from tests.serving import small, toy
from tests.serving.live import backend, refusal, wait_for
from tests.serving.toy import texts

TOY = ModelSpec("toy")
BATCHING = BatchingParameters(
    max_batch_size=7, batch_timeout_micros=1000, num_batch_threads=2, max_enqueued_batches=100
)


@pytest.fixture
def models(toys):
    return toys.models


@pytest.fixture(params=[None, BATCHING], ids=["alone", "batching"])
def predictor(models, request):
    predictor = Predictor(models, request.param, max_rows=13, max_bytes_per_row=11)
    yield predictor
    predictor.stop(60)
    assert models._versions["toy"][3].servable.uses == 0  # nothing was kept, whatever happened


def predict(predictor, *arguments, **options):
    return predictor.submit(*arguments, **options).result(60)


def test_an_answer_says_which_version_and_signature_gave_it(predictor):
    for model in (TOY, ModelSpec("toy", 3), ModelSpec("toy", label="stable")):
        version, signature_name, outputs = predict(predictor, model, "", texts("ab", "c"))
        assert (version, signature_name) == (3, "serving_default")
        assert list(outputs["translation"]) == [toy.translation("ab", 3), toy.translation("c", 3)]
        np.testing.assert_allclose(outputs["score"], [2 * toy.WEIGHT, toy.WEIGHT])
    assert set(predict(predictor, TOY, "translate", texts("ab"), ["score"]).outputs) == {"score"}
    assert 'runtime_latency_count{model_name="toy",API="Predict",runtime="TF1"} 4\n' in predictor.metrics.page()


@pytest.mark.parametrize(
    "rows, message",
    [
        ("abcdefghijklmn", "a request may have 13 rows. Received: 14"),
        (["a", "b" * 12], "a text of input text may have 11 bytes. Received: 12"),
        (["raise"], "assertion failed: [a text]"),  # by the graph
    ],
)
def test_our_own_limits_and_what_the_graph_raises_are_the_answer(predictor, rows, message):
    assert refusal(predict, predictor, TOY, "", texts(*rows)) == ("INVALID_ARGUMENT", message)


def test_without_batching_what_waits_too_long_or_has_no_client_is_not_computed(models):
    predictor = Predictor(models, threads=1)
    busy = predictor.submit(TOY, "", texts("wait 0.3"))
    wait_for(busy.running)
    late, gone = predictor.submit(TOY, "", texts("a"), timeout_s=0.01), predictor.submit(TOY, "", texts("b"))
    assert gone.cancel()
    assert late.exception(60).code == StatusCode.DEADLINE_EXCEEDED
    predictor.stop(60)
    assert 'runtime_latency_count{model_name="toy",API="Predict",runtime="TF1"} 1\n' in predictor.metrics.page()
    assert refusal(predict, predictor, TOY, "", texts("a")) == ("UNAVAILABLE", "The server is shutting down")


def test_any_shape_is_batched_that_has_rows(tmp_path):
    small.write(tmp_path, 1, unknown=small.affine(1.0, None), fixed=small.affine(2.0, (3,)), none=small.constant(1.0))
    with backend({"m": tmp_path}, batching=BATCHING) as found:
        for name, add in (("unknown", 1.0), ("fixed", 2.0)):
            for shape in ((2,), (3,), (2, 5)):
                outputs = predict(found.predictor, ModelSpec("m"), name, {"x": np.ones(shape, np.float32)}).outputs
                np.testing.assert_array_equal(outputs["y"], np.full(shape, 0.5 + add))
            scalar = {"x": np.ones((), np.float32)}
            assert "at least one dimension" in refusal(predict, found.predictor, ModelSpec("m"), name, scalar)[1]
        assert "at least one input tensor" in refusal(predict, found.predictor, ModelSpec("m"), "none", {})[1]


def test_parts_of_an_answer_are_padded_to_the_widest(models):
    splitting = BatchingParameters(4, enable_large_batch_splitting=True, max_execution_batch_size=2)
    predictor = Predictor(models, splitting)
    pieces = predict(predictor, TOY, "explain", texts("a b c", "d", "e")).outputs["source_pieces"]
    assert pieces.tolist() == [[b"a", b"b", b"c"], [b"d", b"", b""], [b"e", b"", b""]]
    predictor.stop(60)


@pytest.mark.slow
def test_twenty_swaps_under_load_lose_no_request_mix_no_versions_and_keep_nothing(tmp_path):
    toy.write(tmp_path, 1)
    models = Models([ModelConfig("toy", str(tmp_path))], poll_seconds=0.01)
    models.start()
    models.wait_until_available(60)
    predictor = Predictor(models, BATCHING)
    is_over, seen, failures = threading.Event(), set(), []

    def client():
        while not is_over.is_set():
            try:
                version, _, outputs = predict(predictor, TOY, "", texts("ab", "c", "d"), timeout_s=60)
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
    assert not predictor._batcher._queues
    models.stop(60)
