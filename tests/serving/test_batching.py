import threading
import time

import numpy as np
import pytest
from grpc import StatusCode

from serving.batching import Batcher
from serving.batching_parameters import BatchingParameters
from serving.errors import ServingError
from serving.metrics import Metrics
from serving.request import Request
from tests.serving.deadline import wait_for


class Scripted:
    """A servable and its signature in one: doubles `x`, writes down its batches, waits while its gate is shut."""

    name, version, feeds = "m", 2, {"x": "x:0"}

    def __init__(self):
        self.batches, self.timeouts = [], []
        self.gate = threading.Event()
        self.gate.set()

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
        return {"x": np.int64(7)} if -4 in rows else {"x": 2 * inputs["x"]}


class Desk:
    """A batcher, to which rows are given; what is submitted while `held` waits in the queue together."""

    def __init__(self, threads=1, **parameters):
        defaults = {"max_batch_size": 5, "max_enqueued_batches": 2, "num_batch_threads": threads}
        self.metrics = Metrics()
        self.parameters = BatchingParameters(**{**defaults, **parameters})
        self.batcher = Batcher(self.parameters, self.metrics)
        self.servable = Scripted()
        self.ends = []

    def ask(self, *rows, deadline=None, servable=None, size=None):
        servable = servable or self.servable
        request = Request(servable, "", deadline, self.ends.append)
        rows = np.array(rows, dtype=np.int64)
        self.batcher.submit(request, servable, {"x": rows}, ("x",), len(rows) if size is None else size)
        return request.future

    def hold(self, size=None):
        """Keeps a thread busy until `release`, with a full batch unless told otherwise."""
        self.servable.gate.clear()
        future = self.ask(999, size=self.parameters.most_rows if size is None else size)
        wait_for(lambda: self.servable.batches)
        self.servable.batches.clear()
        return future

    def release(self):
        self.servable.gate.set()


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


def error_of(future):
    return future.exception(20).code


def refusal(function, *arguments, **options):
    with pytest.raises(ServingError) as caught:
        function(*arguments, **options)
    return caught.value.code, caught.value.message


def test_what_waits_together_is_computed_together_and_each_gets_its_rows(desk):
    desk = desk()
    desk.hold()
    futures = [desk.ask(1), desk.ask(2, 3), desk.ask(), desk.ask(5, 7)]
    desk.release()
    assert [result(future) for future in futures] == [[2], [4, 6], [], [10, 14]]
    assert desk.servable.batches == [[1, 2, 3, 5, 7]]


def test_a_batch_is_not_larger_than_allowed(desk):
    desk = desk()
    desk.hold()
    futures = [desk.ask(1, 2, 3), desk.ask(4, 5, 6), desk.ask(7)]
    desk.release()
    assert [result(future) for future in futures] == [[2, 4, 6], [8, 10, 12], [14]]
    assert desk.servable.batches == [[1, 2, 3], [4, 5, 6, 7]]


def test_while_another_is_computed_a_batch_waits_until_it_is_full(desk):
    desk, other = desk(batch_timeout_micros=8_000_000, max_batch_size=3, threads=2), Scripted()
    desk.hold()
    start, futures = time.monotonic(), [desk.ask(n, servable=other) for n in (1, 2, 3)]
    assert [result(future) for future in futures] == [[2], [4], [6]]
    assert time.monotonic() - start < 8
    assert other.batches == [[1, 2, 3]]


def test_while_another_is_computed_a_batch_that_is_not_full_waits_for_its_time(desk):
    desk = desk(batch_timeout_micros=50_000, threads=2)
    desk.hold()
    start = time.monotonic()
    assert result(desk.ask(1, servable=Scripted())) == [2]
    assert time.monotonic() - start >= 0.05


def test_a_request_that_is_alone_waits_a_quarter_of_the_time(desk):
    desk = desk(batch_timeout_micros=8_000_000, threads=2)
    start = time.monotonic()
    assert result(desk.ask(1)) == [2]
    assert 2 <= time.monotonic() - start < 8


