"""The local server: python -m serving.server --model_base_path EXPORT_DIR --model_name translator"""

import contextlib
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from serving.settings import parse_settings, read_monitoring

logger = logging.getLogger("serving")


def main(settings):
    """Serves until SIGTERM or Ctrl-C, and then answers the open requests.

    Raises:
        ValueError or OSError: for a mistake of the user.
    """
    from serving.batching_parameters import BatchingParameters, read_batching_parameters
    from serving.errors import ServingError
    from serving.grpc_api import start_grpc_server
    from serving.http_server import bind
    from serving.loading import Loader
    from serving.metrics import Metrics
    from serving.models import Models
    from serving.predictor import Limits, Predictor

    batching = None
    if settings.enable_batching:
        path = settings.batching_parameters_file
        batching = read_batching_parameters(path) if path else BatchingParameters()
    metrics = Metrics()
    loader = Loader(
        settings.max_num_load_retries,
        settings.load_retry_interval_micros / 1e6,
        settings.tensorflow_intra_op_parallelism,
        settings.tensorflow_inter_op_parallelism,
        settings.enable_model_warmup,
        metrics,
    )
    models = Models(_configs(settings), loader, settings.file_system_poll_wait_seconds)
    limits = Limits(settings.max_rows, settings.max_bytes_per_row, settings.max_queued)
    predictor = Predictor(models, batching, limits, metrics)
    http = _http_server(settings, predictor, models, metrics)
    bind(settings.host, settings.port).close()  # Reports a port in use before loading the models.

    logger.info("loading the models and warming them up; the ports open when all are available")
    models.start()
    try:
        models.wait_until_available()
    except ServingError as error:
        raise ValueError(error.message) from None
    stopping = _stop_on_signals()
    grpc = start_grpc_server(predictor, models, settings.host, settings.port, max_message_bytes=settings.max_body_bytes)
    http.start()
    logger.info("gRPC on %s:%d", settings.host, grpc.port)
    logger.info("REST and the page on http://%s:%d/", settings.host, http.port)
    if settings.model_config_file_poll_wait_seconds:
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


def _http_server(settings, predictor, models, metrics):
    from serving.http_server import HttpServer
    from serving.rest import RestApi, make_app

    timeout_s = settings.rest_api_timeout_in_ms / 1000
    api = RestApi(predictor, models, timeout_s, settings.max_body_bytes, settings.rest_api_enable_cors_support)
    app = make_app(api, models, metrics.page, read_monitoring(settings.monitoring_config_file))
    return HttpServer(app, settings.host, settings.rest_api_port, timeout_s, settings.drain_seconds, api.refusal)


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


def _stop_on_signals():
    """Returns an Event. The first SIGTERM or Ctrl-C sets the event; a second signal ends the program at once."""
    stopping = threading.Event()

    def stop(number, frame):
        signal.signal(number, signal.SIG_DFL)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


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
    try:
        settings = parse_settings(sys.argv[1:])
        logger.info("loading TensorFlow")
        import_tensorflow()
        main(settings)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        status = 2
    sys.stderr.flush()
    os._exit(status)  # Skips the orderly exit, in which Python frees TensorFlow's objects for seconds.
