"""What TensorBoard shows of a run: curves, hyper-parameters, and a profile on request."""

import time

import keras
import psutil
import tensorflow as tf
from tensorboard.plugins.hparams import api as hp

from keras_transformer.training.callbacks import total

HPARAMS = ".hparams"  # what the name of the event file of the hyper-parameters ends with


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes loss, accuracy, perplexity, learning rate, tokens, padding, memory and validation BLEU for TensorBoard.

    Keras' own callback counts in epochs and knows neither tokens nor BLEU. Here the x-axis is the update. Target
    tokens per second also go to the progress bar.

    Args:
        writers: {"train": ..., "validation": ...}, `EventWriter`s.
        progress: `Progress`.
        tokens_per_epoch: real target tokens of the corpus.
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
        if self._started is None:  # not before: a resumed epoch may begin with tokens counted earlier
            self._started, self._tokens = time.perf_counter(), self._tokens_of_epoch()

    def on_train_batch_end(self, batch, logs=None):
        if self.progress.step % self.every == 0:
            self._write_point(logs)
        logs.update(self._rate)  # in all updates: every epoch has a new progress bar

    def on_epoch_end(self, epoch, logs=None):
        with self.writers["validation"].as_default(step=self.progress.step):
            for name in ("loss", "accuracy", "perplexity", "bleu"):
                tf.summary.scalar(name, logs[f"val_{name}"])

    def _write_point(self, logs):
        now, tokens = time.perf_counter(), self._tokens_of_epoch()
        self._rate = {"tokens/s": (tokens - self._tokens) / (now - self._started)}
        self._started, self._tokens = now, tokens
        with self.writers["train"].as_default(step=self.progress.step):
            tf.summary.scalar("target_tokens_per_second", self._rate["tokens/s"])
            tf.summary.scalar("target_tokens_seen", self._epoch * self.tokens_per_epoch + tokens)
            tf.summary.scalar("learning_rate", self.model.optimizer.learning_rate)
            tf.summary.scalar("gradient_norm", self.model.optimizer.gradient_norm)
            for name, value in logs.items():
                tf.summary.scalar(name, value)
            for name, mebibytes in memory().items():
                tf.summary.scalar(f"memory/{name}_mib", mebibytes)

    def _tokens_of_epoch(self):
        return float(total(self.model.loss_metric.count))


def memory():
    """MiB that this process takes, a dict: what is resident, and the most that was allocated on each GPU so far."""
    gpus = [f"GPU:{i}" for i in range(len(tf.config.list_logical_devices("GPU")))]
    peaks = {gpu.replace(":", "_").lower(): tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus}
    return {name: size / 2**20 for name, size in {"resident": psutil.Process().memory_info().rss, **peaks}.items()}


def write_hyper_parameters(directory, settings):
    """Writes the settings of a run for TensorBoard's HParams tab, in place of those that it began with.

    The tab shows them beside the latest points of the curves in the same directory. To be called before these are
    written: TensorBoard goes through files by age, and a file followed by a younger one is finished to it.

    Args:
        directory: pathlib.Path, that of the validation curves.
        settings: dict; those that are None are left out.
    """
    for old in directory.glob(f"*{HPARAMS}"):  # of several, TensorBoard would show the first
        old.unlink()
    writer = tf.summary.create_file_writer(str(directory), filename_suffix=HPARAMS)
    with writer.as_default():
        hp.hparams({name: value for name, value in settings.items() if value is not None})
    writer.close()


class Profile(keras.callbacks.Callback):
    """Runs TensorFlow's profiler between two updates, for TensorBoard's Profile tab.

    A profile under way when training is interrupted is lost.

    Args:
        directory: where it is written.
        progress: `Progress`.
        start: updates after which the profiler starts; at once, if more have been made already.
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
