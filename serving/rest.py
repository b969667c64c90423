"""TensorFlow Serving's REST API, the page of metrics, and the page for people."""

import asyncio
import json
import logging
import re
import zlib
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from tensorflow_serving.apis import get_model_metadata_pb2

from serving.errors import ServingError
from serving.json_tensors import parse, read_tensors, write_tensors
from serving.overload import Overload, QueueFullError
from serving.predictor import ModelSpec

MOST_INFLATED_BYTES = 100 * 1024 * 1024
LARGE_BODY_BYTES = 64 * 1024  # A thread reads larger bodies, so the event loop can serve other requests.
PAGE = Path(__file__).parent / "page"
CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}

API = "/v1/"
MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
PREDICT_PATH = re.compile(MODEL + ":(classify|regress|predict)", re.ASCII | re.IGNORECASE)
STATUS_PATH = re.compile(MODEL + "(/metadata)?", re.ASCII | re.IGNORECASE)
NO_NAME_PATH = re.compile(r"/v1/models(/versions/\d+|/labels/[^/:]+)?(/metadata)?", re.ASCII | re.IGNORECASE)

logger = logging.getLogger(__name__)


class TooLargeError(ServingError):
    """A body over the size limit."""

    http_status = 413

    def __init__(self, limit):
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, f"The body must not be longer than {limit} bytes.")


class RestApi:
    """The ASGI app for paths under /v1/.

    Args:
        predictor: `Predictor`.
        models: `Models`.
        timeout_s: float, the most seconds for an answer.
        max_body_bytes: int, the most bytes of a body.
        has_cors: bool, whether pages of other sites may send requests.
    """

    def __init__(self, predictor, models, timeout_s, max_body_bytes, has_cors=False):
        self._predictor = predictor
        self._models = models
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._has_cors = has_cors
        self._overload = Overload(predictor.metrics, "REST")

    def refusal(self, target):
        """Returns the answer that refuses a POST of `target`, bytes, unread, or None to accept the POST.

        *Relative to TensorFlow Serving*: while a queue is full, requests for other signatures of the same model are
        refused as well.
        """
        return self._overload.answer_to(target)

    async def __call__(self, scope, receive, send):
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request):
        """Returns the `Response`. Raises nothing."""
        if request.method == "POST" and (refused := self.refusal(request.scope["raw_path"])):
            return refused  # The queue had room when the head arrived, but other requests have filled the queue.
        try:
            status, body = 200, await self._dispatch(request)
        except ServingError as error:
            return self._error_response(error)
        except ClientDisconnect:
            status, body = 499, b""  # The client has gone.
        except Exception as error:
            place = error.__traceback__
            while place.tb_next:
                place = place.tb_next
            where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
            logger.error("%s in %s", type(error).__name__, where)  # The exception's message may contain a user's text.
            status, body = 500, error_body("Internal error.")
        return self._response(status, body)

    def _error_response(self, error):
        return self._response(error.http_status, error_body(error.message))

    def _response(self, status, body):
        return Response(body, status, CORS_HEADERS if self._has_cors else None, "application/json")

    async def _dispatch(self, request):
        query = request.scope["query_string"]
        path = (request.scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1")
        if request.method == "POST" and (match := PREDICT_PATH.fullmatch(path)):
            *spec, verb = match.groups()
            if verb.lower() != "predict":
                raise ServingError(StatusCode.UNIMPLEMENTED, f"{verb} is not offered, only predict.")
            return await self._predict(request, _model_spec(*spec))
        if request.method == "GET" and (match := STATUS_PATH.fullmatch(path)):
            *spec, metadata = match.groups()
            return self._metadata(_model_spec(*spec)) if metadata else self._status(_model_spec(*spec))
        if request.method == "GET" and NO_NAME_PATH.fullmatch(path):
            raise ServingError(StatusCode.INVALID_ARGUMENT, "Missing model name in request.")
        if request.method == "OPTIONS" and self._has_cors:
            return b""
        raise ServingError(StatusCode.INVALID_ARGUMENT, f"Malformed request: {request.method} {path}")

    async def _predict(self, request, spec):
        body = await self._body(request)
        is_compressed = "gzip" in request.headers.get("content-encoding", "")
        if is_compressed or len(body) > LARGE_BODY_BYTES:
            name, inputs, is_rows = await asyncio.to_thread(self._read, body, is_compressed, spec)
        else:
            name, inputs, is_rows = self._read(body, is_compressed, spec)
        try:
            future = self._predictor.submit(spec, name, inputs, timeout_s=self._timeout_s, entrypoint="REST")
        except QueueFullError as error:
            self._overload.refused(request.scope["raw_path"], spec.name, error, self._error_response(error))
            raise
        prediction = await _wait(request, asyncio.wrap_future(future), self._timeout_s)
        return write_tensors(prediction.outputs, is_rows)

    async def _body(self, request):
        """Reads a body, even a body over the limit to its end, so the client receives the reason of the refusal."""
        body = bytearray()
        async for chunk in request.stream():
            if len(body) <= self._max_body_bytes:
                body += chunk
        if len(body) > self._max_body_bytes:
            raise TooLargeError(self._max_body_bytes)
        return bytes(body)

    def _read(self, body, is_compressed, spec):
        document = parse(inflate(body, MOST_INFLATED_BYTES) if is_compressed else body)
        name = document.get("signature_name", "")
        with self._models.use(spec.name, spec.version, spec.label) as servable:
            signature = servable.signatures.get(name or "serving_default")
        if signature is None:
            message = f'Serving signature name: "{name or "serving_default"}" not found in signature def'
            raise ServingError(StatusCode.INVALID_ARGUMENT, message)
        return name, *read_tensors(document, signature.inputs)

    def _status(self, spec):
        versions = [
            {
                "version": str(version.version),
                "state": version.state,
                "status": {"error_code": version.code.name, "error_message": version.message},
            }
            for version in self._models.status(spec.name, spec.version, spec.label)
        ]
        return json.dumps({"model_version_status": versions}, indent=1).encode("utf-8")

    def _metadata(self, spec):
        with self._models.use(spec.name, spec.version, spec.label) as servable:
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=servable.signatures)
            version = servable.version
        options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        reply = {
            "model_spec": {"name": spec.name, "signature_name": "", "version": str(version)},
            "metadata": {"signature_def": MessageToDict(signatures, **options)},
        }
        return json.dumps(reply, indent=1).encode("utf-8")


