"""A server of a function, over REST or gRPC, that notes what it is asked: what the client's tests talk to."""

import base64
import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np

from serving.errors import ServingError
from serving.messages import PredictRequest, PredictResponse, to_array, to_proto

HOST = "127.0.0.1"


@contextlib.contextmanager
def serve(api, answer, port=0):
    """Serves a function until the end of the block.

    Args:
        api: "rest" or "grpc".
        answer: function (which, signature_name, inputs: dict name -> list, strings as bytes) -> dict name -> list;
            `which` is "NAME", "NAME/versions/N" or "NAME/labels/L".
        port: 0 for any.

    Yields:
        dict, the arguments by which a `Client` finds it.
    """
    with {"rest": _rest, "grpc": _grpc}[api](answer, port) as client_arguments:
        yield client_arguments


@contextlib.contextmanager
def _rest(answer, port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            inputs = {name: [_bytes(value) for value in values] for name, values in body["inputs"].items()}
            which = self.path.removeprefix("/v1/models/").removesuffix(":predict")
            try:
                outputs = answer(which, body["signature_name"], inputs)
                status, reply = 200, {"outputs": {name: _plain(value) for name, value in outputs.items()}}
            except ServingError as error:
                status, reply = error.http_status, {"error": error.message}
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):  # a client that has gone
            pass

    server = Server((HOST, port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield {"url": f"http://{HOST}:{server.server_port}"}
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


def _bytes(value):
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode() if isinstance(value, str) else value


def _plain(value):
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value.decode() if isinstance(value, bytes) else value


@contextlib.contextmanager
def _grpc(answer, port):
    def predict(request, context):
        spec = request.model_spec
        which = spec.name
        if spec.HasField("version"):
            which += f"/versions/{spec.version.value}"
        elif spec.HasField("version_label"):
            which += f"/labels/{spec.version_label}"
        inputs = {name: to_array(proto).tolist() for name, proto in request.inputs.items()}
        try:
            outputs = answer(which, spec.signature_name, inputs)
        except ServingError as error:
            context.abort(error.code, error.message)
        response = PredictResponse()
        for name, values in outputs.items():
            array = np.array(values)
            to_proto(array.astype(object if array.dtype.kind == "S" else np.float32), response.outputs[name])
        return response

    method = grpc.unary_unary_rpc_method_handler(
        predict, PredictRequest.FromString, lambda response: response.SerializeToString()
    )
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", {"Predict": method}),)
    )
    port = server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    try:
        yield {"grpc": f"{HOST}:{port}"}
    finally:
        server.stop(None).wait()
