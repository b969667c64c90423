import asyncio
import gzip
import tracemalloc

import pytest
from starlette.requests import Request

from serving.errors import ServingError
from serving.http_server import inflate, read_body


def request_of(*chunks):
    """A request whose body comes in chunks, and never ends if the last chunk is None."""

    async def receive():
        chunk = rest.pop(0)
        if chunk is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": chunk, "more_body": bool(rest)}

    rest = list(chunks)
    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_a_body_is_read_whole():
    assert asyncio.run(read_body(request_of(b"ab", b"", b"c"), 3, 5)) == b"abc"
    assert asyncio.run(read_body(request_of(b"ab", b"c"), 0, 5)) == b"abc"


@pytest.mark.parametrize(
    ("chunks", "status", "message"),
    [((b"ab", b"cd", b"ef"), 413, "must not be longer than 3 bytes"), ((b"ab", None), 504, "did not arrive in 0.05 s")],
)
def test_a_body_that_is_too_long_or_too_slow_is_refused(chunks, status, message):
    with pytest.raises(ServingError, match=message) as raised:
        asyncio.run(read_body(request_of(*chunks), 3, 0.05))
    assert raised.value.http_status == status


def test_inflating_stops_at_the_limit():
    bomb = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(ServingError, match="more than 1009 bytes"):
            inflate(bomb, 1009)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert inflate(gzip.compress(bytes(1009)), 1009) == bytes(1009)
