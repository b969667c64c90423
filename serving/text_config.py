"""Configuration files in protobuf's text form, as TensorFlow Serving reads them.

No Python package has the messages of batching and monitoring, so this module describes them. Unknown fields are errors.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

DEFAULT_MONITORING_PATH = "/monitoring/prometheus/metrics"
FIELD = descriptor_pb2.FieldDescriptorProto
# Message -> its fields in the order of their numbers.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": FIELD.TYPE_INT64,
        "pad_variable_length_inputs": FIELD.TYPE_BOOL,
        "enable_large_batch_splitting": ".google.protobuf.BoolValue",
        "max_execution_batch_size": ".google.protobuf.Int64Value",
    },
    "PrometheusConfig": {"enable": FIELD.TYPE_BOOL, "path": FIELD.TYPE_STRING},
    "MonitoringConfig": {"prometheus_config": ".tensorflow.serving.PrometheusConfig"},
}


@dataclass(frozen=True)
class BatchingParameters:
    """The parameters of batching."""

    max_batch_size: int = 1000
    """most rows of a request, and of a batch unless `max_execution_batch_size` is given"""
    batch_timeout_micros: int = 0
    """most microseconds that a request waits for others"""
    max_enqueued_batches: int = 10
    """most batches that wait for a thread, per signature"""
    num_batch_threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """batches computed at the same time"""
    thread_pool_name: str = "batch_threads"
    """label of the metrics"""
    enable_large_batch_splitting: bool = False
    """whether a request of more than `max_execution_batch_size` rows is computed in parts"""
    max_execution_batch_size: int = 0
    """most rows of a batch with splitting; 0 means `max_batch_size`"""
    allowed_batch_sizes: tuple = ()
    """ascending; the server fills up a batch to the next of these sizes with copies of a row"""
    pad_variable_length_inputs: bool = False
    """whether inputs of different widths share a batch, padded with their first value"""

    def __post_init__(self):  # noqa: D105
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        for name in ("batch_timeout_micros", "max_execution_batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative. Received: {getattr(self, name)}")
        if self.most_rows > self.max_batch_size:
            raise ValueError(
                "max_execution_batch_size must be at most max_batch_size. Received: "
                f"{self.max_execution_batch_size}, {self.max_batch_size}"
            )
        sizes = list(self.allowed_batch_sizes)
        if sizes and (sizes != sorted({*sizes}) or sizes[0] < 1 or sizes[-1] != self.most_rows):
            raise ValueError(
                f"allowed_batch_sizes must ascend to the most rows of a batch, {self.most_rows}. Received: {sizes}"
            )

    @property
    def most_rows(self):
        """Most rows of a batch, int."""
        return (self.enable_large_batch_splitting and self.max_execution_batch_size) or self.max_batch_size


def read_text(path, message):
    """Reads a file in text form into a protobuf message, which is also returned.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is not in text form, with the line.
    """
    try:
        return text_format.Parse(Path(path).read_text(encoding="utf-8"), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message.DESCRIPTOR.full_name
        raise ValueError(f"Error parsing text-format {name}: {path} must be one. Line {error}") from None


def read_batching_parameters(path):
    """Reads the `BatchingParameters` of a file. Raises as `read_text` does, and ValueError for an invalid value."""
    message = read_text(path, _new("BatchingParameters"))
    given = {name: getattr(value, "value", value) for name, value in _fields(message)}
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


def _fields(message):
    return [(descriptor.name, value) for descriptor, value in message.ListFields()]


def _new(name):
    file = descriptor_pb2.FileDescriptorProto(name="text_config.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for message_name, fields in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (field_name, kind) in enumerate(fields.items(), start=1):
            label = FIELD.LABEL_REPEATED if field_name == "allowed_batch_sizes" else FIELD.LABEL_OPTIONAL
            described = message.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                described.type, described.type_name = FIELD.TYPE_MESSAGE, kind
            else:
                described.type = kind
    pool = descriptor_pool.DescriptorPool()  # A pool of its own: the process may already know the real message types.
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.serving.{name}"))()
