"""TensorBoard's event files, read back."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def read_events(directory):
    """{tag: [(step, value), ...]} of what was written in a directory; texts as str."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: [(event.step, _value(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def _value(proto):
    array = tensor_util.make_ndarray(proto)
    return array.item().decode("utf-8") if array.dtype == object else array.item()
