"""Token embedding, and the logits, which may share its matrix (3.4); positions, which are added to embeddings (3.5)."""

import itertools
import math

import keras
from keras import ops

from keras_transformer.layers.kernels import EPSILON, Dropout, Layer, LayerNormalization, check_choice, matmul_positions

SINUSOIDAL = ("sinusoidal", "sinusoidal_halves", "sinusoidal_tensor2tensor")


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
    """One learned vector for each token, E[id] sqrt(d_model) (section 3.4).

    Args:
        vocabulary_size, d_model: see `VocabularyMatrix`.
        scale: multiply the vectors by sqrt(d_model), as in the paper. False gives E[id].

    Call arguments:
        ids: int (B, T). In training, the vector of a negative id is 0: SimCut cuts this token.

    Returns:
        (B, T, D) in the compute dtype.
    """

    def __init__(self, vocabulary_size, d_model, scale=True, **kwargs):
        super().__init__(vocabulary_size, d_model, **kwargs)
        self.scale = scale

    def call(self, ids, training=False):
        rows = ops.maximum(ids, 0) if training else ids
        vectors = ops.cast(ops.take(self.matrix, rows, axis=0), self.compute_dtype)  # (B, T, D)
        if training:
            vectors = vectors * ops.cast(ids >= 0, self.compute_dtype)[..., None]
        return vectors * math.sqrt(self.d_model) if self.scale else vectors


def columns_of(output_matrix, dtype):
    """Lays out an output matrix (V, D) in the order in which `logits_of` reads it: (D, V) in the compute dtype."""
    return ops.transpose(ops.cast(output_matrix, dtype))


def logits_of(states, columns, bias=None):
    """The logits of every position, states matrix^T + b, float32 (..., V).

    Args:
        states: (..., D).
        columns: (D, V), `columns_of` the matrix.
        bias: b, (V,); None for 0.

    A search calls `columns_of` once and `logits_of` in every step: a layout made anew costs as much as the product of a
    few positions.
    """
    logits = ops.cast(matmul_positions(states, columns), "float32")
    return logits if bias is None else logits + ops.cast(bias, "float32")


def joint_logits(states, projections):
    """The logits of several models together: the logarithms of the mean of their probabilities.

    `states` (..., D) are those of each model side by side, and `projections` is `projections_of` the models. One model
    alone has the logits of `logits_of`. Returns float32 (..., V).
    """
    if len(projections) == 1:
        return logits_of(states, *projections[0])
    stops = itertools.accumulate(columns.shape[0] for columns, _ in projections)
    each = zip(projections, stops, strict=True)
    return log_of_mean([logits_of(states[..., stop - one[0].shape[0] : stop], *one) for one, stop in each])


def projections_of(members):
    """What `joint_logits` reads of models: a list of (columns (D, V), bias (V,) or None)."""
    return [(columns_of(member.output_matrix, member.compute_dtype), member.output_bias) for member in members]


def log_of_mean(logits):
    """log of the mean of softmax(z) over a list of logits z (..., V)."""
    return ops.logsumexp(ops.stack([ops.log_softmax(each) for each in logits]), axis=0) - math.log(len(logits))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Logits(keras.layers.Layer):
    """The linear map before the softmax (section 3.4): states matrix^T, or states matrix^T + b.

    Args:
        source: the layer that owns the matrix (V, D): the `TokenEmbedding` of the target if its matrix is shared, else
            an `OutputMatrix`.
        use_bias: whether there is a b (V,), a number for each token: `bias`, else None. The paper has none.

    Call arguments:
        states: (..., D).

    Returns:
        float32 (..., V), whatever the dtype policy.
    """

    def __init__(self, source, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.source = source
        self.use_bias = use_bias
        self.bias = None

    def build(self, states_shape):
        if not self.source.built:
            self.source.build()
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.source.vocabulary_size,), initializer="zeros")

    def call(self, states):
        return logits_of(states, columns_of(self.source.matrix, self.compute_dtype), self.bias)

    def get_config(self):
        source = keras.saving.serialize_keras_object(self.source)
        return {**super().get_config(), "source": source, "use_bias": self.use_bias}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "source": keras.saving.deserialize_keras_object(config["source"])})


@keras.saving.register_keras_serializable(package="keras_transformer")
class OutputMatrix(VocabularyMatrix):
    """The matrix of `Logits` where no embedding shares its own. Arguments: see `VocabularyMatrix`."""


