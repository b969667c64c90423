"""The file of --batching_parameters_file, in the text form of TensorFlow Serving's BatchingParameters.

No Python package has the message type, so this module describes the type. Missing fields have TensorFlow Serving's
defaults. Unknown fields are errors.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

WRAPPED = {
    "max_batch_size": "Int64Value",
    "batch_timeout_micros": "Int64Value",
    "max_enqueued_batches": "Int64Value",
    "num_batch_threads": "Int64Value",
    "thread_pool_name": "StringValue",
    "enable_large_batch_splitting": "BoolValue",
    "max_execution_batch_size": "Int64Value",
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
    """most rows of a batch; 0 means `max_batch_size`"""
    allowed_batch_sizes: tuple = ()
    """ascending; the server fills up a batch to the next of these sizes with copies of its last row"""

    def __post_init__(self):  # noqa: D105
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive. Received: {getattr(self, name)}")
        for name in ("batch_timeout_micros", "max_execution_batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative. Received: {getattr(self, name)}")
        if self.max_execution_batch_size and not self.enable_large_batch_splitting:
            raise ValueError("max_execution_batch_size has a meaning only with enable_large_batch_splitting")
        if self.max_execution_batch_size > self.max_batch_size:
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
        return self.max_execution_batch_size or self.max_batch_size


def read_batching_parameters(path):
    """Reads the `BatchingParameters` of a file.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is not in text form, with the line, or if a value is invalid.
    """
    try:
        message = text_format.Parse(Path(path).read_text(encoding="utf-8"), _message_class()())
        given = {name: getattr(message, name).value for name in WRAPPED if message.HasField(name)}
        return BatchingParameters(**given, allowed_batch_sizes=tuple(message.allowed_batch_sizes))
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must hold batching parameters in text form. Line {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _message_class():
    file = descriptor_pb2.FileDescriptorProto(
        name="batching_parameters.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name="BatchingParameters")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, wrapper) in enumerate(WRAPPED.items(), start=1):
        message.field.add(
            name=name,
            number=number,
            label=kinds.LABEL_OPTIONAL,
            type=kinds.TYPE_MESSAGE,
            type_name=f".google.protobuf.{wrapper}",
        )
    message.field.add(
        name="allowed_batch_sizes", number=len(WRAPPED) + 1, label=kinds.LABEL_REPEATED, type=kinds.TYPE_INT64
    )
    pool = descriptor_pool.DescriptorPool()  # A pool of its own: the process may already know the real message type.
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters"))
