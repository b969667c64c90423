"""The local server: python -m serving.server --model_base_path EXPORT_DIR --model_name translator

It has all flags of TensorFlow Serving and a few of our own. It imports TensorFlow only after the flags are right.
"""

import argparse
import logging
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

from serving.configuration import read_files
from serving.errors import Parser
from serving.http_server import bind
from serving.versions import versions_in

DESCRIPTION = """Serve exported models by REST, gRPC and as a page, with TensorFlow Serving's API and flags.

  python -m serving.server --model_base_path exports/mine --model_name translator
  python -m serving.server ... --enable_batching true --batching_parameters_file serving/config/batching.local.config"""

logger = logging.getLogger("serving")


def boolean(text):
    """Converts the value of a flag to bool."""
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"must be true or false. Received: {text}")
    return values[text.lower()]


# name: (type, default, help). TensorFlow Serving's flags first, then our own. No number may be negative, but one.
FLAGS = {
    "model_base_path": (Path, None, "directory of a model; its versions are subdirectories with numbers as names"),
    "model_name": (str, "default", "name of that model for clients"),
    "model_config_file": (str, "", "text file with a `model_config_list` of models, in place of --model_base_path"),
    "model_config_file_poll_wait_seconds": (int, 0, "seconds between two readings of that file; 0 reads it once"),
    "port": (int, 8500, "port of gRPC; 0 lets the system choose"),
    "rest_api_port": (int, 8501, "port of HTTP; 0 lets the system choose"),
    "rest_api_num_threads": (int, 0, "requests computed at a time without batching; 0 means 4 for each core"),
    "rest_api_timeout_in_ms": (int, 30_000, "most milliseconds for the answer to an HTTP request; 0 means no limit"),
    "rest_api_enable_cors_support": (boolean, False, "allow requests from pages of other sites"),
    "file_system_poll_wait_seconds": (float, 1.0, "seconds between two searches for new versions; 0 searches once"),
    "max_num_load_retries": (int, 5, "most retries after a version could not be loaded"),
    "load_retry_interval_micros": (int, 60_000_000, "microseconds between two attempts to load a version"),
    "enable_model_warmup": (boolean, True, "replay assets.extra/tf_serving_warmup_requests of a version first"),
    "enable_batching": (boolean, False, "compute requests of different clients together"),
    "batching_parameters_file": (str, "", "text file with the parameters of batching"),
    "tensorflow_intra_op_parallelism": (int, 1, "threads of one op; 0 uses all cores, which slows down small models"),
    "tensorflow_inter_op_parallelism": (int, 0, "threads for long texts' ops; -1 uses the batch's thread"),
    "tensorflow_session_config_file": (
        str,
        "",
        "text file with a ConfigProto (default: config/session.config or, with a GPU, session.gpu.config)",
    ),
    "host": (str, "127.0.0.1", "our own: address to listen on; 0.0.0.0 listens on all addresses"),
    "source_lang": (str, "", "our own: language of the texts, such as en, if a model's export.json names none"),
    "target_lang": (str, "", "our own: language of the translations, such as de, if export.json names none"),
    "drain_seconds": (float, 30.0, "our own: most seconds after SIGTERM to answer the open requests"),
}
# Flags of TensorFlow Serving that the local server accepts and ignores.
WITHOUT_EFFECT = """
grpc_max_threads num_load_threads num_unload_threads num_tflite_pools enable_profiler num_tflite_interpreters_per_pool
ssl_config_file platform_config_file thread_pool_factory_config_file mixed_precision flush_filesystem_caches
use_alts_credentials enable_per_model_batching_parameters enable_signature_method_name_check
remove_unused_fields_from_bundle_metagraph prefer_tflite_model xla_cpu_compilation_enabled xla_gpu_compilation_enabled
skip_initialize_tpu monitoring_config_file enable_grpc_healthcheck_service grpc_channel_arguments saved_model_tags
grpc_socket_path enable_serialization_as_tensor_content tensorflow_session_parallelism num_request_iterations_for_warmup
allow_version_labels_for_unavailable_models per_process_gpu_memory_fraction
""".split()


