"""What happens during `fit` besides the updates: progress, validation, curves, checkpoints, signals, recovery.

`watched` makes the callbacks of a run, in the order in which Keras calls them.
"""

import contextlib
import functools
import logging
import math
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, fields

import keras
import tensorflow as tf
from tqdm import tqdm

from keras_transformer.data.pipeline import count_batches
from keras_transformer.errors import CheckpointError, DivergenceError, FileError
from keras_transformer.training.checkpoints import load_last, save_variables
from keras_transformer.training.teacher_forcing import seed_states
from keras_transformer.training.tensorboard import Board
from keras_transformer.training.validation import measures_of

log = logging.getLogger(__name__)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nstopping after this update; once more to stop at once\n"
MOST_SKIPPED = 5  # updates in a row whose gradient is not finite
MOST_RETURNS = 3
EXPLODED = 2  # times the loss of a model to which every token is equally likely, ln V
EXAMINED = 10  # updates at a time: to read a value from a GPU, the program must wait until the GPU has no more work
SECONDS_BETWEEN_READINGS = 1  # of the measures on a bar: see `EXAMINED`
SECONDS_BETWEEN_LINES = 30
MEASURES = {
    "loss": "loss {:.3f}",
    "accuracy": "accuracy {:.1%}",
    "perplexity": "perplexity {:.2f}",
    "bleu": "BLEU {:.1f}",
}


@dataclass
class Progress:
    """How far a run has come; saved with every checkpoint."""

    step: int = 0  # updates so far
    ended: int = 0  # updates at the last end of an epoch, when it was validated
    best: float = -math.inf  # the best validation measure so far, larger is better
    best_epoch: int = 0
    metrics: dict = field(default_factory=dict)  # of the epoch under way: name of a metric's variable -> its value

    @classmethod
    def of(cls, saved):
        """From the dict in a checkpoint. Those of earlier versions have more in it."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})


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
        self.progress, self.plan = progress, plan

    def on_epoch_begin(self, epoch, logs=None):
        for variable in self.model.metrics_variables:
            if variable.path in self.progress.metrics:
                variable.assign(self.progress.metrics[variable.path])

    def on_train_batch_end(self, batch, logs=None):
        self.progress.step += 1
        if self.progress.step >= self.plan.last_step:
            self.model.stop_training = True


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
        self.run, self.progress, self.average_epochs = run, progress, average_epochs
        self.patience, self.best_by = patience, best_by

    def on_epoch_end(self, epoch, logs=None):
        with self.model.averaged():
            self._save(epoch + 1, logs["val_bleu"] if self.best_by == "bleu" else -logs["val_loss"])
        kept = self.run.epochs_to_average(self.average_epochs)
        if self.patience:
            kept += self.run.epochs_to_average(self.average_epochs, self.progress.best_epoch)
        for old in set(self.run.epochs()) - set(kept):
            old.unlink()

    def _save(self, epoch, value):
        save_variables(self.run.epoch(epoch), self.model.network.trainable_weights)
        # A BLEU of 0 compares nothing: no four words in a row are right yet. So patience does not count its epochs.
        if value > self.progress.best or value == self.progress.best == 0:
            self.progress.best, self.progress.best_epoch = value, epoch
            save_variables(self.run.best, self.model.network.trainable_weights)


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
        self.run, self.progress, self.plan = run, progress, plan
        self.signals, self.examine, self.anywhere = signals, examine, anywhere
        self.seconds = 60 * minutes
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
        progress = {**asdict(self.progress), "has_decisions": True}  # in resolved.yaml, which a run needs to go on
        save_variables(self.run.last, self.model.resumable_variables, progress, self.run.previous)
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
        self.run, self.progress = run, progress
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


def is_watched():
    """Whether a bar can be drawn: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class ShowProgress(keras.callbacks.Callback):
    """Shows how far the epoch under way is, and the measures of every epoch at its end.

    Without a terminal, a carriage return would not take a line back: then a line every half minute takes the place of
    the bar.

    Args:
        progress: `Progress`.
        plan: `Plan`.
    """

    def __init__(self, progress, plan):
        super().__init__()
        self.progress, self.plan, self._bar = progress, plan, None

    def on_epoch_begin(self, epoch, logs=None):
        self._name = f"epoch {epoch + 1}/{self.plan.epoch(self.plan.last_step)}"
        first = epoch * self.plan.steps_per_epoch
        self._steps = min(self.plan.steps_per_epoch, self.plan.last_step - first)
        self._done = self.progress.step - first
        self._started = self._updated = self._said = time.monotonic()
        if is_watched():
            in_notebook = not sys.stderr.isatty()  # its log is seldom shown: the bars stay
            self._bar = tqdm(
                total=self._steps, initial=self._done, desc=self._name, unit=" updates", leave=in_notebook, delay=0.5
            )

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        self._updated = time.monotonic()
        if self._bar is not None:
            if self._updated - self._said >= SECONDS_BETWEEN_READINGS:
                self._said = self._updated
                self._bar.set_postfix_str(_now(logs), refresh=False)
            self._bar.update()
        elif self._updated - self._said >= SECONDS_BETWEEN_LINES:
            self._said = self._updated
            log.info("%-12supdate %d of %d, %s", self._name, self._done, self._steps, _now(logs))

    def on_epoch_end(self, epoch, logs=None):
        self.close()
        trained, validated = self._updated - self._started, time.monotonic() - self._updated
        train, validation = _measures(logs, ""), _measures(logs, "val_")
        log.info("%-12s%s; validation: %s; %.0f s and %.0f s", self._name, train, validation, trained, validated)
        for other in dict.fromkeys(name.partition("/")[2] for name in logs if name.startswith("val_") and "/" in name):
            log.info("            %s: %s", other, _measures(logs, "val_", f"/{other}"))

    def close(self):
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _now(logs):
    return f"loss {logs['loss']:.3f}" + (f", {logs['tokens/s']:,.0f} tokens/s" if "tokens/s" in logs else "")


