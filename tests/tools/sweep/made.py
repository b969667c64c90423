"""Run directories as train.py leaves them, made by hand: TensorBoard's own writer makes the event files."""

import struct

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT
from tensorboard.summary.writer.record_writer import RecordWriter

LOG = """2026-11-26 23:59:00 devices     one replica on the CPU
2026-11-26 23:59:10 model       1,234,567 parameters, tiny, float32
2026-11-27 00:00:40 epoch 1/3   loss 2.484; 14 s and 9 s
2026-11-27 08:00:00 devices     one replica on the CPU
2026-11-27 08:00:05 model       1,234,567 parameters, tiny, float32
2026-11-27 08:00:30             a text
of two lines -> model 5
2026-11-27 08:01:10 finished    the run
"""  # two starts, of 100 s and of 70 s


def write_curves(path, **curves):
    """Writes validation curves of a value for each update 10, 20, ... into a new event file."""
    path.mkdir(parents=True, exist_ok=True)
    with open(path / f"events.out.tfevents.{len([*path.iterdir()])}.v2", "wb") as file:
        writer = RecordWriter(file)
        for tag, values in curves.items():
            for number, value in enumerate(values, start=1):
                content = struct.pack("<f", value)
                scalar = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), tensor_content=content)
                summary = Summary(value=[Summary.Value(tag=tag, tensor=scalar)])
                writer.write(Event(step=10 * number, summary=summary).SerializeToString())
        writer.flush()


def write_finished(path, config, **curves):
    """Writes the directory of a finished run, as far as a sweep reads it."""
    write_curves(path / "logs" / "validation", **curves)
    config.save(path / "config.yaml")
    (path / "results.yaml").write_text("set: test\nbleu: 99.9\n")
    (path / "run.log").write_text(LOG)
