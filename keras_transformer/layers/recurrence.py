"""Recurrence: the loop over the positions, and the unit that takes the place of self-attention in fast decoders."""

import keras
from keras import ops

from keras_transformer.layers.attention import appended
from keras_transformer.layers.kernels import Layer, Linear


def scan(advance, state, x):
    """Runs a recurrence over all positions.

    Args:
        advance: function (state, x at a position, (B, D)) -> state after it.
        state: nest of (B, ...) and of scalars, before the first position.
        x: (B, T, D).

    Returns:
        the states after every position, the nest with an axis of T: (B, T, ...), and (T,) of a scalar.
    """

    def body(state, x):
        state = advance(state, x)
        return state, state

    _, states = ops.scan(body, state, ops.swapaxes(x, 0, 1))
    return keras.tree.map_structure(lambda y: ops.swapaxes(y, 0, 1) if len(y.shape) > 1 else y, states)


@keras.saving.register_keras_serializable(package="keras_transformer")
class SSRU(Layer):
    """The simpler simple recurrent unit (Kim et al. 2019, section 3.1), in place of the decoder's self-attention:

        f_t = sigmoid(x_t W_f + b_f)
        c_t = f_t * c_{t-1} + (1 - f_t) * (x_t W)
        o_t = max(0, c_t)

    Neither product reads c, so training computes them for all positions at once. Then only a few elementwise steps
    follow one another. A search keeps one vector for each hypothesis, not keys and values of all positions, and its
    step takes two products in place of four.

    It has the methods of `MultiHeadAttention` that a layer of the decoder calls, with their arguments. c is float32.

    Args:
        d_model: D, width in and out.

    Call arguments:
        x: (B, T, D). Position t reads the positions 0 ... t.
        memory, attention_mask: ignored.

    Returns:
        (B, T, D).
    """

    num_heads = 0

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.candidate = Linear(d_model, use_bias=False, name="candidate", dtype=self.dtype_policy)
        self.gate = Linear(d_model, name="gate", dtype=self.dtype_policy)

    def build(self, x_shape, memory_shape=None):
        for linear in (self.candidate, self.gate):
            linear.build((None, None, self.d_model))

    def kept_and_new(self, x):
        """f and (1 - f) * (x W), by which c' = f * c + new: x (B, T, D) -> float32 (B, T, 2D)."""
        gate = ops.sigmoid(ops.cast(self.gate(x), "float32"))
        return ops.concatenate([gate, (1 - gate) * ops.cast(self.candidate(x), "float32")], axis=-1)

    def call(self, x, memory=None, attention_mask=None, training=False):
        cells = scan(advance, ops.zeros_like(x[:, 0], "float32"), self.kept_and_new(x))
        return ops.cast(ops.relu(cells), self.compute_dtype)

    def empty_cache(self, batch, places=0, width=1):
        """c before the first position, of W hypotheses: (B, W, D)."""
        return ops.zeros((batch, width, self.d_model), "float32")

    def step(self, x, position, cache, history=None, add=appended):
        """One position of W hypotheses: x (B, W, D), c of the position before -> o (B, W, D), c."""
        cells = advance(cache, self.kept_and_new(x))
        return ops.cast(ops.relu(cells), self.compute_dtype), cells


def take_rows(x, positions):
    """Rows of every matrix: x (B, N, D), and positions int (B, M) in it -> (B, M, D).

    `ops.take_along_axis` would spread the positions over D.
    """
    batch, length, width = ops.shape(x)
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    return ops.take(ops.reshape(x, (-1, width)), starts + positions, axis=0)


def of_parents(nest, parents):
    """What each hypothesis takes over, of a nest of vectors (B, W, D): those of its parent, of int (B, W)."""
    return nest if parents.shape[1] == 1 else keras.tree.map_structure(lambda x: take_rows(x, parents), nest)


def advance(cells, kept_and_new):
    """c (..., D) before a position, and (..., 2D) from `SSRU.kept_and_new` -> c after it, (..., D)."""
    kept, new = ops.split(kept_and_new, 2, axis=-1)
    return kept * cells + new
