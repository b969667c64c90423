"""TensorFlow Serving's gRPC API: PredictionService, ModelService, and the standard health service."""

import asyncio
import functools
import logging
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from uvicorn.loops.auto import auto_loop_factory

from serving import messages
from serving.errors import ServingError
from serving.model_config import model_configs
from serving.overload import Overload, QueueFullError
from serving.predictor import ModelSpec
from serving.tensor_protos import to_array, to_proto

PREDICT = f"/{messages.PREDICTION_SERVICE}/Predict"
MOST_CALLS = 256  # Predictions at a time, waiting ones included.
LARGE_REQUEST_BYTES = 64 * 1024  # A thread reads larger requests, so the event loop can serve other calls.
NO_DEADLINE = 1e9  # Seconds. A deadline further away counts as none.
LONGEST_MESSAGE = 1024  # Characters. The message is sent in a header, and clients refuse long headers.
TRUNCATED = "...TRUNCATED"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GrpcServer:
    """A running server, created by `start_grpc_server`. `port` is the server's port."""

    port: int
    _server: grpc.aio.Server
    _health: health.HealthServicer
    _loop: asyncio.AbstractEventLoop
    _thread: threading.Thread

    def stop(self, grace=None):
        """Refuses new calls, and lets open calls end.

        Args:
            grace: float, the seconds until open calls are cancelled; None cancels the calls at once.
        """
        if self._thread.is_alive():  # `stop` may be called twice.
            asyncio.run_coroutine_threadsafe(self._end(grace), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _end(self, grace):
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)


def start_grpc_server(predictor, models, host="127.0.0.1", port=8500, max_calls=MOST_CALLS, max_message_bytes=-1):
    """Starts the server in a thread with an event loop. A waiting call occupies no thread.

    Args:
        predictor: `Predictor`.
        models: `Models`.
        host: str, the address to listen on.
        port: int; 0 means any free port.
        max_calls: int, the most predictions at a time, of all clients. Further predictions are UNAVAILABLE.
        max_message_bytes: int, the largest request; -1 means no limit.

    Returns:
        GrpcServer.

    Raises:
        OSError: if the port is in use.
    """
    prediction, model = PredictionService(predictor, models, max_calls), ModelService(models)
    loop = auto_loop_factory()()
    thread = threading.Thread(target=loop.run_forever, name="grpc", daemon=True)
    thread.start()
    started = asyncio.run_coroutine_threadsafe(_start(prediction, model, f"{host}:{port}", max_message_bytes), loop)
    try:
        return GrpcServer(*started.result(), loop, thread)
    except OSError:
        loop.call_soon_threadsafe(loop.stop)
        raise


