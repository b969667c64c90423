import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from grpc import StatusCode

from serving.connections import GrpcConnection, RestConnection
from serving.errors import ServingError
from tests.serving.fake_server import HOST, serve

SECONDS = 60


def connection(where, model="toy"):
    return RestConnection(where["url"], model) if "url" in where else GrpcConnection(where["grpc"], model)


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_any_bytes_arrive_as_they_are(api):
    texts = [b"", b"\xff\x00", "größe \u2028".encode(), b'"\\\n']
    asked = []

    def note(which, signature_name, inputs):
        asked.append(inputs["text"])
        return {"score": [0.5] * len(inputs["text"])}

    with serve(api, note) as where:
        array = np.array(texts, object)
        assert connection(where).predict("translate", {"text": array}, SECONDS) == {"score": [0.5] * len(texts)}
    assert asked == [texts]


def test_a_model_name_cannot_change_the_path():
    asked = []

    def note(which, signature_name, inputs):
        asked.append(which)
        return {"score": [0.5]}

    with serve("rest", note) as where:
        connection(where, "a/b:c?d").predict("translate", {"text": np.array([b"x"], object)}, SECONDS)
    assert asked == ["a%2Fb%3Ac%3Fd"]


@contextlib.contextmanager
def proxy(status, body):
    """The URL of what answers everything with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "status, body, code, message",
    [
        (502, b"<h1>Bad Gateway</h1>", StatusCode.UNKNOWN, "HTTP 502 '<h1>Bad Gateway</h1>'"),
        (503, b"", StatusCode.UNAVAILABLE, "HTTP 503"),
        (400, b'{"error": "no text"}', StatusCode.INVALID_ARGUMENT, "no text"),
        (429, b'["x"]', StatusCode.RESOURCE_EXHAUSTED, "HTTP 429"),
        (200, b"<h1>Welcome</h1>", StatusCode.UNKNOWN, "the reply has no 'outputs': HTTP 200 '<h1>Welcome</h1>'"),
        (200, b"{}", StatusCode.UNKNOWN, "the reply has no 'outputs'"),
    ],
)
def test_whatever_a_proxy_answers_is_an_error_that_says_what_came(status, body, code, message):
    with proxy(status, body) as url, pytest.raises(ServingError) as caught:
        RestConnection(url, "toy").predict("translate", {"text": np.array([b"x"], object)}, SECONDS)
    assert caught.value.code == code and message in caught.value.message
