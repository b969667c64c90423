"""Linear maps, layer normalisation, dropout and masking, shaped so that TensorFlow's kernels for CPUs run them fast.

This module has everything that is shaped for these kernels, and `Layer`, from which all small layers descend. Each
other class computes what the Keras layer of the same name computes; the docstring says why ours differs.
"""

import inspect

import keras
from keras import ops

EPSILON = 1e-6  # of layer normalisation; the default of Keras, 1e-3, is not the paper's
LEVELS = 256  # values of one random byte
CROWDED, SPARE = 512, 16  # float32 numbers in 2 KiB, and in a line of the cache
MASKED = 1e9  # finite, so that a row without a position to attend to gives numbers and not NaN


class Layer(keras.layers.Layer):
    """A Keras layer that has one public attribute for each argument; `get_config` returns exactly these.

    The arguments are the names in the signatures of `__init__`, of the class and of its parents. Keyword-only arguments
    are left out.
    """

    def get_config(self):
        ours = [parent.__init__ for parent in type(self).__mro__ if issubclass(parent, Layer)]
        parameters = [p for method in ours for p in [*inspect.signature(method).parameters.values()][1:]]
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def check_choice(name, value, choices):
    """Refuses an argument that is none of the choices.

    Raises:
        ValueError: that names the argument, the choices and the value.
    """
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}. Received: {name}={value!r}")


def hide(scores, mask):
    """Lowers the attention scores of hidden positions so far that softmax gives them 0.

    TensorFlow fuses a product and the sum after it into one kernel of oneDNN. The fused kernel takes ten times as long
    if the mask has other leading axes than the scores, as the causal mask has. TensorFlow does not fuse a difference,
    so this function subtracts.

    Args:
        scores: float32 (B, H, T, S).
        mask: bool, broadcastable to (B, H, T, S); True = may attend.

    Returns:
        float32 (B, H, T, S).
    """
    return scores - ops.where(mask, 0.0, MASKED)


def inner_shape(x):
    """The sizes of all axes of x but the first and the last: (B, T, D) -> (T,). Known sizes are Python numbers."""
    sizes = tuple(x.shape[1:-1])
    return ops.shape(x)[1:-1] if None in sizes else sizes


def matmul_positions(x, matrix, width=None):
    """One matrix product for all positions of all rows: x (B, ..., D), matrix (D, E) -> (B, ..., E).

    If the rank is not 2, `ops.matmul` makes a tensor product. A tensor product looks up its shapes with a dozen
    operations, more than all others of a decoding step together. `width` is E of a matrix that `spread` has widened.
    """
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), matrix)
    width = ops.shape(matrix)[1] if width is None else width
    flat = flat if width == flat.shape[1] else flat[:, :width]
    return ops.reshape(flat, (-1, *inner_shape(x), width))


def spread(matrix):
    """A matrix (D, E) with `SPARE` columns of zeros behind it, if products with it are faster than with the matrix.

    TensorFlow's product reads a float32 matrix column by column. If its rows are a multiple of 2 KiB apart, as those of
    512 or 2,048 columns are, a column shares few places of the processor's cache, and the rows of a batch wait for it:
    a product with up to 128 positions takes 1.5 to 2 times as long. docs/figures/graph.md has the figures.
    """
    is_crowded = matrix.shape[1] % CROWDED == 0 and keras.backend.standardize_dtype(matrix.dtype) == "float32"
    return ops.pad(matrix, [[0, 0], [0, SPARE if is_crowded else 0]])


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """activation(x W + b): `keras.layers.Dense` with the same arguments.

    *Relative to* `keras.layers.Dense`: one matrix product for all positions (see `matmul_positions`). The bias is added
    after the reshape: TensorFlow would fuse the flat product and the sum into one kernel of oneDNN. With few positions,
    as in a decoding step, the fused kernel takes twice as long as product and sum apart. An export multiplies by
    `laid_out`, the variable of the spread kernel (see `spread`).

    Call arguments:
        x: (B, ..., D).

    Returns:
        (B, ..., units).
    """

    laid_out = None

    def call(self, x, training=None):
        y = matmul_positions(x, self.kernel if self.laid_out is None else self.laid_out, self.units)
        return self.activation(y if self.bias is None else ops.add(y, self.bias))


