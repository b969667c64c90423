"""The local server: python -m serving.server --model_base_path EXPORT_DIR --model_name translator"""

import contextlib
import gc
import logging
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from serving.http_server import HttpServer, bind, stop_on_signals
from serving.settings import parse_settings

SWITCH_SECONDS = 0.001  # A thread that parses a long body lets another thread run after this time.

logger = logging.getLogger("serving")


def main(settings):
    """Serves until SIGTERM or Ctrl-C, and then answers the open requests.

    Raises:
        ValueError or OSError: for a mistake of the user.
    """
    from serving.errors import ServingError
    from serving.models import Models
    from serving.predictor import Predictor
    from serving.text_config import BatchingParameters, read_batching_parameters

    batching, path = None, settings.batching_parameters_file
    if settings.enable_batching:
        named = BatchingParameters(thread_pool_name="model_server_batch_threads")
        batching = read_batching_parameters(path) if path else named
    loader = _loader(settings)
    configs, labels = _configs(settings), settings.allow_version_labels_for_unavailable_models
    models = Models(configs, loader, settings.file_system_poll_wait_seconds, labels)
    limits = (settings.rest_api_num_threads, settings.max_rows, settings.max_bytes_per_row)
    predictor = Predictor(models, batching, *limits, metrics=loader.metrics)
    app = _app(settings, predictor, models)

    logger.info("loading the models and warming them up; the ports open when all are available")
    models.start()
    try:
        models.wait_until_available()
    except ServingError as error:
        raise ValueError(error.message) from None
    gc.collect()
    gc.freeze()  # No collection visits the objects of TensorFlow again, which takes half a second.
    stopping = stop_on_signals()
    grpc = _grpc_server(settings, predictor, models)
    http = HttpServer(app, settings.host, settings.rest_api_port, settings.drain_seconds)
    logger.info("gRPC on %s:%d", settings.host, grpc.port)
    logger.info("REST and the page on http://%s:%d/", settings.host, http.port)
    if settings.model_config_file and settings.model_config_file_poll_wait_seconds:
        threading.Thread(target=_follow, args=(settings, models), name="config", daemon=True).start()
    stopping.wait()

    logger.info("stopping: the server answers open requests first")
    with ThreadPoolExecutor() as side_by_side:
        side_by_side.submit(grpc.stop, settings.drain_seconds)
        side_by_side.submit(http.stop)
    predictor.stop(settings.drain_seconds)
    models.stop(settings.drain_seconds)
    logger.info("stopped")


def import_tensorflow():
    """Imports TensorFlow without its messages about CPU features, missing GPUs and deprecated functions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _standard_error_closed():
        import tensorflow as tf

        tf.config.list_physical_devices()
    tf.get_logger().setLevel(logging.ERROR)


def _configs(settings):
    from serving.model_config import ModelConfig, read_model_config

    if settings.model_config_file:
        return read_model_config(settings.model_config_file)
    return [ModelConfig(settings.model_name, str(settings.model_base_path))]


def _loader(settings):
    import tensorflow as tf

    from serving.loading import Loader
    from serving.metrics import Metrics
    from serving.text_config import read_text

    path, threads = settings.tensorflow_session_config_file, settings.tensorflow_session_parallelism
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    if path:
        read_text(path, config)
    config.intra_op_parallelism_threads = threads or settings.tensorflow_intra_op_parallelism
    config.inter_op_parallelism_threads = threads or settings.tensorflow_inter_op_parallelism
    config.gpu_options.per_process_gpu_memory_fraction = settings.per_process_gpu_memory_fraction
    return Loader(
        settings.max_num_load_retries,
        max(0, settings.load_retry_interval_micros) / 1e6,
        settings.num_request_iterations_for_warmup if settings.enable_model_warmup else 0,
        Metrics(),
        config=config,
        tags=settings.saved_model_tags.split(","),
    )


def _app(settings, predictor, models):
    from serving.in_process import InProcessClients
    from serving.languages import Languages, normalized
    from serving.libretranslate import LibreTranslate
    from serving.rest import RestApi, make_app
    from serving.text_config import read_monitoring

    timeout_s, has_cors = settings.rest_api_timeout_in_ms / 1000, settings.rest_api_enable_cors_support
    api = RestApi(predictor, models, timeout_s, settings.max_body_bytes, has_cors)
    languages = Languages(*map(normalized, (settings.source_lang, settings.target_lang)))
    clients = InProcessClients(predictor, models, languages if all(languages) else None)
    router, metrics_path = LibreTranslate(clients).router(), read_monitoring(settings.monitoring_config_file)
    return make_app(api, router, models, predictor.metrics.page, metrics_path, has_cors=has_cors)


def _grpc_server(settings, predictor, models):
    from serving.grpc_api import start_grpc_server

    addresses = [f"{settings.host}:{settings.port}"]
    if settings.grpc_socket_path:
        addresses.append(f"unix:{settings.grpc_socket_path}")
    options = [("grpc.max_receive_message_length", settings.max_body_bytes or -1)]
    for argument in filter(None, settings.grpc_channel_arguments.split(",")):
        name, _, value = argument.partition("=")
        options.append((name, int(value) if re.fullmatch("-?[0-9]+", value) else value))
    return start_grpc_server(predictor, models, addresses, options, settings.enable_serialization_as_tensor_content)


def _follow(settings, models):
    """Reads the model config file again and again, and serves each new configuration."""
    from serving.errors import ServingError

    known = _configs(settings)
    while not threading.Event().wait(settings.model_config_file_poll_wait_seconds):
        try:
            configs = _configs(settings)
            if configs != known:
                models.reload(configs)
                logger.info("serving the models of %s", settings.model_config_file)
        except (ValueError, OSError, ServingError) as error:
            logger.error("%s is not followed: %s", settings.model_config_file, error)
        else:
            known = configs


@contextlib.contextmanager
def _standard_error_closed():
    """Drops all output of TensorFlow's C++ start-up to file descriptor 2, which ignores the log level."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logger.setLevel(logging.INFO)
    status = 0
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        settings, ignored = parse_settings(sys.argv[1:])
        if ignored:
            logger.warning("without effect in the local server: %s", ", ".join(f"--{name}" for name in ignored))
        for port in (settings.port, settings.rest_api_port):
            bind(settings.host, port).close()  # Reports a port in use before the long work.
        logger.info("loading TensorFlow")
        import_tensorflow()
        main(settings)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    sys.stderr.flush()
    os._exit(status)  # Skips the orderly exit, in which Python frees TensorFlow's objects for seconds.