def test_what_waits_is_computed_when_nothing_else_is_any_more(desk):
    desk, other = desk(batch_timeout_micros=4_000_000, threads=2), Scripted()
    desk.hold()
    start, future = time.monotonic(), desk.ask(1, servable=other)
    time.sleep(1.2)
    assert not other.batches
    desk.release()
    assert result(future) == [2]
    assert time.monotonic() - start < 4


def test_different_servables_and_shapes_do_not_share_a_batch(desk):
    desk = desk()
    desk.hold()
    other = Scripted()
    futures = [desk.ask(1), desk.ask(2, servable=other), desk.ask([3, 4]), desk.ask(5)]
    desk.release()
    assert [result(future) for future in futures] == [[2], [4], [[6, 8]], [10]]
    assert desk.servable.batches == [[1, 5], [[3, 4]]] and other.batches == [[2]]


def test_a_full_queue_refuses_at_once_and_recovers(desk):
    desk = desk()
    held = desk.hold()
    futures = [desk.ask(1, 2, 3, 4, 5), desk.ask(6, 7, 8, 9)]
    code, message = refusal(desk.ask, 10, 11)
    assert code == StatusCode.UNAVAILABLE
    assert (
        "queue to which this task was submitted is full; currently 2 batches enqueued and max_enqueued_batches is 2"
        in message
    )
    futures.append(desk.ask(10))
    desk.release()
    assert result(held) == [1998] and [len(result(future)) for future in futures] == [5, 4, 1]
    assert result(desk.ask(1, 2)) == [2, 4]


def test_a_burst_is_not_refused_while_there_is_a_thread_to_take_it(desk):
    desk = desk()
    with desk.batcher._condition:  # nothing is taken meanwhile
        futures = [desk.ask(*range(5)) for _ in range(3)]
        assert refusal(desk.ask, 1)[0] == StatusCode.UNAVAILABLE
    assert [result(future) for future in futures] == [[0, 2, 4, 6, 8]] * 3


def test_what_a_batch_has_left_free_counts_as_room(desk):
    desk = desk()
    desk.hold(size=2)
    futures = [desk.ask(*range(5)), desk.ask(*range(5)), desk.ask(1, 2, 3)]
    assert refusal(desk.ask, 1)[0] == StatusCode.UNAVAILABLE
    desk.release()
    assert [len(result(future)) for future in futures] == [5, 5, 3]


def test_who_has_an_answer_and_asks_again_finds_the_room_that_it_has_left(desk):
    desk = desk(max_enqueued_batches=1)
    first = desk.hold()
    waiting, again = desk.ask(1, 2, 3, 4, 5), []
    first.add_done_callback(lambda _: again.append(desk.ask(6, 7, 8, 9, 10)))
    desk.release()
    assert result(waiting) == [2, 4, 6, 8, 10]
    assert result(again[0]) == [12, 14, 16, 18, 20]


@pytest.fixture
def memory(monkeypatch):
    """Refusals are remembered for so long that a slow test does not matter: after 1,000 of them it is 1 a second."""
    monkeypatch.setattr("serving.overload.LATELY", 1000)


def test_the_more_are_refused_the_less_room_there_is(desk, memory, monkeypatch):
    monkeypatch.setattr("serving.batching.REFILL", 1)
    desk = desk(batch_timeout_micros=1_100_000_000)  # each refusal promises 1.1 rows
    held = desk.hold()
    futures = [desk.ask(*range(5)), desk.ask(*range(5))]
    for _ in range(3):
        assert refusal(desk.ask, 1)[0] == StatusCode.UNAVAILABLE
    desk.release()
    assert [len(result(future)) for future in (held, *futures)] == [1, 5, 5]
    desk.hold()
    desk.ask(*range(4)), desk.ask(1, 2, 3)
    assert refusal(desk.ask, 1)[0] == StatusCode.UNAVAILABLE


def test_another_signature_has_its_room_meanwhile(desk, memory, monkeypatch):
    monkeypatch.setattr("serving.batching.REFILL", 1)
    desk, other = desk(batch_timeout_micros=1_000_000_000), Scripted()
    desk.hold()
    futures = [desk.ask(*range(5)), desk.ask(*range(5))]
    for _ in range(100):
        assert refusal(desk.ask, 1)[0] == StatusCode.UNAVAILABLE
    futures += [desk.ask(*range(5), servable=other), desk.ask(*range(5), servable=other)]
    desk.release()
    assert [len(result(future)) for future in futures] == [5, 5, 5, 5]


