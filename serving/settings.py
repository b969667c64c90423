"""The flags of the server. A flag that TensorFlow Serving also has keeps its name and default there."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path

import tyro

BOOLEANS = {"true": "True", "false": "False"}
DEFAULT_MONITORING_PATH = "/monitoring/prometheus/metrics"

DESCRIPTION = """Serve exported models by REST, gRPC and as a page, with TensorFlow Serving's API and flags.

  python -m serving.server --model_base_path exports/mine --model_name translator
      REST and the page on http://127.0.0.1:8501/, gRPC on 8500; follows new versions
  python -m serving.server ... --enable_batching true --batching_parameters_file serving/config/batching.local.config
      computes the requests of many clients together"""


class SettingsError(ValueError):
    """A flag with an invalid value. The message is one line that tells the user the remedy."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The command line of the server."""

    model_base_path: Path | None = None
    """Directory of a model. The versions are its subdirectories with numbers as names."""
    model_name: str = "default"
    """Name of that model for clients."""
    model_config_file: Path | None = None
    """Text file with a `model_config_list` of models, versions and labels. Excludes --model_base_path."""
    model_config_file_poll_wait_seconds: int = 0
    """Seconds between two readings of the model config file. 0 reads the file once."""
    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 listens on all addresses."""
    port: int = 8500
    """Port of gRPC. 0 lets the system choose."""
    rest_api_port: int = 8501
    """Port of HTTP. 0 lets the system choose."""
    file_system_poll_wait_seconds: float = 1.0
    """Seconds between two searches for new versions. 0 searches once."""
    max_num_load_retries: int = 5
    """Most retries after a version could not be loaded."""
    load_retry_interval_micros: int = 60_000_000
    """Microseconds between two attempts to load a version."""
    enable_model_warmup: bool = True
    """Replay a version's assets.extra/tf_serving_warmup_requests before the version is available."""
    enable_batching: bool = False
    """Compute requests of different clients together."""
    batching_parameters_file: Path | None = None
    """Text file with the parameters of batching, such as max_batch_size { value: 32 }."""
    tensorflow_intra_op_parallelism: int = 1
    """Threads of one op. 0 uses all cores, as TensorFlow Serving does by default, which is slower for small models."""
    tensorflow_inter_op_parallelism: int = 0
    """Threads for the ops of long texts. 0 lets TensorFlow choose. -1 computes long texts in the thread of their batch,
    as short texts always are; no timeout can then end the computation."""
    monitoring_config_file: Path | None = None
    """Text file with prometheus_config { enable: true path: "..." }. Without a file, the default path is on."""
    rest_api_timeout_in_ms: int = 30_000
    """Most milliseconds for an HTTP request to arrive, and for its answer."""
    rest_api_enable_cors_support: bool = False
    """Allow requests from pages of other sites."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Most bytes of an HTTP body or a gRPC message. A compressed body may inflate to 100 MB."""
    max_rows: int = 1024
    """Most rows of a request."""
    max_bytes_per_row: int = 100_000
    """Most bytes of a text, in UTF-8."""
    max_queued: int = 256
    """Most waiting requests per signature. With --enable_batching, max_enqueued_batches is the limit instead."""
    drain_seconds: float = 30.0
    """Most seconds after SIGTERM to answer the open requests."""

    def check(self):
        """Raises SettingsError for an invalid setting, before anything is loaded."""
        _check_model(self)
        for name in ("port", "rest_api_port"):
            _check(self, name, 0 <= getattr(self, name) <= 65535, "be between 0 and 65535")
        if self.port and self.port == self.rest_api_port:
            raise SettingsError(f"--port and --rest_api_port must differ. Received: both are {self.port}")
        for name, least in LEAST.items():
            _check(self, name, getattr(self, name) >= least, f"be at least {least}")
        for name in ("model_config_file", "batching_parameters_file", "monitoring_config_file"):
            path = getattr(self, name)
            _check(self, name, path is None or path.is_file(), "be a file that exists")
        if self.batching_parameters_file and not self.enable_batching:
            raise SettingsError("--batching_parameters_file is for --enable_batching, which is not given")


