"""A hostile client of a server in a process of its own. Bodies of all kinds: test_apis.py."""

import contextlib
import gzip
import http.client
import random
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest

from tests.serving import small
from tests.serving.live import HOST, METRICS, ask, connect, process_of, wait_for

pytestmark = pytest.mark.slow

PREDICT = "/v1/models/m:predict"
PATHS = (PREDICT, "/v1/models/m/versions/9:predict", "/v1/models/m", "/v1/models/m/metadata", "/v1/%ff", METRICS)
PATHS += ("/translate", "/detect?q=a", "/languages", "/", "/..")
METHODS = ("POST", "GET", "PUT", "OPTIONS", "HEAD", "DELETE", "X")
GRPC = ("tensorflow.serving.PredictionService/Predict", "tensorflow.serving.ModelService/HandleReloadConfigRequest")
GRPC += ("tensorflow.serving.PredictionService/GetModelMetadata", "grpc.health.v1.Health/Check", "no.Such/Method")
BODIES = [b'{"instances": [1, 2.5]}', b'{"instances": [{"b64": "?"}]}', b"", gzip.compress(b'{"instances": [1]}')[:20]]
BODIES += [900 * b'{"a":' + b"1" + 900 * b"}", 3000 * b"[", 3000 * b'"', 999 * b"[" + 999 * b"]"]
HEADS = ["", "Content-Encoding: gzip\r\n", "Expect: 100-continue\r\n", "Upgrade: h2c\r\n", "X: \xff\r\n"]
BOMBS = {
    "depth": b'{"instances":' + 4 * 10**6 * b"[",
    "rows": b'{"instances":[' + 3 * 10**6 * b"[]," + b"[]]}",
    # A signature of its own: a batch of both widths would be refused, as in TensorFlow Serving.
    "numbers": b'{"signature_name":"text","instances":[[' + 5 * 10**6 * b"1.5," + b"1]]}",
    # A value of a float that is an object of 20 million numbers: 175 kB as gzip.
    "object": b'{"instances":[{"x":{"a":[' + 2 * 10**7 * b"1," + b"1]}}]}",
}
LITTLE = 100 * 10**6  # bytes; the numbers of a bomb take 160 MB


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    small.write(path / "m", 1, serving_default=small.affine(2.0), text=small.affine(1.0))
    with process_of("--model_base_path", path / "m", "--model_name=m") as server:
        yield server


def is_fine(port):
    return ask(port, "POST", PREDICT, {"instances": [2.0]})[::2] == (200, {"predictions": [3.0]})


def raw_request(chance):
    """The bytes of a request of any kind, whole or not, perhaps several at once."""
    body = chance.choice([*BODIES, chance.randbytes(chance.randrange(200))])
    head = f"{chance.choice(METHODS)} {chance.choice(PATHS)} HTTP/1.{chance.randrange(2)}\r\nHost: a\r\n"
    length = chance.choice([len(body)] * 8 + [len(body) + 9, 0, -1, "x", 10**30])
    framing = chance.choice([f"Content-Length: {length}"] * 5 + ["Transfer-Encoding: chunked"])
    whole = f"{head}{chance.choice(HEADS)}{framing}\r\n\r\n".encode("latin-1") + body
    whole *= chance.choice([1, 1, 1, 5])  # A pipeline.
    return whole if chance.randrange(4) else whole[: chance.randrange(1, len(whole))]


def hit(port, chance):
    """Sends a raw request, and waits for an answer or leaves. Returns the status, if any."""
    with contextlib.suppress(OSError), connect(port) as client:
        client.settimeout(0.2)
        client.sendall(raw_request(chance))
        if chance.randrange(3) == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # Leaves with a reset.
            return None
        if (answer := client.recv(65536)).startswith(b"HTTP/1.1 "):
            return int(answer[9:12])
    return None


def test_two_thousand_requests_of_all_kinds_are_answered_and_forgotten(server):
    port, memory, chance = server.port, psutil.Process(server.process.pid).memory_info, random.Random(5)
    for _ in range(500):
        hit(port, chance)
        is_fine(port)
    before, statuses = memory().rss, set()
    with grpc.insecure_channel(f"{HOST}:{server.grpc}") as channel:
        for number in range(2000):
            if number % 4:
                statuses.add(hit(port, chance))
            else:
                call = channel.unary_unary(f"/{chance.choice(GRPC)}").future(chance.randbytes(chance.randrange(99)))
                if chance.randrange(5) == 0:
                    call.cancel()
                else:
                    call.exception(20)
    assert is_fine(port)
    assert {200, 400, 404} <= statuses and {status for status in statuses if status and status >= 500} <= {501, 503}
    assert [line for line in server.lines if "Traceback" in line or " ERROR " in line] == []
    assert memory().rss < 1.1 * before


def wait(port):
    """How long a small request takes until it is answered."""
    begun = time.monotonic()
    assert is_fine(port)
    return time.monotonic() - begun


def waits_during(port, bomb):
    """The status of a bomb, and the `wait` of each small request beside it."""
    waits, patient = [], http.client.HTTPConnection(HOST, port, timeout=240)  # Others may keep the machine busy.
    asked = (port, "POST", PREDICT, gzip.compress(bomb, 1), {"Content-Encoding": "gzip"}, patient, bytes)  # No parsing.
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, *asked)
        while not reply.done():
            waits.append(wait(port))
            time.sleep(0.01)
    return reply.result()[0], waits


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_holds_up_nobody_and_leaves_nothing(server, name):
    port, memory = server.port, psutil.Process(server.process.pid).memory_info
    longer, kept = [], []
    # Others may keep the machine busy, and the allocator of each thread keeps some memory of its first bomb.
    while len(longer) < 5 and not (longer and min(longer) < 0.5 and min(kept) < LITTLE):
        before, usual = memory().rss, max(wait(port) for _ in range(100))
        status, waits = waits_during(port, BOMBS[name])
        assert status in (200, 400, 504) and len(waits) > 10
        longer.append(max(waits) - usual)
        with contextlib.suppress(AssertionError):
            wait_for(lambda before=before: memory().rss < before + LITTLE, 15)
        kept.append(memory().rss - before)
    assert min(longer) < 0.5, "others are answered while the bomb is read"
    assert min(kept) < LITTLE
    assert [line for line in server.lines if "Traceback" in line] == []
