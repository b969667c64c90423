"""Attention before the Transformer (Bahdanau et al. 2015; Luong et al. 2015; Xu et al. 2015; Liu et al. 2016).

A score says how well a decoder state (query) and a source state (key) match. A span says which source positions may be
looked at. Soft attention mixes these positions, hard attention chooses one of them.

Shapes: B rows, T queries, S source positions, D width.
"""

import keras
from keras import ops

from keras_transformer.layers.kernels import Layer, check_choice


class AttentionScore(Layer):
    """How well each query matches each key: the base class of the four scores.

    Args:
        d_model: D.

    Call arguments:
        queries: (B, T, D).
        keys: (B, S, D), from `project`.

    Returns:
        (B, T, S), any real numbers.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model

    def project(self, memory):
        """Computes, once, the part of the score that depends on the source states (B, S, D) alone: (B, S, D)."""
        return memory


@keras.saving.register_keras_serializable(package="keras_transformer")
class DotScore(AttentionScore):
    """q . k (Luong et al. 2015, equation 8). Arguments: see `AttentionScore`."""

    def call(self, queries, keys):
        return ops.matmul(queries, ops.swapaxes(keys, 1, 2))


@keras.saving.register_keras_serializable(package="keras_transformer")
class GeneralScore(DotScore):
    """q W k (Luong et al. 2015, equation 8). Arguments: see `AttentionScore`."""

    def __init__(self, d_model, **kwargs):
        super().__init__(d_model, **kwargs)
        self.key = keras.layers.Dense(d_model, use_bias=False, name="key", dtype=self.dtype_policy)

    def build(self, queries_shape, keys_shape=None):
        self.key.build((None, None, self.d_model))

    def project(self, memory):
        return self.key(memory)


@keras.saving.register_keras_serializable(package="keras_transformer")
class AdditiveScore(AttentionScore):
    """v tanh(W q + U k) (Bahdanau et al. 2015, appendix A.1.2). Arguments: see `AttentionScore`."""

    def __init__(self, d_model, **kwargs):
        super().__init__(d_model, **kwargs)
        linear = {"use_bias": False, "dtype": self.dtype_policy}
        self.query = keras.layers.Dense(d_model, name="query", **linear)
        self.key = keras.layers.Dense(d_model, name="key", **linear)
        self.energy = keras.layers.Dense(1, name="energy", **linear)

    def build(self, queries_shape, keys_shape=None):
        for linear in (self.query, self.key, self.energy):
            linear.build((None, None, self.d_model))

    def project(self, memory):
        return self.key(memory)

    def call(self, queries, keys):
        inner = ops.tanh(self.query(queries)[:, :, None] + keys[:, None])  # (B, T, S, D)
        return ops.squeeze(self.energy(inner), -1)  # (B, T, S)


@keras.saving.register_keras_serializable(package="keras_transformer")
class ConcatScore(AdditiveScore):
    """v tanh(W [q; k]) (Luong et al. 2015, equation 8): one matrix W (2D, D) of query and key, one above the other.

    W [q; k] is the sum of a product with the upper half of W and a product with its lower half. So `call` is that of
    `AdditiveScore`; only the initial matrix differs. Arguments: see `AttentionScore`.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(d_model, **kwargs)
        # Glorot's limit, sqrt(6 / (2D + D)), of one matrix (2D, D). Each half alone would have sqrt(6 / (D + D)).
        limit = (2 / d_model) ** 0.5
        for linear in (self.query, self.key):
            linear.kernel_initializer = keras.initializers.RandomUniform(-limit, limit)


SCORES = {"dot": DotScore, "general": GeneralScore, "additive": AdditiveScore, "concat": ConcatScore}
SPANS = ("global", "local_m", "local_p")
CONTEXTS = ("last", "mean")
HIDDEN = -1e9  # score of a position that is not looked at; finite, so that a row of padding alone gives no NaN


