"""What happens during `fit` besides the updates: progress, signals, validation BLEU, checkpoints, recovery."""

import logging
import math
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

import keras
import tensorflow as tf

from keras_transformer.errors import DivergenceError
from keras_transformer.training.checkpoints import load_last, save_variables
from keras_transformer.training.strategy import seed_states

log = logging.getLogger(__name__)
SAMPLES, SAID = 5, 2  # translations shown in TensorBoard, and in the log
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nstopping after this update; once more to stop at once\n"
MOST_SKIPPED = 5  # updates in a row whose gradient is not finite
MOST_RETURNS = 3
EXPLODED = 2  # times the loss of a model to which every token is equally likely, ln V
EXAMINED = 10  # updates at a time: to read a value from a GPU, the program must wait until the GPU has no more work


@dataclass
class Progress:
    """How far a run has come; saved with every checkpoint."""

    step: int = 0  # updates so far
    ended: int = 0  # updates at the last end of an epoch, when it was validated
    best: float = -math.inf  # the best validation measure so far, larger is better
    best_epoch: int = 0
    metrics: dict = field(default_factory=dict)  # of the epoch under way: name of a metric's variable -> its value
    last_step: int = 0  # the last update of the run, as it was planned


class HeldSignals:
    """Holds SIGINT and SIGTERM between `hold` and `release`, and then delivers them as if they had just come.

    So the program decides what they do: KeyboardInterrupt, SystemExit or the end of the process. A second signal is
    delivered at once. Only the main thread receives signals; in any other thread nothing is held.

    Attributes:
        arrived: the signal held, or None.
    """

    def __init__(self):
        self.arrived = None
        self._handlers = {}

    def hold(self):
        """Holds signals from now on."""
        if not self._handlers and threading.current_thread() is threading.main_thread():
            heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._handlers = {number: signal.signal(number, self._note) for number in heeded}

    def release(self):
        """Delivers the held signal, if there is one. Later signals are delivered as they come."""
        self.restore()
        if self.arrived is not None:
            arrived, self.arrived = self.arrived, None
            signal.raise_signal(arrived)

    def restore(self):
        """Holds signals no longer, and delivers none that was held."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _note(self, number, frame):
        if self.arrived is not None:
            self.release()
        self.arrived = number
        os.write(2, NOTICE)  # not print: the signal may have interrupted a print


class CountSteps(keras.callbacks.Callback):
    """Counts updates in `progress`, and stops after the last one.

    Keras resets the metrics when `fit` begins. The rest of an interrupted epoch goes on with the saved sums.
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
        for source, translation in zip(self.sources[:SAID], translations, strict=False):
            log.info("%12s%s -> %s", "", source, translation)
        with self.writer.as_default(step=self.progress.step):
            rows = zip(self.sources[:SAMPLES], self.references, translations, strict=False)
            tf.summary.text("samples", table_of(rows))


class BleuOfDirections(keras.callbacks.Callback):
    """Translates validation sentences of every direction after every epoch, each with its target language.

    It adds the logs `val_bleu/NAME` and their mean, `val_bleu`. It writes a curve `bleu/NAME` for each direction.

    Args:
        directions: list of (name, translate, score, pairs), the last three as in `ValidationBleu`.
        writer, progress: see `ValidationBleu`.
    """

    def __init__(self, directions, writer, progress):
        super().__init__()
        self.directions = directions
        self.writer = writer
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        measures, rows = {}, []
        with self.model.averaged():
            for name, translate, score, pairs in self.directions:
                sources, references = map(list, zip(*pairs, strict=True))
                translations = translate(sources)
                measures[name] = score(translations, references)
                rows.append((sources[0], references[0], translations[0]))
                log.info("%12s%s: %s -> %s", "", name, sources[0], translations[0])
        logs.update({f"val_bleu/{name}": value for name, value in measures.items()})
        logs["val_bleu"] = sum(measures.values()) / len(measures)
        with self.writer.as_default(step=self.progress.step):
            tf.summary.text("samples", table_of(rows))
            for name, value in measures.items():
                tf.summary.scalar(f"bleu/{name}", value)


