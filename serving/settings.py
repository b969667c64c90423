"""The flags of the server; those that TensorFlow Serving has, too, have its names and defaults."""

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
      puts the requests of many clients together"""


class SettingsError(ValueError):
    """A flag that cannot be; the message is one line that says what to do."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the server is told on its command line."""

    model_base_path: Path | None = None
    """Directory of a model: its versions are the directories in it whose names are numbers."""
    model_name: str = "default"
    """By which clients ask for that model."""
    model_config_file: Path | None = None
    """Instead of the two above: a text file with a `model_config_list` of several models, versions and labels."""
    model_config_file_poll_wait_seconds: int = 0
    """Seconds between two readings of that file; 0 reads it once. (HandleReloadConfigRequest works, too.)"""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is all."""
    port: int = 8500
    """Of gRPC; 0 lets the system choose."""
    rest_api_port: int = 8501
    """Of HTTP; 0 lets the system choose."""
    file_system_poll_wait_seconds: float = 1.0
    """Seconds between two looks for new versions; 0 looks once."""
    max_num_load_retries: int = 5
    """How often the loading of a version is tried again after it has failed."""
    load_retry_interval_micros: int = 60_000_000
    """Microseconds between two of these trials."""
    enable_model_warmup: bool = True
    """Answer a version's assets.extra/tf_serving_warmup_requests before it is available."""
    enable_batching: bool = False
    """Compute requests that come at the same time together."""
    batching_parameters_file: Path | None = None
    """How, as a text file: max_batch_size { value: 32 } and so on."""
    tensorflow_intra_op_parallelism: int = 1
    """Threads of one op (TensorFlow Serving: as many as cores, which is slower for small models); 0 is all cores."""
    tensorflow_inter_op_parallelism: int = 0
    """Threads for the ops of long texts (short ones are computed in the thread of their batch); 0 lets TensorFlow
    choose, -1 has long ones computed like short ones, and then nothing ends them."""
    monitoring_config_file: Path | None = None
    """Text file with prometheus_config { enable: true path: "..." }; without one, the default path is on."""
    rest_api_timeout_in_ms: int = 30_000
    """Longest time for an HTTP request to arrive, and for its answer."""
    rest_api_enable_cors_support: bool = False
    """Let the pages of other sites ask."""
    max_body_bytes: int = 16 * 1024 * 1024
    """Longest body of an HTTP request, or message of gRPC; a compressed body may be 100 MB when it is inflated."""
    max_rows: int = 1024
    """Most rows of a request."""
    max_bytes_per_row: int = 100_000
    """Longest text of a request, in UTF-8."""
    max_queued: int = 256
    """Most requests that wait for a signature without --enable_batching; with it, max_enqueued_batches says that."""
    drain_seconds: float = 30.0
    """After SIGTERM, longest time to answer the requests that are under way."""

    def check(self):
        """Raises SettingsError for what cannot be, before anything is loaded."""
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
    """Reads a command line. Flags may be --name=value or --name value; --name alone is true.

    Args:
        arguments: list of str, without the program's name.

    Returns:
        Settings.

    Raises:
        SettingsError: for a flag that does not exist or cannot have its value.
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
    """Where the page of metrics is.

    Args:
        path: of a text file `prometheus_config { enable: true path: "/..." }`, or None.

    Returns:
        str that begins with "/", or None if there is to be no such page.

    Raises:
        SettingsError: if the file says anything else.
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
    """The command line with a value for every flag, spelled as tyro reads it: True or False."""
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
    """The message in what tyro prints, of several lines with a frame around them, as one line."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    end = next((number for number, line in enumerate(lines) if not line.strip("─╰╯")), len(lines))
    return " ".join(lines[:end])
