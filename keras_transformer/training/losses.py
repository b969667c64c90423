"""Label-smoothed cross-entropy (section 5.4) of tied logits, with its gradient written out."""

import tensorflow as tf

SMALLEST = {tf.float16: 2.0**-24, tf.bfloat16: 1e-37, tf.float32: 1e-37}  # probabilities above 0


def token_losses(states, matrix, labels, label_smoothing=0.0):
    """Cross-entropy of every token, with and without label smoothing, straight from the decoder's output.

    The logits are z = states matrix^T (3.4). The smoothed target is (1 - eps) on the label plus eps / V on every
    token, so with y the label

        smoothed = -log softmax(z)_y + eps (z_y - mean z)
        d smoothed / d z = softmax(z) - eps / V - (1 - eps) one_hot(y)

    The (N, V) arrays are what a small model's training spends most time on, so only z and softmax(z) are ever made:
    the mean of z is a product with the mean row of the matrix; in the gradient, the two other terms, too, are
    products of (N, D) and (V, D) size, and the upstream gradient is applied to the states.

    In mixed precision those two arrays are in half precision, like the states (TensorFlow's softmax still computes in
    float32); all that is summed up from them is float32. Validation gives float32 states, and so is float32 throughout.

    Args:
        states: (N, D), in the dtype that the products are computed in.
        matrix: (V, D), the embedding.
        labels: int (N,).
        label_smoothing: eps.

    Returns:
        smoothed float32 (N,), differentiable with respect to states and matrix; cross_entropy float32 (N,) and
        is_right bool (N,), whether no token is likelier than the label, which carry no gradient.
    """

    @tf.custom_gradient
    def losses(states, matrix):
        weights = tf.cast(matrix, states.dtype)
        probabilities = tf.nn.softmax(tf.matmul(states, weights, transpose_b=True))  # (N, V)
        label_positions = tf.stack([tf.range(tf.size(labels)), labels], axis=1)
        label_probabilities = tf.gather_nd(probabilities, label_positions)
        is_right = label_probabilities >= largest(probabilities)
        smallest = SMALLEST[probabilities.dtype]  # a smaller one has become 0, whose logarithm is infinite
        cross_entropy = -tf.math.log(tf.maximum(tf.cast(label_probabilities, tf.float32), smallest))
        mean_row = tf.reduce_mean(matrix, axis=0)  # (D,)
        states32, label_rows = tf.cast(states, tf.float32), tf.gather(matrix, labels)  # (N, D)
        smoothed = cross_entropy + label_smoothing * tf.reduce_sum(states32 * (label_rows - mean_row), axis=-1)

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
            return tf.cast(d_states, states.dtype), d_matrix

        return (smoothed, cross_entropy, is_right), gradient

    return losses(states, tf.convert_to_tensor(matrix))


def largest(probabilities):
    """The maximum of every row of probabilities (N, V), which may not be negative.

    Positive floats are ordered as the integers that their bits spell, and for bfloat16 TensorFlow finds the largest
    integer eight times as fast on CPU.
    """
    integer = tf.int32 if probabilities.dtype == tf.float32 else tf.int16
    return tf.bitcast(tf.reduce_max(tf.bitcast(probabilities, integer), axis=-1), probabilities.dtype)
