"""TensorBoard's event files, read back."""

import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def read_events(directory):
    """{tag: [(step, value), ...]} of what was written in a directory; texts as str, pictures as uint8 arrays."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: [(event.step, _value(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
        if not tag.startswith("_hparams_")  # whose values are not tensors
    }


def _value(proto):
    array = tensor_util.make_ndarray(proto)
    if array.shape == (3,):  # width, height, PNG
        return tf.io.decode_png(array[2]).numpy()
    return array.item().decode("utf-8") if array.dtype == object else array.item()
