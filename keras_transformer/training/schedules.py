"""The learning rate: linear warm-up, then the inverse square root of the step (section 5.3, equation 3)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """rate(n) = peak_rate * min(n / warmup_steps, sqrt(warmup_steps / n)), n counted from 1.

    Equation (3), d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5), is the same curve with the peak that
    `paper_peak_rate` gives.

    Args:
        peak_rate: the rate at n = warmup_steps.
        warmup_steps: updates of linear increase.
    """

    def __init__(self, peak_rate, warmup_steps):
        self.peak_rate = peak_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0  # Keras counts from 0, where the rate would be 0
        return self.peak_rate * ops.minimum(n / self.warmup_steps, ops.sqrt(self.warmup_steps / n))

    def get_config(self):
        return {"peak_rate": self.peak_rate, "warmup_steps": self.warmup_steps}


def paper_peak_rate(d_model, warmup_steps):
    """Where equation (3) peaks: (d_model * warmup_steps)^-0.5."""
    return (d_model * warmup_steps) ** -0.5
