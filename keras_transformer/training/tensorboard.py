"""What TensorBoard shows of a run: curves, settings and pictures of attention."""

import contextlib

import psutil
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import api as hp

from keras_transformer.errors import FileError
from keras_transformer.files import write_whole

HPARAMS = "_hparams_"  # with which the names of TensorBoard's records of settings begin


class EventWriter:
    """A tf.summary writer of a directory. After a `with as_default` block, its summaries are on disk.

    Raises:
        FileError: if they cannot be written, as on a full disk.
    """

    def __init__(self, directory):
        self.directory = directory
        self._writer = tf.summary.create_file_writer(str(directory))

    @contextlib.contextmanager
    def as_default(self, step):
        """tf.summary writes here, at this update."""
        with _file_errors(self.directory), self._writer.as_default(step=step):
            yield

    def close(self):
        """Ends the file."""
        with _file_errors(self.directory):
            self._writer.close()


@contextlib.contextmanager
def _file_errors(path):
    """Raises FileError for the errors of TensorFlow, to which a full disk is an exhausted resource."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0].rpartition("; ")[2]
        raise FileError(f"cannot write {path}: {reason}") from error


def forget_after(directory, step):
    """Removes the points that a killed run wrote after the checkpoint of update `step`, and the settings for HParams.

    They will be written again.

    Args:
        directory: pathlib.Path of event files; need not exist.
        step: the last update whose points stay.
    """
    for path in sorted(directory.glob("*tfevents*")):
        records, is_whole = read_records(path)
        kept = [record for record in records if is_kept(Event.FromString(record), step)]
        if len(kept) < len(records) or not is_whole:
            write_whole(path, lambda temporary, kept=kept: write_records(temporary, kept))


def is_kept(event, step):
    """Whether an `Event` belongs to the updates up to `step`, and is not a record of settings."""
    return event.step <= step and not any(value.tag.startswith(HPARAMS) for value in event.summary.value)


def read_records(path):
    """The whole records of an event file, a list of bytes, and whether the file ends with the last of them.

    If a process was killed while it wrote, the file ends in the middle of a record.
    """
    records = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            records.append(record)
    except tf.errors.DataLossError:
        return records, False
    return records, True


def write_records(path, records):
    """Writes records, a list of bytes, to an event file."""
    with _file_errors(path), tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


class Board:
    """The event files of a run. They lose the points that a killed run wrote after its last checkpoint.

    Args:
        directory: pathlib.Path, the logs of the run.
        step, ended: the update of the last checkpoint, and that of the last validation.
        settings: dict, all settings of the run.

    Attributes:
        train, validation: `EventWriter`s.
    """

    def __init__(self, directory, step, ended, settings):
        forget_after(directory / "train", step)
        forget_after(directory / "validation", ended)
        self.train, self.validation = (EventWriter(directory / name) for name in ("train", "validation"))
        with self.validation.as_default(step=ended):
            write_hyper_parameters(settings)
        with self.train.as_default(step=step):
            tf.summary.text("config", "\n".join(f"    {name}: {value}" for name, value in settings.items()))

    def write_point(self, step, trainer, logs, speed, seen):
        """Writes a point of every training curve.

        Args:
            step: the update.
            trainer: `TeacherForcing`.
            logs: dict, the measures of the epoch so far.
            speed: target tokens a second.
            seen: target tokens since the start.
        """
        with self.train.as_default(step=step):
            tf.summary.scalar("target_tokens_per_second", speed)
            tf.summary.scalar("target_tokens_seen", seen)
            tf.summary.scalar("learning_rate", trainer.optimizer.learning_rate)
            tf.summary.scalar("gradient_norm", trainer.updates.gradient_norm)
            for name, value in logs.items():
                tf.summary.scalar(name, value)
            for name, mebibytes in memory().items():
                tf.summary.scalar(f"memory/{name}_mib", mebibytes)

    def write_validation(self, step, logs):
        """Writes a point of every validation curve; `logs` is the dict that Keras gives at the end of an epoch."""
        with self.validation.as_default(step=step):
            for name, value in logs.items():
                if name.startswith("val_") and "/" not in name and name != "val_padding":
                    tf.summary.scalar(name.removeprefix("val_"), value)

    def close(self):
        """Ends the files."""
        self.train.close()
        self.validation.close()


def memory():
    """MiB of memory, a dict: resident in this process, and the most so far on each GPU."""
    gpus = [f"GPU:{i}" for i in range(len(tf.config.list_logical_devices("GPU")))]
    peaks = {gpu.replace(":", "_").lower(): tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus}
    return {name: size / 2**20 for name, size in {"resident": psutil.Process().memory_info().rss, **peaks}.items()}


def write_hyper_parameters(settings):
    """Writes the settings of a run to the summary writer at work, for TensorBoard's HParams tab.

    The tab shows them beside the latest points of the curves in the same directory. It shows the first that it finds,
    so `forget_after` removes the older ones.

    Args:
        settings: dict; a setting that is None is left out.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    # The tab knows no lists and no dicts, such as directions.
    hp.hparams({name: x if isinstance(x, bool | int | float) else str(x) for name, x in given.items()})
