"""How long a run is: the size of its batches, its warm-up, its epochs and its last update."""

import math
import sys
from dataclasses import dataclass, replace

import numpy as np

from keras_transformer.config import SUITED, Config
from keras_transformer.data.encoded import Share
from keras_transformer.data.pipeline import count_batches
from keras_transformer.errors import ConfigError, counted
from keras_transformer.training.schedules import paper_peak_rate

FEWEST_UPDATES, FEWEST_PAIRS = 100, 64  # of an epoch, and of a batch, if `batch_tokens` is not set
LONGEST_WARMUP = 10  # a warm-up is at most this part of a run, if `warmup_steps` is not set


@dataclass(frozen=True)
class Plan:
    """When epochs end, and the run.

    Args:
        steps_per_epoch: updates of every epoch.
        last_step: the last update of the run, which may be in the middle of an epoch.
        patience: epochs without a better validation measure after which the run ends early; None: it never does.
    """

    steps_per_epoch: int
    last_step: int
    patience: int | None = None

    def epoch(self, step):
        """The epoch of update `step`; both are counted from 1."""
        return math.ceil(step / self.steps_per_epoch)

    def ends_epoch(self, step):
        """Whether update `step` is the last one of its epoch, or of the run."""
        return step % self.steps_per_epoch == 0 or step >= self.last_step

    def has_lost_patience(self, progress):
        """Whether the best validation measure is older than `patience` epochs."""
        return self.patience is not None and self.epoch(progress.ended) - progress.best_epoch >= self.patience

    def describe(self, config):
        """The numbers of updates, for people. They say so if the run ends within its warm-up."""
        epochs = f"{counted(self.last_step, 'update')}, {self.steps_per_epoch:,} an epoch, of batches of at most "
        rate = f"learning rate {peak_rate(config, config.warmup_steps):.2g} after a warm-up of {config.warmup_steps:,}"
        text = f"{epochs}{config.batch_tokens:,} tokens; {rate}"
        if self.last_step <= config.warmup_steps:
            text += ". THE RUN ENDS WITHIN ITS WARM-UP and learns little: raise `epochs`, or lower `warmup_steps`"
        return text

    def describe_end(self, progress):
        """Why the run is over, for people."""
        epochs = f"update {progress.ended:,} in epoch {self.epoch(progress.ended)}"
        if progress.ended >= self.last_step:
            return f"the run has reached its last update, {epochs}"
        return f"the run has lost patience after {epochs}; the best one is {progress.best_epoch}"

    def is_over(self, progress):
        """Whether there is nothing left to train or to validate."""
        return progress.ended >= self.last_step or self.has_lost_patience(progress)


def as_before(config, run):
    """The config with the sizes, the rate and the tokenization of BLEU that a run in this directory began with.

    All stay as the user sets them. A run of an earlier version has another default of `tokenize`.

    Args:
        config: `Config`.
        run: `RunDirectory`.

    Returns:
        `Config`.
    """
    if not run.config.exists():
        return config
    before = Config.load(run.config)
    names = [name for name in SUITED if getattr(config, name) is None]
    names += ["tokenize"] if config.tokenize == "auto" else []
    return Config(**{**vars(config), **{name: getattr(before, name) for name in names}})


def peak_rate(config, warmup_steps):
    """The learning rate at the end of the warm-up: the config's, else the preset's, else that of equation (3)."""
    rate = config.peak_learning_rate or config.of_preset("peak_learning_rate")
    return rate or paper_peak_rate(config.d_model, warmup_steps)


def suited(config, data):
    """Chooses the sizes that the user has not set, so that a small corpus is learned as well.

    One rule: an epoch has about 100 updates or more, of about 64 pairs or more. So a small corpus gets smaller batches
    than `batch_tokens` of the preset, and an epoch passes over it several times if it has fewer pairs than that. The
    warm-up is that of the preset, but at most a tenth of the run, and does not change the peak of the learning rate.
    Smaller batches have gradients with more noise. So a peak that the user has not set falls with the square root of
    the size of a batch, as Adam needs it (Malladi et al. 2022).

    Args:
        config: `Config`.
        data: `Data`.

    Returns:
        `Config` with numbers for `batch_tokens`, `warmup_steps` and `peak_learning_rate`; and `Data` whose epochs take
        as many pairs as they need.
    """
    longest = config.warmup_steps or config.of_preset("warmup_steps")
    sizes = {"batch_tokens": config.batch_tokens or config.of_preset("batch_tokens"), "warmup_steps": longest}
    sizes["peak_learning_rate"] = peak_rate(config, longest)
    batches = FEWEST_UPDATES * config.accumulate_steps
    if config.batch_tokens is None and count_batches(data.train, sizes["batch_tokens"]) < batches:
        pairs = data.train
        passes = math.ceil(FEWEST_PAIRS * batches / len(pairs))
        shares = [Share(share.size, share.weight * passes) for share in pairs.shares or (Share(len(pairs)),)]
        data = replace(data, train=replace(pairs, shares=tuple(shares)))
        widths = np.maximum(*pairs.lengths)
        usual = sizes["batch_tokens"]
        sizes["batch_tokens"] = max(int(widths.max()), passes * int(widths.sum()) // batches)
        if config.peak_learning_rate is None:
            sizes["peak_learning_rate"] *= min(1, sizes["batch_tokens"] / usual) ** 0.5
    is_free, config = config.warmup_steps is None, Config(**{**vars(config), **sizes})
    if is_free:
        tenth = max(1, make_plan(config, data).last_step // LONGEST_WARMUP)
        config = Config(**{**vars(config), "warmup_steps": min(longest, tenth)})
    return config, data


def make_plan(config, data):
    """The `Plan` of a run, whose epochs are all of equal length: a pass over the corpus, or `validate_every` updates.

    If the batches of a pass over the corpus are no multiple of `accumulate_steps`, the last update of an epoch takes a
    few batches from the next pass.

    Raises:
        ConfigError: if the run ends before the profiler would start.
    """
    steps_per_pass = math.ceil(count_batches(data.train, config.batch_tokens) / config.accumulate_steps)
    last_step = min(config.epochs * steps_per_pass, config.max_steps or sys.maxsize)
    if config.profile and config.profiled_updates()[0] >= last_step:
        raise ConfigError(f"`profile` must start before the last update, {last_step:,}. Received: {config.profile}")
    return Plan(config.validate_every or steps_per_pass, last_step, config.patience)
