"""TensorFlow Serving's gRPC API: PredictionService, ModelService, and the standard health service."""

import asyncio
import functools
import logging
import threading
import time

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from uvicorn.loops.auto import auto_loop_factory

from serving.configuration import model_configs
from serving.errors import ServingError, invalid, place_of
from serving.messages import (
    MODEL_SERVICE,
    PREDICTION_SERVICE,
    PredictRequest,
    PredictResponse,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    to_array,
    to_proto,
)
from serving.predictor import ModelSpec

# TensorFlow Serving's health service has the names without their package.
HEALTHY = {"", PREDICTION_SERVICE, MODEL_SERVICE, "PredictionService", "ModelService"}
LARGE_REQUEST_BYTES = 64 * 1024  # A thread reads larger requests, so the event loop can serve other calls.
NO_DEADLINE = 1e9  # Seconds. A deadline further away counts as none.
LONGEST_MESSAGE = 1024  # Characters. The message is sent in a header, and clients refuse long headers.
TRUNCATED = "...TRUNCATED"

logger = logging.getLogger(__name__)


class GrpcServer:
    """A running server, in a thread with an event loop. A waiting call occupies no thread.

    `addresses` are HOST:PORT (0 means any port) or unix:PATH; `port` is that of the first. `options` are (name, value)
    of gRPC. With `as_content`, answers have numbers in `tensor_content`. Raises OSError if a port is in use.
    """

    def __init__(self, predictor, models, addresses, options=(), as_content=False):
        self._loop = auto_loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        try:
            self._server, self.port = self._do(_start(GrpcApi(predictor, models, as_content), addresses, options))
        except OSError:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def stop(self, grace=None):
        """Refuses new calls, and lets open calls end. Cancels them after `grace` seconds; None means at once."""
        if self._thread.is_alive():  # `stop` may be called twice.
            self._do(self._server.stop(grace))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _start(api, addresses, options):
    limits = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}
    # Without the last option, a second server could silently share the port.
    server = grpc.aio.server(options=list({**limits, "grpc.so_reuseport": 0, **dict(options)}.items()))
    services = {
        PREDICTION_SERVICE: {
            "Predict": _method(PredictRequest, api.predict),
            "GetModelMetadata": _method(get_model_metadata_pb2.GetModelMetadataRequest, api.get_model_metadata),
        },
        MODEL_SERVICE: {
            "GetModelStatus": _method(get_model_status_pb2.GetModelStatusRequest, api.get_model_status),
            "HandleReloadConfigRequest": _method(model_management_pb2.ReloadConfigRequest, api.reload_config),
        },
        "grpc.health.v1.Health": {"Check": _method(HealthCheckRequest, api.check_health)},
    }
    handlers = [grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items()]
    server.add_generic_rpc_handlers(handlers)
    ports = []
    for address in addresses:
        try:
            ports.append(server.add_insecure_port(address))
        except RuntimeError:
            raise OSError(f"the gRPC port must be free. Received: {address}") from None
    await server.start()
    return server, ports[0]


class GrpcApi:
    """The methods of the services: coroutines (request, context) -> response. All other methods are UNIMPLEMENTED."""

    def __init__(self, predictor, models, as_content=False):
        self._predictor = predictor
        self._models = models
        self._as_content = as_content

    async def predict(self, request, context):
        """Runs a signature, unless the client has gone or its deadline has passed."""
        start, code = time.monotonic(), StatusCode.INTERNAL
        try:
            if request.ByteSize() > LARGE_REQUEST_BYTES:
                future = await asyncio.to_thread(self._future, request, context)
            else:
                future = self._future(request, context)
            response = self._response(request, await asyncio.wrap_future(future))
            code = StatusCode.OK
            return response
        except ServingError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = StatusCode.CANCELLED
            raise
        finally:
            if request.model_spec.name in self._models:  # Other names come from clients and must not become labels.
                seconds = time.monotonic() - start
                self._predictor.metrics.request_ended(request.model_spec.name, code.name, seconds, "Predict", "GRPC")

    def _future(self, request, context):
        model, signature_name = _model_spec(request), request.model_spec.signature_name
        try:
            inputs = {name: _input(name, proto) for name, proto in request.inputs.items()}
        except ServingError:
            with self._models.use(*model) as servable:
                servable.signature(signature_name).with_defaults(dict(request.inputs))  # A wrong name comes first.
            raise
        outputs = list(request.output_filter) or None
        return self._predictor.submit(model, signature_name, inputs, outputs, timeout_s=_time_left(context))

    def _response(self, request, prediction):
        response = PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = prediction.version
        response.model_spec.signature_name = prediction.signature_name
        for name, array in prediction.outputs.items():
            to_proto(array, response.outputs[name], self._as_content)
        return response

    async def get_model_metadata(self, request, context):
        """Returns the signatures of a model."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._models.use(*_model_spec(request)) as servable:
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=servable.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def get_model_status(self, request, context):
        """Returns the state of a model's versions. As in TensorFlow Serving, a label does not matter."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in self._models.status(spec.name, spec.version.value if spec.HasField("version") else None):
            response.model_version_status.add(
                version=status.version,
                state=status.state,
                status={"error_code": status.code.value[0], "error_message": status.message},
            )
        return response

    async def reload_config(self, request, context):
        """Serves another list of models and versions from now on."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently "
                "supported"
            )
        try:
            configs = model_configs(request.config, self._models)
        except ValueError as error:
            raise invalid(str(error)) from None
        value = self._predictor.metrics.value
        before = {name: value(name) for name in request.metric_names}
        await asyncio.to_thread(self._models.reload, configs, _time_left(context))
        increases = [{"name": name, "int64_value_increase": value(name) - old} for name, old in before.items()]
        return model_management_pb2.ReloadConfigResponse(status={"error_code": 0}, metric=increases)

    async def check_health(self, request, context):
        """Says that a service serves."""
        if request.service not in HEALTHY:
            raise ServingError(StatusCode.NOT_FOUND, f"unknown service: {request.service}")
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)


def _model_spec(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
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
    except ValueError:
        raise invalid(f"tensor parsing error: {name}") from None


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
            logger.error(place_of(error))
            code, text = StatusCode.INTERNAL, "Internal error."
        await context.abort(code, text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + TRUNCATED)

    return grpc.unary_unary_rpc_method_handler(
        method, response_serializer=lambda response: response.SerializeToString()
    )
