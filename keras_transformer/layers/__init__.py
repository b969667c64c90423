"""The boxes of Figure 1 of "Attention Is All You Need" (Vaswani et al. 2017), for any Keras model.

One module a section: `stacks` (3.1, 3.3), `attention` (3.2), `embedding` (3.4, 3.5). `recurrence` has the `SSRU`, which
may take the place of the decoder's self-attention. `kernels` holds everything that is shaped for the kernels of one
CPU. The layers import Keras alone, so the same weights run on every Keras backend, and another project can take this
folder. `Shape` has all numbers of a layer of encoder or decoder.
"""

from keras_transformer.layers.attention import (
    MultiHeadAttention,
    RelativeAttention,
    RotaryAttention,
    attention_weights,
    causal_mask,
    padding_mask,
)
from keras_transformer.layers.embedding import (
    Frame,
    LearnedPositions,
    Logits,
    OutputMatrix,
    PositionalEncoding,
    TokenEmbedding,
    sinusoids,
)
from keras_transformer.layers.kernels import Dropout, Layer, LayerNormalization, Linear
from keras_transformer.layers.recurrence import SSRU
from keras_transformer.layers.stacks import (
    POSITIONS,
    Decoder,
    DecoderLayer,
    DecoderShape,
    Encoder,
    EncoderLayer,
    FeedForward,
    PostNorm,
    PreNorm,
    Shape,
)

__all__ = [
    "POSITIONS",
    "SSRU",
    "Decoder",
    "DecoderLayer",
    "DecoderShape",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "Frame",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
    "Linear",
    "Logits",
    "MultiHeadAttention",
    "OutputMatrix",
    "PositionalEncoding",
    "PostNorm",
    "PreNorm",
    "RelativeAttention",
    "RotaryAttention",
    "Shape",
    "TokenEmbedding",
    "attention_weights",
    "causal_mask",
    "padding_mask",
    "sinusoids",
]
