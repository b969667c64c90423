"""TensorBoard's event files, written, and made to agree with the checkpoint that a run goes on from."""

import contextlib

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event

from keras_transformer.training.checkpoints import write_atomically


class EventWriter:
    """A tf.summary writer of a directory. What is written in a `with as_default` is on disk after it.

    Where it cannot be written, as on a full disk, OSError says so.
    """

    def __init__(self, directory):
        self.directory = directory
        self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def as_default(self, step):
        """tf.summary writes here, at this update."""
        with _os_errors(self.directory), self._writer.as_default(step=step):
            yield

    def close(self):
        """Ends the file."""
        with _os_errors(self.directory):
            self._writer.close()


@contextlib.contextmanager
def _os_errors(path):
    """TensorFlow's errors as those of the system that they are; a full disk is an exhausted resource to it."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0].rpartition("; ")[2]
        raise OSError(f"cannot write {path}: {reason}") from error


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
    with _os_errors(path), tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
