"""Bad clients: they hang up, never end a request, or send malformed or oversized bodies."""

import contextlib
import json
import random
import socket
import time

from benchmarks.load_connections import LONGEST_WAIT

CONNECT_WAIT = 10  # Seconds.
OVERSIZED = 200 * 1024 * 1024  # Bytes. TensorFlow Serving refuses a body of this size, too.


def connect(port):
    return socket.create_connection(("127.0.0.1", port), CONNECT_WAIT)


def disconnect(port, request, times):
    """Hangs up at a random place in a request, or while waiting for the answer. Returns the number of times."""
    place = random.Random(1)
    for _ in range(times):
        with connect(port) as client:
            client.sendall(request[: place.choice((len(request), place.randrange(len(request))))])
            time.sleep(0.002)
    return times


def slow_lorises(port, clients, seconds):
    """Sends a request byte by byte, one byte per second, on many connections.

    Returns:
        float, the seconds until the server has closed all connections, or `seconds`; int, the number of closed
        connections.
    """
    head = b"POST /v1/models/translator:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    connections = [connect(port) for _ in range(clients)]
    started, going = time.monotonic(), list(connections)
    for number, connection in enumerate(connections):
        connection.sendall(head if number % 2 else head[:20])  # Half are slow in the body, half in the head.
        connection.setblocking(False)
    while going and time.monotonic() - started < seconds:
        time.sleep(1)
        going = [connection for connection in going if is_open(connection)]
    for connection in connections:
        connection.close()
    return time.monotonic() - started, clients - len(going)


def is_open(connection):
    """Sends one more byte. Returns False if the server has closed the connection."""
    try:
        connection.send(b" ")
        return connection.recv(65536, socket.MSG_PEEK) != b"" and not is_closed_after_answer(connection)
    except BlockingIOError:
        return True
    except OSError:
        return False


def is_closed_after_answer(connection):
    """Reads an answer, such as a refusal with 408. Returns whether the connection is closed after the answer."""
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False


def oversized(port, make_request):
    """Sends a body of 200 MB, with its length in the head and in chunks: dict of the server's answers."""
    head, _, _ = make_request(b"", length=0).partition(b"Content-Length")
    return {
        "announced": send_until_answered(port, make_request(b"", length=OVERSIZED), b" " * 65536),
        "in chunks": send_until_answered(
            port, head + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n", b"0\r\n\r\n"
        ),
    }


def send_until_answered(port, head, piece, end=b""):
    """Sends the head, about 200 MB in pieces, and the end, until an answer arrives: str with status and MB sent."""
    with connect(port) as client:
        client.sendall(head)
        client.settimeout(0.001)
        sent, answer = 0, b""
        while not answer and (sent < OVERSIZED or sent % len(piece)):
            try:
                sent += client.send(piece[sent % len(piece) :])
                answer = client.recv(65536)
            except TimeoutError:
                continue
            except OSError as error:
                return f"{type(error).__name__} after {sent / 1e6:.1f} MB"
        if not answer:
            with contextlib.suppress(OSError):
                client.settimeout(LONGEST_WAIT)
                client.sendall(end)
                answer = client.recv(65536)
        return f"{answer[9:12].decode() or 'nothing'} after {sent / 1e6:.1f} MB"


def malformed_requests(count, word):
    """Generates all kinds of malformed bodies, bytes, which contain a user's word."""
    chance = random.Random(2)
    good = json.dumps({"instances": [{"text": f"{word} {word}"}]}).encode()
    values = (None, 5, True, {}, [5], [[word]], {"b64": word}, {"text": 5}, {"other": word}, [{"text": word}, word])
    for _ in range(count):
        kind = chance.randrange(6)
        if kind == 0:
            yield good[: chance.randrange(len(good))]
        elif kind == 1:
            yield good[:-1] + bytes(chance.randrange(1, 256) for _ in range(7))
        elif kind == 2:
            yield chance.randbytes(chance.randrange(100))
        elif kind == 3:
            yield json.dumps(chance.choice(values)).encode()
        elif kind == 4:
            yield json.dumps({chance.choice(("instances", "inputs")): chance.choice(values[:-3])}).encode()
        else:
            yield json.dumps({"instances": [word], chance.choice(("inputs", "signature_name")): 5}).encode()


def statuses_of(answers):
    """Returns status -> number of answers."""
    return {status: len(found) for status, found in sorted(answers.latencies.items()) if found}
