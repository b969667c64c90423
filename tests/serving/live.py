"""A REST server in this process, and raw requests to it."""

import contextlib
import http.client
import json
import socket

from serving.http_server import HttpServer
from serving.rest import RestApi, make_app

HOST = "127.0.0.1"
DEADLINE_SECONDS = 30


@contextlib.contextmanager
def serve(predictor, models, page, arrival_seconds=DEADLINE_SECONDS, metrics_page=str, **limits):
    """The port of a server that is stopped at the end."""
    api = RestApi(predictor, models, **({"timeout_s": DEADLINE_SECONDS, "max_body_bytes": 100_003} | limits))
    app = make_app(api, models, metrics_page, "/monitoring/prometheus/metrics", page)
    server = HttpServer(app, HOST, 0, arrival_seconds, DEADLINE_SECONDS, api.refusal)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def ask(port, method, path, body=None, headers=(), connection=None):
    """Status, headers and body of the reply; the body is read as JSON where it says that it is."""
    connection = connection or http.client.HTTPConnection(HOST, port, timeout=DEADLINE_SECONDS)
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    content = response.read()
    is_json = response.getheader("Content-Type") == "application/json" and content
    return response.status, response.headers, json.loads(content) if is_json else content


def connect(port):
    """A socket to write raw bytes to."""
    return socket.create_connection((HOST, port), timeout=DEADLINE_SECONDS)


def read_all(connection):
    """What comes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))