def table_of(samples):
    """A table in Markdown of (source, reference, translation)."""
    rows = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in samples]
    return "\n".join(["| source | reference | translation |", "|---|---|---|", *rows])


class MeasureOthers(keras.callbacks.Callback):
    """Measures the other corpora of a mixture after every epoch, as the first one is: loss, accuracy, perplexity, BLEU.

    It adds the logs `val_loss/NAME`, ..., and writes curves of these names.

    Args:
        others: list of (name, dataset of validation batches, number of batches, list of (source, reference)).
        translate, score, writer, progress: see `ValidationBleu`.
    """

    def __init__(self, others, translate, score, writer, progress):
        super().__init__()
        self.others = others
        self.translate = translate
        self.score = score
        self.writer = writer
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        for name, batches, steps, pairs in self.others:
            measures = self.model.evaluate(batches, steps=steps, return_dict=True, verbose=0)
            sources, references = map(list, zip(*pairs, strict=True))
            with self.model.averaged():
                measures["bleu"] = self.score(self.translate(sources), references)
            del measures["padding"]
            logs.update({f"val_{measure}/{name}": value for measure, value in measures.items()})
            with self.writer.as_default(step=self.progress.step):
                for measure, value in measures.items():
                    tf.summary.scalar(f"{measure}/{name}", value)


class KeepWeights(keras.callbacks.Callback):
    """Keeps the weights of the last few epochs, to average later, and of the epoch that validated best.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.
        average_epochs: so many epochs' weights are kept; None: those of a fifth of the epochs.
        patience: of the config. With patience, as many epochs around the best one are kept as well.
        best_by: "bleu" or "loss".
    """

    def __init__(self, run, progress, average_epochs, patience, best_by):
        super().__init__()
        self.run = run
        self.progress = progress
        self.average_epochs = average_epochs
        self.patience = patience
        self.best_by = best_by

    def on_epoch_end(self, epoch, logs=None):
        with self.model.averaged():
            self._save(epoch + 1, logs["val_bleu"] if self.best_by == "bleu" else -logs["val_loss"])
        kept = self.run.epochs_to_average(self.average_epochs)
        if self.patience:
            kept += self.run.epochs_to_average(self.average_epochs, self.progress.best_epoch)
        for old in set(self.run.epochs()) - set(kept):
            old.unlink()

    def _save(self, epoch, value):
        save_variables(self.run.epoch(epoch), self.model.network.weights)
        # A BLEU of 0 compares nothing: no four words in a row are right yet. So patience does not count its epochs.
        if value > self.progress.best or value == self.progress.best == 0:
            self.progress.best, self.progress.best_epoch = value, epoch
            save_variables(self.run.best, self.model.network.weights)


class SaveState(keras.callbacks.Callback):
    """Saves the state that a run resumes from. An interruption loses only the updates since the last save.

    It saves between two updates: every few minutes; when a signal asks the run to stop; after the last update of an
    epoch, before it is validated; and again after the validation. It must be the last of all callbacks.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.
        plan: `Plan`.
        minutes: between two saves within an epoch.
        signals: `HeldSignals`.
        examine: `Recover.examine`, called before every save within an epoch, so that no broken weights are saved.
        anywhere: function of bools that returns which of them are true on any worker, so that all do the same.
    """

    def __init__(self, run, progress, plan, minutes, signals, examine, anywhere=lambda *flags: flags):
        super().__init__()
        self.run = run
        self.progress = progress
        self.plan = plan
        self.seconds = 60 * minutes
        self.signals = signals
        self.examine = examine
        self.anywhere = anywhere
        self.saved_step, self._saved_at = progress.step, time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        self.signals.hold()

    def on_train_batch_end(self, batch, logs=None):
        was_told = self.signals.arrived is not None
        is_due = time.monotonic() - self._saved_at >= self.seconds
        # Not after a skipped update: if the weights broke it, the run must be able to go back to the saved ones.
        is_due = is_due and not keras.ops.convert_to_numpy(self.model.updates.skipped)
        is_due, must_stop = self.anywhere(is_due, was_told)
        must_save = self.plan.ends_epoch(self.progress.step) or must_stop
        if must_save or is_due:
            self.examine()
            self.progress.metrics = {v.path: float(total(v)) for v in self.model.metrics_variables}
            self.save()
        if must_save:
            self.signals.release()
        if must_stop and not was_told:  # another worker got the signal
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
        save_variables(self.run.last, self.model.resumable_variables, asdict(self.progress), self.run.previous)
        self.saved_step, self._saved_at = self.progress.step, time.monotonic()


