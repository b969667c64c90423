import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from grpc import StatusCode

from serving.batching import Batcher
from serving.configuration import BatchingParameters
from serving.errors import ServingError
from serving.metrics import Metrics
from serving.predictor import Request
from tests.serving.live import refusal, wait_for


class Scripted:
    """A servable and its signature in one: doubles `x`, writes down its batches, waits while its gate is shut."""

    name, version = "m", 2

    def __init__(self):
        self.batches, self.timeouts = [], []
        self.gate = threading.Event()
        self.gate.set()

    def signature(self, name):
        return self

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
    """A batcher, to which rows are given; what is submitted while it is held waits in the queue together."""

    def __init__(self, **parameters):
        defaults = {"max_batch_size": 5, "max_enqueued_batches": 2, "num_batch_threads": 1}
        self.metrics = Metrics()
        self.batcher = Batcher(BatchingParameters(**{**defaults, **parameters}), self.metrics)
        self.servable = Scripted()
        self.held = Scripted()

    def ask(self, *rows, deadline=None, servable=None, outputs=("x",), **others):
        servable = servable or self.servable
        inputs = {"x": np.array(rows, dtype=np.int64), **others}
        request = Request(servable, "", inputs, outputs, deadline)
        self.batcher.submit(request)
        return request.future

    def hold(self):
        """Keeps a thread busy with the batch of another model until `release`."""
        self.held.gate.clear()
        begun = len(self.held.batches)
        future = self.ask(0, servable=self.held)
        wait_for(lambda: len(self.held.batches) > begun)
        return future

    def release(self):
        self.held.gate.set()
        self.servable.gate.set()

    def ask_together(self, *requests):
        """The futures of requests, each a list of rows, that come while the thread is busy."""
        self.hold()
        futures = [self.ask(*rows) for rows in requests]
        self.release()
        return futures


@pytest.fixture
def desk():
    desks = []

    def make(**parameters):
        desks.append(Desk(**parameters))
        return desks[-1]

    yield make
    for one in desks:
        one.release()
        one.batcher.stop(20)


def result(future):
    return future.result(20).outputs["x"].tolist()


@pytest.mark.parametrize(
    "parameters, asked, batches",
    [
        ({}, [[1], [2, 3], [4]], [[1, 2, 3, 4]]),
        ({}, [[1, 2, 3], [4, 5, 6], [7]], [[1, 2, 3], [4, 5, 6, 7]]),  # No request is split unless told so.
        ({"allowed_batch_sizes": (2, 5)}, [[1], [2, 3]], [[1, 2, 3, 2, 2]]),
        ({"pad_variable_length_inputs": True}, [[[1, 2]], [[3], [4]]], [[[1, 2], [3, 3], [4, 3]]]),
    ],
)
def test_what_waits_together_is_computed_together_and_each_gets_its_rows(desk, parameters, asked, batches):
    one = desk(**parameters)
    futures = one.ask_together(*asked)
    answers, doubled = [result(future) for future in futures], [2 * np.array(row) for batch in batches for row in batch]
    assert sum(answers, []) == [row.tolist() for row in doubled[: len(sum(asked, []))]]
    assert list(map(len, answers)) == list(map(len, asked)) and one.servable.batches == batches


def test_batches_are_counted(desk):
    one = desk(allowed_batch_sizes=(4, 5))
    assert [result(future) for future in one.ask_together([1], [2, 3])] == [[2], [4, 6]]
    lines = one.metrics.page().splitlines()
    for series in ("processed_batch_size_sum{} 8", "input_batch_size_sum{} 4", "wrapped_run_count{} 2"):
        assert f":tensorflow:serving:batching_session:{series}" in lines
    for end in (
        'padding_size_sum{execution_batch_size="4"} 4',
        'queuing_latency_count{thread_pool_name="batch_threads"} 3',
    ):
        assert any(line.endswith(end) for line in lines)


def test_a_batch_that_is_not_full_waits_for_its_time(desk):
    one = desk(batch_timeout_micros=200_000)
    start = time.monotonic()
    assert result(one.ask(1)) == [2]
    assert 0.2 <= time.monotonic() - start
    start = time.monotonic()
    futures = [one.ask(n) for n in range(5)]
    assert [result(future) for future in futures] == [[0], [2], [4], [6], [8]]
    assert time.monotonic() - start < 0.2
    start = time.monotonic()
    first, second = one.ask(1, 2, 3), one.ask(4, 5, 6)  # The first batch is due because the second has begun.
    assert result(first) == [2, 4, 6] and time.monotonic() - start < 0.2
    assert result(second) == [8, 10, 12]


