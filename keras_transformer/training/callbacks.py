"""What happens during `fit` beside the updates: validation BLEU, checkpoints, TensorBoard, stopping."""

import math
import time
from dataclasses import asdict, dataclass

import keras
import tensorflow as tf

from keras_transformer.training.checkpoints import save_variables

SAMPLES = 5  # translations shown in TensorBoard


@dataclass
class Progress:
    """Where a run stands; saved with every checkpoint."""

    step: int = 0  # updates so far
    best: float = -math.inf  # the best validation measure so far, larger is better
    best_epoch: int = 0


class CountSteps(keras.callbacks.Callback):
    """Counts updates in `progress`, and stops after `max_steps` of them."""

    def __init__(self, progress, max_steps):
        super().__init__()
        self.progress = progress
        self.max_steps = max_steps

    def on_train_batch_end(self, batch, logs=None):
        self.progress.step += 1
        if self.progress.step >= self.max_steps:
            self.model.stop_training = True


class ValidationBleu(keras.callbacks.Callback):
    """Translates validation sentences after every epoch and adds their BLEU to the logs, as `val_bleu`.

    Args:
        translate: function from a list of str to a list of str, with the weights being trained.
        score: function (translations, references) -> BLEU.
        pairs: list of (source, reference).
        writer: tf.summary writer for the samples.
    """

    def __init__(self, translate, score, pairs, writer):
        super().__init__()
        self.translate = translate
        self.score = score
        self.sources, self.references = map(list, zip(*pairs, strict=True))
        self.writer = writer

    def on_epoch_end(self, epoch, logs=None):
        translations = self.translate(self.sources)
        logs["val_bleu"] = self.score(translations, self.references)
        rows = zip(self.sources[:SAMPLES], self.references, translations, strict=False)
        table = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        with self.writer.as_default(step=epoch + 1):
            tf.summary.text("samples", "\n".join(["| source | reference | translation |", "|---|---|---|", *table]))


class KeepCheckpoints(keras.callbacks.Callback):
    """Saves after every epoch: all state to go on from, the weights to average later, and the best ones.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.
        average_epochs: so many epochs' weights are kept.
        best_by: "bleu" or "loss".
    """

    def __init__(self, run, progress, average_epochs, best_by):
        super().__init__()
        self.run = run
        self.progress = progress
        self.average_epochs = average_epochs
        self.best_by = best_by

    def save_state(self):
        """Writes last.npz."""
        save_variables(self.run.last, resumable_variables(self.model), asdict(self.progress))

    def save_epoch(self, number, trainer):
        """Writes the weights after epoch `number`, counted from 1, and removes those that are no longer needed."""
        save_variables(self.run.epoch(number), trainer.transformer.weights)
        for old in self.run.epochs()[: -self.average_epochs]:
            old.unlink()

    def on_epoch_end(self, epoch, logs=None):
        self.save_epoch(epoch + 1, self.model)
        value = logs["val_bleu"] if self.best_by == "bleu" else -logs["val_loss"]
        if value > self.progress.best:
            self.progress.best, self.progress.best_epoch = value, epoch + 1
            save_variables(self.run.best, self.model.transformer.weights)
        self.save_state()


def resumable_variables(model):
    """Weights and dropout seeds, then the optimizer's variables."""
    return [*model.transformer.variables, *model.optimizer.variables]


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes loss, accuracy, perplexity, learning rate, tokens per second and validation BLEU for TensorBoard.

    Keras' own callback counts in epochs and knows neither tokens nor BLEU. Here the x-axis is the update. Target
    tokens per second also go to the progress bar.

    Args:
        writers: {"train": ..., "validation": ...}, tf.summary writers.
        progress: `Progress`.
        every: updates between two points of the training curves.
    """

    def __init__(self, writers, progress, every=50):
        super().__init__()
        self.writers = writers
        self.progress = progress
        self.every = every

    def on_epoch_begin(self, epoch, logs=None):
        self._started, self._tokens = time.perf_counter(), 0.0

    def on_train_batch_end(self, batch, logs=None):
        if self.progress.step % self.every:
            return
        rate = self._tokens_per_second()
        logs["tokens/s"] = rate
        with self.writers["train"].as_default(step=self.progress.step):
            tf.summary.scalar("target_tokens_per_second", rate)
            tf.summary.scalar("learning_rate", self.model.optimizer.learning_rate)
            # Over all replicas: the logs of a step are those of the first one alone.
            for name, value in self.model.get_metrics_result().items():
                tf.summary.scalar(name, value)

    def on_epoch_end(self, epoch, logs=None):
        with self.writers["validation"].as_default(step=self.progress.step):
            for name in ("loss", "accuracy", "perplexity", "bleu"):
                tf.summary.scalar(name, logs[f"val_{name}"])
        for writer in self.writers.values():
            writer.flush()

    def _tokens_per_second(self):
        # Since the epoch began; `read_value` adds up the replicas.
        now, tokens = time.perf_counter(), float(self.model.loss_metric.count.value.read_value())
        rate = (tokens - self._tokens) / (now - self._started)
        self._started, self._tokens = now, tokens
        return rate
