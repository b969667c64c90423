"""Dropout (section 5.4) that draws one random byte per activation instead of one random float."""

import keras
from keras import ops

LEVELS = 256  # of one random byte


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Layer):
    """Sets a random share of the activations to zero and scales the others up, in training only.

    Relative to `keras.layers.Dropout`: drawing random numbers is a good part of a small model's training step on CPU,
    and four bytes cost as much as one float. The rate is therefore rounded to a multiple of 1/256; the scale is that
    of the rounded rate, so that the expectation is exact.

    Args:
        rate: share of the activations dropped, in [0, 1).

    Call arguments:
        x: any shape.

    Returns:
        The shape and dtype of x.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self.dropped_levels = min(round(rate * LEVELS), LEVELS - 1)
        self.seed_generator = keras.random.SeedGenerator(seed, name="seed_generator")

    def build(self, input_shape):
        """No weights."""

    def call(self, x, training=False):
        if not training or self.dropped_levels == 0:
            return x
        size = ops.size(x)
        words = keras.random.randint((size // 64 + 1, 16), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator)
        random_bytes = ops.reshape(ops.view(words, "uint8"), (-1,))[:size]
        random_bytes = ops.reshape(random_bytes, ops.shape(x))
        scale = LEVELS / (LEVELS - self.dropped_levels)
        return x * ops.where(random_bytes >= self.dropped_levels, ops.cast(scale, x.dtype), ops.cast(0.0, x.dtype))

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
