"""Gates for the heads of a Transformer, without a change to its layers or weights.

A gate is a factor of the output of a head: 1 leaves the head as it is, 0 silences it. There are two ways to the same
gate. `gated` multiplies the attention weights by a factor for each sentence, because (gate A) V = gate (A V); this way
gives gradients. `silenced` multiplies the rows of W^O of the head by one factor for all sentences; this way also works
for graphs that are made already, because they read W^O at every call.
"""

import contextlib
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.errors import UserError
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.models.transformer import Transformer

KINDS = ("encoder", "decoder", "cross")


class PlacedAttention(NamedTuple):
    """One attention of a Transformer.

    Args:
        kind: "encoder" or "decoder" for self-attention, "cross" for the decoder's attention to memory.
        layer: int, the layer that it is in, from 0.
        sublayer: `MultiHeadAttention`.
    """

    kind: str
    layer: int
    sublayer: MultiHeadAttention

    @property
    def num_heads(self):
        """H of this attention."""
        return self.sublayer.num_heads


def attentions_of(model):
    """Lists the attentions of a model: those of the encoder, then self-attention, then attention to memory.

    Args:
        model: `Transformer`.

    Returns:
        list of `PlacedAttention`, without those whose heads are all pruned. All modules of this package number the N
        heads in this order.

    Raises:
        UserError: for another model.
    """
    if not isinstance(model, Transformer):
        raise UserError(f"only a Transformer has heads. Received: a model of type {type(model).__name__}")
    encoder, decoder = model.encoder.layers, model.decoder.layers
    attentions = [
        *(PlacedAttention("encoder", i, layer.self_attention) for i, layer in enumerate(encoder)),
        *(PlacedAttention("decoder", i, layer.self_attention) for i, layer in enumerate(decoder)),
        *(PlacedAttention("cross", i, layer.cross_attention) for i, layer in enumerate(decoder)),
    ]
    return [attention for attention in attentions if attention.num_heads]


def count_heads(model):
    """N, the number of all heads of a Transformer."""
    return sum(attention.num_heads for attention in attentions_of(model))


@contextlib.contextmanager
def gated(attentions, gates):
    """A context in which every head has a gate, and the attention weights are noted.

    Args:
        attentions: as `attentions_of` gives.
        gates: for each of them a tensor (B, H).

    Yields:
        list. After a call of the model, it has the weights (B, H, T, S) of each attention before the gates.
    """
    noted = [None] * len(attentions)

    def with_gates(number, weigh):
        def weigh_and_gate(*args, **kwargs):
            noted[number] = weigh(*args, **kwargs)  # (B, H, T, S)
            return noted[number] * ops.cast(gates[number], noted[number].dtype)[:, :, None, None]

        return weigh_and_gate

    for number, attention in enumerate(attentions):
        attention.sublayer.weigh = with_gates(number, attention.sublayer.weigh)
    try:
        yield noted
    finally:
        for attention in attentions:
            del attention.sublayer.weigh  # then the method of the class is used again


@contextlib.contextmanager
def silenced(model, heads):
    """A context in which some heads of a model give zeros, also in graphs that were made before.

    Args:
        model: `Transformer`.
        heads: bool (N,), True for a head that is silent; see `attentions_of`.
    """
    kernels = [attention.sublayer.output_projection.kernel for attention in attentions_of(model)]
    before = [ops.convert_to_numpy(kernel) for kernel in kernels]
    try:
        for kernel, values, silent in zip(kernels, before, divide_by_attention(model, heads), strict=True):
            rows = np.repeat(silent, len(values) // len(silent))  # K rows for each head
            kernel.assign(np.where(rows[:, None], 0, values))
        yield
    finally:
        for kernel, values in zip(kernels, before, strict=True):
            kernel.assign(values)


def divide_by_attention(model, values):
    """Divides values (N, ...) of all heads into those of each attention: a list of arrays (H, ...)."""
    ends = np.cumsum([attention.num_heads for attention in attentions_of(model)])
    if len(values) != ends[-1]:
        raise UserError(f"there must be a value for each head. Received: {len(values)} values, {ends[-1]} heads")
    return np.split(np.asarray(values), ends[:-1])
