"""Token embedding (3.4), positional encoding (3.5), and the logits, which may share the embedding's matrix (3.4)."""

import math

import keras
from keras import ops

from keras_transformer.layers.kernels import Dropout, matmul_positions
from keras_transformer.layers.layer import Layer


class VocabularyMatrix(Layer):
    """A learned matrix (V, D), one row for each token: the base class of `TokenEmbedding` and `OutputMatrix`.

    It starts as N(0, d_model^-1/2): embeddings times sqrt(d_model), and logits of normalised activations, then have
    unit variance.

    Args:
        vocabulary_size: V, number of tokens.
        d_model: D, width of a row.
    """

    def __init__(self, vocabulary_size, d_model, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.d_model = d_model

    def build(self, input_shape=None):
        self.matrix = self.add_weight(
            name="matrix",
            shape=(self.vocabulary_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(VocabularyMatrix):
    """One learned vector for each token, scaled by sqrt(d_model) (section 3.4). Arguments: see `VocabularyMatrix`.

    Call arguments:
        ids: int (B, T).

    Returns:
        (B, T, D) in the compute dtype.
    """

    def call(self, ids):
        vectors = ops.take(self.matrix, ids, axis=0)  # (B, T, D)
        return ops.cast(vectors, self.compute_dtype) * math.sqrt(self.d_model)


def columns_of(output_matrix, dtype):
    """Lays out an output matrix (V, D) in the order in which `logits_of` reads it: (D, V) in the compute dtype."""
    return ops.transpose(ops.cast(output_matrix, dtype))


def logits_of(states, columns):
    """The logits of every position: states (..., D) and `columns_of` a matrix -> float32 (..., V).

    A search calls `columns_of` once and `logits_of` in every step: a layout made anew costs as much as the product of a
    few positions.
    """
    return ops.cast(matmul_positions(states, columns), "float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Logits(keras.layers.Layer):
    """The linear map before the softmax (section 3.4): states matrix^T.

    Args:
        source: the layer that owns the matrix (V, D): the `TokenEmbedding` of the target if its matrix is shared, else
            an `OutputMatrix`.

    Call arguments:
        states: (..., D).

    Returns:
        float32 (..., V), whatever the dtype policy.
    """

    def __init__(self, source, **kwargs):
        super().__init__(**kwargs)
        self.source = source

    def build(self, states_shape):
        if not self.source.built:
            self.source.build()

    def call(self, states):
        return logits_of(states, columns_of(self.source.matrix, self.compute_dtype))

    def get_config(self):
        return {**super().get_config(), "source": keras.saving.serialize_keras_object(self.source)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "source": keras.saving.deserialize_keras_object(config["source"])})


@keras.saving.register_keras_serializable(package="keras_transformer")
class OutputMatrix(VocabularyMatrix):
    """The matrix of `Logits` where no embedding shares its own. Arguments: see `VocabularyMatrix`."""


def make_embeddings(vocabulary_size, target_vocabulary_size, tie_embeddings, d_model, dtype):
    """The layers of a model that know its vocabularies.

    Args:
        vocabulary_size: number of source tokens, and of target tokens unless `target_vocabulary_size` is given.
        target_vocabulary_size: V, number of target tokens; None if both sides share one vocabulary.
        tie_embeddings: use one matrix for all embeddings that have the same vocabulary, and for the logits (3.4). False
            gives source, target and logits a matrix each.
        d_model: D.
        dtype: dtype policy.

    Returns:
        `TokenEmbedding` of the source, `TokenEmbedding` of the target, which may be the same object, and `Logits`.
    """
    target_size = target_vocabulary_size or vocabulary_size
    if tie_embeddings and target_vocabulary_size is None:
        source = target = TokenEmbedding(vocabulary_size, d_model, name="embedding", dtype=dtype)
    else:
        source = TokenEmbedding(vocabulary_size, d_model, name="source_embedding", dtype=dtype)
        target = TokenEmbedding(target_size, d_model, name="target_embedding", dtype=dtype)
    matrix = target if tie_embeddings else OutputMatrix(target_size, d_model, name="output_matrix", dtype=dtype)
    return source, target, Logits(matrix, name="logits", dtype=dtype)


def angles(positions, width):
    """pos / 10000^(2i/width) for i = 0 ... width/2 - 1: positions int (T,) -> float32 (T, width/2).

    Computed in float32, because bfloat16 cannot count past 256.
    """
    exponents = ops.arange(0, width, 2, dtype="float32") / width
    return ops.cast(positions, "float32")[:, None] / ops.power(10000.0, exponents)[None, :]


def sinusoids(positions, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same): sines and cosines interleaved.

    Args:
        positions: int (T,).
        d_model: D, even.

    Returns:
        float32 (T, D).
    """
    turn = angles(positions, d_model)  # (T, D/2)
    pairs = ops.stack([ops.sin(turn), ops.cos(turn)], axis=-1)  # (T, D/2, 2)
    return ops.reshape(pairs, (-1, d_model))


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoPositions(Layer):
    """Drops out the embeddings (5.4) and adds nothing: the base class of all kinds of positions at the input.

    The self-attention may know positions: see `RelativeAttention` and `RotaryAttention`. If it does not, only the
    causal mask of the decoder shows an order.

    Args:
        dropout_rate: P_drop.

    Call arguments:
        x: (B, T, D), embeddings of the positions 0 ... T-1.

    Returns:
        (B, T, D).
    """

    def __init__(self, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.dropout.build(input_shape)

    def call(self, x, training=False):
        return self.dropout(x, training=training)

    def at(self, x, position):
        """As `call`, without dropout, for vectors x (B, W, D) that are all at one `position` (int scalar)."""
        return x


class AddedPositions(NoPositions):
    """Adds a vector for each position: the base class of `PositionalEncoding` and `LearnedPositions`.

    A subclass has the method `encode`: positions int (T,) -> their vectors (T, D).

    Args:
        d_model: D.
        **kwargs: those of `NoPositions`.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model

    def call(self, x, training=False):
        encoding = self.encode(ops.arange(ops.shape(x)[1]))  # (T, D)
        return self.dropout(x + ops.cast(encoding, x.dtype), training=training)

    def at(self, x, position):
        return x + ops.cast(self.encode(ops.reshape(position, (1,))), x.dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(AddedPositions):
    """Adds the sinusoids of the positions to the embeddings (3.5), then drops out (5.4).

    Args:
        **kwargs: those of `AddedPositions`; `d_model` must be even. Call arguments: see `NoPositions`.

    Raises:
        ValueError: for an odd `d_model`.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(d_model, **kwargs)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even: sines and cosines come in pairs. Received: d_model={d_model}")

    def encode(self, positions):
        """See `sinusoids`."""
        return sinusoids(positions, self.d_model)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositions(AddedPositions):
    """Adds a learned vector for each position to the embeddings (3.5; row E of Table 3), then drops out (5.4).

    The table starts like the embedding of the tokens: rows of N(0, d_model^-1/2), times sqrt(d_model). One table serves
    source and target. Positions past the end of the table take its last row.

    Args:
        num_positions: rows of the table, the positions of the longest text in training.
        **kwargs: those of `AddedPositions`. Call arguments: see `NoPositions`.
    """

    def __init__(self, num_positions=257, **kwargs):
        super().__init__(**kwargs)
        self.num_positions = num_positions

    def build(self, input_shape):
        super().build(input_shape)
        self.table = self.add_weight(
            name="table",
            shape=(self.num_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def encode(self, positions):
        """The rows of the positions. A position past the end of the table takes the last row."""
        rows = ops.take(self.table, ops.minimum(positions, self.num_positions - 1), axis=0)
        return rows * math.sqrt(self.d_model)
