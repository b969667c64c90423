"""TensorBoard's event files, read back."""

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.util import tensor_util


def read_events(directory):
    """{tag: [(step, value), ...]} of the events in a directory; texts as str, pictures as uint8 arrays."""
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


def assert_same_curves(found, expected):
    """Of two runs: all points but those of the clock and the machine, each once, and pictures."""
    for name in ("train", "validation"):
        one, other = read_events(found.logs / name), read_events(expected.logs / name)
        for curves in (one, other):
            for kind in ("target_tokens_per_second", "memory/resident_mib", "config"):
                curves.pop(kind, None)
        assert one.keys() == other.keys()
        for curve, points in one.items():
            np.testing.assert_equal(points, other[curve], err_msg=curve)


def hparams_tab(logs):
    """TensorBoard's HParams tab for a directory: [(settings, {(group, tag): latest value})]."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logs))
    multiplexer.Reload()
    context = TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(logs)), logdir=str(logs))
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=api_pb2.Status.values(), aggregation_type=api_pb2.AGGREGATION_AVG
    )
    handler = list_session_groups.Handler(RequestContext(), backend_context.Context(context), "", request)
    return [
        (
            {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()},
            {metric.name.tag: metric.value for metric in group.metric_values},
        )
        for group in handler.run().session_groups
    ]
