"""What happens during `fit` beside the updates: counting, validation BLEU, checkpoints."""

import signal
import sys
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
        with self.model.averaged():
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
        with self.model.averaged():
            self._save(epoch + 1, logs["val_bleu"] if self.best_by == "bleu" else -logs["val_loss"])
        for old in self.run.epochs()[: -self.average_epochs]:
            old.unlink()

    def _save(self, epoch, value):
        save_variables(self.run.epoch(epoch), self.model.transformer.weights)
        if value > self.progress.best:
            self.progress.best, self.progress.best_epoch = value, epoch
            save_variables(self.run.best, self.model.transformer.weights)


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
        anywhere: function of bools that says which of them are true on any worker: what one has to do all do.
    """

    def __init__(self, run, progress, plan, minutes, signals, anywhere=lambda *flags: flags):
        super().__init__()
        self.run = run
        self.progress = progress
        self.plan = plan
        self.seconds = 60 * minutes
        self.signals = signals
        self.anywhere = anywhere
        self.saved_step, self._saved_at = progress.step, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        self.signals.hold()

    def on_train_batch_end(self, batch, logs=None):
        was_told = self.signals.arrived is not None
        is_due = time.monotonic() - self._saved_at >= self.seconds
        # Not after a skipped update: the weights may be what broke it, and those saved what one wants to go back to.
        is_due = is_due and not keras.ops.convert_to_numpy(self.model.optimizer.skipped)
        is_due, must_stop = self.anywhere(is_due, was_told)
        must_save = self.plan.ends_epoch(self.progress.step) or must_stop
        if must_save or is_due:
            self.progress.metrics = {v.path: float(total(v)) for v in self.model.metrics_variables}
            self.save()
        if must_save:
            self.signals.release()
        if must_stop and not was_told:  # by a signal that another worker got
            sys.exit(128 + signal.SIGTERM)

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
