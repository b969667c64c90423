"""The configuration files of TensorFlow Serving, in protobuf's text form: models, batching and monitoring.

No Python package has the messages of batching and monitoring, so this module describes them. Unknown fields are errors.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config.file_system_storage_path_source_pb2 import FileSystemStoragePathSourceConfig
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig, ModelType

VersionPolicy = FileSystemStoragePathSourceConfig.ServableVersionPolicy
DEFAULT_MONITORING_PATH = "/monitoring/prometheus/metrics"
FIELD = descriptor_pb2.FieldDescriptorProto
INT, BOOL = ".google.protobuf.Int64Value", ".google.protobuf.BoolValue"
# Message -> its fields in the order of their numbers.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": INT,
        "batch_timeout_micros": INT,
        "max_enqueued_batches": INT,
        "num_batch_threads": INT,
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": FIELD.TYPE_INT64,
        "pad_variable_length_inputs": FIELD.TYPE_BOOL,
        "enable_large_batch_splitting": BOOL,
        "max_execution_batch_size": INT,
    },
    "PrometheusConfig": {"enable": FIELD.TYPE_BOOL, "path": FIELD.TYPE_STRING},
    "MonitoringConfig": {"prometheus_config": ".tensorflow.serving.PrometheusConfig"},
}


@dataclass(frozen=True)
class BatchingParameters:
    """The parameters of batching."""

    max_batch_size: int = 1000  # Most rows of a request, and of a batch without `max_execution_batch_size`.
    batch_timeout_micros: int = 0  # Most microseconds that a request waits for others.
    max_enqueued_batches: int = 10  # Most batches that wait for a thread, per signature.
    num_batch_threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    thread_pool_name: str = "batch_threads"  # Label of the metrics.
    enable_large_batch_splitting: bool = False  # Whether a request of more rows than a batch is computed in parts.
    max_execution_batch_size: int = 0  # Most rows of a batch with splitting; 0 means `max_batch_size`.
    allowed_batch_sizes: tuple = ()  # Ascending; a batch is filled up to the next of these sizes with copies of a row.
    pad_variable_length_inputs: bool = False  # Whether inputs of different widths share a batch, padded.

    def __post_init__(self):  # noqa: D105
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        for name in ("batch_timeout_micros", "max_execution_batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative. Received: {getattr(self, name)}")
        if self.most_rows > self.max_batch_size:
            received = f"{self.max_execution_batch_size}, {self.max_batch_size}"
            raise ValueError(f"max_execution_batch_size must be at most max_batch_size. Received: {received}")
        sizes, most = list(self.allowed_batch_sizes), self.max_batch_size
        if sizes and (sizes != sorted({*sizes}) or sizes[0] < 1 or sizes[-1] != most):
            raise ValueError(f"allowed_batch_sizes must ascend to max_batch_size, {most}. Received: {sizes}")
        if sizes and self.most_rows != most:
            wish = f"with allowed_batch_sizes, max_execution_batch_size must be max_batch_size, {most}"
            raise ValueError(f"{wish}. Received: {self.most_rows}")

    @property
    def most_rows(self):
        """Most rows of a batch, int."""
        return (self.enable_large_batch_splitting and self.max_execution_batch_size) or self.max_batch_size


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model."""

    name: str
    base_path: str  # The directory of its versions.
    policy: VersionPolicy = field(default_factory=VersionPolicy)  # `latest` (by default, one), `all` or `specific`.
    labels: dict = field(default_factory=dict)  # label -> version

    def wanted(self):
        """Returns version -> directory of the versions to serve. Raises OSError if `base_path` cannot be read."""
        found = {int(path.name): path for path in sorted(Path(self.base_path).iterdir()) if _is_version(path)}
        kind = self.policy.WhichOneof("policy_choice") or "latest"
        if kind == "all":
            return found
        if kind == "specific":
            return {version: path for version, path in found.items() if version in self.policy.specific.versions}
        newest = sorted(found)[-(self.policy.latest.num_versions or 1) :]
        return {version: found[version] for version in newest}


