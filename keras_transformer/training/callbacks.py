"""What happens during `fit` beside the updates: validation BLEU, checkpoints, TensorBoard, stopping."""

import time
from dataclasses import asdict

import keras
import tensorflow as tf

from keras_transformer.training.checkpoints import save_variables

SAMPLES = 5  # translations shown in TensorBoard


class CountSteps(keras.callbacks.Callback):
    """Counts updates in `progress`, and stops after the last one.

    The rest of an interrupted epoch goes on with the sums of its metrics, which Keras has reset.
    """

    def __init__(self, progress, plan):
        super().__init__()
        self.progress = progress
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        for variable in self.model.metrics_variables:
            if variable.path in self.progress.metrics:
                variable.assign(self.progress.metrics[variable.path])

    def on_train_batch_end(self, batch, logs=None):
        self.progress.step += 1
        if self.progress.step >= self.plan.last_step:
            self.model.stop_training = True


class ValidationBleu(keras.callbacks.Callback):
    """Translates validation sentences after every epoch and adds their BLEU to the logs, as `val_bleu`.

    Args:
        translate: function from a list of str to a list of str, with the weights being trained.
        score: function (translations, references) -> BLEU.
        pairs: list of (source, reference).
        writer: `EventWriter` for the samples.
        progress: `Progress`.
    """

    def __init__(self, translate, score, pairs, writer, progress):
        super().__init__()
        self.translate = translate
        self.score = score
        self.sources, self.references = map(list, zip(*pairs, strict=True))
        self.writer = writer
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        translations = self.translate(self.sources)
        logs["val_bleu"] = self.score(translations, self.references)
        rows = zip(self.sources[:SAMPLES], self.references, translations, strict=False)
        table = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        with self.writer.as_default(step=self.progress.step):
            tf.summary.text("samples", "\n".join(["| source | reference | translation |", "|---|---|---|", *table]))


class KeepWeights(keras.callbacks.Callback):
    """Keeps weights of some epochs: the last few, to average later, and the one that validated best.

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

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.transformer.weights
        save_variables(self.run.epoch(epoch + 1), weights)
        for old in self.run.epochs()[: -self.average_epochs]:
            old.unlink()
        value = logs["val_bleu"] if self.best_by == "bleu" else -logs["val_loss"]
        if value > self.progress.best:
            self.progress.best, self.progress.best_epoch = value, epoch + 1
            save_variables(self.run.best, weights)


class SaveState(keras.callbacks.Callback):
    """Saves all that a run goes on from, so that nothing is lost but what was done since.

    That is the state between two updates: every few minutes; when a signal asks the run to stop; after the last update
    of an epoch, so that nothing is unsaved while it is validated; and then with what came of that. It has to be the
    last of all callbacks.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.
        plan: `Plan`.
        minutes: between two saves within an epoch.
        signals: `HeldSignals`.
    """

    def __init__(self, run, progress, plan, minutes, signals):
        super().__init__()
        self.run = run
        self.progress = progress
        self.plan = plan
        self.seconds = 60 * minutes
        self.signals = signals
        self.saved_step, self._saved_at = progress.step, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        self.signals.hold()

    def on_train_batch_end(self, batch, logs=None):
        must_save = self.plan.ends_epoch(self.progress.step) or self.signals.arrived is not None
        if must_save or time.monotonic() - self._saved_at >= self.seconds:
            self.progress.metrics = {v.path: float(total(v)) for v in self.model.metrics_variables}
            self.save()
        if must_save:
            self.signals.release()

    def on_epoch_end(self, epoch, logs=None):
        self.progress.ended = self.progress.step
        if self.progress.step % self.plan.steps_per_epoch == 0:
            self.progress.metrics = {}
        self.save()
        if self.plan.is_over(self.progress):
            self.model.stop_training = True

    def save(self):
        """Writes last.npz."""
        save_variables(self.run.last, resumable_variables(self.model), asdict(self.progress), self.run.previous)
        self.saved_step, self._saved_at = self.progress.step, time.monotonic()


def resumable_variables(model):
    """Weights and dropout seeds, then the optimizer's variables."""
    return [*model.transformer.variables, *model.optimizer.variables]


def total(variable):
    """The value of a metric's variable, added up over the replicas."""
    return variable.value.read_value()


class TensorBoardCurves(keras.callbacks.Callback):
    """Writes loss, accuracy, perplexity, learning rate, tokens per second and validation BLEU for TensorBoard.

    Keras' own callback counts in epochs and knows neither tokens nor BLEU. Here the x-axis is the update. Target
    tokens per second also go to the progress bar.

    Args:
        writers: {"train": ..., "validation": ...}, `EventWriter`s.
        progress: `Progress`.
        every: updates between two points of the training curves.
    """

    def __init__(self, writers, progress, every=50):
        super().__init__()
        self.writers = writers
        self.progress = progress
        self.every = every

    def on_epoch_begin(self, epoch, logs=None):
        self._started, self._tokens = time.perf_counter(), self._counted_tokens()

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

    def _tokens_per_second(self):
        now, tokens = time.perf_counter(), self._counted_tokens()
        rate = (tokens - self._tokens) / (now - self._started)
        self._started, self._tokens = now, tokens
        return rate

    def _counted_tokens(self):
        return float(total(self.model.loss_metric.count))  # in this epoch
