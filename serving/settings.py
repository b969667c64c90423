"""The flags of the server: all flags of TensorFlow Serving, by the same names, and a few of our own."""

import argparse
import re
from importlib.metadata import version
from pathlib import Path

DESCRIPTION = """Serve exported models by REST, gRPC and as a page, with TensorFlow Serving's API and flags.

  python -m serving.server --model_base_path exports/mine --model_name translator
      REST and the page on http://127.0.0.1:8501/, gRPC on 8500; follows new versions
  python -m serving.server ... --enable_batching true --batching_parameters_file serving/config/batching.local.config
      computes the requests of many clients together"""


def boolean(text):
    """Converts the value of a flag to bool."""
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"must be true or false. Received: {text}")
    return values[text.lower()]


# name: (type, default, help). TensorFlow Serving's flags first, then our own.
FLAGS = {
    "model_base_path": (Path, None, "directory of a model; its versions are subdirectories with numbers as names"),
    "model_name": (str, "default", "name of that model for clients"),
    "model_config_file": (Path, None, "text file with a `model_config_list` of models, in place of --model_base_path"),
    "model_config_file_poll_wait_seconds": (int, 0, "seconds between two readings of that file; 0 reads it once"),
    "port": (int, 8500, "port of gRPC; 0 lets the system choose"),
    "grpc_socket_path": (str, "", "path of a UNIX socket for gRPC, beside the port"),
    "grpc_channel_arguments": (str, "", "arguments of the gRPC server, such as grpc.max_connection_age_ms=2000"),
    "rest_api_port": (int, 8501, "port of HTTP; 0 lets the system choose"),
    "rest_api_num_threads": (int, 0, "requests computed at a time without batching; 0 means 4 for each core"),
    "rest_api_timeout_in_ms": (int, 30_000, "most milliseconds for the answer to an HTTP request"),
    "rest_api_enable_cors_support": (boolean, False, "allow requests from pages of other sites"),
    "file_system_poll_wait_seconds": (float, 1.0, "seconds between two searches for new versions; 0 searches once"),
    "max_num_load_retries": (int, 5, "most retries after a version could not be loaded"),
    "load_retry_interval_micros": (int, 60_000_000, "microseconds between two attempts to load a version"),
    "allow_version_labels_for_unavailable_models": (boolean, False, "allow labels of versions not yet available"),
    "saved_model_tags": (str, "serve", "tags, with commas, of the graph to load"),
    "enable_model_warmup": (boolean, True, "replay assets.extra/tf_serving_warmup_requests of a version first"),
    "num_request_iterations_for_warmup": (int, 1, "how often to replay each of these requests"),
    "enable_batching": (boolean, False, "compute requests of different clients together"),
    "batching_parameters_file": (Path, None, "text file with the parameters of batching"),
    "tensorflow_session_config_file": (Path, None, "text file with a ConfigProto for TensorFlow"),
    "tensorflow_session_parallelism": (int, 0, "threads of one op and ops at a time, in place of the next two flags"),
    "tensorflow_intra_op_parallelism": (int, 1, "threads of one op; 0 uses all cores, which slows down small models"),
    "tensorflow_inter_op_parallelism": (int, 0, "threads for the ops of long texts; -1 uses the thread of the batch"),
    "per_process_gpu_memory_fraction": (float, 0.0, "share of a GPU's memory; 0 lets TensorFlow choose"),
    "enable_serialization_as_tensor_content": (boolean, False, "answer gRPC with numbers in `tensor_content`"),
    "monitoring_config_file": (Path, None, 'text file with prometheus_config { enable: true path: "..." }'),
    "version": (boolean, False, "show the versions and end"),
    "host": (str, "127.0.0.1", "our own: address to listen on; 0.0.0.0 listens on all addresses"),
    "max_body_bytes": (int, 0, "our own: most bytes of an HTTP body or a gRPC message; 0 means no limit"),
    "max_rows": (int, 0, "our own: most rows of a request; 0 means no limit"),
    "max_bytes_per_row": (int, 0, "our own: most bytes of a text; 0 means no limit"),
    "source_lang": (str, "", "our own: language of the texts, such as en, if a model's export.json names none"),
    "target_lang": (str, "", "our own: language of the translations, such as de, if export.json names none"),
    "drain_seconds": (float, 30.0, "our own: most seconds after SIGTERM to answer the open requests"),
}
# Flags of TensorFlow Serving that the local server accepts and ignores.
WITHOUT_EFFECT = {
    **dict.fromkeys(("grpc_max_threads", "num_load_threads", "num_unload_threads"), int),
    **dict.fromkeys(("num_tflite_pools", "num_tflite_interpreters_per_pool"), int),
    **dict.fromkeys(("ssl_config_file", "platform_config_file", "thread_pool_factory_config_file"), str),
    "mixed_precision": str,
    **dict.fromkeys(("flush_filesystem_caches", "use_alts_credentials", "enable_profiler"), boolean),
    **dict.fromkeys(("enable_per_model_batching_parameters", "enable_signature_method_name_check"), boolean),
    **dict.fromkeys(("remove_unused_fields_from_bundle_metagraph", "prefer_tflite_model"), boolean),
    **dict.fromkeys(("xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled"), boolean),
    **dict.fromkeys(("skip_initialize_tpu", "enable_grpc_healthcheck_service"), boolean),
}
LEAST = {
    **dict.fromkeys(("model_config_file_poll_wait_seconds", "file_system_poll_wait_seconds", "drain_seconds"), 0),
    **dict.fromkeys(("max_num_load_retries", "max_body_bytes", "max_rows", "max_bytes_per_row"), 0),
    **dict.fromkeys(("rest_api_num_threads", "tensorflow_session_parallelism", "tensorflow_intra_op_parallelism"), 0),
    **{"tensorflow_inter_op_parallelism": -1, "rest_api_timeout_in_ms": 1, "num_request_iterations_for_warmup": 0},
}