def layer_norm(x, gamma, beta, epsilon=EPSILON, training=True):
    """LN(x) = gamma (x - mean) / sqrt(variance + epsilon) + beta, over the last axis (3.1; Ba et al. 2016).

    With n the normalised x, r = 1 / sqrt(variance + epsilon), dy the gradient that arrives and mean() over D,

        dx = r (gamma dy - mean(gamma dy) - n mean(gamma dy n)),   dgamma = sum(dy n),   dbeta = sum(dy)

    Automatic differentiation gives the same values with 1.5 times as many passes over the data. It does so outside of
    training: TensorFlow keeps a graph with a gradient of its own as long as the process lives.

    Args:
        x: (..., D).
        gamma: float32 (D,).
        beta: float32 (D,).
        epsilon: float, which keeps a row of equal numbers finite.
        training: whether the gradient is computed by these equations.

    Returns:
        (..., D) in the dtype of x; computed in float32.
    """

    def normalise(x, gamma, beta):
        x32 = ops.cast(x, "float32")
        centred = x32 - ops.mean(x32, axis=-1, keepdims=True)
        r = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + epsilon)  # (..., 1)
        normal = centred * r

        def gradient(*args, upstream=None):
            dy = ops.cast(args[0] if upstream is None else upstream, "float32")
            dy_normal = dy * normal
            column = ops.expand_dims(ops.cast(gamma, "float32") / x.shape[-1], -1)  # (D, 1): a product is a mean
            mean, mean_normal = ops.matmul(dy, column), ops.matmul(dy_normal, column)  # (..., 1)
            dx = r * (dy * gamma - mean - normal * mean_normal)
            rows = tuple(range(len(x.shape) - 1))
            return ops.cast(dx, x.dtype), ops.sum(dy_normal, axis=rows), ops.sum(dy, axis=rows)

        return ops.cast(normal * gamma + beta, x.dtype), gradient

    return ops.custom_gradient(normalise)(x, gamma, beta) if training else normalise(x, gamma, beta)[0]


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(Layer):
    """`layer_norm` with a learned gain and bias, which are float32 whatever the dtype policy.

    *Relative to* `keras.layers.LayerNormalization`: a third less time on a CPU (see `layer_norm`), and the paper's
    epsilon.

    Args:
        epsilon: see `layer_norm`.

    Call arguments:
        x: (..., D).

    Returns:
        The shape and dtype of x.
    """

    def __init__(self, epsilon=EPSILON, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        exact = {"shape": (x_shape[-1],), "dtype": "float32", "autocast": False}
        self.gamma = self.add_weight(name="gamma", initializer="ones", **exact)
        self.beta = self.add_weight(name="beta", initializer="zeros", **exact)

    def call(self, x, training=False):
        gamma, beta = ops.copy(self.gamma), ops.copy(self.beta)  # TensorFlow takes a variable for a hidden input
        return layer_norm(x, gamma, beta, self.epsilon, training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(Layer):
    """Sets a random share of the activations to zero and scales the others up, in training only (5.4).

    *Relative to* `keras.layers.Dropout`: it draws one random byte for each activation, not one random float. Random
    numbers are a good part of a small model's training step on a CPU, and four bytes cost as much as one float. So the
    rate is rounded to a multiple of 1/256, and a rate above 0 to at least that. The scale is that of the rounded rate,
    so the expectation is exact.

    Args:
        rate: share of the activations dropped, in [0, 1).
        seed: int of the random numbers; by default one that Keras draws.

    Call arguments:
        x: any shape.

    Returns:
        The shape and dtype of x.

    Raises:
        ValueError: for a rate outside [0, 1).
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self.dropped_levels = min(max(round(rate * LEVELS), 1), LEVELS - 1) if rate else 0
        self.seed_generator = keras.random.SeedGenerator(seed, name="seed_generator")

    def build(self, x_shape):
        """There are no weights."""

    def call(self, x, training=False):
        if not training or self.dropped_levels == 0:
            return x
        size = ops.size(x)
        words = keras.random.randint((size // 64 + 1, 16), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator)
        random_bytes = ops.reshape(ops.view(words, "uint8"), (-1,))[:size]
        random_bytes = ops.reshape(random_bytes, ops.shape(x))
        scale = LEVELS / (LEVELS - self.dropped_levels)
        return x * ops.where(random_bytes >= self.dropped_levels, ops.cast(scale, x.dtype), ops.cast(0.0, x.dtype))