LEAST = {
    "model_config_file_poll_wait_seconds": 0,
    "file_system_poll_wait_seconds": 0,
    "max_num_load_retries": 0,
    "load_retry_interval_micros": 0,
    "tensorflow_intra_op_parallelism": 0,
    "tensorflow_inter_op_parallelism": -1,
    "rest_api_timeout_in_ms": 1,
    "max_body_bytes": 1,
    "max_rows": 1,
    "max_bytes_per_row": 1,
    "max_queued": 1,
    "drain_seconds": 0,
}


def parse_settings(arguments):
    """Parses a command line. A flag is --name=value or --name value; a boolean --name alone is true.

    Args:
        arguments: list of str, without the program's name.

    Returns:
        Settings.

    Raises:
        SettingsError: for an unknown flag or an invalid value.
        SystemExit: after --help (0).
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            settings = tyro.cli(
                tyro.conf.FlagConversionOff[Settings],
                args=_with_values(arguments),
                description=DESCRIPTION,
                use_underscores=True,
                prog="python -m serving.server",
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        raise SettingsError(f"{_first_paragraph(said.getvalue())} (--help lists all flags)") from None
    settings.check()
    return settings


def read_monitoring(path):
    """Reads the path of the metrics page.

    Args:
        path: path of a text file `prometheus_config { enable: true path: "/..." }`, or None.

    Returns:
        str that begins with "/", or None without a metrics page.

    Raises:
        SettingsError: if the file has other content.
    """
    if path is None:
        return DEFAULT_MONITORING_PATH
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    body = re.fullmatch(r"\s*prometheus_config\s*:?\s*\{([^{}]*)\}\s*", text)
    field = r'\s*(enable|path)\s*:\s*(true|false|"/[^"]*")\s*[,;]?'
    values = dict(re.findall(field, body[1])) if body and re.fullmatch(f"(?:{field})*\\s*", body[1]) else {}
    if values.get("enable") not in ("true", "false") or values.get("path") in ("true", "false"):
        wish = 'be prometheus_config { enable: true path: "/..." }'
        raise SettingsError(f"{path} must {wish}. Received: {' '.join(text.split())[:100]}")
    return values.get("path", DEFAULT_MONITORING_PATH).strip('"') if values["enable"] == "true" else None


def _check(settings, name, is_right, wish):
    if not is_right:
        raise SettingsError(f"--{name} must {wish}. Received: {getattr(settings, name)}")


def _check_model(settings):
    if (settings.model_base_path is None) == (settings.model_config_file is None):
        raise SettingsError("one of --model_base_path DIR and --model_config_file FILE must be given")
    if settings.model_base_path is not None:
        _check(settings, "model_base_path", settings.model_base_path.is_dir(), "be a directory that exists")
        has_version = any(path.name.isdecimal() and path.is_dir() for path in settings.model_base_path.iterdir())
        wish = "have directories of versions in it, such as 1/ with a saved_model.pb"
        _check(settings, "model_base_path", has_version, wish)
    _check(settings, "model_name", re.fullmatch(r"[^/:\s]+", settings.model_name), "be a word without / and :")


def _with_values(arguments):
    """Completes the command line with a value for each boolean flag: True or False, as tyro expects."""
    switches = {f"--{field.name}" for field in dataclasses.fields(Settings) if field.type is bool}
    words = []
    for argument in arguments:
        words += argument.split("=", 1) if argument.partition("=")[0] in switches else [argument]
    complete = []
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        complete.append(BOOLEANS.get(word.lower(), word) if before in switches else word)
        if word in switches and after.lower() not in BOOLEANS:
            complete.append("True")
    return complete


def _first_paragraph(box):
    """Extracts the message, as one line, from the framed lines that tyro prints."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    end = next((number for number, line in enumerate(lines) if not line.strip("─╰╯")), len(lines))
    return " ".join(lines[:end])
