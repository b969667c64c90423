"""When training breaks: leave the batch out, go back to what was saved, and give up in the end."""

import math

import keras
import tensorflow as tf

from keras_transformer.training.callbacks import resumable_variables, total
from keras_transformer.training.checkpoints import load_last
from keras_transformer.training.strategy import seed_states

MOST_SKIPPED = 5  # updates in a row whose gradient is not finite
MOST_RETURNS = 3
EXPLODED = 2  # times the loss of a model that takes every token for equally likely, ln V


class DivergenceError(ValueError):
    """Training that breaks again and again; the message is one clear line."""


class Recover(keras.callbacks.Callback):
    """Says when an update was skipped, and takes the weights back to the last checkpoint when they are beyond hope.

    They are so when several gradients in a row were not finite (the optimizer skips such updates), and when the loss of
    an update is far above that of a guess. Data and dropout do not go back: training goes on with the batches that
    follow, and with the seeds that every replica has come to.

    Args:
        run: `RunDirectory`.
        progress: `Progress`.

    Raises:
        DivergenceError: when it would go back for the fourth time, or there is nothing to go back to.
    """

    def __init__(self, run, progress):
        super().__init__()
        self.run = run
        self.progress = progress
        self._returns = 0

    def set_model(self, model):
        super().set_model(model)
        metric = model.loss_metric
        self._read = tf.function(lambda: [total(metric.total), total(metric.count)], autograph=False)

    def on_epoch_begin(self, epoch, logs=None):
        self._loss, self._tokens = self._sums()

    def on_train_batch_end(self, batch, logs=None):
        loss, limit = self._loss_of_update(), EXPLODED * math.log(self.model.transformer.vocabulary_size)
        skipped = int(keras.ops.convert_to_numpy(self.model.optimizer.skipped))
        if skipped:
            print(f"\nskipped     update {self.progress.step:,}: its gradient is not finite", flush=True)
        if skipped >= MOST_SKIPPED:
            self._go_back(f"the gradients of {skipped} updates in a row are not finite")
        elif loss > limit:
            self._go_back(f"the loss has exploded to {loss:.1f}")

    def _go_back(self, reason):
        advice = "Try a lower --peak_learning_rate, more --warmup_steps or --precision float32, in another --model_dir"
        if not self.run.has_checkpoint():
            raise DivergenceError(f"update {self.progress.step:,}: {reason}, and nothing has been saved yet. {advice}")
        if self._returns == MOST_RETURNS:
            raise DivergenceError(f"update {self.progress.step:,}: {reason}, again. {advice}")
        self._returns += 1
        seeds = sum(seed_states(self.model.transformer.variables), [])
        drawn = [seed.numpy() for seed in seeds]
        saved = load_last(self.run, resumable_variables(self.model))
        for seed, state in zip(seeds, drawn, strict=True):
            seed.assign(state)
        print(f"\nwent back   to the weights of update {saved['step']:,}: {reason}", flush=True)

    def _loss_of_update(self):
        """The mean over its tokens; 0 if it had none that counted."""
        loss, tokens = self._loss, self._tokens
        self._loss, self._tokens = self._sums()
        return (self._loss - loss) / max(self._tokens - tokens, 1)

    def _sums(self):
        """Over the epoch so far: losses, and tokens."""
        return [float(value) for value in self._read()]