def test_in_an_overload_a_free_thread_waits_for_its_batch_to_be_filled(desk, memory, monkeypatch):
    monkeypatch.setattr("serving.batching.REFILL", 200)
    desk = desk(batch_timeout_micros=50_000, max_enqueued_batches=1)
    held, first = desk.hold(), desk.ask(1, 2)
    for _ in range(500):  # of which 5 would come in 10 seconds
        assert refusal(desk.ask, 6, 7, 8, 9)[0] == StatusCode.UNAVAILABLE
    time.sleep(0.06)  # what waits has waited for long enough
    desk.release()
    assert result(held) == [1998]
    time.sleep(0.06)
    assert not desk.servable.batches
    second = desk.ask(3, 4, 5)
    assert result(first) == [2, 4] and result(second) == [6, 8, 10]
    assert desk.servable.batches == [[1, 2, 3, 4, 5]]


def test_in_an_overload_that_ends_a_batch_is_computed_although_it_is_not_filled(desk, memory, monkeypatch):
    monkeypatch.setattr("serving.batching.REFILL", 10)
    desk = desk(batch_timeout_micros=50_000, max_enqueued_batches=1)
    held, waiting = desk.hold(), desk.ask(1, 2)
    for _ in range(10_000):
        assert refusal(desk.ask, 6, 7, 8, 9)[0] == StatusCode.UNAVAILABLE
    desk.release()
    start = time.monotonic()
    assert result(held) == [1998] and result(waiting) == [2, 4]
    assert time.monotonic() - start >= 0.4


def test_requests_without_rows_fill_a_queue_as_well(desk):
    desk = desk()
    desk.hold()
    futures = [desk.ask() for _ in range(10)]
    assert refusal(desk.ask)[0] == StatusCode.UNAVAILABLE
    desk.release()
    assert [result(future) for future in futures] == [[]] * 10


def test_what_nobody_waits_for_any_more_makes_room_and_is_not_computed(desk):
    desk = desk()
    desk.hold()
    gone, late = desk.ask(1, 2, 3, 4, 5), desk.ask(6, 7, 8, 9, 10, deadline=time.monotonic() + 0.01)
    time.sleep(0.02)
    assert gone.cancel()
    futures = [desk.ask(11, 12, 13, 14, 15), desk.ask(16)]
    assert error_of(late) == StatusCode.DEADLINE_EXCEEDED  # while the thread is still busy
    desk.release()
    assert result(futures[0]) == [22, 24, 26, 28, 30] and result(futures[1]) == [32]
    assert desk.servable.batches == [[11, 12, 13, 14, 15], [16]]
    assert sorted(code.name for code in desk.ends) == ["CANCELLED", "DEADLINE_EXCEEDED", "OK", "OK", "OK"]


def test_a_request_whose_deadline_passed_in_the_queue_is_not_computed(desk):
    desk = desk()
    desk.hold()
    late, other = desk.ask(1, deadline=time.monotonic() + 0.01), desk.ask(2)
    time.sleep(0.02)
    desk.release()
    assert error_of(late) == StatusCode.DEADLINE_EXCEEDED and result(other) == [4]
    assert desk.servable.batches == [[2]]


def test_a_batch_may_take_as_long_as_its_most_patient_request(desk):
    desk = desk()
    desk.hold()
    now = time.monotonic()
    [desk.ask(1, deadline=now + 100), desk.ask(2, deadline=now + 300)]
    last = desk.ask(3, 3, 3, 3, 3)
    desk.release()
    result(last)
    (_, first, second) = desk.servable.timeouts
    assert 200 < first <= 300 and second is None


