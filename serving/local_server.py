"""The local server as a whole: the models, the predictor and the APIs, from start to stop, and its own clients."""

import contextlib
import functools
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import tensorflow as tf
from grpc import StatusCode

from serving.client import Client
from serving.configuration import configs_of, read_session
from serving.connections import values_of
from serving.deepl import app_of
from serving.errors import ServingError
from serving.grpc_api import GrpcServer
from serving.http_server import HttpServer, address_of, stop_on_signals
from serving.languages import Languages, written
from serving.libretranslate import THREADS, LibreTranslate
from serving.metrics import Metrics
from serving.models import Models
from serving.predictor import ModelSpec, Predictor
from serving.rest import RestApi, make_app
from serving.servable import Loader

logger = logging.getLogger("serving")


def run(settings, configs, batching=None, session=None):
    """Serves until SIGTERM or Ctrl-C, and then answers the open requests. Raises ValueError or OSError.

    `configs`, `batching` and `session` are those of `read_files`.
    """
    models, predictor = _backend(settings, configs, batching, session)
    timeout_s, has_cors = settings.rest_api_timeout_in_ms / 1000, settings.rest_api_enable_cors_support
    api = RestApi(predictor, models, timeout_s, has_cors)
    named = [written(code) for code in (settings.source_lang, settings.target_lang) if code]
    clients = in_process_clients(predictor, models, Languages(*named) if named else None, batching)
    app = make_app(api, app_of(LibreTranslate(clients), ["*"] * has_cors), models, predictor.metrics.page)
    logger.info("loading the models and warming them up; the ports open when all are available")
    models.start()
    try:
        models.wait_until_available()
    except ServingError as error:
        raise ValueError(error.message) from None
    gc.collect()
    gc.freeze()  # No collection visits the objects of TensorFlow again, which takes half a second.
    stopping = stop_on_signals()
    grpc = GrpcServer(predictor, models, address_of(settings.host, settings.port))
    http = HttpServer(app, settings.host, settings.rest_api_port, settings.drain_seconds)
    if not models.names():
        logger.warning("no model is served: %s lists none", settings.model_config_file)
    addresses = [address_of(settings.host, port) for port in (grpc.port, http.port)]
    logger.info("gRPC on %s, REST and the page on http://%s/", *addresses)
    if settings.model_config_file and settings.model_config_file_poll_wait_seconds > 0:
        threading.Thread(target=_follow, args=(settings, models, configs), name="config", daemon=True).start()
    stopping.wait()

    logger.info("stopping: the server answers open requests first")
    with ThreadPoolExecutor() as side_by_side:
        side_by_side.submit(grpc.stop, settings.drain_seconds)
        side_by_side.submit(http.stop)
    predictor.stop(settings.drain_seconds)
    models.stop(timeout_s=1.0)
    logger.info("stopped")


def _backend(settings, configs, batching, session):
    metrics = Metrics()
    ours = "session.gpu.config" if tf.config.list_physical_devices("GPU") else "session.config"
    session = session or read_session(Path(__file__).parent / "config" / ours)
    session.intra_op_parallelism_threads = settings.tensorflow_intra_op_parallelism
    session.inter_op_parallelism_threads = settings.tensorflow_inter_op_parallelism
    retries = settings.max_num_load_retries, settings.load_retry_interval_micros / 1e6
    loader = Loader(settings.enable_model_warmup, metrics, session)
    models = Models(configs, loader, settings.file_system_poll_wait_seconds, *retries)
    return models, Predictor(models, batching, settings.rest_api_num_threads, metrics)


def _follow(settings, models, known):
    """Reads the model config file again and again, and serves each configuration that is new. Tells a mistake once."""
    told = None
    while not threading.Event().wait(settings.model_config_file_poll_wait_seconds):
        try:
            configs, mistake = configs_of(settings), None
            if configs != known:
                models.reload(configs)
                known = configs
        except (ValueError, OSError, ServingError) as error:
            mistake = str(error)
        if mistake and mistake != told:
            logger.error("%s is not followed: %s", settings.model_config_file, mistake)
        told = mistake


def in_process_clients(predictor, models, languages=None, batching=None):
    """Makes a function () -> dict of the models in service, name -> (`Languages`, `Client`).

    `languages` are those of a model whose export does not name them, or None. `batching` are the `BatchingParameters`
    of the predictor, or None.
    """
    how = {"in_flight": THREADS, "max_batch_size": min(32, batching.max_batch_size) if batching else 32}
    make = functools.cache(lambda name: Client(connection=InProcess(predictor, ModelSpec(name)), **how))

    def clients():
        found = {}
        for name in models.names():
            with contextlib.suppress(ServingError), models.use(name) as servable:  # It may have no version in service.
                if known := servable.languages or languages:
                    found[name] = known, make(name)
        return found

    return clients


class InProcess:
    """A connection of `Client` to a model of this process. Created from a `Predictor` and a `ModelSpec`."""

    def __init__(self, predictor, model):
        self._submit = functools.partial(predictor.submit, model)

    def predict(self, signature_name, inputs, timeout_s):
        """Runs a signature with arrays: dict name -> list. Raises ServingError as the predictor does."""
        future = self._submit(signature_name, inputs, timeout_s=timeout_s)
        try:
            return {name: values_of(array) for name, array in future.result(timeout_s).outputs.items()}
        except FutureTimeoutError:
            future.cancel()
            raise ServingError(StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None

    def close(self):
        """Does nothing: the server ends by itself."""