@keras.saving.register_keras_serializable(package="keras_transformer")
class PredictedCentre(Layer):
    """p = S sigmoid(v tanh(W q)), the source position that a query asks for (Luong et al. 2015, equation 9).

    Args:
        d_model: D.

    Call arguments:
        queries: (B, T, D).
        lengths: float32 (B,), S of every row, its real tokens.

    Returns:
        float32 (B, T), in [0, S].
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        linear = {"use_bias": False, "dtype": self.dtype_policy}
        self.inner = keras.layers.Dense(d_model, activation="tanh", name="inner", **linear)
        self.outer = keras.layers.Dense(1, name="outer", **linear)

    def build(self, queries_shape, lengths_shape=None):
        for linear in (self.inner, self.outer):
            linear.build((None, None, self.d_model))

    def call(self, queries, lengths):
        share = ops.sigmoid(ops.cast(ops.squeeze(self.outer(self.inner(queries)), -1), "float32"))  # (B, T)
        return ops.cast(lengths, "float32")[:, None] * share


@keras.saving.register_keras_serializable(package="keras_transformer", name="Attention")  # its name in saved models
class RecurrentAttention(Layer):
    """c = sum_s a_s m_s, with a = softmax(score(q, m_s)) over the source positions s of the span.

    The spans of Luong et al. 2015, section 3:

    - "global": all positions;
    - "local_m": the positions t - window ... t + window at target position t (monotonic);
    - "local_p": the positions p - window ... p + window around a predicted p, and a Gaussian of standard deviation
      window / 2 around p (equation 10).

    *Relative to the paper*: the weights of "local_p" are normalised after the Gaussian, so that they sum to 1. At
    target positions beyond the source, "local_m" stays at the last source token.

    Hard attention (Xu et al. 2015) takes one position. In training, this position is drawn with the probabilities a; in
    use, it is the most likely one. The gradient is that of soft attention (straight through; Bengio et al. 2013), not
    that of REINFORCE.

    Args:
        d_model: D.
        score: "additive", "dot", "general" or "concat".
        span: "global", "local_m" or "local_p".
        window: positions on each side of the centre; without effect on "global".
        is_hard: one source position instead of a mixture.

    Call arguments:
        queries: (B, T, D), decoder states.
        positions: int (T,), their target positions.
        keys: (B, S, D), from `project`.
        memory: that of `RecurrentEncoder`.

    Returns:
        contexts (B, T, D) and the weights float32 (B, T, S), which are 0 on padding.

    Raises:
        ValueError: for an unknown `score` or `span`.
    """

    def __init__(self, d_model, score="additive", span="global", window=10, is_hard=False, **kwargs):
        super().__init__(**kwargs)
        check_choice("score", score, SCORES)
        check_choice("span", span, SPANS)
        self.d_model = d_model
        self.score = score
        self.span = span
        self.window = window
        self.is_hard = is_hard
        self.matching = SCORES[score](d_model, name="score", dtype=self.dtype_policy)
        if span == "local_p":
            self.centre = PredictedCentre(d_model, name="centre", dtype=self.dtype_policy)
        if is_hard:
            self.seed_generator = keras.random.SeedGenerator(name="seed_generator")

    def build(self, queries_shape, *other_shapes):
        self.matching.build(queries_shape)
        if self.span == "local_p":
            self.centre.build(queries_shape)

    def project(self, memory):
        """The keys of the source states, computed once for all queries: (B, S, D)."""
        return self.matching.project(memory["states"])

    def call(self, queries, positions, keys, memory, training=False):
        scores = ops.cast(self.matching(queries, keys), "float32")  # (B, T, S)
        distances, window = self.locate(queries, positions, memory["mask"])
        if self.span == "local_p":
            scores = scores - 2 * ops.square(distances / self.window)  # the logarithm of the Gaussian
        weights = ops.softmax(ops.where(window, scores, HIDDEN))
        if self.is_hard:
            weights = self.choose(weights, training)
        return mix(weights, memory["states"]), weights

    def locate(self, queries, positions, mask):
        """The distance of every source position from the centre of the span, and which positions are in the span.

        Returns:
            float32, broadcastable to (B, T, S), and bool of the same shape.
        """
        source = ops.arange(ops.shape(mask)[1], dtype="float32")
        if self.span == "global":
            return source, mask[:, None]
        lengths = ops.sum(ops.cast(mask, "float32"), axis=1)  # (B,)
        if self.span == "local_m":
            centres = ops.minimum(ops.cast(positions, "float32")[None], lengths[:, None] - 1)  # (B, T)
        else:
            centres = self.centre(queries, lengths)
        distances = source - centres[..., None]  # (B, T, S)
        return distances, ops.logical_and(mask[:, None], ops.abs(distances) <= self.window)

    def choose(self, weights, training):
        """One position of each row of weights (B, T, S), as weights of 0 and 1 with the gradient of `weights`."""
        logits = ops.log(weights + 1e-30)
        if training:  # the largest of logits with Gumbel noise is a draw with the probabilities `weights`
            uniform = keras.random.uniform(ops.shape(weights), 1e-7, 1.0, dtype="float32", seed=self.seed_generator)
            logits = logits - ops.log(-ops.log(uniform))
        chosen = ops.one_hot(ops.argmax(logits, axis=-1), ops.shape(weights)[-1], dtype="float32")
        return weights + ops.stop_gradient(chosen - weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class FixedContext(Layer):
    """The same context at every target position, for a decoder without attention.

    "last" is the last state of the encoder (Cho et al. 2014; Sutskever et al. 2014); its weight is all on the last
    token. "mean" is the mean of all states. Call arguments and result: see `RecurrentAttention`.

    Args:
        kind: "last" or "mean".

    Raises:
        ValueError: for another kind.
    """

    def __init__(self, kind="last", **kwargs):
        super().__init__(**kwargs)
        check_choice("kind", kind, CONTEXTS)
        self.kind = kind

    def project(self, memory):
        """There are no keys: ()."""
        return ()

    def call(self, queries, positions, keys, memory, training=False):
        mask, (*_, top) = memory["mask"], memory["last"]
        tokens = ops.cast(mask, "float32")
        lengths = ops.sum(tokens, axis=1, keepdims=True)  # (B, 1)
        is_last = ops.equal(ops.arange(ops.shape(mask)[1], dtype="float32"), lengths - 1)  # (B, S)
        weights = tokens / ops.maximum(lengths, 1.0) if self.kind == "mean" else ops.cast(is_last, "float32")
        weights = ops.repeat(weights[:, None], ops.shape(queries)[1], axis=1)  # (B, T, S)
        if self.kind == "mean":
            return mix(weights, memory["states"]), weights
        return ops.repeat(top[0][:, None], ops.shape(queries)[1], axis=1), weights


@keras.saving.register_keras_serializable(package="keras_transformer")
class LatentAttention(Layer):
    """Weights of tokens in two stages (Liu et al. 2016, section 3): one token says which other tokens count.

        l = softmax_j(u e_j)          latent weights: how much the meaning hangs on token j, such as a preposition
        A_ij = softmax_i(v_j e_i)     how much token i counts if the meaning hangs on the token at position j
        w = A l,   o = sum_i w_i e_i / length(w)

    w are the active weights; length(w) is the square root of the sum of their squares.

    *Relative to the paper*: padding has no weight. Positions past the last v_j take the last v_j.

    Args:
        d_model: D.
        num_positions: number of vectors v_j, the tokens of the longest text in training.

    Call arguments:
        x: (B, S, D), the embedded tokens e, such as the states of a `RecurrentEncoder`.
        mask: bool (B, S), True = a token.

    Returns:
        o, (B, D).
    """

    def __init__(self, d_model, num_positions=32, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_positions = num_positions
        self.latent = keras.layers.Dense(1, use_bias=False, name="latent", dtype=self.dtype_policy)

    def build(self, x_shape, mask_shape=None):
        self.latent.build(x_shape)
        shape = (self.num_positions, self.d_model)
        self.active = self.add_weight(name="active", shape=shape, initializer="glorot_uniform")

    def call(self, x, mask):
        _, active = self.weigh(x, mask)
        lengths = ops.sqrt(ops.sum(ops.square(active), axis=1, keepdims=True))
        return ops.squeeze(mix((active / lengths)[:, None], x), 1)

    def weigh(self, x, mask):
        """The latent and the active weights of the tokens, both float32 (B, S); each sum to 1."""
        latent = ops.cast(ops.squeeze(self.latent(x), -1), "float32")
        latent = ops.softmax(ops.where(mask, latent, HIDDEN))[:, None]  # (B, 1, S)
        positions = ops.minimum(ops.arange(ops.shape(x)[1]), self.num_positions - 1)
        vectors = ops.take(ops.cast(self.active, x.dtype), positions, axis=0)  # (S, D), one for each position
        scores = ops.matmul(vectors, ops.swapaxes(x, 1, 2))  # (B, S of the latent token j, S of the token i)
        given = ops.softmax(ops.where(mask[:, None], ops.cast(scores, "float32"), HIDDEN))
        return latent[:, 0], ops.squeeze(ops.matmul(latent, given), 1)


def mix(weights, states):
    """Contexts, sums of states (B, S, D) by weights (B, T, S): (B, T, D)."""
    return ops.matmul(ops.cast(weights, states.dtype), states)