def total(variable):
    """The value of a metric's variable, added up over the replicas."""
    return variable.value.read_value()


class Recover(keras.callbacks.Callback):
    """Reports skipped updates, and takes the weights back to the last checkpoint when training has broken.

    Training has broken when several gradients in a row are not finite (`Updates` skips them), or when the loss of an
    update is far above that of a guess. Only weights and moments go back. Training goes on with the next batches, the
    present seeds of every replica and the learning rate of the next update: `Progress.step` and the optimizer count the
    same updates.

    The figures of an update stay on the device until `examine` reads those of several updates at once.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.

    Raises:
        DivergenceError: when it would go back for the fourth time, or there is no checkpoint to go back to.
    """

    def __init__(self, run, progress):
        super().__init__()
        self.run = run
        self.progress = progress
        self._returns = 0
        self._unread = []  # (update, tensors of `_read` after it)

    def set_model(self, model):
        super().set_model(model)
        metric, skipped = model.loss_metric, model.updates.skipped
        self._read = tf.function(
            lambda: (total(metric.total), total(metric.count), tf.convert_to_tensor(skipped)), autograph=False
        )
        self._limit = EXPLODED * math.log(model.network.output_matrix.shape[0])

    def on_epoch_begin(self, epoch, logs=None):
        self._loss, self._tokens, _ = map(float, self._read())  # sums over the epoch so far

    def on_train_batch_end(self, batch, logs=None):
        self._unread.append((self.progress.step, self._read()))
        if self.progress.step % EXAMINED == 0:
            self.examine()

    def examine(self):
        """Reads the figures of all updates since the last call, and goes back if one of these updates has broken it."""
        unread, self._unread = self._unread, []
        for step, figures in unread:
            loss, tokens, skipped = map(float, figures)
            mean = (loss - self._loss) / max(tokens - self._tokens, 1)  # of this update; 0 if it was skipped
            self._loss, self._tokens = loss, tokens
            if skipped:
                log.warning("skipped     update %s: its gradient is not finite", f"{step:,}")
            if skipped >= MOST_SKIPPED:
                return self._go_back(step, f"the gradients of {skipped:.0f} updates in a row are not finite")
            if mean > self._limit:
                return self._go_back(step, f"the loss has exploded to {mean:.1f}")

    def _go_back(self, step, reason):
        advice = "Try a lower `peak_learning_rate`, more `warmup_steps` or `precision` float32, in another `model_dir`"
        if not self.run.has_checkpoint():
            raise DivergenceError(f"update {step:,}: {reason}, and nothing has been saved yet. {advice}")
        if self._returns == MOST_RETURNS:
            raise DivergenceError(f"update {step:,}: {reason}, again. {advice}")
        self._returns += 1
        seeds = sum(seed_states(self.model.seeds), [])
        drawn = [seed.numpy() for seed in seeds]
        saved = load_last(self.run, self.model.resumable_variables)
        for seed, state in zip(seeds, drawn, strict=True):
            seed.assign(state)
        self.model.optimizer.iterations.assign(self.progress.step)
        self._loss, self._tokens, _ = map(float, self._read())  # of the updates after this one, too
        log.warning("went back   to the weights of update %s: %s", f"{saved['step']:,}", reason)
