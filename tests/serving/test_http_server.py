import asyncio
import gzip
import threading
import tracemalloc

import pytest

from serving.errors import ServingError
from serving.http_server import LONGEST_HEAD, HttpServer, inflate
from tests.serving.live import DEADLINE_SECONDS, HOST, ask, connect


def test_a_server_answers_what_is_under_way_and_stops():
    was_asked, may_go_on, replies = threading.Event(), threading.Event(), []

    async def app(scope, receive, send):
        was_asked.set()
        await asyncio.to_thread(may_go_on.wait, DEADLINE_SECONDS)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    server = HttpServer(app, HOST, 0, DEADLINE_SECONDS)
    with pytest.raises(OSError, match=f"cannot listen on {HOST}:{server.port}: Address already in use"):
        HttpServer(app, HOST, server.port, 1)
    for head in (b"GET / HTTP/1.1\r\nX: " + 2 * LONGEST_HEAD * b"a", b"nonsense\r\n\r\n"):
        with connect(server.port) as client:
            client.sendall(head)
            assert client.recv(100).startswith(b"HTTP/1.1 400")
    client = threading.Thread(target=lambda: replies.append(ask(server.port, "GET", "/")[0]))
    client.start()
    assert was_asked.wait(DEADLINE_SECONDS)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    may_go_on.set()
    stopping.join(DEADLINE_SECONDS)
    client.join(DEADLINE_SECONDS)
    assert replies == [200] and not stopping.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connect(server.port)


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
