"""TensorFlow Serving's REST API, the page of metrics, and the page for people."""

import asyncio
import contextlib
import ctypes
import json
import logging
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

from serving.errors import ServingError, invalid, place_of
from serving.http_server import inflate, read_body, while_connected
from serving.json_tensors import SHORT, is_short, parse, read_large, read_request, write_tensors
from serving.predictor import ModelSpec
from serving.versions import version_of

MOST_INFLATED_BYTES = 100 * 1024 * 1024
LARGE_BYTES = 64 * 1024  # A thread reads larger bodies, so the event loop can serve other requests.
METRICS_PATH = "/monitoring/prometheus/metrics"
PAGE = Path(__file__).parent / "page"
ALLOWED = {"Origin": "*", "Methods": "POST, GET", "Headers": "Content-Type"}
CORS_HEADERS = {f"Access-Control-Allow-{name}": value for name, value in ALLOWED.items()}

WHICH = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
PATHS = {
    "POST": re.compile(rf"/v1/models/([^/:]+){WHICH}:((?-i:classify|regress|predict))", re.ASCII | re.IGNORECASE),
    "GET": re.compile(rf"/v1/models(?:/([^/:]+))?{WHICH}(?:/(metadata))?", re.ASCII | re.IGNORECASE),
}

logger = logging.getLogger(__name__)


class RestApi:
    """The ASGI app for paths under /v1/. `timeout_s` is for body and answer together; 0 means no limit."""

    def __init__(self, predictor, models, timeout_s=30.0, has_cors=False):
        self._predictor = predictor
        self._models = models
        self._timeout_s = timeout_s or None
        self._has_cors = has_cors
        self._large = ThreadPoolExecutor(2, "large")

    async def __call__(self, scope, receive, send):
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)
        if len(response.body) > SHORT:
            self._large.submit(_give_back)

    async def _answer(self, request):
        """Returns the `Response`. Raises nothing."""
        start, model, verb = time.monotonic(), None, None
        try:
            model, verb = _read_path(request)
            status, code, body = 200, StatusCode.OK, await self._dispatch(request, model, verb)
        except ServingError as error:
            status, code, body = error.http_status, error.code, error.message
        except ClientDisconnect:
            status, code, body = 499, StatusCode.CANCELLED, ""  # The client has gone.
        except Exception as error:
            logger.error(place_of(error))
            status, code, body = 500, StatusCode.INTERNAL, "Internal error."
        if model and model.name in self._models:  # Other names come from clients and must not become labels.
            api, seconds = verb if request.method == "POST" else "", time.monotonic() - start
            self._predictor.metrics.request_ended(model.name, code.name, seconds, api, "REST")
        headers = dict(CORS_HEADERS if self._has_cors else {})
        if code == StatusCode.DEADLINE_EXCEEDED:
            headers["Connection"] = "close"  # The rest of the body may still come.
        body = json.dumps({"error": body}) if isinstance(body, str) and body else body
        return Response(body, status, headers, "application/json")

    async def _dispatch(self, request, model, verb):
        if request.method == "OPTIONS":
            if not re.search("https?://", request.headers.get("origin", "")):
                raise ServingError(StatusCode.FAILED_PRECONDITION, "")
            return b""
        if verb == "predict":
            return await self._predict(request, model)
        if request.method == "POST":
            raise ServingError(StatusCode.UNIMPLEMENTED, f"{verb} is not offered, only predict.")
        if not model.name:
            raise invalid("Missing model name in request.")
        return self._metadata(model) if verb == "metadata" else self._status(model)

    async def _predict(self, request, model):
        deadline = time.monotonic() + (self._timeout_s or math.inf)
        body = await read_body(request, 0, self._timeout_s)
        if "gzip" in request.headers.get("content-encoding", ""):
            body = await self._aside(len(body), inflate, body, MOST_INFLATED_BYTES)
        name, inputs, is_rows = await self._aside(len(body), self._read, body, model, deadline)
        timeout_s = self._timeout_s and max(0.0, deadline - time.monotonic())
        future = self._predictor.submit(model, name, inputs, timeout_s=timeout_s)
        prediction = await while_connected(request, asyncio.wrap_future(future), timeout_s)
        size = sum(array.nbytes + 8 * len(array) if array.ndim else 8 for array in prediction.outputs.values())
        return await self._aside(size, write_tensors, prediction.outputs, is_rows)

    async def _aside(self, size, work, *arguments):
        """Calls a function, in another thread if it works on many bytes."""
        if size <= LARGE_BYTES:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._large, work, *arguments)

    def _read(self, body, model, deadline):
        """Reads a body: (name of the signature, dict input -> array, whether the request has rows)."""
        document = parse(body) if is_short(body) else None
        with self._models.use(*model) as servable:
            signatures = servable.dtypes
        if document is None:
            return read_large(body, signatures, max(0.0, deadline - time.monotonic()))
        return read_request(document, signatures)

    def _status(self, model):
        versions = []
        for number, state, code, message in self._models.status(model.name, model.version):
            status = {"error_code": code.name, "error_message": message}
            versions.append({"version": str(number), "state": state, "status": status})
        return json.dumps({"model_version_status": versions}, indent=1).encode("utf-8")

    def _metadata(self, model):
        with self._models.use(*model) as servable:
            signatures, version = SignatureDefMap(signature_def=servable.signatures), servable.version
        options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        spec = {"name": model.name, "signature_name": "", "version": str(version)}
        reply = {"model_spec": spec, "metadata": {"signature_def": MessageToDict(signatures, **options)}}
        return json.dumps(reply, indent=1).encode("utf-8")


def make_app(api, app, models, metrics_page):
    """Adds to an app the API of `api`, the page of metrics, and the page for people under /. Returns the ASGI app.

    The app calls `api` before Starlette's router, which is case-sensitive. `metrics_page` is a function () -> str.
    """
    app.add_route("/page/models", lambda request: JSONResponse({"models": models.names()}))
    app.add_route(METRICS_PATH, lambda request: Response(metrics_page(), media_type="text/plain"))
    app.mount("/", StaticFiles(directory=PAGE, html=True))

    async def api_or_page(scope, receive, send):
        is_api = scope["path"].lower().startswith("/v1/")
        await (api if is_api else app)(scope, receive, send)

    return api_or_page


def _read_path(request):
    """Returns the `ModelSpec`, and the verb of a POST, or the "metadata" that a GET asks for, or None."""
    path, query = (request.scope[part].decode("latin-1") for part in ("raw_path", "query_string"))
    path += f"?{query}" if query else ""  # TensorFlow Serving takes a query for a part of the path.
    if request.method == "OPTIONS":
        return ModelSpec(""), None
    match = request.method in PATHS and PATHS[request.method].fullmatch(path)
    if not match:
        raise invalid(f"Malformed request: {request.method} {path}")
    name, version, label, verb = match.groups()
    number = version and version_of(version)
    if version and number is None:
        raise invalid(f"Failed to convert version: {version} to numeric.")
    return ModelSpec(unquote(name or ""), number, label and unquote(label)), verb


def _give_back():
    """Gives the memory of large answers back to the system."""
    with contextlib.suppress(OSError, AttributeError):  # Only glibc has the function.
        ctypes.CDLL(None).malloc_trim(0)