def read_text(path, message):
    """Reads a file in text form into a protobuf message, which is also returned. Raises ValueError with the line."""
    try:
        return text_format.Parse(Path(path).read_text(encoding="utf-8"), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message.DESCRIPTOR.full_name
        raise ValueError(f"Error parsing text-format {name}: {path} must be one. Line {error}") from None


def read_batching_parameters(path):
    """Reads the `BatchingParameters` of a file. Raises as `read_text` does, and ValueError for an invalid value."""
    message = read_text(path, _new("BatchingParameters"))
    given = {field.name: getattr(value, "value", value) for field, value in message.ListFields()}
    try:
        return BatchingParameters(**given | {"allowed_batch_sizes": tuple(message.allowed_batch_sizes)})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_monitoring(path):
    """Reads the path of the metrics page from a file `prometheus_config { enable: true path: "/..." }`.

    Returns:
        str that begins with "/"; the default path if `path` is None; None without a metrics page.

    Raises:
        As `read_text` does, and ValueError for a path without "/".
    """
    if path is None:
        return DEFAULT_MONITORING_PATH
    config = read_text(path, _new("MonitoringConfig")).prometheus_config
    if config.path and not config.path.startswith("/"):
        raise ValueError(f"{path}: the path of prometheus_config must begin with /. Received: {config.path}")
    return (config.path or DEFAULT_MONITORING_PATH) if config.enable else None


def read_model_config(path):
    """Reads the `ModelConfig`s of a ModelServerConfig: none of an empty file. Raises as `model_configs` does."""
    config = read_text(path, ModelServerConfig())
    try:
        if config.WhichOneof("config") is None:
            return []
        return model_configs(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def model_configs(config, served=()):
    """Converts a ModelServerConfig to `ModelConfig`s. `served` are known names. Raises ValueError for a mistake."""
    if config.WhichOneof("config") != "model_config_list":
        raise ValueError("a model configuration must have a model_config_list")
    models = config.model_config_list.config
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Illegal to list model {twice[0]} multiple times in config list")
    return [_model_config(model, model.name in served) for model in models]


def _model_config(model, is_served):
    if not model.name:
        raise ValueError(f"a model must have a name. Received: base_path={model.base_path!r}")
    if not re.match(r"/|[a-z0-9]+://", model.base_path):
        wish = f"Expected model {model.name} to have an absolute path or URI"
        raise ValueError(f"{wish}; got base_path()={model.base_path}")
    kind = "ModelServerConfig::model_type (deprecated)"
    platform = f"ModelServerConfig::model_platform, model name is {model.name}"
    if model.model_type and model.model_platform:
        raise ValueError(f"Illegal setting both {kind} and {platform}")
    if model.model_type not in (ModelType.MODEL_TYPE_UNSPECIFIED, ModelType.TENSORFLOW):
        raise ValueError(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    if not model.model_type and not model.model_platform:
        raise ValueError(f"Illegal setting neither {kind} nor {platform}")
    if model.model_platform not in ("", "tensorflow"):
        if is_served:
            change = f"platform was tensorflow and new platform requested is {model.model_platform}"
            raise ValueError(f"Illegal to change a model's platform. For model {model.name} {change}")
        raise ValueError(f"Model {model.name} requests unsupported platform {model.model_platform}")
    return ModelConfig(model.name, model.base_path, model.model_version_policy, dict(model.version_labels))


def _is_version(path):
    return re.fullmatch("[0-9]+", path.name) and int(path.name) < 2**63 and path.is_dir()


def _new(name):
    """Returns an empty message of `MESSAGES`."""
    file = descriptor_pb2.FileDescriptorProto(name="configuration.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (field_name, kind) in enumerate(fields.items(), start=1):
            label = FIELD.LABEL_REPEATED if field_name == "allowed_batch_sizes" else FIELD.LABEL_OPTIONAL
            how = {"type": FIELD.TYPE_MESSAGE, "type_name": kind} if isinstance(kind, str) else {"type": kind}
            message.field.add(name=field_name, number=number, label=label, **how)
    pool = descriptor_pool.DescriptorPool()  # A pool of its own: the process may already know the real message types.
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.serving.{name}"))()
