"""The learning rate: linear warm-up (section 5.3, equation 3), then one of three ways down."""

import math

import keras
from keras import ops


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """The linear warm-up of every schedule. Here the rate stays at its peak.

    Args:
        peak_rate: the rate at n = warmup_steps.
        warmup_steps: updates of linear increase.
    """

    def __init__(self, peak_rate, warmup_steps):
        self.peak_rate = peak_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0  # Keras counts updates from 0, where the rate would be 0
        return self.peak_rate * ops.minimum(n / self.warmup_steps, self.fall(n))

    def fall(self, n):
        """The share of the peak after the warm-up; a subclass lets it fall from 1 at n = warmup_steps."""
        return ops.ones_like(n)

    def get_config(self):
        return {"peak_rate": self.peak_rate, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRoot(WarmUp):
    """The paper's schedule. With the peak that `paper_peak_rate` gives, it is equation (3).

    Args:
        peak_rate, warmup_steps: those of `WarmUp`.
    """

    def fall(self, n):
        return ops.sqrt(self.warmup_steps / n)


class ToTheEnd(WarmUp):
    """A schedule that knows the last update, after which the rate is 0.

    Args:
        peak_rate, warmup_steps: those of `WarmUp`.
        last_step: the last update; the rate falls with the share of the updates after the warm-up that are done.
    """

    def __init__(self, peak_rate, warmup_steps, last_step):
        super().__init__(peak_rate, warmup_steps)
        self.last_step = last_step

    def done(self, n):
        """The share (0 to 1) of the updates after the warm-up that are done before update n."""
        return ops.clip((n - self.warmup_steps) / max(1.0, self.last_step + 1 - self.warmup_steps), 0.0, 1.0)

    def get_config(self):
        return {**super().get_config(), "last_step": self.last_step}


@keras.saving.register_keras_serializable(package="keras_transformer")
class LinearDecay(ToTheEnd):
    """After the warm-up, the rate falls on a straight line and would reach 0 one update after the last."""

    def fall(self, n):
        return 1.0 - self.done(n)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CosineDecay(ToTheEnd):
    """After the warm-up, the rate falls along half a cosine (Loshchilov & Hutter 2017, without restarts)."""

    def fall(self, n):
        return 0.5 * (1.0 + ops.cos(math.pi * self.done(n)))


def make_schedule(name, peak_rate, warmup_steps, last_step):
    """The schedule of the setting `schedule`.

    Args:
        name: "inverse_square_root", "linear" or "cosine".
        peak_rate, warmup_steps: those of `WarmUp`.
        last_step: the last update of the run, at whose end "linear" and "cosine" reach 0.
    """
    if name == "inverse_square_root":
        return InverseSquareRoot(peak_rate, warmup_steps)
    return {"linear": LinearDecay, "cosine": CosineDecay}[name](peak_rate, warmup_steps, last_step)


def paper_peak_rate(d_model, warmup_steps):
    """The peak of equation (3), which the paper's schedule reaches at n = `warmup_steps`."""
    return (d_model * warmup_steps) ** -0.5
