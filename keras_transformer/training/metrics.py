"""What is measured of every epoch, beside means per token."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp of the mean cross-entropy per real target token, without label smoothing."""

    def result(self):
        return ops.exp(super().result())