class SettingsError(ValueError):
    """A flag with an invalid value. The message is one line that tells the user the remedy."""


def parse_settings(arguments):
    """Parses a command line. A flag is --name=value or --name value; a boolean --name alone is true.

    Args:
        arguments: list of str, without the program's name.

    Returns:
        (argparse.Namespace with an attribute for each of `FLAGS`, list of the given flags `WITHOUT_EFFECT`).

    Raises:
        SettingsError: for an unknown flag or an invalid value.
        SystemExit: after --help and --version (0).
    """
    parser = _Parser(
        prog="python -m serving.server",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, (kind, default, text) in FLAGS.items():
        _add(parser, name, kind, default, text if default in (None, "") else f"{text} (default: {default})")
    group = parser.add_argument_group("flags of TensorFlow Serving without effect here")
    for name, kind in WITHOUT_EFFECT.items():
        _add(group, name, kind, None, None)
    settings = parser.parse_args(arguments)
    if settings.version:
        print(
            f"TensorFlow ModelServer: the local server of this repository\nTensorFlow Library: {version('tensorflow')}"
        )
        parser.exit()
    _check(settings)
    return settings, [name for name in WITHOUT_EFFECT if getattr(settings, name) is not None]


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SettingsError(f"{message} (--help lists all flags)")


def _add(parser, name, kind, default, text):
    how = {"nargs": "?", "const": True, "metavar": "true|false"} if kind is boolean else {"metavar": kind.__name__}
    parser.add_argument(f"--{name}", type=kind, default=default, help=text and text.replace("%", "%%"), **how)


def _check(settings):
    """Raises SettingsError for an invalid setting, before anything is loaded."""
    for name in ("port", "rest_api_port"):
        _expect(settings, name, 0 <= getattr(settings, name) <= 65535, "be between 0 and 65535")
    if settings.port and settings.port == settings.rest_api_port:
        raise SettingsError(f"--port and --rest_api_port must differ. Received: both are {settings.port}")
    for name, least in LEAST.items():
        _expect(settings, name, getattr(settings, name) >= least, f"be at least {least}")
    for name, (kind, *_) in FLAGS.items():
        path = getattr(settings, name)
        is_file = name.endswith("_file") and kind is Path
        _expect(settings, name, not is_file or path is None or path.is_file(), "be a file that exists")
    for argument in filter(None, settings.grpc_channel_arguments.split(",")):
        _expect(settings, "grpc_channel_arguments", "=" in argument, "be NAME=VALUE, or several with commas")
    if settings.batching_parameters_file and not settings.enable_batching:
        raise SettingsError("--batching_parameters_file is for --enable_batching, which is not given")
    if bool(settings.source_lang) != bool(settings.target_lang):
        raise SettingsError("--source_lang and --target_lang belong together. Received: only one of them")
    if settings.model_config_file is None:
        _check_model(settings)


def _check_model(settings):
    path = settings.model_base_path
    if path is None:
        raise SettingsError("one of --model_base_path DIR and --model_config_file FILE must be given")
    _expect(settings, "model_base_path", path.is_dir(), "be a directory that exists")
    has_version = any(child.name.isdecimal() and child.is_dir() for child in path.iterdir())
    wish = "have directories of versions in it, such as 1/ with a saved_model.pb"
    _expect(settings, "model_base_path", has_version, wish)
    _expect(settings, "model_name", re.fullmatch(r"[^/:\s]+", settings.model_name), "be a word without / and :")


def _expect(settings, name, is_right, wish):
    if not is_right:
        raise SettingsError(f"--{name} must {wish}. Received: {getattr(settings, name)}")