async def _start(prediction, model, address, max_message_bytes):
    options = [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # Otherwise a second server could silently share the port.
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers(
        (
            _Unread(prediction),
            _handlers(
                messages.PREDICTION_SERVICE,
                Predict=_method(messages.PredictRequest, prediction.predict),
                GetModelMetadata=_method(messages.GetModelMetadataRequest, prediction.get_model_metadata),
            ),
            _handlers(
                messages.MODEL_SERVICE,
                GetModelStatus=_method(messages.GetModelStatusRequest, model.get_model_status),
                HandleReloadConfigRequest=_method(messages.ReloadConfigRequest, model.reload_config),
            ),
        )
    )
    health_servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        raise OSError(f"the gRPC port must be free. Received: {address}") from None
    await server.start()
    for service in (messages.PREDICTION_SERVICE, messages.MODEL_SERVICE):
        await health_servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    return bound, server, health_servicer


class PredictionService:
    """Predict and GetModelMetadata of `tensorflow.serving.PredictionService`. The other methods are UNIMPLEMENTED."""

    def __init__(self, predictor, models, max_calls):
        self._predictor = predictor
        self._models = models
        self._under_way = 0
        self._max_calls = max_calls
        self._overload = Overload(predictor.metrics, "GRPC")

    def refusal(self):
        """Returns the message that refuses a prediction unread, or None to accept the prediction."""
        return self._overload.answer_unread()

    async def predict(self, request, context):
        """Runs a signature, unless the client has gone or its deadline has passed."""
        if message := self._overload.answer_to(request.model_spec):
            raise ServingError(StatusCode.UNAVAILABLE, message)
        if self._under_way == self._max_calls:
            raise ServingError(StatusCode.UNAVAILABLE, f"The server has {self._max_calls} predictions under way.")
        self._under_way += 1
        try:
            if request.ByteSize() > LARGE_REQUEST_BYTES:
                future = await asyncio.to_thread(self._future, request, context)
            else:
                future = self._future(request, context)
            return _predict_response(request, await asyncio.wrap_future(future))
        except QueueFullError as error:
            self._overload.refused(request.model_spec, request.model_spec.name, error, error.message)
            raise
        finally:
            self._under_way -= 1

    def _future(self, request, context):
        inputs = {name: _input(name, proto) for name, proto in request.inputs.items()}
        return self._predictor.submit(
            _model_spec(request),
            request.model_spec.signature_name,
            inputs,
            list(request.output_filter) or None,
            timeout_s=_time_left(context),
        )

    async def get_model_metadata(self, request, context):
        """Returns the signatures of a model."""
        spec = _model_spec(request)
        if not request.metadata_field:
            raise _invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise _invalid(f"Metadata field {field} is not supported")
        response = messages.GetModelMetadataResponse()
        with self._models.use(*spec) as servable:
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
            signatures = messages.SignatureDefMap(signature_def=servable.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response


class ModelService:
    """The service `tensorflow.serving.ModelService`."""

    def __init__(self, models):
        self._models = models

    async def get_model_status(self, request, context):
        """Returns the state of a model's versions."""
        response = messages.GetModelStatusResponse()
        for status in self._models.status(*_model_spec(request)):
            version = response.model_version_status.add()
            version.version = status.version
            version.state = messages.ModelVersionStatus.State.Value(status.state)
            version.status.error_code = status.code.value[0]
            version.status.error_message = status.message
        return response

    async def reload_config(self, request, context):
        """Serves another list of models and versions from now on."""
        try:
            await asyncio.to_thread(self._models.reload, model_configs(request.config), _time_left(context))
        except ValueError as error:
            raise _invalid(str(error)) from None
        return messages.ReloadConfigResponse(status={"error_code": 0})


class _Unread(grpc.GenericRpcHandler):
    """Refuses predictions unread: treats each as a stream of requests, and reads nothing of the stream."""

    def __init__(self, prediction):
        self._prediction = prediction

    def service(self, call):
        if call.method != PREDICT or not (message := self._prediction.refusal()):
            return None  # gRPC then asks the next handler.

        async def refuse(requests, context):
            await context.abort(StatusCode.UNAVAILABLE, message)

        return grpc.stream_unary_rpc_method_handler(refuse)


def _predict_response(request, prediction):
    response = messages.PredictResponse()
    response.model_spec.name = request.model_spec.name
    response.model_spec.version.value = prediction.version
    response.model_spec.signature_name = prediction.signature_name
    for name, array in prediction.outputs.items():
        to_proto(array, response.outputs[name])
    return response


def _model_spec(request):
    if not request.HasField("model_spec"):
        raise _invalid("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise _invalid("ModelSpec has no name specified.")
    return ModelSpec(
        spec.name,
        spec.version.value if spec.HasField("version") else None,
        spec.version_label if spec.HasField("version_label") else None,
    )


def _time_left(context):
    """Returns the seconds until the client's deadline, or None. gRPC reports a missing deadline as a very long time."""
    seconds = context.time_remaining()
    return None if seconds is None or seconds > NO_DEADLINE else seconds


def _input(name, proto):
    try:
        return to_array(proto)
    except ValueError as error:
        raise _invalid(f"tensor parsing error: {name}: {error}") from None


def _invalid(message):
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def _handlers(service, **methods):
    return grpc.method_handlers_generic_handler(service, methods)


def _method(message, answer):
    """Wraps a coroutine (request, context) -> response as a gRPC method.

    Bytes that are no request give INVALID_ARGUMENT. An unexpected exception is logged without its message, which may
    contain a user's text.
    """

    @functools.wraps(answer)
    async def method(data, context):
        try:
            return await answer(message.FromString(data), context)
        except ServingError as error:
            code, text = error.code, error.message
        except DecodeError:
            code, text = StatusCode.INVALID_ARGUMENT, f"The request is no {message.DESCRIPTOR.full_name}."
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("%s in %s:%d", type(error).__name__, Path(place.filename).name, place.lineno)
            code, text = StatusCode.INTERNAL, "Internal error."  # The exception may quote a user's text.
        await context.abort(code, text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + TRUNCATED)

    return grpc.unary_unary_rpc_method_handler(
        method, response_serializer=lambda response: response.SerializeToString()
    )
