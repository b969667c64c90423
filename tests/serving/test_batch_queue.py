import time

import pytest

from serving.batch_queue import BatchQueue, rows_of
from serving.request import Request


@pytest.fixture
def queue():
    return BatchQueue("key")


def put(queue, *sizes, deadline=None):
    """Appends requests of so many rows; returns them."""
    requests = [Request(None, "", deadline, lambda code: None) for _ in sizes]
    for request, size in zip(requests, sizes, strict=True):
        queue.extend(request.parts({}, size, most_rows=100))
    return requests


def test_a_batch_is_taken_from_the_beginning_and_the_rest_remains(queue):
    requests = put(queue, 2, 0, 3, 1)
    taken, unwanted = queue.take(4)
    assert [part.request for part in taken] == requests[:2] and unwanted == []
    assert [part.request for part in queue.parts] == requests[2:]
    assert rows_of(taken) == 2 and queue.size == rows_of(queue.parts) == 4


def test_what_nobody_wants_is_taken_beside_a_batch_and_takes_no_room_in_it(queue):
    (late,) = put(queue, 3, deadline=time.monotonic() - 1)
    first, gone, last = put(queue, 2, 2, 2)
    gone.future.cancel()
    taken, unwanted = queue.take(4)
    assert [part.request for part in taken] == [first, last] and [part.request for part in unwanted] == [late, gone]
    assert not queue.parts and queue.size == 0


def test_what_nobody_wants_can_be_removed_alone(queue):
    first, gone, last = put(queue, 1, 5, 2)
    gone.future.cancel()
    assert [part.request for part in queue.drop_unwanted()] == [gone]
    assert [part.request for part in queue.parts] == [first, last] and queue.size == 3


def test_there_is_room_for_rows_and_for_requests(queue):
    put(queue, 3)
    assert queue.has_room(2, 5) and not queue.has_room(3, 5)
    put(queue, 0, 0, 0, 0)
    assert not queue.has_room(0, 5)
