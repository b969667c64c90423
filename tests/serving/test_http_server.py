import gzip
import tracemalloc

import pytest

from serving.errors import ServingError
from serving.http_server import LONGEST_HEAD, HttpServer, inflate
from tests.serving.live import HOST, connect


def test_a_port_that_is_taken_and_heads_that_are_wrong_are_told(toys):
    with pytest.raises(OSError, match=f"cannot listen on {HOST}:{toys.port}: Address already in use"):
        HttpServer(None, HOST, toys.port, 1)
    for head in (b"GET / HTTP/1.1\r\nX: " + 2 * LONGEST_HEAD * b"a", b"nonsense\r\n\r\n"):
        with connect(toys.port) as client:
            client.sendall(head)
            assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_inflating_stops_at_the_limit():
    bomb = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(ServingError, match="at most 1009 bytes"):
            inflate(bomb, 1009)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert inflate(gzip.compress(bytes(1009)), 1009) == bytes(1009)
