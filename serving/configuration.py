"""The configuration files of TensorFlow Serving, in protobuf's text form: models, batching and Sessions."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config.file_system_storage_path_source_pb2 import FileSystemStoragePathSourceConfig
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig, ModelType

from serving.messages import ConfigProto
from serving.versions import versions_in

VersionPolicy = FileSystemStoragePathSourceConfig.ServableVersionPolicy
WITHOUT_EFFECT = {"allowed_batch_sizes", "pad_variable_length_inputs"}
PLATFORMS = {("tensorflow", ModelType.MODEL_TYPE_UNSPECIFIED), ("", ModelType.TENSORFLOW)}
FIELD = descriptor_pb2.FieldDescriptorProto
INT, BOOL = ".google.protobuf.Int64Value", ".google.protobuf.BoolValue"
# The fields of BatchingParameters in the order of their numbers. No Python package has this message.
BATCHING = {
    **dict.fromkeys(("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"), INT),
    **{"thread_pool_name": ".google.protobuf.StringValue", "allowed_batch_sizes": FIELD.TYPE_INT64},
    **{"pad_variable_length_inputs": FIELD.TYPE_BOOL, "enable_large_batch_splitting": BOOL},
    "max_execution_batch_size": INT,
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

    def __post_init__(self):  # noqa: D105
        least = {"max_batch_size": 1, "max_enqueued_batches": 1, "num_batch_threads": 1, "batch_timeout_micros": 0}
        for name, limit in {**least, "max_execution_batch_size": 0}.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} must be at least {limit}. Received: {getattr(self, name)}")
        if self.most_rows > self.max_batch_size:
            raise ValueError(f"max_execution_batch_size must be at most max_batch_size. Received: {self.most_rows}")

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
        found, kind = versions_in(self.base_path), self.policy.WhichOneof("policy_choice") or "latest"
        if kind == "all":
            return found
        if kind == "specific":
            return {version: path for version, path in found.items() if version in self.policy.specific.versions}
        return {version: found[version] for version in sorted(found)[-(self.policy.latest.num_versions or 1) :]}


def read_batching_parameters(path):
    """Reads the `BatchingParameters` of a file. Raises OSError, or ValueError with the line of a mistake."""

    def convert(message):
        given = {field.name: getattr(value, "value", value) for field, value in message.ListFields()}
        return BatchingParameters(**{name: value for name, value in given.items() if name not in WITHOUT_EFFECT})

    return read_message(path, _batching_message(), convert)


def read_model_config(path):
    """Reads the `ModelConfig`s of a ModelServerConfig: none of an empty file. Raises OSError or ValueError."""
    return read_message(path, ModelServerConfig(), lambda config: model_configs(config) if config.ByteSize() else [])


def configs_of(settings):
    """Returns the `ModelConfig`s of the server's flags, and reads their file, if any. Raises OSError or ValueError."""
    if settings.model_config_file:
        return read_model_config(settings.model_config_file)
    return [ModelConfig(settings.model_name, str(settings.model_base_path))]


def read_files(settings):
    """Reads the files that the server's flags name. Raises OSError or ValueError.

    Returns:
        (list of `ModelConfig`, `BatchingParameters` or None, the ConfigProto of Sessions or None).
    """
    batching, session = settings.batching_parameters_file or os.devnull, settings.tensorflow_session_config_file
    return (
        configs_of(settings),
        read_batching_parameters(batching) if settings.enable_batching else None,
        read_session(session) if session else None,
    )


def read_session(path):
    """Reads the ConfigProto of Sessions. Raises OSError, or ValueError with the line of a mistake."""
    return read_message(path, ConfigProto(allow_soft_placement=True))


def read_message(path, message, convert=lambda message: message):
    """Reads a message in protobuf's text form, and returns it as `convert` does. Raises OSError or ValueError."""
    try:
        return convert(text_format.Parse(Path(path).read_text(encoding="utf-8"), message))
    except (text_format.ParseError, ValueError) as error:
        raise ValueError(f"{path} must be a {message.DESCRIPTOR.full_name} in text form: {error}") from None


def model_configs(config):
    """Converts a ModelServerConfig to a list of `ModelConfig`. Raises ValueError for a mistake."""
    if config.WhichOneof("config") != "model_config_list":
        raise ValueError("a model configuration must have a model_config_list")
    models = config.model_config_list.config
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"a model must be listed once. Received: {twice[0]}")
    for model in models:
        if not model.name:
            raise ValueError(f"a model must have a name. Received: base_path={model.base_path!r}")
        if not re.match(r"/|[a-z0-9]+://", model.base_path):
            raise ValueError(f"model {model.name} must have an absolute base_path. Received: {model.base_path!r}")
        if (model.model_platform, model.model_type) not in PLATFORMS:
            raise ValueError(f'model {model.name} must have model_platform: "tensorflow"')
    return [ModelConfig(one.name, one.base_path, one.model_version_policy, dict(one.version_labels)) for one in models]


def _batching_message():
    """Returns an empty BatchingParameters."""
    file = descriptor_pb2.FileDescriptorProto(name="configuration.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    for number, (name, kind) in enumerate(BATCHING.items(), start=1):
        label = FIELD.LABEL_REPEATED if name == "allowed_batch_sizes" else FIELD.LABEL_OPTIONAL
        how = {"type": FIELD.TYPE_MESSAGE, "type_name": kind} if isinstance(kind, str) else {"type": kind}
        message.field.add(name=name, number=number, label=label, **how)
    pool = descriptor_pool.DescriptorPool()  # A pool of its own: the process may already know the real message.
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters"))()