def parse_settings(arguments):
    """Parses a command line. A flag is --name=value or --name value; a boolean --name alone is true.

    Returns (argparse.Namespace with an attribute for each of `FLAGS`, list of the given flags `WITHOUT_EFFECT`).
    Raises ValueError in one line for an invalid value, SystemExit for an unknown flag, and after --help and --version.
    """
    parser = Parser(prog="python -m serving.server", description=DESCRIPTION)
    for name, (kind, default, text) in FLAGS.items():
        text = text.replace("%", "%%") + ("" if default in (None, "") else f" (default: {default})")
        how = {"nargs": "?", "const": True, "metavar": "true|false"} if kind is boolean else {"metavar": kind.__name__}
        parser.add_argument(f"--{name}", type=kind, default=default, help=text, **how)
    group = parser.add_argument_group("flags of TensorFlow Serving without effect here")
    for name in WITHOUT_EFFECT:
        group.add_argument(f"--{name}", nargs="?", const="true", metavar="value")
    tensorflow = f"TensorFlow ModelServer: the local server of this repository, TensorFlow {version('tensorflow')}"
    parser.add_argument("--version", action="version", version=tensorflow)
    settings = parser.parse_args(arguments)
    _check(settings)
    return settings, [name for name in WITHOUT_EFFECT if getattr(settings, name) is not None]


def _check(settings):
    """Raises ValueError for settings that do not fit together, before anything is loaded."""
    for name, (kind, *_) in FLAGS.items():
        least = -1 if name == "tensorflow_inter_op_parallelism" else 0
        most = 65535 if name in ("port", "rest_api_port") else float("inf")
        if kind in (int, float):
            wish = f"be at least {least}" if most > 65535 else "be between 0 and 65535"
            _expect(settings, name, least <= getattr(settings, name) <= most, wish)
    _expect(settings, "port", settings.port == 0 or settings.port != settings.rest_api_port, "not be --rest_api_port")
    if settings.batching_parameters_file and not settings.enable_batching:
        raise ValueError("--batching_parameters_file is for --enable_batching, which is not given")
    if bool(settings.source_lang) != bool(settings.target_lang):
        raise ValueError("--source_lang and --target_lang belong together. Received: only one of them")
    path = settings.model_base_path
    if settings.model_config_file:
        return
    if path is None:
        raise ValueError("one of --model_base_path DIR and --model_config_file FILE must be given")
    _expect(settings, "model_base_path", path.is_dir(), "be a directory that exists")
    wish = "have directories of versions in it, such as 1/ with a saved_model.pb"
    _expect(settings, "model_base_path", versions_in(path), wish)
    _expect(settings, "model_name", re.fullmatch(r"[^/:\s]+", settings.model_name), "be a word without / and :")


def _expect(settings, name, is_right, wish):
    if not is_right:
        raise ValueError(f"--{name} must {wish}. Received: {getattr(settings, name)}")


def import_tensorflow():
    """Imports TensorFlow without its messages about CPU features, missing GPUs and deprecated functions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TensorFlow's start-up in C++ writes to it whatever the log level is.
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    tf.get_logger().setLevel(logging.ERROR)


def main():
    """Serves until SIGTERM or Ctrl-C. Returns the exit status.

    It is 2 after a mistake of the user, and 130 after Ctrl-C while the models are loaded; both are told in one line.
    """
    sys.setswitchinterval(0.001)  # Seconds, after which a thread that works on a long body lets another one run.
    try:
        settings, ignored = parse_settings(sys.argv[1:])
        if ignored:
            logger.warning("without effect in the local server: %s", ", ".join(f"--{name}" for name in ignored))
        for port in (settings.port, settings.rest_api_port):
            bind(settings.host, port).close()  # Reports a port in use before the long work.
        files = read_files(settings)
        logger.info("loading TensorFlow")
        import_tensorflow()
        from serving.local_server import run

        run(settings, *files)
    except KeyboardInterrupt:  # Before `run` waits for it.
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logger.setLevel(logging.INFO)
    status = main()
    sys.stderr.flush()
    os._exit(status)  # Skips the orderly exit, in which Python frees TensorFlow's objects for seconds.