def make_embeddings(shape, dtype, scale=True, logits_bias=False):
    """The layers of a model that know its vocabularies.

    Args:
        shape: has `d_model`, `vocabulary_size`, `target_vocabulary_size` and `tie_embeddings`, see `TransformerShape`.
        dtype: dtype policy.
        scale: see `TokenEmbedding`.
        logits_bias: whether the logits have a bias, see `Logits`.

    Returns:
        `TokenEmbedding` of the source, `TokenEmbedding` of the target, which may be the same object, and `Logits`.
    """
    source_size, target_size = shape.vocabulary_size, shape.target_vocabulary_size or shape.vocabulary_size
    if shape.tie_embeddings and shape.target_vocabulary_size is None:
        source = target = TokenEmbedding(source_size, shape.d_model, scale, name="embedding", dtype=dtype)
    else:
        source = TokenEmbedding(source_size, shape.d_model, scale, name="source_embedding", dtype=dtype)
        target = TokenEmbedding(target_size, shape.d_model, scale, name="target_embedding", dtype=dtype)
    matrix = target
    if not shape.tie_embeddings:
        matrix = OutputMatrix(target_size, shape.d_model, name="output_matrix", dtype=dtype)
    return source, target, Logits(matrix, logits_bias, name="logits", dtype=dtype)


def angles(positions, width, period=None):
    """pos / 10000^(2i/period) for i = 0 ... width/2 - 1: positions int (T,) -> float32 (T, width/2).

    Computed in float32, because bfloat16 cannot count past 256. By default, `period` is `width`.
    """
    exponents = ops.arange(0, width, 2, dtype="float32") / (period or width)
    return ops.cast(positions, "float32")[:, None] / ops.power(10000.0, exponents)[None, :]


