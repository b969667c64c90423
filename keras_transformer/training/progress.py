"""Where a run stands, and where it ends."""

import math
from dataclasses import dataclass, field


@dataclass
class Progress:
    """Where a run stands; saved with every checkpoint."""

    step: int = 0  # updates so far
    ended: int = 0  # updates at the last end of an epoch, when it was validated
    best: float = -math.inf  # the best validation measure so far, larger is better
    best_epoch: int = 0
    metrics: dict = field(default_factory=dict)  # of the epoch under way: name of a metric's variable -> its value


@dataclass(frozen=True)
class Plan:
    """When epochs end, and the run.

    Args:
        steps_per_epoch: updates of every epoch.
        last_step: the update that the run ends with, be it in the middle of an epoch.
        patience: epochs without a better validation measure that end the run early; None for any number.
    """

    steps_per_epoch: int
    last_step: int
    patience: int | None = None

    def epoch(self, step):
        """The number, counted from 1, of the epoch that update `step`, counted from 1, is in."""
        return math.ceil(step / self.steps_per_epoch)

    def ends_epoch(self, step):
        """Whether update `step` is the last one of its epoch, or of the run."""
        return step % self.steps_per_epoch == 0 or step >= self.last_step

    def has_lost_patience(self, progress):
        """Whether the best validation measure is that of too many epochs ago."""
        return self.patience is not None and self.epoch(progress.ended) - progress.best_epoch >= self.patience

    def is_over(self, progress):
        """Whether there is nothing left to train or to validate."""
        return progress.ended >= self.last_step or self.has_lost_patience(progress)
