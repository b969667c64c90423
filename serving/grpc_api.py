"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

import asyncio
import functools
import logging
import operator
import threading
import time

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from uvicorn.loops.auto import auto_loop_factory

from serving.configuration import model_configs
from serving.errors import ServingError, invalid, place_of
from serving.messages import MODEL_SERVICE, PREDICTION_SERVICE, PredictRequest, PredictResponse, to_array, to_proto
from serving.messages import get_model_metadata_pb2 as metadata_pb2
from serving.messages import get_model_status_pb2 as status_pb2
from serving.messages import model_management_pb2 as management_pb2
from serving.predictor import ModelSpec

LARGE_REQUEST_BYTES = 64 * 1024  # A thread reads larger requests, so the event loop can serve other calls.
LONGEST_MESSAGE = 1024  # Characters. The message is sent in a header, and clients refuse long headers.

logger = logging.getLogger(__name__)


class GrpcServer:
    """A running server at HOST:PORT, in a thread with an event loop. Raises OSError if the port is in use."""

    def __init__(self, predictor, models, address):
        self._loop = auto_loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        try:
            self._server, self.port = self._do(_start(GrpcApi(predictor, models), address))
        except RuntimeError:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise OSError(f"the gRPC port must be free. Received: {address}") from None

    def stop(self, grace=None):
        """Refuses new calls, and lets open calls end. Cancels them after `grace` seconds; None means at once."""
        if self._thread.is_alive():  # `stop` may be called twice.
            self._do(self._server.stop(grace))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _start(api, address):
    # Without the last option, a second server could silently share the port.
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=[*limits, ("grpc.so_reuseport", 0)])
    services = {
        PREDICTION_SERVICE: {
            "Predict": _method(PredictRequest, api.predict),
            "GetModelMetadata": _method(metadata_pb2.GetModelMetadataRequest, api.get_model_metadata),
        },
        MODEL_SERVICE: {
            "GetModelStatus": _method(status_pb2.GetModelStatusRequest, api.get_model_status),
            "HandleReloadConfigRequest": _method(management_pb2.ReloadConfigRequest, api.reload_config),
        },
    }
    handlers = [grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items()]
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port(address)
    await server.start()
    return server, port


class GrpcApi:
    """The methods of the services: coroutines (request, context) -> response. All other methods are UNIMPLEMENTED."""

    def __init__(self, predictor, models):
        self._predictor = predictor
        self._models = models

    async def predict(self, request, context):
        """Runs a signature, unless the client has gone or its deadline has passed."""
        start, code = time.monotonic(), StatusCode.CANCELLED
        try:
            if request.ByteSize() > LARGE_REQUEST_BYTES:
                future = await asyncio.to_thread(self._future, request, context)
            else:
                future = self._future(request, context)
            prediction = await asyncio.wrap_future(future)
            spec = {"name": request.model_spec.name, "version": {"value": prediction.version}}
            response = PredictResponse(model_spec={**spec, "signature_name": prediction.signature_name})
            for name, array in prediction.outputs.items():
                to_proto(array, response.outputs[name])
            code = StatusCode.OK
            return response
        except Exception as error:
            code = error.code if isinstance(error, ServingError) else StatusCode.INTERNAL
            raise
        finally:
            if request.model_spec.name in self._models:  # Other names come from clients and must not become labels.
                seconds = time.monotonic() - start
                self._predictor.metrics.request_ended(request.model_spec.name, code.name, seconds, "Predict", "GRPC")

    def _future(self, request, context):
        model, signature_name = _model_spec(request), request.model_spec.signature_name
        try:
            inputs = {name: to_array(proto) for name, proto in request.inputs.items()}
        except ValueError as error:
            with self._models.use(*model):  # Whatever the tensors are, an unknown model is NOT_FOUND.
                raise invalid(f"A tensor cannot be read: {error}") from None
        outputs = list(request.output_filter) or None
        return self._predictor.submit(model, signature_name, inputs, outputs, timeout_s=_time_left(context))

    async def get_model_metadata(self, request, context):
        """Returns the signatures of a model."""
        if {*request.metadata_field} != {"signature_def"}:
            raise invalid(f"metadata_field must be signature_def. Received: {list(request.metadata_field)}")
        response = metadata_pb2.GetModelMetadataResponse()
        with self._models.use(*_model_spec(request)) as servable:
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
            signatures = metadata_pb2.SignatureDefMap(signature_def=servable.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    async def get_model_status(self, request, context):
        """Returns the state of a model's versions. As in TensorFlow Serving, a label does not matter."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        response = status_pb2.GetModelStatusResponse()
        version = spec.version.value if spec.HasField("version") else None
        for number, state, code, message in self._models.status(spec.name, version):
            error = {"error_code": code.value[0], "error_message": message}
            response.model_version_status.add(version=number, state=state, status=error)
        return response

    async def reload_config(self, request, context):
        """Serves another list of models and versions from now on."""
        try:
            configs = model_configs(request.config)
        except ValueError as error:
            raise invalid(str(error)) from None
        await asyncio.to_thread(self._models.reload, configs, _time_left(context))
        return management_pb2.ReloadConfigResponse(status={"error_code": 0})


def _model_spec(request):
    spec = request.model_spec
    if not spec.name:
        raise invalid("The request has no model_spec with a name.")
    version = spec.version.value if spec.HasField("version") else None
    return ModelSpec(spec.name, version, spec.version_label if spec.HasField("version_label") else None)


def _time_left(context):
    """Returns the seconds until the client's deadline, or None. gRPC reports a missing deadline as a very long time."""
    seconds = context.time_remaining()
    return None if seconds is None or seconds > 1e9 else seconds


def _method(message, answer):
    """Wraps a coroutine (request, context) -> response as a gRPC method. Logs no message: it may be a user's text."""

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
        await context.abort(code, text[:LONGEST_MESSAGE])

    write = operator.methodcaller("SerializeToString")
    return grpc.unary_unary_rpc_method_handler(method, response_serializer=write)
