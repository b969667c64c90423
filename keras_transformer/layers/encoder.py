"""The encoder: the left half of Figure 1 (section 3.1)."""

import keras

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.residual import PostNorm, PreNorm

LAYER_ARGUMENTS = (
    "d_model",
    "num_heads",
    "d_ff",
    "dropout_rate",
    "attention_dropout_rate",
    "feed_forward_dropout_rate",
    "pre_norm",
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(keras.layers.Layer):
    """Self-attention, then feed-forward, each inside a residual connection (section 3.1).

    Args:
        d_model: D.
        num_heads: H.
        d_ff: F.
        dropout_rate: P_drop of the residual connections.
        attention_dropout_rate: dropout of the attention weights.
        feed_forward_dropout_rate: dropout inside the feed-forward network.
        pre_norm: normalise before each sub-layer rather than after it, as the paper does.

    Call arguments:
        x: (B, S, D).
        attention_mask: bool, broadcastable to (B, H, S, S); True = may attend.

    Returns:
        (B, S, D).
    """

    def __init__(
        self,
        d_model,
        num_heads,
        d_ff,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        feed_forward_dropout_rate=0.0,
        pre_norm=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.feed_forward_dropout_rate = feed_forward_dropout_rate
        self.pre_norm = pre_norm
        dtype = self.dtype_policy
        residual = PreNorm if pre_norm else PostNorm
        self.self_attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout_rate, name="self_attention", dtype=dtype
        )
        self.self_attention_residual = residual(dropout_rate, name="self_attention_residual", dtype=dtype)
        self.feed_forward = FeedForward(d_model, d_ff, feed_forward_dropout_rate, name="feed_forward", dtype=dtype)
        self.feed_forward_residual = residual(dropout_rate, name="feed_forward_residual", dtype=dtype)

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(self, x, attention_mask=None, training=False):
        h = self.self_attention_residual.enter(x)
        h = self.self_attention(h, h, attention_mask=attention_mask, training=training)
        x = self.self_attention_residual(x, h, training=training)

        h = self.feed_forward_residual.enter(x)
        h = self.feed_forward(h, training=training)
        return self.feed_forward_residual(x, h, training=training)

    def get_config(self):
        return {**super().get_config(), **{name: getattr(self, name) for name in LAYER_ARGUMENTS}}


class Stack(keras.layers.Layer):
    """N identical layers on top of each other; what `Encoder` and `Decoder` share.

    Relative to the paper: a stack of pre-norm layers ends with one more LayerNorm, since what leaves its last layer
    has passed none.

    Args:
        num_layers: N.
        **kwargs: the arguments of the layers (see `EncoderLayer`), and those of any Keras layer.
    """

    layer_class = EncoderLayer

    def __init__(self, num_layers, **kwargs):
        arguments = {name: kwargs.pop(name) for name in LAYER_ARGUMENTS if name in kwargs}
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.layers = [
            self.layer_class(**arguments, name=f"layer_{i}", dtype=self.dtype_policy) for i in range(num_layers)
        ]
        self.norm = keras.layers.Identity(name="norm", dtype=self.dtype_policy)
        if self.layers[0].pre_norm:
            self.norm = LayerNormalization(name="norm", dtype=self.dtype_policy)

    def build(self, x_shape):
        for layer in self.layers:
            layer.build(x_shape)
        self.norm.build(x_shape)

    def get_config(self):
        first = self.layers[0]
        arguments = {name: getattr(first, name) for name in LAYER_ARGUMENTS}
        return {**super().get_config(), "num_layers": self.num_layers, **arguments}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """N encoder layers (section 3.1, left half of Figure 1). Arguments: see `Stack`.

    Call arguments:
        x: (B, S, D), embedded source with positions.
        attention_mask: bool, broadcastable to (B, H, S, S); True = may attend.

    Returns:
        memory (B, S, D).
    """

    def call(self, x, attention_mask=None, training=False):
        for layer in self.layers:
            x = layer(x, attention_mask=attention_mask, training=training)
        return self.norm(x)