def sinusoids(positions, d_model, kind="sinusoidal"):
    """The vectors of positions. For i = 0 ... D/2 - 1, they are

        sinusoidal                 PE(pos, 2i) = sin(pos / 10000^(2i/D)),      PE(pos, 2i+1)    = cos(the same)
        sinusoidal_halves          PE(pos, i)  = sin(pos / 10000^(2i/D)),      PE(pos, D/2 + i) = cos(the same)
        sinusoidal_tensor2tensor   PE(pos, i)  = sin(pos / 10000^(2i/(D-2))),  PE(pos, D/2 + i) = cos(the same)

    The first is the paper's (3.5). The second is that of Marian models in Hugging Face. The third is that of the
    authors' own code, tensor2tensor: 2i/(D-2) is i/(D/2 - 1). Marian itself, fairseq (M2M-100, NLLB-200) and OpenNMT-tf
    have taken it over.

    Args:
        positions: int (T,).
        d_model: D, even.
        kind: one of `SINUSOIDAL`.

    Returns:
        float32 (T, D).
    """
    turn = angles(positions, d_model, d_model - 2 if kind == "sinusoidal_tensor2tensor" else d_model)  # (T, D/2)
    waves = [ops.sin(turn), ops.cos(turn)]
    if kind != "sinusoidal":
        return ops.concatenate(waves, axis=-1)
    return ops.reshape(ops.stack(waves, axis=-1), (-1, d_model))  # of (T, D/2, 2)


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoPositions(Layer):
    """Drops out the embeddings (5.4) and adds nothing: the base class of all kinds of positions at the input.

    The self-attention may know positions: see `RelativeAttention` and `RotaryAttention`. If it does not, only the
    causal mask of the decoder shows an order.

    *Relative to the paper*: with `norm`, the sum is normalised before dropout, as in mBART: Dropout(LN(x + PE)).

    Args:
        dropout_rate: P_drop.
        norm: whether the sum of embedding and position is normalised.
        layer_norm_epsilon: see `layer_norm`.

    Call arguments:
        x: (B, T, D), embeddings of the positions 0 ... T-1.

    Returns:
        (B, T, D).
    """

    def __init__(self, dropout_rate=0.0, norm=False, layer_norm_epsilon=EPSILON, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate = dropout_rate
        self.norm = norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)
        if norm:
            self.sum_norm = LayerNormalization(layer_norm_epsilon, name="norm", dtype=self.dtype_policy)

    @classmethod
    def of(cls, shape, **kwargs):
        """The positions of a model with this `TransformerShape`."""
        epsilon = shape.layer_norm_epsilon
        return cls(dropout_rate=shape.dropout_rate, norm=shape.embedding_norm, layer_norm_epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        self.dropout.build(input_shape)
        if self.norm:
            self.sum_norm.build(input_shape)

    def call(self, x, training=False):
        return self.dropout(self.add(x, ops.arange(ops.shape(x)[1])), training=training)

    def at(self, x, position):
        """As `call`, without dropout, for vectors x (B, W, D) that are all at one `position` (int scalar)."""
        return self.add(x, ops.reshape(position, (1,)))

    def add(self, x, positions):
        """The normalised sum of x (B, T, D) and its positions, int (T,) or (1,)."""
        encoding = self.encode(positions)
        x = x if encoding is None else x + ops.cast(encoding, x.dtype)
        return self.sum_norm(x) if self.norm else x

    def encode(self, positions):
        """The vectors (T, D) that are added at positions int (T,); None for a kind that adds nothing."""
        return None


class AddedPositions(NoPositions):
    """Adds a vector for each position: the base class of `PositionalEncoding` and `LearnedPositions`.

    Args:
        d_model: D.
        **kwargs: those of `NoPositions`.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model

    @classmethod
    def of(cls, shape, **kwargs):
        return super().of(shape, d_model=shape.d_model, **kwargs)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(AddedPositions):
    """Adds the sinusoids of the positions to the embeddings (3.5), then drops out (5.4).

    Args:
        d_model: D, even.
        kind: one of `SINUSOIDAL`, see `sinusoids`.
        first_position: pos of the first token: 0 in the paper, 1 in OpenNMT-tf, 2 in M2M-100.
        **kwargs: those of `AddedPositions`. Call arguments: see `NoPositions`.

    Raises:
        ValueError: for an odd `d_model`, one below 4 beside the kind of tensor2tensor, and for another kind.
    """

    def __init__(self, d_model, kind="sinusoidal", first_position=0, **kwargs):
        super().__init__(d_model, **kwargs)
        check_choice("kind", kind, SINUSOIDAL)
        if kind == "sinusoidal_tensor2tensor" and d_model < 4:
            raise ValueError(f"`d_model` must be at least 4 for the timescales of tensor2tensor. Received: {d_model}")
        self.kind = kind
        self.first_position = first_position
        if d_model % 2:
            raise ValueError(f"`d_model` must be even: sines and cosines come in pairs. Received: d_model={d_model}")

    @classmethod
    def of(cls, shape, **kwargs):
        return super().of(shape, kind=shape.positions, first_position=shape.first_position, **kwargs)

    def encode(self, positions):
        """See `sinusoids`."""
        return sinusoids(positions + self.first_position, self.d_model, self.kind)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositions(AddedPositions):
    """Adds a learned vector for each position to the embeddings (3.5; row E of Table 3), then drops out (5.4).

    The table starts like the embedding of the tokens: rows of N(0, d_model^-1/2), times sqrt(d_model). Positions past
    the end of the table take its last row.

    Args:
        num_positions: rows of the table, the positions of the longest text in training.
        scale: multiply the rows by sqrt(d_model), as the vectors of the tokens are.
        **kwargs: those of `AddedPositions`. Call arguments: see `NoPositions`.
    """

    def __init__(self, num_positions=257, scale=True, **kwargs):
        super().__init__(**kwargs)
        self.num_positions = num_positions
        self.scale = scale

    @classmethod
    def of(cls, shape, **kwargs):
        return super().of(shape, num_positions=shape.num_positions, scale=shape.scale_embeddings, **kwargs)

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
        return rows * math.sqrt(self.d_model) if self.scale else rows


@keras.saving.register_keras_serializable(package="keras_transformer")
class Frame(Layer):
    """Puts the same tokens around the tokens of every row: x_1 ... x_n becomes before, x_1 ... x_n, after.

    Args:
        before, after: lists of int, A and Z ids.
        pad_id: the id of padding, which stays behind `after`.

    Call arguments:
        ids: int (B, S), padded.

    Returns:
        int (B, A + S + Z), padded.
    """

    def __init__(self, before=(), after=(), pad_id=0, **kwargs):
        super().__init__(**kwargs)
        self.before = list(before)
        self.after = list(after)
        self.pad_id = pad_id

    @property
    def width(self):
        """A + Z."""
        return len(self.before) + len(self.after)

    def build(self, ids_shape):
        """There are no weights."""

    def call(self, ids):
        if not self.width:
            return ids
        first = len(self.before)
        framed = ops.pad(ids, ((0, 0), (first, len(self.after))), constant_values=self.pad_id)
        places = ops.arange(ops.shape(framed)[1])[None]  # (1, A + S + Z)
        ends = first + ops.sum(ops.cast(ops.not_equal(ids, self.pad_id), places.dtype), axis=1, keepdims=True)  # (B, 1)
        for start, tokens in ((0, self.before), (ends, self.after)):
            for offset, id in enumerate(tokens):
                framed = ops.where(places == start + offset, ops.cast(id, ids.dtype), framed)
        return framed


def unframed(weights, is_text, first):
    """The weights on the tokens of a text alone, which then sum to 1.

    Args:
        weights: float32 (B, T, S + S'), on the tokens and on those of the frame.
        is_text: bool (B, 1, S), whether a position of the text has a token.
        first: int, how many tokens stand before the text.

    Returns:
        float32 (B, T, S).
    """
    weights = ops.where(is_text, weights[:, :, first : first + ops.shape(is_text)[2]], 0.0)
    return weights / ops.maximum(ops.sum(weights, axis=-1, keepdims=True), 1e-30)
