"""A whole server in this process, and requests to it."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving.configuration import ModelConfig, VersionPolicy
from serving.errors import ServingError
from serving.grpc_api import GrpcServer
from serving.http_server import HttpServer
from serving.libretranslate import LibreTranslate
from serving.local_server import in_process_clients
from serving.models import Models
from serving.predictor import Predictor
from serving.rest import RestApi, make_app
from serving.servable import Loader

HOST = "127.0.0.1"
DEADLINE_SECONDS = 30
METRICS = "/monitoring/prometheus/metrics"


@contextlib.contextmanager
def backend(base_paths, labels=None):
    """Models and a predictor: name -> directory of versions, all of which are served."""
    configs = [ModelConfig(name, str(path), VersionPolicy(all={}), labels or {}) for name, path in base_paths.items()]
    models = Models(configs, Loader(), 0.05, retries=0)
    models.start()
    models.wait_until_available(2 * DEADLINE_SECONDS)
    predictor = Predictor(models)
    try:
        yield SimpleNamespace(models=models, predictor=predictor, metrics=predictor.metrics)
    finally:
        predictor.stop(DEADLINE_SECONDS)
        models.stop()


@contextlib.contextmanager
def running(app, port=0):
    """The port of an HTTP server of an app, which is stopped at the end."""
    server = HttpServer(app, HOST, port, DEADLINE_SECONDS)
    try:
        yield server.port
    finally:
        server.stop()


def serve(predictor, models, port=0, **options):
    """The port of a REST server that is stopped at the end."""
    app = LibreTranslate(in_process_clients(predictor, models)).app(())
    return running(make_app(RestApi(predictor, models, **options), app, models, predictor.metrics.page), port)


@contextlib.contextmanager
def serve_grpc(predictor, models, port=0):
    """The address of a gRPC server that is stopped at the end."""
    server = GrpcServer(predictor, models, f"{HOST}:{port}")
    try:
        yield f"{HOST}:{server.port}"
    finally:
        server.stop()


@contextlib.contextmanager
def both(base_paths, **options):
    """REST and gRPC of models: .port, .predict, .metadata, .status and .reload, beside what `backend` gives."""
    with backend(base_paths, **options) as found, serve(found.predictor, found.models) as port:
        with serve_grpc(found.predictor, found.models) as address, grpc.insecure_channel(address) as channel:
            prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            model = model_service_pb2_grpc.ModelServiceStub(channel)
            calls = {"predict": prediction.Predict, "metadata": prediction.GetModelMetadata}
            calls |= {"status": model.GetModelStatus, "reload": model.HandleReloadConfigRequest}
            yield SimpleNamespace(port=port, address=address, channel=channel, **calls, **vars(found))


def ask(port, method, path, body=None, headers=(), connection=None, parse=json.loads):
    """Status, headers and body of the reply; `parse` reads the body where it says that it is JSON."""
    connection = connection or http.client.HTTPConnection(HOST, port, timeout=DEADLINE_SECONDS)
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    content = response.read()
    is_json = response.getheader("Content-Type") == "application/json" and content
    return response.status, response.headers, parse(content) if is_json else content


def refusal(function, *arguments, **options):
    """The name of the code and the message of the error of a call, in this process or over gRPC."""
    error = pytest.raises((ServingError, grpc.RpcError), function, *arguments, **options).value
    return (error.code.name, error.message) if isinstance(error, ServingError) else (error.code().name, error.details())


def connect(port):
    """A socket to write raw bytes to."""
    return socket.create_connection((HOST, port), timeout=DEADLINE_SECONDS)


@contextlib.contextmanager
def process_of(*flags):
    """A server with these flags in a process of its own, once its port is open: .port, .grpc, .process and .lines."""
    port, grpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "serving.server", f"--rest_api_port={port}", f"--port={grpc_port}"]
    command += ["--enable_batching", "--rest_api_timeout_in_ms=20000", *map(str, flags)]
    lines, how = [], {"cwd": Path(__file__).parents[2], "env": os.environ | {"COLUMNS": "80"}}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how) as process:
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        try:
            wait_for(lambda: accepts(port) or process.poll() is not None)
            yield SimpleNamespace(port=port, grpc=grpc_port, process=process, lines=lines, reader=reader)
        finally:
            process.kill()
            reader.join(DEADLINE_SECONDS)


def wait_for(condition, seconds=120):
    """Waits until a condition holds, and returns what it gives; fails if it does not hold within so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.002)
    return found


def free_port():
    with socket.create_server((HOST, 0)) as listener:
        return listener.getsockname()[1]


def accepts(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return False
    return True
