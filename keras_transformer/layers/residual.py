"""What surrounds every sub-layer: residual connection, dropout and layer normalisation (3.1, 5.4).

A sub-layer is always called the same way, `x = residual(x, sublayer(residual.enter(x)))`; where the normalisation
stands is the difference between the two classes.
"""

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.normalization import LayerNormalization


class Residual(keras.layers.Layer):
    """The parts that `PostNorm` and `PreNorm` share.

    Args:
        dropout_rate: P_drop, applied to the sub-layer's output.

    Call arguments:
        x: (B, T, D), what went into `enter`.
        update: (B, T, D), what came out of the sub-layer.

    Returns:
        (B, T, D).
    """

    def __init__(self, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)
        self.norm = LayerNormalization(name="norm", dtype=self.dtype_policy)

    def build(self, x_shape, update_shape=None):
        self.norm.build(x_shape)

    def get_config(self):
        return {**super().get_config(), "dropout_rate": self.dropout_rate}


@keras.saving.register_keras_serializable(package="keras_transformer")
class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))), as in the paper (3.1)."""

    def enter(self, x):
        """What the sub-layer is given: x itself."""
        return x

    def call(self, x, update, training=False):
        return self.norm(x + self.dropout(update, training=training))


@keras.saving.register_keras_serializable(package="keras_transformer")
class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))).

    Relative to the paper: gradients pass the residual path without a normalisation, so that training is steadier at
    high learning rates (Xiong et al. 2020). A stack of these ends with one more LayerNorm.
    """

    def enter(self, x):
        """What the sub-layer is given: x normalised."""
        return self.norm(x)

    def call(self, x, update, training=False):
        return x + self.dropout(update, training=training)
