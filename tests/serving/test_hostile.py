"""A server in a process of its own, and its hostile client. Bodies of all kinds: test_agreement.py."""

import contextlib
import gzip
import http.client
import random
import re
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import psutil
import pytest

from tests.serving import small, toy
from tests.serving.live import DEADLINE_SECONDS, HOST, METRICS, accepts, ask, connect, process_of, wait_for

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
    # A signature of its own: a batch of both widths would be refused, as in TensorFlow Serving.
    "numbers": lambda: b'{"signature_name":"text","instances":[[' + 5 * 10**6 * b"1.5," + b"1]]}",
    # A value of a float that is an object of 20 million numbers: 175 kB as gzip.
    "object": lambda: b'{"instances":[{"x":{"a":[' + 2 * 10**7 * b"1," + b"1]}}]}",
}
LITTLE = 100 * 10**6  # bytes; the numbers of a bomb take 160 MB


CONFIG = 'config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}'


def write_config(path, **models):
    configs = " ".join(CONFIG.format(name, directory) for name, directory in models.items())
    path.write_text(f"model_config_list {{ {configs} }}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    small.write(path / "m", 1, serving_default=small.affine(2.0), text=small.affine(1.0))
    toy.warm_up(toy.write(path / "toy", 3), toy.record("wait 1"))
    write_config(path / "models.config", m=path / "m", toy=path / "toy")
    flags = ("--model_config_file", path / "models.config", "--model_config_file_poll_wait_seconds=1")
    with process_of(*flags) as found:
        found.first_status, found.path = ask(found.port, "GET", "/v1/models/toy"), path
        yield found


def test_the_port_opens_only_when_the_model_is_available(server):
    status, _, reply = server.first_status
    assert status == 200 and [version["state"] for version in reply["model_version_status"]] == ["AVAILABLE"]
    first, second = (line.split(" INFO ")[1] for line in server.lines[:2])  # said before the long work
    assert first.startswith("loading TensorFlow") and second.startswith("loading the models")
    loaded = next(line for line in server.lines if "loaded version 3" in line)
    assert float(re.search(r"in ([\d.]+) s", loaded)[1]) >= 1, "the warm-up takes a second, before which nothing opens"


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


def test_a_thousand_requests_of_all_kinds_are_answered_and_forgotten(server):
    port, memory, chance = server.port, psutil.Process(server.process.pid).memory_info, random.Random(5)
    for _ in range(250):
        hit(port, chance)
        is_fine(port)
    before, statuses = memory().rss, set()
    with grpc.insecure_channel(f"{HOST}:{server.grpc}") as channel:
        for number in range(1000):
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
        status, waits = waits_during(port, BOMBS[name]())
        assert status in (200, 400, 504) and len(waits) > 10
        longer.append(max(waits) - usual)
        with contextlib.suppress(AssertionError):
            wait_for(lambda before=before: memory().rss < before + LITTLE, 15)
        kept.append(memory().rss - before)
    assert min(longer) < 0.5, "others are answered while the bomb is read"
    assert min(kept) < LITTLE and [line for line in server.lines if "Traceback" in line] == []


def test_a_changed_model_file_is_followed(server, tmp_path):
    toy.write(tmp_path, 7)
    config = server.path / "models.config"
    write_config(config, new=tmp_path, toy=server.path / "toy")
    predict = "/v1/models/new:predict", {"instances": ["a"]}
    wait_for(lambda: ask(server.port, "POST", *predict)[0] == 200)
    assert ask(server.port, "POST", *predict)[2]["predictions"][0]["translation"] == "7:A"
    assert ask(server.port, "GET", "/page/models")[2] == {"models": ["new", "toy"]}
    config.write_text("nonsense {")
    wait_for(lambda: any("is not followed" in line for line in server.lines))
    assert ask(server.port, "GET", "/v1/models/toy")[0] == 200


def test_sigterm_answers_what_is_under_way_and_ends_in_order(server):
    def begun():
        content = ask(server.port, "GET", METRICS)[2].decode()
        return sum(map(float, re.findall(r"queuing_latency_count\{.*\} (.*)", content)))

    before = begun()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server.port, "POST", "/v1/models/toy:predict", {"instances": ["wait 2"]})
        wait_for(lambda: begun() > before)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not accepts(server.port))
        assert not asked.done()
        status, _, reply = asked.result(DEADLINE_SECONDS)
    assert server.process.wait(DEADLINE_SECONDS) == 0
    server.reader.join(DEADLINE_SECONDS)
    assert status == 200 and reply["predictions"][0]["translation"] == "3:WAIT 2"
    assert server.lines[-1].endswith(" INFO stopped\n") and "wait 2" not in "".join(server.lines)
