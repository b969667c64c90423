"""What training minimises: the contract of a loss, and label-smoothed cross-entropy (section 5.4).

A new loss is one class here and one line in `LOSSES`. `TeacherForcing` divides every loss by the real target tokens.
"""

import keras
import tensorflow as tf
from keras import ops

SMALLEST = {tf.float16: 2.0**-24, tf.bfloat16: 1e-37, tf.float32: 1e-37}  # probabilities above 0


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp of the mean cross-entropy per real target token, without label smoothing."""

    def result(self):
        return ops.exp(super().result())


class TokenLoss:
    """The contract of a loss: a number for every real target token, from the states of one pass or of several.

    A loss never sees padding. It gets states, not logits: a loss that needs probabilities makes them with
    `output_matrix`, and keeps them only as long as it needs them.

    Attributes:
        passes: how often training runs the model on a batch. Every pass draws its own dropout. Validation runs it once.
        measures: dict, name -> class of the Keras metric of everything that the loss reports beside itself.
    """

    passes = 1
    measures = {}

    def run(self, states, inputs):
        """Runs the model for training. A subclass may change the inputs, or the model, from one pass to the next.

        Args:
            states: model from inputs to the decoder's output (B, T, D).
            inputs: {"source_ids": int (B, S), "target_ids": int (B, T)}.

        Returns:
            list of `passes` tensors (B, T, D).
        """
        return [states(inputs, training=True) for _ in range(self.passes)]

    def of_tokens(self, passes, output_matrix, labels, output_bias=None):
        """The loss of N real target tokens.

        Args:
            passes: list of (N, D), the states of every pass; in validation of one.
            output_matrix: (V, D), see `SequenceToSequence.output_matrix`.
            labels: int32 (N,).
            output_bias: (V,), see `SequenceToSequence.output_bias`. It is given only for a model that has one.

        Returns:
            float32 (N,), differentiable; and a dict from the names in `measures` to values (N,).
        """
        raise TypeError(f"{type(self).__name__} must have the method `of_tokens`")

    def get_config(self):
        """The arguments of the loss, with which a saved trainer makes it again: {} for a loss without arguments."""
        return {}

    @classmethod
    def from_config(cls, config):
        """The loss of these arguments."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CrossEntropy(TokenLoss):
    """Cross-entropy with label smoothing (5.4); see `token_losses`.

    Args:
        label_smoothing: eps_ls, in [0, 1).

    Example:

    ```python
    trainer.compile("adam", loss=CrossEntropy(label_smoothing=0.1))
    ```
    """

    measures = {"accuracy": keras.metrics.Mean, "perplexity": Perplexity}

    def __init__(self, label_smoothing=0.1):
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1). Received: label_smoothing={label_smoothing}")
        self.label_smoothing = label_smoothing

    def of_tokens(self, passes, output_matrix, labels, output_bias=None):
        smoothed, cross_entropy, is_right = token_losses(
            passes[0], output_matrix, labels, self.label_smoothing, output_bias
        )
        return smoothed, {"accuracy": is_right, "perplexity": cross_entropy}

    def get_config(self):
        return {"label_smoothing": self.label_smoothing}


LOSSES = {"cross_entropy": CrossEntropy}


def get_loss(loss):
    """The `TokenLoss` that `compile` is given: an object, a name of `LOSSES`, or None for the paper's.

    Raises:
        ValueError: for anything else, such as a loss of Keras, which knows no padding and divides by all positions.
    """
    if loss is None:
        return CrossEntropy()
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    if not isinstance(loss, TokenLoss):
        raise ValueError(f"`loss` must be a `TokenLoss` or one of {', '.join(LOSSES)}. Received: loss={loss!r}")
    return loss


def count_real_tokens(weights):
    """The number of real target tokens of the global batch, over all replicas: the divisor of the loss.

    Args:
        weights: float32 (B, T) of this replica, 0 on padding.

    Returns:
        float32 ().
    """
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))


