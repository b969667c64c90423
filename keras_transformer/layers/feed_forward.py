"""Position-wise feed-forward network (section 3.3)."""

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.linear import Linear


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2), the same at every position.

    Relative to the paper: dropout after the ReLU (`dropout_rate`), as in the authors' own code.

    Args:
        d_model: D, width in and out.
        d_ff: F, width between.
        dropout_rate: share of the inner activations dropped in training.

    Call arguments:
        x: (B, T, D).

    Returns:
        (B, T, D).
    """

    def __init__(self, d_model, d_ff, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.inner = Linear(d_ff, activation="relu", name="inner", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))

    def call(self, x, training=False):
        return self.outer(self.dropout(self.inner(x), training=training))

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout_rate": self.dropout_rate,
        }
