"""Scaled dot-product attention (3.2.1), multi-head attention (3.2.2), and the masks of both (3.2.3).

Masks are boolean and explicit: True = may attend. `RelativeAttention` and `RotaryAttention` are self-attention that
knows the positions of its queries and keys.
"""

import keras
from keras import ops

from keras_transformer.layers.embedding import angles
from keras_transformer.layers.kernels import Dropout, Layer, Linear, hide, inner_shape, matmul_positions


def padding_mask(ids, pad_id):
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


def attention_weights(queries, keys, mask=None, terms=None):
    """softmax(Q K^T / sqrt(d_k)), the weights of equation (1).

    The queries are scaled, not the products: this takes fewer multiplications, and float16 does not overflow.

    Args:
        queries: (B, H, T, K).
        keys: (B, G, S, K); G divides H (see `matmul_groups`).
        mask: bool, broadcastable to (B, H, T, S); True = may attend.
        terms: (T, S, K), added to the key that each query sees (see `RelativeAttention`).

    Returns:
        (B, H, T, S) in the dtype of the queries; the softmax itself is float32.
    """
    queries = queries * (queries.shape[-1] ** -0.5)
    scores = matmul_groups(queries, ops.swapaxes(keys, -1, -2))  # (B, H, T, S)
    if terms is not None:
        scores = scores + ops.einsum("bhtk,tsk->bhts", queries, terms)
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = hide(scores, mask)
    return ops.cast(ops.softmax(scores), queries.dtype)