def token_losses(states, matrix, labels, label_smoothing=0.0, bias=None):
    """Cross-entropy of every token, with and without label smoothing, straight from the decoder's output.

    The logits are z = states matrix^T + b (`SequenceToSequence.logits`). The smoothed target is (1 - eps) on the label
    plus eps / V on every token, so with y the label

        smoothed = -log softmax(z)_y + eps (z_y - mean z)
        d smoothed / d z = softmax(z) - eps / V - (1 - eps) one_hot(y)

    A small model spends most of its training time on (N, V) arrays. So only z and softmax(z) are ever made. The mean of
    z is a product with the mean row of the matrix, plus the mean of b. The two other terms of the gradient are products
    of (N, D) and (V, D) size, and the upstream gradient is applied to the states.

    In mixed precision these two arrays are in half precision, like the states; the softmax of TensorFlow still computes
    in float32. Every sum of them is float32. Validation passes float32 states, and so computes in float32 throughout.

    Args:
        states: (N, D), in the dtype that the products are computed in.
        matrix: (V, D), the `output_matrix` of the model.
        labels: int (N,).
        label_smoothing: eps.
        bias: b, (V,), the `output_bias` of the model; None for 0.

    Returns:
        smoothed float32 (N,), differentiable with respect to states, matrix and bias; and without a gradient,
        cross_entropy float32 (N,), and is_right bool (N,), whether no token is likelier than the label.
    """

    @tf.custom_gradient
    def losses(states, matrix, *bias):
        weights = tf.cast(matrix, states.dtype)
        logits = tf.matmul(states, weights, transpose_b=True)
        probabilities = tf.nn.softmax(logits + tf.cast(bias[0], states.dtype) if bias else logits)  # (N, V)
        label_positions = tf.stack([tf.range(tf.size(labels)), labels], axis=1)
        label_probabilities = tf.gather_nd(probabilities, label_positions)
        is_right = label_probabilities >= largest(probabilities)
        smallest = SMALLEST[probabilities.dtype]  # a smaller one is 0 in this dtype, and its logarithm infinite
        cross_entropy = -tf.math.log(tf.maximum(tf.cast(label_probabilities, tf.float32), smallest))
        mean_row = tf.reduce_mean(matrix, axis=0)  # (D,)
        states32, label_rows = tf.cast(states, tf.float32), tf.gather(matrix, labels)  # (N, D)
        above_mean = tf.reduce_sum(states32 * (label_rows - mean_row), axis=-1)  # z_y - mean z
        if bias:
            above_mean += tf.gather(bias[0], labels) - tf.reduce_mean(bias[0])
        smoothed = cross_entropy + label_smoothing * above_mean

        def gradient(upstream, *_):
            upstream = upstream[:, None]
            weighted = upstream * states32  # (N, D)
            expected_rows = tf.cast(tf.matmul(probabilities, weights), tf.float32)  # (N, D)
            target_rows = (1 - label_smoothing) * label_rows + label_smoothing * mean_row
            d_states = upstream * (expected_rows - target_rows)
            d_matrix = tf.matmul(probabilities, tf.cast(weighted, states.dtype), transpose_a=True)  # (V, D)
            d_matrix = tf.cast(d_matrix, tf.float32)
            d_matrix -= label_smoothing / matrix.shape[0] * tf.reduce_sum(weighted, axis=0)
            d_matrix = tf.tensor_scatter_nd_sub(d_matrix, labels[:, None], (1 - label_smoothing) * weighted)
            return tf.cast(d_states, states.dtype), d_matrix, *(d_bias(upstream) for _ in bias)

        def d_bias(upstream):
            d_logits = tf.reduce_sum(tf.cast(probabilities, tf.float32) * upstream, axis=0)  # (V,)
            d_logits -= label_smoothing / matrix.shape[0] * tf.reduce_sum(upstream)
            return tf.tensor_scatter_nd_sub(d_logits, labels[:, None], (1 - label_smoothing) * upstream[:, 0])

        return (smoothed, cross_entropy, is_right), gradient

    biases = () if bias is None else (tf.convert_to_tensor(bias),)
    return losses(states, tf.convert_to_tensor(matrix), *biases)


def largest(probabilities):
    """The maximum of every row of probabilities (N, V), none of them negative.

    Positive floats have the order of the integers with the same bits. TensorFlow finds the largest of 16-bit integers
    eight times as fast as the largest of bfloat16 on a CPU.
    """
    integer = tf.int32 if probabilities.dtype == tf.float32 else tf.int16
    return tf.bitcast(tf.reduce_max(tf.bitcast(probabilities, integer), axis=-1), probabilities.dtype)
