"""The boxes of Figure 1 of "Attention Is All You Need" (Vaswani et al. 2017), for any Keras model.

One module a section: `stacks` (3.1, 3.3), `attention` (3.2), `embedding` (3.4, 3.5). `recurrence` has the `SSRU`, which
may take the place of the decoder's self-attention. `kernels` holds everything that is shaped for the kernels of one
CPU. The layers import Keras alone, so the same weights run on every Keras backend, and another project can take this
folder. `Shape` has all numbers of a layer of encoder or decoder.

A type checker takes each name for public that is imported `as` itself.
"""

from keras_transformer.layers.attention import MultiHeadAttention as MultiHeadAttention
from keras_transformer.layers.attention import RelativeAttention as RelativeAttention
from keras_transformer.layers.attention import RotaryAttention as RotaryAttention
from keras_transformer.layers.attention import attention_weights as attention_weights
from keras_transformer.layers.attention import causal_mask as causal_mask
from keras_transformer.layers.attention import padding_mask as padding_mask
from keras_transformer.layers.embedding import Frame as Frame
from keras_transformer.layers.embedding import LearnedPositions as LearnedPositions
from keras_transformer.layers.embedding import Logits as Logits
from keras_transformer.layers.embedding import OutputMatrix as OutputMatrix
from keras_transformer.layers.embedding import PositionalEncoding as PositionalEncoding
from keras_transformer.layers.embedding import TokenEmbedding as TokenEmbedding
from keras_transformer.layers.embedding import sinusoids as sinusoids
from keras_transformer.layers.kernels import Dropout as Dropout
from keras_transformer.layers.kernels import Layer as Layer
from keras_transformer.layers.kernels import LayerNormalization as LayerNormalization
from keras_transformer.layers.kernels import Linear as Linear
from keras_transformer.layers.recurrence import SSRU as SSRU
from keras_transformer.layers.stacks import POSITIONS as POSITIONS
from keras_transformer.layers.stacks import Decoder as Decoder
from keras_transformer.layers.stacks import DecoderLayer as DecoderLayer
from keras_transformer.layers.stacks import DecoderShape as DecoderShape
from keras_transformer.layers.stacks import Encoder as Encoder
from keras_transformer.layers.stacks import EncoderLayer as EncoderLayer
from keras_transformer.layers.stacks import FeedForward as FeedForward
from keras_transformer.layers.stacks import PostNorm as PostNorm
from keras_transformer.layers.stacks import PreNorm as PreNorm
from keras_transformer.layers.stacks import Shape as Shape