def matmul_groups(x, matrices):
    """The product of every head with the matrix of its group: x (B, H, T, K), matrices (B, G, K, S) -> (B, H, T, S).

    G divides H, and H / G heads in a row are a group. They become one matrix with more rows, so no matrix is copied.
    """
    heads, groups = x.shape[1], matrices.shape[1]
    if heads == groups:
        return ops.matmul(x, matrices)
    length, width = ops.shape(x)[2:]
    products = ops.matmul(ops.reshape(x, (-1, groups, heads // groups * length, width)), matrices)
    return ops.reshape(products, (-1, heads, length, ops.shape(matrices)[3]))


def split_heads(x, num_heads):
    """(B, T, H*K) -> (B, H, T, K)."""
    heads = ops.reshape(x, (-1, *inner_shape(x), num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


def merge_heads(heads):
    """(B, H, T, K) -> (B, T, H*K)."""
    heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, H, K)
    return ops.reshape(heads, (-1, inner_shape(heads)[0], heads.shape[2] * heads.shape[3]))


def appended(past, newest, position):
    """Joins the W newest vectors to those of the positions before: (B, G, t*W, ...), (B, G, W, ...) -> (t+1)*W."""
    return ops.concatenate([past, newest], axis=2)


def written(past, newest, position):
    """As `appended`, into a room that has a place for every position: (B, G, room*W, ...) -> the same shape.

    Only a compiler runs this well, and stock TensorFlow Serving refuses it outside of a compiled function.
    """
    start = [0, 0, position * newest.shape[2], 0]
    return ops.slice_update(past, [ops.cast(each, "int32") for each in start[: len(past.shape)]], newest)


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Layer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2).

    `call` runs `project` and then `attend`. Cached decoding calls the two separately, because later queries attend to
    the same projected keys and values.

    *Relative to the paper*: dropout of the attention weights (`dropout_rate`), as in the authors' own code. Several
    heads may share their keys and values (`num_key_value_heads`; Ainslie et al. 2023), so that a cache is smaller. With
    `use_bias`, every projection has a bias: Q = X W^Q + b^Q, K = M W^K + b^K, V = M W^V + b^V, and the output
    Concat(head_1, ..., head_h) W^O + b^O.

    In self-attention over a cache, W hypotheses stand side by side at every position. So key j is at position j // W,
    and the W queries are at `position`, as the last W keys. Without a cache, vector t is at position t, and `position`
    is None. This class knows no positions. `RelativeAttention` and `RotaryAttention` do, and override `project`,
    `weigh` and `collect`.

    Args:
        d_model: D, width in and out.
        num_heads: H; must divide `d_model` unless `d_key` is given.
        dropout_rate: share of the attention weights dropped in training.
        d_key: K, the width of a head. None: D / H.
        num_key_value_heads: G, heads of keys and values; must divide H. None: H.
        d_value: width of a head's values. None: K, which the shapes below assume.
        use_bias: whether the four projections have biases.

    Call arguments:
        x: (B, T, D), from which the queries are made.
        memory: (B, S, D), from which the keys and values are made; x itself in self-attention.
        attention_mask: bool, broadcastable to (B, H, T, S); True = may attend.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if `num_heads` does not divide `d_model`, or `num_key_value_heads` not `num_heads`.
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dropout_rate=0.0,
        d_key=None,
        num_key_value_heads=None,
        d_value=None,
        use_bias=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if d_key is None and (num_heads < 1 or d_model % num_heads):
            raise ValueError(f"`num_heads` must divide `d_model`. Received: num_heads={num_heads}, d_model={d_model}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.d_key = d_key or d_model // num_heads
        self.d_value = d_value or self.d_key
        self.num_key_value_heads = num_key_value_heads or num_heads
        if num_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_key_value_heads` must divide `num_heads`. "
                f"Received: num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
            )
        self.use_bias = use_bias
        linear = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.query = Linear(self.num_heads * self.d_key, name="query", **linear)
        self.key = Linear(self.num_key_value_heads * self.d_key, name="key", **linear)
        self.value = Linear(self.num_key_value_heads * self.d_value, name="value", **linear)
        self.output_projection = Linear(d_model, name="output", **linear)
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    @classmethod
    def of(cls, shape, **kwargs):
        """The attention of a layer with this `Shape`; `kwargs` are what the shape does not tell, as `num_heads`."""
        return cls(
            d_model=shape.d_model,
            dropout_rate=shape.attention_dropout_rate,
            d_key=shape.d_key,
            num_key_value_heads=shape.num_key_value_heads,
            d_value=shape.d_value,
            use_bias=shape.attention_bias,
            **kwargs,
        )

    def build(self, x_shape, memory_shape=None):
        for linear in (self.query, self.key, self.value):
            linear.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.num_heads * self.d_value))

    def project(self, memory, position=None):
        """Makes the keys and values of memory (B, S, D): two of (B, G, S, K)."""
        return tuple(split_heads(linear(memory), self.num_key_value_heads) for linear in (self.key, self.value))

    def weigh(self, x, keys, attention_mask=None, position=None):
        """How much x (B, T, D) attends to each of the projected keys (B, G, S, K): (B, H, T, S)."""
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, attention_mask)

    def collect(self, weights, values, position=None):
        """The mean of the values (B, G, S, K) under the weights (B, H, T, S): (B, H, T, K)."""
        return matmul_groups(weights, values)

    def attend(self, x, keys, values, attention_mask=None, position=None, training=False):
        """Attends from x (B, T, D) to projected keys and values (B, G, S, K): (B, T, D)."""
        weights = self.dropout(self.weigh(x, keys, attention_mask, position), training=training)  # (B, H, T, S)
        return self.output_projection(merge_heads(self.collect(weights, values, position)))

    def call(self, x, memory, attention_mask=None, training=False):
        keys, values = self.project(memory)
        return self.attend(x, keys, values, attention_mask, training=training)

    def empty_cache(self, batch, places=0, width=1):
        """The keys and values before the first position, two of (B, G, 0, K), or of (B, G, places, K) to write into."""
        shapes = ((batch, self.num_key_value_heads, places, each) for each in (self.d_key, self.d_value))
        return tuple(ops.zeros(shape, self.compute_dtype) for shape in shapes)

    def step(self, x, position, cache, history=None, add=appended):
        """Self-attention of the newest position of W hypotheses to the positions before it.

        Args:
            x: (B, W, D).
            position: int scalar, t.
            cache: keys and values of the positions before, two of (B, G, t*W, K).
            history: bool, broadcastable to (B, H, W, (t+1)*W): the keys that belong to each hypothesis.
            add: how the cache takes this position, `appended` or `written`.

        Returns:
            (B, W, D), and the cache with this position, two of (B, G, (t+1)*W, K).
        """
        newest = self.project(x, position)
        cache = tuple(add(old, new, position) for old, new in zip(cache, newest, strict=True))
        return self.attend(x, *cache, history, position), cache


@keras.saving.register_keras_serializable(package="keras_transformer")
class NoAttention(Layer):
    """Replaces an attention whose heads are all pruned. It gives zeros, and has nothing to project or to cache.

    It has the methods of `MultiHeadAttention` that a layer of the encoder or decoder calls, with their arguments. Of an
    attention with biases, b^O is left: it gives b^O at every position.

    Args:
        use_bias: whether the attention had biases.

    Call arguments:
        x: (B, T, D).
        memory: (B, S, D).
        attention_mask: ignored.

    Returns:
        (B, T, D), zeros or b^O.
    """

    num_heads = 0

    def __init__(self, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.use_bias = use_bias

    def build(self, x_shape, memory_shape=None):
        """Its only weight is b^O."""
        if self.use_bias:
            self.output_bias = self.add_weight(name="output_bias", shape=(x_shape[-1],), initializer="zeros")

    def project(self, memory, position=None):
        """No keys and no values: ()."""
        return ()

    def attend(self, x, attention_mask=None, position=None, training=False):
        """Zeros in the shape of x (B, T, D), or b^O in their place.

        As a product, the zeros give the layers before them a gradient of 0, not None.
        """
        return x * 0 + ops.cast(self.output_bias, x.dtype) if self.use_bias else x * 0

    def call(self, x, memory, attention_mask=None, training=False):
        return self.attend(x)

    def empty_cache(self, batch, places=0, width=1):
        """Nothing to keep: ()."""
        return ()

    def step(self, x, position, cache, history=None, add=appended):
        """The result of `attend` for x (B, W, D), and the cache as it is."""
        return self.attend(x), cache


@keras.saving.register_keras_serializable(package="keras_transformer")
class RelativeAttention(MultiHeadAttention):
    """Self-attention that knows the distance of a key from its query (Shaw et al. 2018).

    With a^K and a^V the learned vectors of the distance j - i, which is clipped to -k ... k,

        e_ij = q_i (k_j + a^K_ij) / sqrt(d_k),   z_i = sum_j softmax(e_i)_j (v_j + a^V_ij)

    All heads of a layer share its two tables.

    Args:
        clip: k, the largest distance that has a vector of its own.
        **kwargs: the arguments of `MultiHeadAttention`. The call arguments are the same, too; memory is x.
    """

    def __init__(self, clip=16, **kwargs):
        super().__init__(**kwargs)
        self.clip = clip

    @classmethod
    def of(cls, shape, **kwargs):
        return super().of(shape, clip=shape.relative_clip, **kwargs)

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)
        rows, start = 2 * self.clip + 1, "glorot_uniform"
        self.distance_keys = self.add_weight(name="distance_keys", shape=(rows, self.d_key), initializer=start)
        self.distance_values = self.add_weight(name="distance_values", shape=(rows, self.d_value), initializer=start)

    def look_up(self, table, queries, keys, position):
        """The vectors of a table (2k+1, K) for the distances from T `queries` to S `keys`: (T, S, K)."""
        of_keys, of_queries = ops.arange(keys), ops.arange(queries)
        if position is not None:  # of W queries
            of_keys, of_queries = of_keys // queries, position + ops.zeros_like(of_queries)
        distances = of_keys[None, :] - of_queries[:, None]  # (T, S)
        rows = ops.clip(distances, -self.clip, self.clip) + self.clip
        return ops.cast(ops.take(table, rows, axis=0), self.compute_dtype)

    def weigh(self, x, keys, attention_mask=None, position=None):
        terms = self.look_up(self.distance_keys, ops.shape(x)[1], ops.shape(keys)[2], position)
        return attention_weights(split_heads(self.query(x), self.num_heads), keys, attention_mask, terms)

    def collect(self, weights, values, position=None):
        terms = self.look_up(self.distance_values, *ops.shape(weights)[2:], position)
        return super().collect(weights, values) + ops.einsum("bhts,tsk->bhtk", weights, terms)


def rotate(heads, positions):
    """Turns the pair (2i, 2i+1) of every vector by the angle pos / 10000^(2i/K): (B, H, T, K), int (T,) -> the same.

    Positions of (1,) hold for all vectors. The product of two turned vectors depends only on the distance of their
    positions (Su et al. 2021). The angles are float32, because bfloat16 cannot count past 256. With q the quarter turn
    of a vector x, its turn by an angle a is x cos a + q sin a. A product makes q in less time than slices of the pairs.
    """
    width = heads.shape[-1]
    turn = ops.repeat(angles(positions, width), 2, axis=-1)  # (T, K) or (1, K), the angle of each pair twice
    quarter = [[(j == i ^ 1) * (-1) ** i for j in range(width)] for i in range(width)]  # (x, y) -> (-y, x), (K, K)
    turned = matmul_positions(heads, ops.convert_to_tensor(quarter, heads.dtype))
    return heads * ops.cast(ops.cos(turn), heads.dtype) + turned * ops.cast(ops.sin(turn), heads.dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class RotaryAttention(MultiHeadAttention):
    """Self-attention whose queries and keys are turned by their positions (Su et al. 2021; see `rotate`).

    A cache keeps the turned keys. Arguments and call arguments: see `MultiHeadAttention`; memory is x.

    Raises:
        ValueError: if `d_key` is odd.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        if self.d_key % 2:
            raise ValueError(f"`d_key` must be even: rotary positions turn pairs. Received: d_key={self.d_key}")

    def project(self, memory, position=None):
        keys, values = super().project(memory)
        return self.turn(keys, position), values

    def weigh(self, x, keys, attention_mask=None, position=None):
        queries = split_heads(self.query(x), self.num_heads)
        return attention_weights(self.turn(queries, position), keys, attention_mask)

    def turn(self, heads, position=None):
        """Turns (B, H, T, K) by their positions. A graph finds the angles of one position once for all layers."""
        return rotate(heads, ops.arange(ops.shape(heads)[2]) if position is None else ops.reshape(position, (1,)))
