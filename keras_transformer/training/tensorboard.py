"""What TensorBoard shows of a run: curves, settings and pictures of attention."""

import contextlib
import warnings

import numpy as np
import psutil
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import api as hp

from keras_transformer.config import PAD_ID
from keras_transformer.errors import FileError
from keras_transformer.files import write_whole
from keras_transformer.tokenizer import shift_right

HPARAMS = "_hparams_"  # with which the names of TensorBoard's records of settings begin
MOST_PIECES = 40  # of either side in a picture
CELL, CHARACTER, MARGIN = 0.2, 0.09, 0.1  # inches
DOTS_PER_INCH, POINTS = 80, 8


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


class AlignmentPictures:
    """Draws after every epoch which source pieces the model looks at in a few validation pairs, as `align` tells.

    They are the same pairs in every epoch, with their true translations, so that one sees the alignment emerge.

    Args:
        source_ids: int32 (B, S).
        labels: int32 (B, T).
        tokenizers: `Tokenizer` of the source and of the target.
        writer: `EventWriter`.
        progress: `Progress`.
        first_ids: int32 (B,), with which the decoder begins; None for bos.
    """

    def __init__(self, source_ids, labels, tokenizers, writer, progress, first_ids=None):
        self.source_ids = source_ids
        self.target_ids = shift_right(labels, first_ids)
        self.writer = writer
        self.progress = progress
        self.source_pieces, self.pieces = (
            [tokenizer.visible_pieces(row[row != PAD_ID][:MOST_PIECES]) for row in ids]
            for tokenizer, ids in zip(tokenizers, (source_ids, labels), strict=True)
        )

    def __call__(self, trainer, logs):
        network = trainer.network
        with trainer.averaged():
            _, alignments = network.align(self.target_ids, network.encode(self.source_ids))  # (B, T, S)
        rows = zip(np.asarray(alignments), self.source_pieces, self.pieces, strict=True)
        with self.writer.as_default(step=self.progress.step):
            for number, (alignment, source_pieces, pieces) in enumerate(rows, start=1):
                picture = heat_map(alignment[: len(pieces), : len(source_pieces)], source_pieces, pieces)
                tf.summary.image(f"alignment/{number}", picture[None])


def heat_map(alignment, source_pieces, pieces):
    """Draws an alignment, white where it is 0 and black where it is 1.

    Args:
        alignment: float (T, S).
        source_pieces: list of str (S,), the columns.
        pieces: list of str (T,), the rows.

    Returns:
        uint8 (height, width, 3).
    """
    left, top = (MARGIN + CHARACTER * max(map(len, labels)) for labels in (pieces, source_pieces))
    columns, rows = CELL * len(source_pieces), CELL * len(pieces)
    width, height = left + columns + MARGIN, top + rows + MARGIN
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((left / width, MARGIN / height, columns / width, rows / height))
    axes.imshow(alignment, cmap="Greys", vmin=0, vmax=1)
    axes.xaxis.tick_top()
    text = {"fontsize": POINTS, "parse_math": False}
    axes.set_xticks(range(len(source_pieces)), source_pieces, rotation=90, **text)
    axes.set_yticks(range(len(pieces)), pieces, **text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # it draws a box for a character that the font lacks
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
