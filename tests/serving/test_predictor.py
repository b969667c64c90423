import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from grpc import StatusCode

from serving.configuration import BatchingParameters, ModelConfig
from serving.errors import ServingError
from serving.models import END, Models
from serving.predictor import ModelSpec, Predictor
from tests.serving import toy
from tests.serving.live import refusal, wait_for
from tests.serving.toy import texts

TOY = ModelSpec("toy")
BATCHING = BatchingParameters(7, batch_timeout_micros=1000, num_batch_threads=2, max_enqueued_batches=100)


class Scripted:
    """A servable and its signature in one: doubles `x`, writes down its batches, waits while its gate is shut."""

    name, version = "m", 2

    def __init__(self):
        self.batches, self.timeouts = [], []
        self.gate = threading.Event()
        self.gate.set()

    def signature(self, name):
        return self

    def checked(self, inputs, outputs):
        return inputs, outputs

    def compute(self, signature, inputs, outputs, timeout_s):
        rows = inputs["x"].tolist()
        self.batches.append(rows)
        self.timeouts.append(timeout_s)
        assert self.gate.wait(20)
        if -1 in rows:
            raise ServingError(StatusCode.INVALID_ARGUMENT, "minus")
        if -2 in rows:
            raise RuntimeError("a bug")
        if -3 in rows:
            return {"x": inputs["x"][:-1]}
        return {"x": np.array(7) if -4 in rows else 2 * inputs["x"]}


class Desk:
    """A predictor to which rows are given, and its models; what is submitted while it is held waits together."""

    def __init__(self, **parameters):
        self.servable, self.held = Scripted(), Scripted()
        few = {"max_batch_size": 5, "max_enqueued_batches": 2, "num_batch_threads": 1}
        self.predictor = Predictor(self, BatchingParameters(**few | parameters))

    def acquire(self, servable):
        return servable

    def release(self, servable):
        pass

    def ask(self, *rows, servable=None, outputs=("x",), timeout_s=None):
        model = (servable or self.servable,)
        return self.predictor.submit(model, "", {"x": np.array(rows, dtype=np.int64)}, outputs, timeout_s)

    def hold(self):
        """Keeps a thread busy with the batch of another model until `release_all`."""
        self.held.gate.clear()
        begun, future = len(self.held.batches), self.ask(0, servable=self.held)
        wait_for(lambda: len(self.held.batches) > begun)
        return future

    def release_all(self):
        self.held.gate.set()
        self.servable.gate.set()

    def ask_together(self, *requests):
        """The futures of requests, each a list of rows, that come while the thread is busy."""
        self.hold()
        futures = [self.ask(*rows) for rows in requests]
        self.release_all()
        return futures


@pytest.fixture
def desk():
    """A function from parameters to a `Desk`."""
    desks = []

    def make(**parameters):
        desks.append(Desk(**parameters))
        return desks[-1]

    yield make
    for one in desks:
        one.release_all()
        one.predictor.stop(20)


def result(future):
    return future.result(20).outputs["x"].tolist()


def test_what_waits_together_is_computed_together_and_each_gets_its_rows(desk):
    one = desk()
    futures = one.ask_together([1, 2, 3], [4, 5, 6], [7])
    assert [result(future) for future in futures] == [[2, 4, 6], [8, 10, 12], [14]]
    assert one.servable.batches == [[1, 2, 3], [4, 5, 6, 7]]
    page = one.predictor.metrics.page()
    assert ":tensorflow:serving:batching_session:processed_batch_size_sum{} 8\n" in page
    assert 'queuing_latency_count{thread_pool_name="batch_threads"} 4\n' in page


def test_a_batch_that_is_not_full_waits_for_its_time(desk):
    one, start = desk(batch_timeout_micros=200_000), time.monotonic()
    assert result(one.ask(1)) == [2] and 0.2 <= time.monotonic() - start
    start = time.monotonic()
    first, second = one.ask(1, 2, 3), one.ask(4, 5, 6)  # The first batch is due because the second has begun.
    assert result(first) == [2, 4, 6] and time.monotonic() - start < 0.2 and result(second) == [8, 10, 12]


def test_a_full_queue_refuses_at_once_and_recovers_and_what_cannot_be_batched_is_refused(desk):
    one = desk()
    one.hold()
    futures = [one.ask(1, 2, 3, 4, 5), one.ask(1, 2, 3, 4)]
    assert refusal(one.ask, 1, 2)[0] == "UNAVAILABLE"
    futures += [one.ask(9), one.ask(8, servable=Scripted()), one.ask(7, outputs=("x", "x"))]  # other queues have room
    one.release_all()
    assert [len(result(future)) for future in futures] == [5, 4, 1, 1, 1] and result(one.ask(1, 2)) == [2, 4]
    for inputs in ({}, {"x": np.int64(3)}, {"x": np.ones(3), "y": np.ones(2)}, {"x": np.ones(6)}):
        assert refusal(one.predictor.submit, (one.servable,), "", inputs)[0] == "INVALID_ARGUMENT"


