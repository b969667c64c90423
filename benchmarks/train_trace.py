"""The time of an update, by part of the model and by kind of operation.

    python -m benchmarks.train_trace --dataset files:DIR --source_lang en --target_lang de --preset tiny

Takes every flag of train.py. After a warm-up, TensorFlow's profiler traces some updates inside `fit`. Each operation
counts for the part of the model in its name, forward and backward together. `--strategy one_device` is easiest to read.
"""

import collections
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.train_speed import WARM_UP, fit_updates
from keras_transformer.cli.console import import_tensorflow, program
from keras_transformer.cli.train import parse_config

TRACED = 10  # updates
MOST_KINDS = 15  # rows of the second table
OPERATION = re.compile(r"^([^:\s]+):(\w+)$")  # an event of the executor: NAME:KIND
PARTS = {  # the first pattern that is in a name decides
    "normalisation, dropout, residuals": r"norm|residual",
    "feed-forward": r"feed_forward",
    "attention": r"/layer_",
    "embeddings, positions": r"embedding|positions",
    "weights: norm of the gradient, Adam": r"[Aa]dam|optimizer|L2Loss|IsFinite",
    "logits and loss": r"^[^/]+$",  # training/losses.py, which is outside the model
}


def trace_updates(config):
    """The seconds of `TRACED` updates by operation: a dict (name, kind) -> seconds."""
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    class Traced(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == WARM_UP:
                tf.profiler.experimental.start(directory)

        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 == WARM_UP + TRACED:
                tf.profiler.experimental.stop()

    seconds = collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        fit_updates(config, WARM_UP + TRACED, Traced())
        for path in Path(directory).rglob("*.xplane.pb"):
            for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
                for event in (event for line in plane.lines for event in line.events):
                    if operation := OPERATION.match(plane.event_metadata[event.metadata_id].name):
                        seconds[operation.groups()] += event.duration_ps / 1e12
    return seconds


def part_of(name):
    """The part of the model to which an operation belongs, by its name."""
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name)), "everything else")


def print_table(title, seconds):
    """A Markdown table of a dict of seconds, the largest first."""
    total = sum(seconds.values())
    print(f"\n| {title} | ms an update | share |\n|---|---|---|")
    for name, value in seconds.most_common(MOST_KINDS):
        print(f"| {name} | {1000 * value / TRACED:.1f} | {value / total:.1%} |")


def main(config):
    seconds = trace_updates(config)
    parts, kinds = collections.Counter(), collections.Counter()
    for (name, kind), value in seconds.items():
        parts[part_of(name)] += value
        kinds[kind] += value
    print_table("part", parts)
    print_table("operation", kinds)


if __name__ == "__main__":
    with program():
        config = parse_config(sys.argv[1:], __doc__)
        import_tensorflow()
        main(config)
