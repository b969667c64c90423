"""What happens during `fit` beside the updates: counting, validation BLEU, checkpoints."""

import math
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