def _measures(logs, prefix, suffix=""):
    found = {name: logs.get(f"{prefix}{name}{suffix}") for name in MEASURES}
    return ", ".join(text.format(found[name]) for name, text in MEASURES.items() if found[name] is not None)


class Curves(keras.callbacks.Callback):
    """Writes loss, accuracy, perplexity, learning rate, tokens, padding, memory and validation BLEU for TensorBoard.

    The callback of Keras counts in epochs and knows neither tokens nor BLEU. Here the x-axis is the update. The
    progress bar shows the target tokens per second as well.

    Args:
        board: function without arguments that gives the `Board`. The first point opens it.
        progress: `Progress`.
        tokens_per_epoch: real target tokens of an epoch.
        every: updates between two points of the training curves.
    """

    def __init__(self, board, progress, tokens_per_epoch, every=50):
        super().__init__()
        self.board, self.progress = board, progress
        self.tokens_per_epoch, self.every = tokens_per_epoch, every
        self._rate = {}  # of the last point, as a log

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._started = epoch, None

    def on_train_batch_begin(self, batch, logs=None):
        if self._started is None:  # not in on_epoch_begin: a resumed epoch starts with tokens already counted
            self._started, self._tokens = time.perf_counter(), self._tokens_of_epoch()

    def on_train_batch_end(self, batch, logs=None):
        if self.progress.step % self.every == 0:
            board, now, tokens = self.board(), time.perf_counter(), self._tokens_of_epoch()
            self._rate = {"tokens/s": (tokens - self._tokens) / (now - self._started)}
            self._started, self._tokens = now, tokens
            seen = self._epoch * self.tokens_per_epoch + tokens
            board.write_point(self.progress.step, self.model, logs, self._rate["tokens/s"], seen)
        logs.update(self._rate)  # after every update, because every epoch has a new progress bar

    def on_epoch_end(self, epoch, logs=None):
        self.board().write_validation(self.progress.step, logs)

    def _tokens_of_epoch(self):
        return float(total(self.model.loss_metric.count))


@contextlib.contextmanager
def watched(config, run, data, trainer, plan, progress, group, judge):
    """A context that gives the callbacks of a run, in the order in which Keras calls them.

    SIGINT and SIGTERM wait until the update under way is done and saved. A line of the log then says so.

    Args:
        config: `Config`, as decided.
        run: `RunDirectory`.
        data: `Data`.
        trainer: compiled `TeacherForcing`.
        plan: `Plan`.
        progress: `Progress`.
        group: `Alone` or `Workers`.
        judge: `Judge`.

    Raises:
        CheckpointError: if something cannot be written.
    """
    facts = {**vars(config), "dataset": ", ".join(config.corpora), **run.read_decided()}
    board = functools.cache(functools.partial(Board, run.logs, progress.step, progress.ended, facts))

    @functools.cache
    def measures():  # called at the first validation: a translator takes seconds to make
        return measures_of(config, run, data, trainer, group, judge, board(), progress)

    def validate(epoch, logs):
        for measure in measures():
            measure(trainer, logs)

    signals, shown, recover = HeldSignals(), ShowProgress(progress, plan), Recover(run, progress)
    save = SaveState(run, progress, plan, config.save_minutes, signals, recover.examine, group.anywhere)
    callbacks = [
        CountSteps(progress, plan),  # first: the others read the number of the update
        recover,  # before weights are measured or saved, which it may take back
        keras.callbacks.LambdaCallback(on_epoch_end=validate),  # it adds val_bleu, and measures to show
        Curves(board, progress, tokens_per_epoch(data, config, plan), points_every(plan)),  # adds a speed
        KeepWeights(run, progress, config.average_epochs, config.patience, config.best_by),  # reads val_bleu
        shown,  # after the callbacks that add to the logs
        save,  # last: it saves what the others have noted in `progress`, and then lets held signals through
    ]
    try:
        yield callbacks
        board().close()
    except (KeyboardInterrupt, SystemExit, tf.errors.OpError):  # OpError: another worker is lost
        log.info(
            "stopped     update %s of %s is saved; the same command goes on from there",
            f"{save.saved_step:,}",
            f"{plan.last_step:,}",
        )
        raise
    except FileError as error:
        raise CheckpointError(f"{error}. The same command goes on after update {save.saved_step:,}") from error
    finally:
        shown.close()
        signals.restore()


def tokens_per_epoch(data, config, plan):
    """Real target tokens of an epoch, on average."""
    batches = plan.steps_per_epoch * config.accumulate_steps
    return data.train.tokens_per_epoch * batches / count_batches(data.train, config.batch_tokens)


def points_every(plan):
    """Updates between two points of the training curves: a short run has 20 points, too."""
    return min(50, max(1, plan.last_step // 20))