def make_app(api, models, metrics_page, metrics_path, page=PAGE):
    """Makes the whole ASGI app: the API under /v1/, the page of metrics, and the page for people under /.

    Args:
        api: `RestApi`. The app calls `api` before FastAPI's router, which is case-sensitive.
        models: `Models`.
        metrics_page: function () -> str.
        metrics_path: str that begins with "/", or None for no page of metrics.
        page: path of the directory with index.html.
    """
    app = FastAPI(openapi_url=None, exception_handlers={HTTPException: _refusal})
    app.add_api_route("/page/models", lambda: {"models": models.names()})
    if metrics_path:
        app.add_api_route(metrics_path, lambda: Response(metrics_page(), media_type="text/plain"))
    app.mount("/", StaticFiles(directory=page, html=True))

    async def api_or_page(scope, receive, send):
        is_api = scope["path"][: len(API)].lower() == API
        await (api if is_api else app)(scope, receive, send)

    return api_or_page


def error_body(message):
    """Writes the body of an error, bytes."""
    return json.dumps({"error": message}).encode("utf-8")


def inflate(body, limit):
    """Decompresses the gzip body of a request. Produces at most `limit` bytes.

    Raises:
        ServingError: INVALID_ARGUMENT if the body is not gzip, or is cut off.
        TooLargeError: if the inflated body is larger than `limit`.
    """
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        inflated = stream.decompress(body, limit + 1)
    except zlib.error:
        raise ServingError(StatusCode.INVALID_ARGUMENT, "The body is not gzip, as its Content-Encoding says.") from None
    if len(inflated) > limit:
        raise TooLargeError(limit)
    if not stream.eof:
        raise ServingError(StatusCode.INVALID_ARGUMENT, "The gzip body ends too early.")
    return inflated


async def _wait(request, prediction, timeout_s):
    """Awaits a prediction. Cancels the prediction if the client goes or the time is over.

    Raises:
        ClientDisconnect: if the client goes.
        ServingError: DEADLINE_EXCEEDED, or the error of the prediction.
    """
    gone = asyncio.ensure_future(request.receive())  # Only the disconnect can follow the body.
    gone.add_done_callback(lambda _: prediction.cancel())
    timer = asyncio.get_running_loop().call_later(timeout_s, prediction.cancel)
    try:
        return await prediction
    except asyncio.CancelledError:
        if gone.done():
            raise ClientDisconnect from None
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, f"The answer took longer than {timeout_s:g} s.") from None
    finally:
        timer.cancel()
        gone.cancel()


def _model_spec(name, version, label):
    """Makes a `ModelSpec` of the parts of a path, strings or None."""
    if version is not None and int(version) >= 2**63:
        raise ServingError(StatusCode.INVALID_ARGUMENT, f"Failed to convert version: {version} to numeric.")
    return ModelSpec(unquote(name), version and int(version), label and unquote(label))


async def _refusal(request, error):
    return Response(error_body(error.detail), error.status_code, error.headers, "application/json")
