"""TensorBoard's event files, made to agree with the checkpoint that a run goes on from."""

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event

from keras_transformer.training.checkpoints import write_atomically


def forget_after(directory, step):
    """Removes what a killed run wrote after the checkpoint of update `step`: it is about to be written once more.

    Args:
        directory: of event files; need not exist.
        step: the last update whose points stay.
    """
    for path in sorted(directory.glob("*tfevents*")):
        records, is_whole = read_records(path)
        kept = [record for record in records if Event.FromString(record).step <= step]
        if len(kept) < len(records) or not is_whole:
            write_atomically(path, lambda temporary, kept=kept: write_records(temporary, kept))


def read_records(path):
    """The records of an event file, a list of bytes, and whether the file ends after the last of them.

    Where a process was killed while it wrote, the file is cut short in the middle of a record.
    """
    records = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            records.append(record)
    except tf.errors.DataLossError:
        return records, False
    return records, True


def write_records(path, records):
    """Writes what `read_records` gave."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
