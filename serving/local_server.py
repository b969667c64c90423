"""The local server as a whole: the models, the predictor and the APIs, from start to stop, and its own clients."""

import functools
import gc
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import tensorflow as tf
from grpc import StatusCode

from serving.client import Client
from serving.configuration import (
    BatchingParameters,
    ModelConfig,
    read_batching_parameters,
    read_model_config,
    read_monitoring,
    read_text,
)
from serving.connections import values_of
from serving.errors import ServingError
from serving.grpc_api import GrpcServer
from serving.http_server import HttpServer, stop_on_signals
from serving.languages import Languages, normalized
from serving.libretranslate import THREADS, LibreTranslate
from serving.metrics import Metrics
from serving.models import Models
from serving.predictor import ModelSpec, Predictor
from serving.rest import RestApi, make_app
from serving.servable import Loader

BATCH_THREADS = "model_server_batch_threads"
YOUNG_OBJECTS = 100_000  # Python's 700 would make the collector visit the millions of lists of a long body often.

logger = logging.getLogger("serving")


def run(settings):
    """Serves until SIGTERM or Ctrl-C, and then answers the open requests. `settings` are those of `parse_settings`.

    Raises:
        ValueError or OSError: for a mistake of the user.
    """
    models, predictor = _backend(settings)
    app = _app(settings, predictor, models)
    logger.info("loading the models and warming them up; the ports open when all are available")
    models.start()
    try:
        models.wait_until_available()
    except ServingError as error:
        raise ValueError(error.message) from None
    gc.collect()
    gc.freeze()  # No collection visits the objects of TensorFlow again, which takes half a second.
    gc.set_threshold(YOUNG_OBJECTS)
    stopping = stop_on_signals()
    grpc = _grpc_server(settings, predictor, models)
    http = HttpServer(app, settings.host, settings.rest_api_port, settings.drain_seconds)
    if not models.names():
        logger.warning("no model is served: %s lists none", settings.model_config_file)
    logger.info("gRPC on %s:%d", settings.host, grpc.port)
    logger.info("REST and the page on http://%s:%d/", settings.host, http.port)
    if settings.model_config_file and settings.model_config_file_poll_wait_seconds > 0:
        threading.Thread(target=_follow, args=(settings, models), name="config", daemon=True).start()
    stopping.wait()

    logger.info("stopping: the server answers open requests first")
    with ThreadPoolExecutor() as side_by_side:
        side_by_side.submit(grpc.stop, settings.drain_seconds)
        side_by_side.submit(http.stop)
    predictor.stop(settings.drain_seconds)
    models.stop(settings.drain_seconds)
    logger.info("stopped")


def _backend(settings):
    """Makes the `Models` and the `Predictor`."""
    metrics, batching = Metrics(), None
    if settings.enable_batching:
        path, default = settings.batching_parameters_file, BatchingParameters(thread_pool_name=BATCH_THREADS)
        batching = read_batching_parameters(path) if path else default
    config, threads = tf.compat.v1.ConfigProto(allow_soft_placement=True), settings.tensorflow_session_parallelism
    if settings.tensorflow_session_config_file:
        read_text(settings.tensorflow_session_config_file, config)
    config.intra_op_parallelism_threads = threads or settings.tensorflow_intra_op_parallelism
    config.inter_op_parallelism_threads = threads or settings.tensorflow_inter_op_parallelism
    config.gpu_options.per_process_gpu_memory_fraction = settings.per_process_gpu_memory_fraction
    warm_ups = max(1, settings.num_request_iterations_for_warmup) if settings.enable_model_warmup else 0
    models = Models(
        _configs(settings),
        Loader(warm_ups, metrics, config=config, tags=settings.saved_model_tags.split(",")),
        settings.file_system_poll_wait_seconds,
        settings.allow_version_labels_for_unavailable_models,
        settings.max_num_load_retries,
        max(0, settings.load_retry_interval_micros) / 1e6,
    )
    limits = (settings.rest_api_num_threads, settings.max_rows, settings.max_bytes_per_row)
    return models, Predictor(models, batching, *limits, metrics)


def _configs(settings):
    if settings.model_config_file:
        return read_model_config(settings.model_config_file)
    return [ModelConfig(settings.model_name, str(settings.model_base_path))]


def _app(settings, predictor, models):
    timeout_s, has_cors = max(0, settings.rest_api_timeout_in_ms) / 1000, settings.rest_api_enable_cors_support
    api = RestApi(predictor, models, timeout_s, settings.max_body_bytes, has_cors)
    languages = Languages(*map(normalized, (settings.source_lang, settings.target_lang)))
    clients = InProcessClients(predictor, models, languages if all(languages) else None)
    router, metrics_path = LibreTranslate(clients).router(), read_monitoring(settings.monitoring_config_file)
    return make_app(api, router, models, predictor.metrics.page, metrics_path, has_cors=has_cors)


def _grpc_server(settings, predictor, models):
    addresses = [f"{settings.host}:{settings.port}"]
    if settings.grpc_socket_path:
        addresses.append(f"unix:{settings.grpc_socket_path}")
    options = [("grpc.max_receive_message_length", settings.max_body_bytes or -1)]
    for argument in filter(None, settings.grpc_channel_arguments.split(",")):
        name, _, value = argument.partition("=")
        options.append((name, int(value) if re.fullmatch("-?[0-9]+", value) else value))
    return GrpcServer(predictor, models, addresses, options, settings.enable_serialization_as_tensor_content)


def _follow(settings, models):
    """Reads the model config file again and again, and serves each new configuration."""
    known = _configs(settings)
    while not threading.Event().wait(settings.model_config_file_poll_wait_seconds):
        try:
            configs = _configs(settings)
            if configs != known:
                models.reload(configs)
                known = configs
                logger.info("serving the models of %s", settings.model_config_file)
        except (ValueError, OSError, ServingError) as error:
            logger.error("%s is not followed: %s", settings.model_config_file, error)


class InProcessClients:
    """The `Client` of each model that has a version in service and known languages.

    `languages` are the `Languages` of a model whose export does not name them, or None.
    """

    def __init__(self, predictor, models, languages=None):
        self._models = models
        self._languages = languages
        self._client = functools.cache(
            lambda name: Client(connection=InProcess(predictor, ModelSpec(name)), in_flight=THREADS)
        )

    def __call__(self):
        """Returns dict `Languages` -> `Client`. Of models with equal languages, the first by name counts."""
        found = {}
        for name in self._models.names():
            try:
                with self._models.use(name) as servable:
                    languages = servable.languages or self._languages
            except ServingError:  # The model has no version in service.
                continue
            if languages and languages not in found:
                found[languages] = self._client(name)
        return found


class InProcess:
    """A connection of `Client` to a model of this process. Created from a `Predictor` and a `ModelSpec`."""

    def __init__(self, predictor, model):
        self._predictor = predictor
        self._model = model

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays: dict name -> list. Raises ServingError as the predictor does."""
        future = self._predictor.submit(self._model, signature_name, inputs, timeout_s=timeout_s)
        try:
            outputs = future.result(timeout_s).outputs
        except FutureTimeoutError:
            future.cancel()
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None
        return {name: values_of(array) for name, array in outputs.items()}

    def close(self):
        """Does nothing: the server ends by itself."""
