import asyncio
import http.client
import socket
import threading
import time

import pytest
from starlette.responses import Response

from serving.http_server import LONGEST_HEAD, HttpServer
from tests.serving.live import DEADLINE_SECONDS, HOST, ask, connect, read_all

PATIENCE = 0.31


class Echo:
    """An ASGI app that answers with the body, as soon as `may_answer`."""

    def __init__(self):
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.was_asked = threading.Event()

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.was_asked.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.005)
        await Response(body)(scope, receive, send)


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def server(echo):
    server = HttpServer(echo, HOST, 0, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    server.start()
    yield server
    server.stop()


def test_a_client_that_says_nothing_is_cut_off(server):
    with connect(server.port) as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


BEGINNINGS = pytest.mark.parametrize(
    "beginning",
    [b"GET /", b"GET / HTTP/1.1\r\nA: b\r\nB", b"POST / HTTP/1.1\r\nContent-Length: 999\r\n\r\n123"],
    ids=["line", "head", "body"],
)


@BEGINNINGS
def test_a_request_that_stops_in_the_middle_is_given_up(server, beginning):
    with connect(server.port) as connection:
        connection.sendall(beginning)
        reply = read_all(connection)
    assert reply.startswith(b"HTTP/1.1 408 ") and b"did not arrive in 0.31 s" in reply


@BEGINNINGS
def test_a_request_that_comes_drop_by_drop_is_given_up_too(server, beginning):
    with connect(server.port) as connection:
        connection.sendall(beginning)
        deadline = time.monotonic() + DEADLINE_SECONDS
        with pytest.raises(OSError):  # the connection is closed
            while time.monotonic() < deadline:
                connection.sendall(b"x")
                time.sleep(PATIENCE / 7)


def test_slow_clients_do_not_delay_others(server):
    slow = [connect(server.port) for _ in range(53)]
    for connection in slow:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\n123")
    assert ask(server.port, "POST", "/", b"quick")[2] == b"quick"
    for connection in slow:
        connection.close()


def test_a_request_in_two_pieces_is_answered(server):
    with connect(server.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Le")
        connection.sendall(b"ngth: 5\r\n\r\nwh")
        connection.sendall(b"ole")
        assert read_all(connection).endswith(b"\r\n\r\nwhole")


def test_a_head_without_end_is_refused(server):
    with connect(server.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nA: " + (LONGEST_HEAD + 1) * b"a")
        assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_an_answer_may_take_longer_than_a_request(server, echo):
    echo.may_answer.clear()
    threading.Timer(3 * PATIENCE, echo.may_answer.set).start()
    assert ask(server.port, "POST", "/", b"patience")[2] == b"patience"


def test_a_connection_serves_one_request_after_the_other(server):
    with connect(server.port) as connection:
        for number in (b"1", b"2", b"3"):
            connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n" + number)
            assert connection.recv(65536).endswith(b"\r\n\r\n" + number)
            time.sleep(PATIENCE / 2)


class Busy:
    """Refuses POSTs of /busy while `is_full`."""

    is_full = True

    def __call__(self, target):
        return Response(b"busy", 503, {"A": "b"}) if self.is_full and target == b"/busy" else None


@pytest.fixture
def busy():
    return Busy()


@pytest.fixture
def refusing(echo, busy):
    server = HttpServer(echo, HOST, 0, DEADLINE_SECONDS, DEADLINE_SECONDS, busy)
    server.start()
    yield server
    server.stop()


def test_what_is_refused_is_answered_past_the_app_and_the_connection_goes_on(refusing, busy, echo):
    connection = http.client.HTTPConnection(HOST, refusing.port, timeout=DEADLINE_SECONDS)
    for body in (b"", b"short", 500_000 * b"long"):
        status, headers, content = ask(refusing.port, "POST", "/busy", body, connection=connection)
        assert (status, content, headers["A"]) == (503, b"busy", "b") and headers["Date"]
    assert not echo.was_asked.is_set()
    assert ask(refusing.port, "POST", "/other", b"other", connection=connection)[2] == b"other"
    assert ask(refusing.port, "GET", "/busy", connection=connection)[0] == 200
    busy.is_full = False
    assert ask(refusing.port, "POST", "/busy", b"again", connection=connection)[2] == b"again"


def test_a_refusal_closes_the_connection_if_the_client_wishes(refusing):
    with connect(refusing.port) as connection:
        connection.sendall(b"POST /busy HTTP/1.1\r\nConnection: close\r\nContent-Length: 1\r\n\r\na")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nconnection: close" in head.lower() and body == b"busy"


def test_requests_behind_one_that_is_under_way_get_their_answers_in_order(refusing, echo):
    echo.may_answer.clear()
    with connect(refusing.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nfirst")
        assert echo.was_asked.wait(DEADLINE_SECONDS)
        connection.sendall(b"POST /busy HTTP/1.1\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsecond")
        echo.may_answer.set()
        first, second = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert first.endswith(b"first") and second.startswith(b"200 ") and second.endswith(b"second")


def test_a_client_that_waits_to_be_told_to_go_on_is_not_left_waiting(refusing):
    with connect(refusing.port) as connection:
        connection.sendall(b"POST /busy HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"body")
        assert connection.recv(65536).endswith(b"body")


def test_stopping_answers_what_is_under_way_and_takes_nothing_new(echo):
    server = HttpServer(echo, HOST, 0, arrival_seconds=DEADLINE_SECONDS, drain_seconds=DEADLINE_SECONDS)
    server.start()
    echo.may_answer.clear()
    idle, busy = connect(server.port), connect(server.port)
    busy.sendall(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nlast")
    assert echo.was_asked.wait(DEADLINE_SECONDS)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert read_all(idle) == b""
    with pytest.raises(OSError):
        connect(server.port)
    assert stopping.is_alive()
    echo.may_answer.set()
    assert read_all(busy).endswith(b"\r\n\r\nlast")
    stopping.join(DEADLINE_SECONDS)
    assert not stopping.is_alive()


def test_connections_are_refused_until_the_start(echo):
    server = HttpServer(echo, HOST, 0, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    with pytest.raises(ConnectionRefusedError):
        connect(server.port)
    server.start()
    assert ask(server.port, "POST", "/", b"open")[2] == b"open"
    server.stop()


def test_a_port_in_use_is_said_at_once_or_at_the_start(server, echo):
    with pytest.raises(OSError, match=f"cannot listen on {HOST}:{server.port}: "):
        HttpServer(echo, HOST, server.port, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    first = HttpServer(echo, HOST, 0, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    second = HttpServer(echo, HOST, first.port, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    first.start()
    with pytest.raises(OSError):
        second.start()
    first.stop()


def test_it_listens_on_ipv6_too(echo):
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        server = HttpServer(echo, "::1", 0, arrival_seconds=PATIENCE, drain_seconds=DEADLINE_SECONDS)
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    server.start()
    with socket.create_connection(("::1", server.port)) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nsix")
        assert read_all(connection).endswith(b"six")
    server.stop()