def test_a_large_request_is_split_over_the_open_batch_and_further_ones(desk):
    one = desk(max_batch_size=9, enable_large_batch_splitting=True, max_execution_batch_size=4, max_enqueued_batches=3)
    one.hold()
    first, second = one.ask(1, 2, 3), one.ask(*range(4, 13))
    assert refusal(one.ask, 1)[0] == "UNAVAILABLE"
    one.release_all()
    assert (result(first), result(second)) == ([2, 4, 6], [2 * n for n in range(4, 13)])
    assert one.servable.batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def test_a_batch_that_fails_fails_for_all_in_it_and_the_thread_goes_on(desk):
    one, wrong_shape = desk(), "FAILED_PRECONDITION"
    for row, code in ((-1, "INVALID_ARGUMENT"), (-2, "INTERNAL"), *((row, wrong_shape) for row in (-3, -4, [3, 1]))):
        errors = [future.exception(20) for future in one.ask_together([5], [row])]
        assert [error.code.name for error in errors] == [code] * 2 and "bug" not in errors[0].message
        assert result(one.ask(3)) == [6]


def test_a_batch_has_the_time_of_its_most_patient_request_and_late_or_cancelled_ones_are_not_computed(desk):
    one = desk()
    one.hold()
    futures = [one.ask(1, timeout_s=-1), one.ask(2, timeout_s=50)]
    assert one.ask(5).cancel()
    one.release_all()
    assert [result(future) for future in futures] == [[2], [4]] and one.servable.batches == [[1, 2]]
    assert 40 < one.servable.timeouts[0] <= 50
    assert one.ask(3, timeout_s=-1).exception(20).code == StatusCode.RESOURCE_EXHAUSTED
    assert result(one.ask(4)) == [8] and one.servable.timeouts[-1] is None


def test_a_predictor_that_stops_computes_what_it_has_accepted_for_a_while_and_accepts_no_more(desk):
    one = desk(batch_timeout_micros=10**8)
    future = one.ask(1)
    one.predictor.stop(20)
    assert result(future) == [2] and refusal(one.ask, 1)[0] == "UNAVAILABLE"
    one = desk()
    held, future = one.hold(), one.ask(1)
    one.predictor.stop(0.05)
    assert future.exception(20).code == StatusCode.UNAVAILABLE
    one.release_all()
    assert result(held) == [0]


def predict(predictor, *arguments, **options):
    return predictor.submit(*arguments, **options).result(60)


@pytest.mark.parametrize("batching", [None, BATCHING], ids=["alone", "batching"])
def test_an_answer_says_which_version_and_signature_gave_it(toys, batching):
    predictor = Predictor(toys.models, batching)
    for model in (TOY, ModelSpec("toy", 3), ModelSpec("toy", label="stable")):
        version, signature_name, outputs = predict(predictor, model, "", texts("ab", "c"))
        assert (version, signature_name) == (3, "serving_default")
        assert list(outputs["translation"]) == [toy.translation("ab", 3), toy.translation("c", 3)]
    assert set(predict(predictor, TOY, "translate", texts("ab"), ["score"]).outputs) == {"score"}
    assert 'runtime_latency_count{model_name="toy",API="Predict",runtime="TF1"} 4\n' in predictor.metrics.page()
    assert refusal(predict, predictor, TOY, "", texts("raise"))[0] == "INVALID_ARGUMENT"  # by the graph
    predictor.stop(60)


def test_parts_of_an_answer_are_padded_to_the_widest(toys):
    parameters = BatchingParameters(4, enable_large_batch_splitting=True, max_execution_batch_size=2)
    predictor = Predictor(toys.models, parameters)
    pieces = predict(predictor, TOY, "explain", texts("a b c", "d", "e")).outputs["source_pieces"]
    assert pieces.tolist() == [[b"a", b"b", b"c"], [b"d", b"", b""], [b"e", b"", b""]]
    predictor.stop(60)


@pytest.mark.slow
def test_swaps_under_load_lose_no_request_mix_no_versions_and_keep_nothing(tmp_path):
    toy.write(tmp_path, 1)
    models = Models([ModelConfig("toy", str(tmp_path))], poll_seconds=0.01)
    models.start()
    models.wait_until_available(60)
    predictor, is_over, seen, servables = Predictor(models, BATCHING), threading.Event(), set(), []

    def client():
        while not is_over.is_set():
            version, _, outputs = predict(predictor, TOY, "", texts("ab", "c", "d"), timeout_s=60)
            assert list(outputs["translation"]) == [toy.translation(text, version) for text in ("ab", "c", "d")]
            seen.add(version)

    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(client) for _ in range(3)]
        for version in range(2, 7):
            with models.use("toy") as servable:
                servables.append(weakref.ref(servable))
            del servable
            toy.write(tmp_path, version)
            wait_for(lambda version=version: version in seen and models.status("toy", version - 1)[0][1] == END, 60)
        is_over.set()
    assert [each.exception() for each in clients] == [None] * 3 and seen == set(range(1, 7))
    predictor.stop(60)
    gc.collect()
    assert [reference() for reference in servables] == [None] * 5
    models.stop()
