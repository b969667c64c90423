"""Token embedding (3.4), positional encoding (3.5) and the logits that share the embedding's matrix (3.4)."""

import math

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.linear import inner_shape


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(keras.layers.Layer):
    """One learned vector per token, scaled by sqrt(d_model) (section 3.4).

    The matrix starts as N(0, d_model^-1/2), so that the scaled vectors have unit variance and so have the logits
    that `TiedLogits` makes of normalised activations with the same matrix.

    Args:
        vocabulary_size: V, number of tokens.
        d_model: D, width of a vector.

    Call arguments:
        ids: int (B, T).

    Returns:
        (B, T, D) in the compute dtype.
    """

    def __init__(self, vocabulary_size, d_model, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.d_model = d_model

    def build(self, input_shape):
        self.matrix = self.add_weight(
            name="matrix",
            shape=(self.vocabulary_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, ids):
        vectors = ops.take(self.matrix, ids, axis=0)  # (B, T, D)
        return ops.cast(vectors, self.compute_dtype) * math.sqrt(self.d_model)

    def get_config(self):
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size, "d_model": self.d_model}


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedLogits(keras.layers.Layer):
    """The linear map before the softmax; its matrix is the embedding's, transposed (section 3.4).

    Args:
        embedding: the `TokenEmbedding` whose matrix is shared.

    Call arguments:
        x: (B, T, D).
        matrix: what `matrix` gave, from whoever has it already.

    Returns:
        float32 (B, T, V), whatever the dtype policy.
    """

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def build(self, input_shape):
        if not self.embedding.built:
            self.embedding.build(input_shape[:-1])

    def matrix(self):
        """The matrix of the map, (D, V) in the compute dtype."""
        return ops.transpose(ops.cast(self.embedding.matrix, self.compute_dtype))

    def call(self, x, matrix=None):
        matrix = self.matrix() if matrix is None else matrix
        logits = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), matrix)
        return ops.cast(ops.reshape(logits, (-1, *inner_shape(x), matrix.shape[1])), "float32")

    def get_config(self):
        return {**super().get_config(), "embedding": keras.saving.serialize_keras_object(self.embedding)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "embedding": keras.saving.deserialize_keras_object(config["embedding"])})


def sinusoids(positions, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same): sines and cosines interleaved.

    Computed in float32, because bfloat16 cannot count past 256.

    Args:
        positions: int (T,).
        d_model: D, even.

    Returns:
        float32 (T, D).
    """
    exponents = ops.arange(0, d_model, 2, dtype="float32") / d_model
    angles = ops.cast(positions, "float32")[:, None] / ops.power(10000.0, exponents)[None, :]  # (T, D/2)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (T, D/2, 2)
    return ops.reshape(pairs, (-1, d_model))


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds the sinusoids of the positions to the embeddings (3.5), then drops out (5.4).

    Args:
        d_model: D, even.
        dropout_rate: P_drop.

    Call arguments:
        x: (B, T, D), embeddings of positions 0 ... T-1.

    Returns:
        (B, T, D).
    """

    def __init__(self, d_model, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even: sines and cosines come in pairs. Received: d_model={d_model}")
        self.d_model = d_model
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.dropout.build(input_shape)

    def call(self, x, training=False):
        encoding = sinusoids(ops.arange(ops.shape(x)[1]), self.d_model)  # (T, D)
        return self.dropout(x + ops.cast(encoding, x.dtype), training=training)

    def at(self, x, position):
        """Adds the sinusoid of one `position` (int scalar) to every vector of x (B, W, D)."""
        return x + ops.cast(sinusoids(ops.reshape(position, (1,)), self.d_model), x.dtype)

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "dropout_rate": self.dropout_rate}
