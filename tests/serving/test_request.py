import threading
import time

import numpy as np
import pytest
from grpc import StatusCode

from serving.errors import ServingError
from serving.request import Prediction, Request


class AnyServable:
    name, version = "m", 5


@pytest.fixture
def ends():
    """The codes with which the request has ended."""
    return []


@pytest.fixture
def request_(ends):
    return Request(AnyServable, "translate", None, ends.append)


def test_one_part_is_the_whole(request_, ends):
    inputs = {"x": np.arange(3)}
    (part,) = request_.parts(inputs, size=3, most_rows=3)
    assert part.inputs is inputs and request_.begin()
    request_.answer(0, {"y": np.arange(3)})
    assert ends == [StatusCode.OK]
    answer = request_.future.result(0)
    assert isinstance(answer, Prediction) and answer[:2] == (5, "translate")
    assert answer.outputs["y"].tolist() == [0, 1, 2]


def test_a_large_request_is_answered_in_its_order_and_padded(request_, ends):
    parts = request_.parts({"x": np.arange(7)}, size=7, most_rows=3)
    assert [part.inputs["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part.size for part in parts] == [3, 3, 1]
    for number, width in ((2, 1), (0, 2), (1, 5)):
        assert request_.begin() and not ends
        rows = parts[number].size
        words = np.full((rows, width, 2), str(number).encode(), object)
        request_.answer(number, {"words": words, "scores": np.full((rows, width), 1.0 + number, np.float32)})
    outputs = request_.future.result(0).outputs
    assert outputs["words"].shape == (7, 5, 2) and outputs["scores"].shape == (7, 5)
    assert outputs["scores"][:, 0].tolist() == [1, 1, 1, 2, 2, 2, 3]
    assert outputs["scores"][:, 3].tolist() == [0, 0, 0, 2, 2, 2, 0] and outputs["scores"].dtype == np.float32
    assert outputs["words"][:, 1, 1].tolist() == [b"0"] * 3 + [b"1"] * 3 + [b""]


def test_a_cancelled_request_is_not_begun_and_ends_once(request_, ends):
    request_.parts({"x": np.arange(7)}, size=7, most_rows=3)
    assert request_.future.cancel() and request_.is_unwanted(time.monotonic())
    assert [request_.begin() for _ in range(3)] == [False] * 3
    assert ends == [StatusCode.CANCELLED]


def test_a_request_past_its_deadline_is_not_begun(ends):
    request = Request(AnyServable, "", time.monotonic() - 1, ends.append)
    request.parts({}, 1, 1)
    assert request.is_unwanted(time.monotonic()) and not request.begin()
    assert ends == [StatusCode.DEADLINE_EXCEEDED]
    assert request.future.exception(0).code == StatusCode.DEADLINE_EXCEEDED


def test_what_fails_in_one_part_fails_as_a_whole_once(request_, ends):
    request_.parts({"x": np.arange(7)}, size=7, most_rows=3)
    assert request_.begin()
    request_.fail(ServingError(StatusCode.INTERNAL, "first"))
    request_.fail(ServingError(StatusCode.UNKNOWN, "second"))
    assert not request_.begin()
    for number in range(3):
        request_.answer(number, {"x": np.arange(3)})
    assert ends == [StatusCode.INTERNAL] and request_.future.exception(0).message == "first"


def test_it_has_ended_before_its_future_is_done():
    done_at_end = []
    request = Request(AnyServable, "", None, lambda code: done_at_end.append(request.future.done()))
    request.parts({}, 1, 1)
    request.begin()
    request.answer(0, {})
    assert done_at_end == [False]


def test_whoever_is_first_of_many_threads_ends_it(ends):
    for _ in range(50):
        request = Request(AnyServable, "", None, ends.append)
        request.parts({"x": np.arange(2)}, 2, 1)
        barrier = threading.Barrier(3)

        def race(action, request=request, barrier=barrier):
            barrier.wait()
            action(request)

        actions = [
            lambda request: request.future.cancel(),
            lambda request: request.begin() and request.answer(0, {"x": np.arange(1)}),
            lambda request: request.begin() and request.answer(1, {"x": np.arange(1)}),
        ]
        threads = [threading.Thread(target=race, args=[action]) for action in actions]
        [thread.start() for thread in threads]
        [thread.join(10) for thread in threads]
        assert request.future.done()
    assert len(ends) == 50 and set(ends) <= {StatusCode.OK, StatusCode.CANCELLED}
