import math
import time
import weakref
from types import SimpleNamespace

import pytest
from grpc import StatusCode

from serving.metrics import Metrics
from serving.overload import LATELY, Overload, QueueFullError, Refusals


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """So that no test is slower than what is remembered."""
    monkeypatch.setattr("serving.overload.REMEMBERED", 60)


class Queue:
    """A queue that is full, or is not."""

    is_full = True

    def refuse(self):
        return QueueFullError(StatusCode.UNAVAILABLE, "It is full.", lambda: self.is_full)


def refused(metrics):
    """How many requests the metrics have counted as refused."""
    lines = metrics.page().splitlines()
    beginning = ':tensorflow:serving:request_count{model_name="m",status="UNAVAILABLE"} '
    return sum(int(line.removeprefix(beginning)) for line in lines if line.startswith(beginning))


def test_requests_of_the_kind_that_was_refused_are_refused_and_counted_while_the_queue_is_full():
    queue, metrics = Queue(), Metrics()
    overload = Overload(metrics, "REST")
    assert overload.answer_to("kind") is None
    overload.refused("kind", "m", queue.refuse(), "busy")
    assert [overload.answer_to(kind) for kind in ("kind", "another", "kind")] == ["busy", None, "busy"]
    assert refused(metrics) == 2
    queue.is_full = False
    assert overload.answer_to("kind") is None
    queue.is_full = True
    assert overload.answer_to("kind") == "busy" and refused(metrics) == 3


def test_only_the_last_refusal_counts():
    overload = Overload(Metrics(), "GRPC")
    for kind in ("one", "two"):
        overload.refused(kind, "m", Queue().refuse(), f"{kind} is busy")
    assert [overload.answer_to(kind) for kind in ("one", "two")] == [None, "two is busy"]


def test_what_is_not_known_yet_is_refused_only_if_no_other_kind_has_been_asked_for_lately(monkeypatch):
    overload = Overload(Metrics(), "GRPC")
    for kind in ("another", "kind"):
        assert overload.answer_to(kind) is None
    overload.refused("kind", "m", Queue().refuse(), "busy")
    assert overload.answer_unread() is None
    monkeypatch.setattr("serving.overload.ALONE", 0.05)
    time.sleep(0.06)
    assert overload.answer_unread() == overload.answer_to("kind") == "busy"
    assert overload.answer_to("another") is None
    assert overload.answer_unread() is None


def test_a_refusal_is_forgotten_after_a_moment(monkeypatch):
    monkeypatch.setattr("serving.overload.REMEMBERED", 0.05)
    overload, error = Overload(Metrics(), "REST"), Queue().refuse()
    is_known = weakref.ref(error)
    overload.refused("kind", "m", error, "busy")
    del error
    time.sleep(0.06)
    assert is_known() and overload.answer_to("kind") is None
    assert not is_known()  # nor what it holds: a version of a model


def test_refusals_are_counted_by_the_second_and_forgotten(monkeypatch):
    clock = SimpleNamespace(now=7.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("serving.overload.time", clock)
    refusals = Refusals()
    assert refusals.rate() == 0
    for _ in range(3000):
        clock.now += 0.001
        refusals.count()
    assert refusals.rate() == pytest.approx(1000, rel=0.01)
    clock.now += 2 * LATELY
    assert refusals.rate() == pytest.approx(1000 / math.e**2, rel=0.01)