def test_a_request_is_split_where_it_may_be_larger_than_what_is_computed_at_once(desk):
    code, message = refusal(desk().ask, *range(6))
    assert (code, message) == (StatusCode.INVALID_ARGUMENT, "Task size 6 is larger than maximum input batch size 5")
    splitting = desk(
        max_batch_size=17, max_enqueued_batches=3, enable_large_batch_splitting=True, max_execution_batch_size=4
    )
    splitting.hold()
    futures = [splitting.ask(*range(9)), splitting.ask(20, 21)]
    splitting.release()
    assert result(futures[0]) == [2 * n for n in range(9)] and result(futures[1]) == [40, 42]
    assert splitting.servable.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 20, 21]]
    assert refusal(splitting.ask, *range(18)) == (
        StatusCode.INVALID_ARGUMENT,
        "Task size 18 is larger than maximum input batch size 17",
    )
    code, message = refusal(splitting.ask, *range(17))
    assert code == StatusCode.INVALID_ARGUMENT and "larger than the whole queue, 16" in message


def test_a_batch_is_filled_up_to_an_allowed_size(desk):
    desk = desk(max_batch_size=7, allowed_batch_sizes=(3, 7))
    desk.hold()
    futures = [desk.ask(1), desk.ask(2), desk.ask(3), desk.ask(4)]
    desk.release()
    assert [result(future) for future in futures] == [[2], [4], [6], [8]]
    assert desk.servable.batches == [[1, 2, 3, 4, 4, 4, 4]]


@pytest.mark.parametrize(
    "row, code",
    [(-1, StatusCode.INVALID_ARGUMENT), (-2, StatusCode.INTERNAL), (-3, StatusCode.FAILED_PRECONDITION)],
)
def test_a_batch_that_fails_fails_for_all_in_it_and_the_thread_goes_on(desk, row, code):
    desk = desk()
    desk.hold()
    futures = [desk.ask(row), desk.ask(2)]
    desk.release()
    assert [error_of(future) for future in futures] == [code, code]
    assert futures[0].exception() is not futures[1].exception()  # two threads may raise them
    assert result(desk.ask(3)) == [6]


def test_parts_whose_answers_cannot_be_joined_are_an_error_and_the_thread_goes_on(desk):
    desk = desk(max_batch_size=10, max_execution_batch_size=5, enable_large_batch_splitting=True)
    assert error_of(desk.ask(*10 * [-4])) == StatusCode.INTERNAL
    assert desk.ends == [StatusCode.INTERNAL]
    assert result(desk.ask(1)) == [2]


def test_batches_are_computed_side_by_side(desk):
    desk = desk(threads=2)
    desk.hold()
    second = desk.ask(2)
    wait_for(lambda: desk.servable.batches == [[2]])  # while the first is held
    desk.release()
    assert result(second) == [4]


def test_what_has_been_accepted_is_computed_when_it_stops_and_nothing_more_is_accepted(desk):
    desk = desk(batch_timeout_micros=100_000_000)
    futures = [desk.ask(1), desk.ask(2)]
    desk.batcher.stop(20)
    assert [result(future) for future in futures] == [[2], [4]]
    assert refusal(desk.ask, 3) == (StatusCode.UNAVAILABLE, "The server is shutting down")


def test_what_is_not_begun_in_time_is_unavailable_when_it_stops(desk):
    desk = desk()
    held = desk.hold()
    waiting = desk.ask(1)
    desk.batcher.stop(0.02)
    assert error_of(waiting) == StatusCode.UNAVAILABLE
    desk.release()
    assert result(held) == [1998]


def test_nothing_is_kept_of_servables_that_were_asked(desk):
    desk = desk()
    for _ in range(7):
        result(desk.ask(1, servable=Scripted()))
    assert desk.batcher._queues == {}


def test_many_threads_lose_nothing(desk):
    desk = desk(threads=3, max_enqueued_batches=100, batch_timeout_micros=200)
    answers = {}

    def client(number):
        answers[number] = [result(desk.ask(100 * number + n)) for n in range(40)]

    threads = [threading.Thread(target=client, args=[number]) for number in range(11)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert answers == {number: [[2 * (100 * number + n)] for n in range(40)] for number in range(11)}
    assert desk.ends == [StatusCode.OK] * 440
    assert (
        ':tensorflow:serving:batching_session:queuing_latency_count{thread_pool_name="batch_threads"} 440'
        in desk.metrics.page()
    )
