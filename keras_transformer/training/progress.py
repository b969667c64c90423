"""What a person sees of a training: a bar on a terminal or in a notebook, else a line now and then; a line an epoch."""

import logging
import sys
import time

import keras
from tqdm import tqdm

log = logging.getLogger(__name__)
SECONDS_BETWEEN_READINGS = 1  # of the measures on a bar: see `EXAMINED` of callbacks.py
SECONDS_BETWEEN_LINES = 30
MEASURES = {
    "loss": "loss {:.3f}",
    "accuracy": "accuracy {:.1%}",
    "perplexity": "perplexity {:.2f}",
    "bleu": "BLEU {:.1f}",
}


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
        self.progress = progress
        self.plan = plan
        self._bar = None

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
    speed = f", {logs['tokens/s']:,.0f} tokens/s" if "tokens/s" in logs else ""
    return f"loss {logs['loss']:.3f}{speed}"


def _measures(logs, prefix, suffix=""):
    found = {name: logs.get(f"{prefix}{name}{suffix}") for name in MEASURES}
    return ", ".join(text.format(found[name]) for name, text in MEASURES.items() if found[name] is not None)
