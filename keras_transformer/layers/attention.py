"""Scaled dot-product attention (3.2.1), multi-head attention (3.2.2), and the masks of both (3.2.3).

Masks are boolean and explicit: True = may attend.
"""

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.layers.kernels import Dropout, Linear, hide, inner_shape
from keras_transformer.layers.layer import Layer


def padding_mask(ids, pad_id=PAD_ID):
    """Hides padding from every query.

    Args:
        ids: int (B, S).
        pad_id: the id of padding.

    Returns:
        bool (B, 1, 1, S), broadcastable to scores of (B, H, T, S).
    """
    return ops.not_equal(ids, pad_id)[:, None, None, :]


def causal_mask(length):
    """Hides the future: position t sees the positions 0 ... t.

    Args:
        length: T, an int or an int scalar tensor.

    Returns:
        bool (1, 1, T, T).
    """
    positions = ops.arange(length)
    return ops.greater_equal(positions[:, None], positions[None, :])[None, None]


def attention_weights(queries, keys, mask=None):
    """softmax(Q K^T / sqrt(d_k)), the weights of equation (1).

    The queries are scaled rather than the products: that is fewer multiplications, and float16 does not overflow.

    Args:
        queries: (B, H, T, K).
        keys: (B, H, S, K).
        mask: bool, broadcastable to (B, H, T, S); True = may attend.

    Returns:
        (B, H, T, S) in the dtype of the queries; the softmax itself is float32.
    """
    queries = queries * (queries.shape[-1] ** -0.5)
    scores = ops.cast(ops.matmul(queries, ops.swapaxes(keys, -1, -2)), "float32")  # (B, H, T, S)
    if mask is not None:
        scores = hide(scores, mask)
    return ops.cast(ops.softmax(scores), queries.dtype)


def split_heads(x, num_heads):
    """(B, T, H*K) -> (B, H, T, K)."""
    heads = ops.reshape(x, (-1, *inner_shape(x), num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


def merge_heads(heads):
    """(B, H, T, K) -> (B, T, H*K)."""
    heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, H, K)
    return ops.reshape(heads, (-1, inner_shape(heads)[0], heads.shape[2] * heads.shape[3]))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Layer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2).

    `call` runs `project` and then `attend`. Cached decoding calls the two separately, because later queries attend to
    the same projected keys and values.

    *Relative to the paper*: dropout of the attention weights (`dropout_rate`), as in the authors' own code.

    Args:
        d_model: D, width in and out.
        num_heads: H; must divide `d_model`. The width per head is K = D / H.
        dropout_rate: share of the attention weights dropped in training.

    Call arguments:
        x: (B, T, D), from which the queries are made.
        memory: (B, S, D), from which the keys and values are made; x itself in self-attention.
        attention_mask: bool, broadcastable to (B, H, T, S); True = may attend.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `num_heads` does not divide `d_model`.
    """

    def __init__(self, d_model, num_heads, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        if d_model % num_heads:
            raise ValueError(f"`num_heads` must divide `d_model`. Received: num_heads={num_heads}, d_model={d_model}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        linear = {"use_bias": False, "dtype": self.dtype_policy}
        self.query = Linear(d_model, name="query", **linear)
        self.key = Linear(d_model, name="key", **linear)
        self.value = Linear(d_model, name="value", **linear)
        self.output_projection = Linear(d_model, name="output", **linear)
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, x_shape, memory_shape=None):
        width = (None, None, self.d_model)
        for linear in (self.query, self.key, self.value, self.output_projection):
            linear.build(width)

    def project(self, memory):
        """Makes the keys and values of memory (B, S, D): two of (B, H, S, K)."""
        return split_heads(self.key(memory), self.num_heads), split_heads(self.value(memory), self.num_heads)

    def weigh(self, x, keys, attention_mask=None):
        """How much x (B, T, D) attends to each of the projected keys (B, H, S, K): (B, H, T, S)."""
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, attention_mask)

    def attend(self, x, keys, values, attention_mask=None, training=False):
        """Attends from x (B, T, D) to projected keys and values (B, H, S, K): (B, T, D)."""
        weights = self.dropout(self.weigh(x, keys, attention_mask), training=training)  # (B, H, T, S)
        return self.output_projection(merge_heads(ops.matmul(weights, values)))

    def call(self, x, memory, attention_mask=None, training=False):
        keys, values = self.project(memory)
        return self.attend(x, keys, values, attention_mask, training=training)
