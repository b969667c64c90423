"""The linear map of every position (W x + b), which the paper uses throughout."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class Linear(keras.layers.Dense):
    """`keras.layers.Dense`, the same arguments, of all positions as one matrix product.

    Relative to `keras.layers.Dense`, which takes a tensor product where the rank is not 2: that looks up its shapes
    with a dozen operations, more than all others of a decoding step together.

    Call arguments:
        x: (B, ..., D).

    Returns:
        (B, ..., units).
    """

    def call(self, x, training=None):
        flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), self.kernel)
        y = ops.reshape(flat, (-1, *inner_shape(x), self.units))
        # Not the sum with `flat`: TensorFlow would fuse product and sum into one kernel of oneDNN, which takes twice as
        # long as the two where there are few positions, as in a decoding step.
        return self.activation(y if self.bias is None else ops.add(y, self.bias))


def inner_shape(x):
    """The sizes of all axes of x but the first and the last, numbers where they are known: (B, T, D) -> (T,)."""
    sizes = tuple(x.shape[1:-1])
    return ops.shape(x)[1:-1] if None in sizes else sizes
