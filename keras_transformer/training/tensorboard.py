"""What TensorBoard shows of a run: curves, settings, pictures of attention, the embedding, and a profile on request."""

import contextlib
import time
import warnings

import keras
import numpy as np
import psutil
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins import projector
from tensorboard.plugins.hparams import api as hp

from keras_transformer.config import PAD_ID
from keras_transformer.errors import FileError
from keras_transformer.files import write_whole
from keras_transformer.tokenizer import shift_right
from keras_transformer.training.callbacks import total

HPARAMS = ".hparams"  # end of the name of the event file that holds the settings
MOST_PIECES = 40  # of either side in a picture
CELL, CHARACTER, MARGIN = 0.2, 0.09, 0.1  # inches
DOTS_PER_INCH, POINTS = 80, 8
MOST_PROJECTED = 10_000  # pieces; more are slow in a browser, and in SentencePiece's order the frequent ones come first


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
    """Removes the points that a killed run wrote after the checkpoint of update `step`. They will be written again.

    Args:
        directory: pathlib.Path of event files; need not exist.
        step: the last update whose points stay.
    """
    for path in sorted(directory.glob("*tfevents*")):
        records, is_whole = read_records(path)
        kept = [record for record in records if Event.FromString(record).step <= step]
        if len(kept) < len(records) or not is_whole:
            write_whole(path, lambda temporary, kept=kept: write_records(temporary, kept))


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


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes loss, accuracy, perplexity, learning rate, tokens, padding, memory and validation BLEU for TensorBoard.

    The callback of Keras counts in epochs and knows neither tokens nor BLEU. Here the x-axis is the update. The
    progress bar shows the target tokens per second as well.

    Args:
        writers: {"train": ..., "validation": ...}, `EventWriter`s.
        progress: `Progress`.
        tokens_per_epoch: real target tokens of an epoch.
        every: updates between two points of the training curves.
    """

    def __init__(self, writers, progress, tokens_per_epoch, every=50):
        super().__init__()
        self.writers = writers
        self.progress = progress
        self.tokens_per_epoch = tokens_per_epoch
        self.every = every
        self._rate = {}  # of the last point, as a log

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._started = epoch, None

    def on_train_batch_begin(self, batch, logs=None):
        if self._started is None:  # not in on_epoch_begin: a resumed epoch starts with tokens already counted
            self._started, self._tokens = time.perf_counter(), self._tokens_of_epoch()

    def on_train_batch_end(self, batch, logs=None):
        if self.progress.step % self.every == 0:
            self._write_point(logs)
        logs.update(self._rate)  # after every update, because every epoch has a new progress bar

    def on_epoch_end(self, epoch, logs=None):
        with self.writers["validation"].as_default(step=self.progress.step):
            for name, value in logs.items():
                if name.startswith("val_") and "/" not in name and name != "val_padding":
                    tf.summary.scalar(name.removeprefix("val_"), value)

    def _write_point(self, logs):
        now, tokens = time.perf_counter(), self._tokens_of_epoch()
        self._rate = {"tokens/s": (tokens - self._tokens) / (now - self._started)}
        self._started, self._tokens = now, tokens
        with self.writers["train"].as_default(step=self.progress.step):
            tf.summary.scalar("target_tokens_per_second", self._rate["tokens/s"])
            tf.summary.scalar("target_tokens_seen", self._epoch * self.tokens_per_epoch + tokens)
            tf.summary.scalar("learning_rate", self.model.optimizer.learning_rate)
            tf.summary.scalar("gradient_norm", self.model.updates.gradient_norm)
            for name, value in logs.items():
                tf.summary.scalar(name, value)
            for name, mebibytes in memory().items():
                tf.summary.scalar(f"memory/{name}_mib", mebibytes)

    def _tokens_of_epoch(self):
        return float(total(self.model.loss_metric.count))


def memory():
    """MiB of memory, a dict: resident in this process, and the most so far on each GPU."""
    gpus = [f"GPU:{i}" for i in range(len(tf.config.list_logical_devices("GPU")))]
    peaks = {gpu.replace(":", "_").lower(): tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus}
    return {name: size / 2**20 for name, size in {"resident": psutil.Process().memory_info().rss, **peaks}.items()}


def write_hyper_parameters(directory, settings):
    """Writes the settings of a run for TensorBoard's HParams tab, in place of older ones.

    The tab shows them beside the latest points of the curves in the same directory. To be called before the curves are
    written: TensorBoard reads files in the order of their names, and never returns to an earlier one. A name begins
    with a time in seconds. This file gets an earlier second, because what follows may be 9 here and 10 in a later file.

    Args:
        directory: pathlib.Path, that of the validation curves.
        settings: dict; a setting that is None is left out.
    """
    for old in directory.glob(f"*{HPARAMS}"):  # of several, TensorBoard would show the first
        old.unlink()
    writer = tf.summary.create_file_writer(str(directory), filename_suffix=HPARAMS)
    with writer.as_default():
        hp.hparams({name: value for name, value in settings.items() if value is not None})
    writer.close()
    (written,) = directory.glob(f"*{HPARAMS}")
    *kind, seconds, others = written.name.split(".", 4)
    written.rename(written.with_name(".".join([*kind, str(int(seconds) - 1), others])))


class Profile(keras.callbacks.Callback):
    """Runs TensorFlow's profiler between two updates, for TensorBoard's Profile tab.

    A profile under way when training is interrupted is lost.

    Args:
        directory: pathlib.Path for the profile.
        progress: `Progress`.
        start: updates after which the profiler starts; at once if the run is already past them.
        stop: updates after which it stops, unless training ends before.
    """

    def __init__(self, directory, progress, start, stop):
        super().__init__()
        self.directory = directory
        self.progress = progress
        self.start = start
        self.stop = stop
        self._is_running = False

    def on_train_batch_begin(self, batch, logs=None):
        if self.start <= self.progress.step < self.stop and not self._is_running:
            tf.profiler.experimental.start(str(self.directory))
            self._is_running = True

    def on_train_batch_end(self, batch, logs=None):
        if self.progress.step >= self.stop:
            self._end()

    def on_train_end(self, logs=None):
        self._end()

    def _end(self):
        if self._is_running:
            tf.profiler.experimental.stop()
            self._is_running = False


class AlignmentPictures(keras.callbacks.Callback):
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
        super().__init__()
        self.source_ids = source_ids
        self.target_ids = shift_right(labels, first_ids)
        self.writer = writer
        self.progress = progress
        self.source_pieces, self.pieces = (
            [tokenizer.visible_pieces(row[row != PAD_ID][:MOST_PIECES]) for row in ids]
            for tokenizer, ids in zip(tokenizers, (source_ids, labels), strict=True)
        )

    def on_epoch_end(self, epoch, logs=None):
        network = self.model.network
        with self.model.averaged():
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


def write_embedding(directory, matrix, tokenizer):
    """Writes the vectors of the first `MOST_PROJECTED` pieces, and the pieces as their labels.

    Args:
        directory: pathlib.Path of curves, where TensorBoard looks; made if it does not exist.
        matrix: float (V, D).
        tokenizer: the `Tokenizer` of its rows.
    """
    vectors = np.asarray(matrix)[:MOST_PROJECTED]
    labels = tokenizer.visible_pieces(np.arange(len(vectors), dtype=np.int32))
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add(
        tensor_name="embedding", tensor_path="embedding.tsv", metadata_path="embedding_pieces.tsv"
    )
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / embedding.tensor_path, lambda path: np.savetxt(path, vectors, fmt="%.5g", delimiter="\t"))
    write_whole(
        directory / embedding.metadata_path,
        lambda path: path.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8"),
    )
    projector.visualize_embeddings(str(directory), config)