def test_a_full_queue_refuses_at_once_in_the_words_of_tensorflow_serving_and_recovers(desk):
    one = desk()
    one.hold()
    futures = [one.ask(1, 2, 3, 4, 5), one.ask(1, 2, 3, 4)]
    expected = (
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches enqueued and "
        "max_enqueued_batches is 2"
    )
    assert refusal(one.ask, 1, 2) == ("UNAVAILABLE", expected)
    futures += [one.ask(9), one.ask(8, servable=Scripted()), one.ask(7, outputs=("x", "x"))]  # other queues have room
    one.release()
    assert [len(result(future)) for future in futures] == [5, 4, 1, 1, 1]
    assert result(one.ask(1, 2)) == [2, 4]


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, "Batching Run() must have at least one input tensor"),
        ({"x": np.int64(3)}, "Batching Run() input tensors must have at least one dimension"),
        ({"x": np.ones(3), "y": np.ones(2)}, "Batching Run() input tensors must have equal 0th-dimension size"),
        ({"x": np.ones(6)}, "Task size 6 is larger than maximum input batch size 5"),
    ],
)
def test_what_cannot_be_batched_is_refused_in_the_words_of_tensorflow_serving(desk, inputs, message):
    one = desk()
    request = Request(one.servable, "", inputs, ("x",), None)
    assert refusal(one.batcher.submit, request) == ("INVALID_ARGUMENT", message)


def test_a_large_request_is_split_over_the_open_batch_and_further_ones(desk):
    one = desk(max_batch_size=9, enable_large_batch_splitting=True, max_execution_batch_size=4, max_enqueued_batches=3)
    one.hold()
    first, second = one.ask(1, 2, 3), one.ask(*range(4, 13))
    message = (
        "The batch scheduling queue to which this task was submitted is full; task size is 1 but scheduling capacity "
        "is only 0 (num_enqueued_batches=3, max_enqueued_batches=3, open_batch_size=4, max_execution_batch_size=4)"
    )
    assert refusal(one.ask, 1) == ("UNAVAILABLE", message)
    one.release()
    assert (result(first), result(second)) == ([2, 4, 6], [2 * n for n in range(4, 13)])
    assert one.servable.batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


@pytest.mark.parametrize(
    "row, code, message",
    [
        (-1, "INVALID_ARGUMENT", "minus"),
        (-2, "INTERNAL", "The batch could not be computed"),
        (-3, "FAILED_PRECONDITION", ""),
        (-4, "FAILED_PRECONDITION", ""),
        ([3, 1], "FAILED_PRECONDITION", "padding is turned off"),  # of another width
    ],
)
def test_a_batch_that_fails_fails_for_all_in_it_and_the_thread_goes_on(desk, row, code, message):
    one = desk()
    errors = [future.exception(20) for future in one.ask_together([5], [row])]
    assert [error.code.name for error in errors] == [code] * 2 and all(message in error.message for error in errors)
    assert result(one.ask(3)) == [6]


def test_a_batch_has_the_time_of_its_most_patient_request_and_none_when_all_are_late(desk):
    one = desk()
    one.hold()
    now = time.monotonic()
    futures = [one.ask(1, deadline=now - 1), one.ask(2, deadline=now + 50)]
    one.release()
    assert [result(future) for future in futures] == [[2], [4]]
    assert 40 < one.servable.timeouts[0] <= 50
    error = one.ask(3, deadline=now - 1).exception(20)
    assert error.code == StatusCode.RESOURCE_EXHAUSTED
    assert error.message == "Run() timeout exceeded while waiting in batching queue"
    assert result(one.ask(4)) == [8] and one.servable.timeouts[-1] is None


def test_a_request_whose_client_has_gone_is_not_computed(desk):
    one = desk()
    one.hold()
    gone, stays = one.ask(1), one.ask(2)
    assert gone.cancel()
    one.release()
    assert result(stays) == [4] and one.servable.batches == [[2]]


def test_batches_are_computed_side_by_side(desk):
    one = desk(num_batch_threads=2)
    one.servable.gate.clear()
    futures = [one.ask(n) for n in range(7)]
    wait_for(lambda: len(one.servable.batches) == 2)
    one.release()
    assert [result(future) for future in futures] == [[2 * n] for n in range(7)]


def test_a_batcher_that_stops_computes_what_it_has_accepted_for_a_while_and_accepts_no_more(desk):
    one = desk(batch_timeout_micros=10**8)
    future = one.ask(1)
    one.batcher.stop(20)
    assert result(future) == [2]
    assert refusal(one.ask, 1) == ("UNAVAILABLE", "The server is shutting down")
    one = desk()
    held, future = one.hold(), one.ask(1)
    one.batcher.stop(0.05)
    assert future.exception(20).code == StatusCode.UNAVAILABLE
    one.release()
    assert result(held) == [0]


def test_many_threads_lose_nothing(desk):
    one = desk(num_batch_threads=3, max_enqueued_batches=100, batch_timeout_micros=500)
    found = {}

    def client(number):
        for n in range(50):
            rows = range(100 * number + n, 100 * number + n + 1 + n % 5)
            found[number, n] = result(one.ask(*rows)) == [2 * row for row in rows]

    with ThreadPoolExecutor(8) as pool:
        pool.map(client, range(8))
    assert len(found) == 400 and all(found.values()) and not one.batcher._queues
