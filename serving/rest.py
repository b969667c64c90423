"""TensorFlow Serving's REST API, the page of metrics, and the page for people."""

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

from serving.errors import ServingError, invalid, place_of
from serving.http_server import inflate, read_body
from serving.json_reader import parse
from serving.json_tensors import check_document, read_tensors, write_tensors
from serving.libretranslate import CORS, EXCEPTION_HANDLERS
from serving.predictor import ModelSpec

MOST_INFLATED_BYTES = 100 * 1024 * 1024
LARGE_BYTES = 64 * 1024  # A thread reads larger bodies, so the event loop can serve other requests.
LARGE_THREADS = 2
MOST_DIGITS = 19  # Of a version. Python refuses to convert thousands of digits.
PAGE = Path(__file__).parent / "page"
CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}

WHICH = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
PATHS = {
    "POST": re.compile(rf"/v1/models/([^/:]+){WHICH}:((?-i:classify|regress|predict))", re.ASCII | re.IGNORECASE),
    "GET": re.compile(rf"/v1/models(?:/([^/:]+))?{WHICH}(?:/(metadata))?", re.ASCII | re.IGNORECASE),
}

logger = logging.getLogger(__name__)


class RestApi:
    """The ASGI app for paths under /v1/.

    A body may have `max_body_bytes`. Body and answer together may take `timeout_s` seconds. 0 means no limit. With
    `has_cors`, pages of other sites may send requests.
    """

    def __init__(self, predictor, models, timeout_s=30.0, max_body_bytes=0, has_cors=False):
        self._predictor = predictor
        self._models = models
        self._timeout_s = timeout_s or None
        self._max_body_bytes = max_body_bytes
        self._has_cors = has_cors
        self._large = ThreadPoolExecutor(LARGE_THREADS, "large")

    async def __call__(self, scope, receive, send):
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)
        if hasattr(request.state, "is_large"):
            self._large.submit(_give_back)

    async def _answer(self, request):
        """Returns the `Response`. Raises nothing."""
        start, model, verb = time.monotonic(), None, None
        try:
            model, verb = _read_path(request)
            status, code, body = 200, StatusCode.OK, await self._dispatch(request, model, verb)
        except ServingError as error:
            status, code, body = error.http_status, error.code, error.message and error_body(error.message)
        except ClientDisconnect:
            status, code, body = 499, StatusCode.CANCELLED, b""  # The client has gone.
        except Exception as error:
            logger.error(place_of(error))
            status, code, body = 500, StatusCode.INTERNAL, error_body("Internal error.")
        if model and model.name in self._models:  # Other names come from clients and must not become labels.
            api, seconds = verb if request.method == "POST" else "", time.monotonic() - start
            self._predictor.metrics.request_ended(model.name, code.name, seconds, api, "REST")
        headers = dict(CORS_HEADERS if self._has_cors else {})
        if code == StatusCode.DEADLINE_EXCEEDED:
            headers["Connection"] = "close"  # The rest of the body may still come.
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
        body = await read_body(request, self._max_body_bytes, self._timeout_s)
        if "gzip" in request.headers.get("content-encoding", ""):
            body = await self._aside(request, len(body), inflate, body, MOST_INFLATED_BYTES)
        name, inputs, is_rows = await self._aside(request, len(body), self._read, body, model, deadline)
        timeout_s = self._timeout_s and max(0.0, deadline - time.monotonic())
        future = self._predictor.submit(model, name, inputs, timeout_s=timeout_s)
        prediction = await _wait(request, asyncio.wrap_future(future), timeout_s)
        size = sum(array.nbytes + 8 * len(array) if array.ndim else 8 for array in prediction.outputs.values())
        return await self._aside(request, size, write_tensors, prediction.outputs, is_rows)

    async def _aside(self, request, size, work, *arguments):
        """Calls a function, in another thread if it works on many bytes."""
        if size <= LARGE_BYTES:
            return work(*arguments)
        request.state.is_large = True
        return await asyncio.get_running_loop().run_in_executor(self._large, work, *arguments)

    def _read(self, body, model, deadline):
        document = parse(body, deadline)
        check_document(document)
        name = document.get("signature_name", "")
        with self._models.use(*model) as servable:
            signature = servable.signatures.get(name or "serving_default")
        if signature is None:
            raise invalid(f'Serving signature name: "{name or "serving_default"}" not found in signature def')
        return name, *read_tensors(document, signature.inputs)

    def _status(self, model):
        versions = [
            {
                "version": str(version.version),
                "state": version.state,
                "status": {"error_code": version.code.name, "error_message": version.message},
            }
            for version in self._models.status(model.name, model.version)
        ]
        return json.dumps({"model_version_status": versions}, indent=1).encode("utf-8")

    def _metadata(self, model):
        with self._models.use(*model) as servable:
            signatures, version = SignatureDefMap(signature_def=servable.signatures), servable.version
        options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        reply = {
            "model_spec": {"name": model.name, "signature_name": "", "version": str(version)},
            "metadata": {"signature_def": MessageToDict(signatures, **options)},
        }
        return json.dumps(reply, indent=1).encode("utf-8")


def make_app(api, router, models, metrics_page, metrics_path, has_cors=False):
    """Makes the whole ASGI app: the APIs, the page of metrics, and the page for people under /.

    Args:
        api: `RestApi`. The app calls `api` before FastAPI's router, which is case-sensitive.
        router: `fastapi.APIRouter` of LibreTranslate's API.
        models: `Models`.
        metrics_page: function () -> str, what is shown at `metrics_path`; None stands for no such page.
        has_cors: bool, whether pages of other sites may send requests.
    """
    app = FastAPI(openapi_url=None, exception_handlers=EXCEPTION_HANDLERS)
    if has_cors:
        app.add_middleware(CORSMiddleware, **CORS)
    app.include_router(router)
    app.add_api_route("/page/models", lambda: {"models": models.names()})
    if metrics_path:
        app.add_api_route(metrics_path, lambda: Response(metrics_page(), media_type="text/plain"))
    app.mount("/", StaticFiles(directory=PAGE, html=True))

    async def api_or_page(scope, receive, send):
        is_api = scope["path"].lower().startswith("/v1/")
        await (api if is_api else app)(scope, receive, send)

    return api_or_page


def error_body(message):
    """Writes the body of an error, bytes."""
    return json.dumps({"error": message}).encode("utf-8")


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
    number = version and (version.lstrip("0") or "0")
    if number and (len(number) > MOST_DIGITS or int(number) >= 2**63):
        raise invalid(f"Failed to convert version: {version} to numeric.")
    return ModelSpec(unquote(name or ""), number and int(number), label and unquote(label)), verb


async def _wait(request, prediction, timeout_s):
    """Awaits a prediction. If the client goes or the time is over, cancels the prediction and raises."""
    gone = asyncio.ensure_future(request.receive())  # Only the disconnect can follow the body.
    try:
        await asyncio.wait((prediction, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if prediction.done():
            return prediction.result()
        prediction.cancel()
        if gone.done():
            raise ClientDisconnect
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for the answer.")
    finally:
        gone.cancel()


def _give_back():
    """Gives the memory of large bodies back to the system."""
    gc.collect()  # It also empties Python's free lists: one list kept there keeps a megabyte.
    with contextlib.suppress(OSError, AttributeError):  # Only glibc has the function.
        ctypes.CDLL(None).malloc_trim(0)
