"""The loss of every target token and its gradient, straight from the decoder's output (section 5.4)."""

import tensorflow as tf

SMALLEST = {tf.float16: 2.0**-24, tf.bfloat16: 1e-37, tf.float32: 1e-37}  # probabilities above 0


def token_losses(states, matrix, labels, label_smoothing=0.0, bias=None):
    """Cross-entropy of every token, with and without label smoothing, straight from the decoder's output.

    The logits are z = states matrix^T + b (`SequenceToSequence.logits`). The smoothed target is (1 - eps) on the label
    plus eps / V on every token, so with y the label

        smoothed = -log softmax(z)_y + eps (z_y - mean z)
        d smoothed / d z = softmax(z) - eps / V - (1 - eps) one_hot(y)

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

    def alone(probabilities):
        return 0.0, lambda: [probabilities]

    smoothed, _, cross_entropy, is_right = losses_of_passes([states], matrix, labels, label_smoothing, bias, [1], alone)
    return smoothed, cross_entropy, is_right


def losses_of_passes(passes, matrix, labels, label_smoothing, bias, shares, compare):
    """The loss of every token: the smoothed cross-entropies of all passes, each with its share, and their divergence.

    A small model spends most of its training time on (N, V) arrays. So only z and softmax(z) of each pass are ever
    made. The mean of z is a product with the mean row of the matrix, plus the mean of b. Two terms of the gradient are
    products of (N, D) and (V, D) size, and the upstream gradient is applied to the states.

    In mixed precision these two arrays are in half precision, like the states; the softmax of TensorFlow still computes
    in float32. Every sum of them is float32. Validation passes float32 states, and so computes in float32 throughout.

    Args:
        passes: list of (N, D), the states of every pass.
        matrix, labels, label_smoothing, bias: those of `token_losses`.
        shares: list of float, the factor of the cross-entropy of each pass.
        compare: function from softmax(z) of every pass, (N, V) each, to their divergence, float32 (N,) or 0, and to a
            function that gives d (share softmax(z) + divergence) / d z of every pass, a list of (N, V).

    Returns:
        The loss float32 (N,), differentiable with respect to passes, matrix and bias; and without a gradient, the
        divergence float32 (N,), and cross_entropy and is_right of the first pass, as `token_losses` gives them.
    """

    @tf.custom_gradient
    def losses(*arguments):
        passes, (matrix, *bias) = arguments[: len(shares)], arguments[len(shares) :]
        weights = tf.cast(matrix, passes[0].dtype)
        probabilities = [probabilities_of(states, weights, *bias) for states in passes]  # (N, V) each
        mean_row, label_rows = tf.reduce_mean(matrix, axis=0), tf.gather(matrix, labels)  # (D,), (N, D)
        of_labels = [cross_entropy_of(each, labels) for each in probabilities]
        smoothed = []
        for states, (cross_entropy, _) in zip(passes, of_labels, strict=True):
            above_mean = tf.reduce_sum(tf.cast(states, tf.float32) * (label_rows - mean_row), axis=-1)  # z_y - mean z
            if bias:
                above_mean += tf.gather(bias[0], labels) - tf.reduce_mean(bias[0])
            smoothed.append(cross_entropy + label_smoothing * above_mean)
        divergence, d_logits = compare(*probabilities)
        total = sum(share * loss for share, loss in zip(shares, smoothed, strict=True) if share)

        def gradient(upstream, *_):
            upstream = upstream[:, None]
            target_rows = (1 - label_smoothing) * label_rows + label_smoothing * mean_row
            d_passes, d_matrix, d_bias = [], 0.0, 0.0
            for states, share, d_z in zip(passes, shares, d_logits(), strict=True):
                weighted = upstream * tf.cast(states, tf.float32)  # (N, D)
                rows = tf.cast(tf.matmul(d_z, weights), tf.float32)  # (N, D)
                d_passes.append(tf.cast(upstream * (rows - share * target_rows), states.dtype))
                product = tf.matmul(d_z, tf.cast(weighted, states.dtype), transpose_a=True)  # (V, D)
                d_matrix += less_targets(tf.cast(product, tf.float32), weighted, share)
                if bias:
                    sums = tf.reduce_sum(tf.cast(d_z, tf.float32) * upstream, axis=0)  # (V,)
                    d_bias += less_targets(sums, upstream[:, 0], share)
            return *d_passes, d_matrix, *(d_bias for _ in bias)

        def less_targets(gradient, weighted, share):
            """What the targets take away from a gradient (V, ...), for weighted (N, ...)."""
            if not share:
                return gradient
            gradient -= share * label_smoothing / matrix.shape[0] * tf.reduce_sum(weighted, axis=0)
            return tf.tensor_scatter_nd_sub(gradient, labels[:, None], share * (1 - label_smoothing) * weighted)

        return (total + divergence, tf.zeros_like(total) + divergence, *of_labels[0]), gradient

    labels = tf.convert_to_tensor(labels)
    biases = () if bias is None else (tf.convert_to_tensor(bias),)
    return losses(*map(tf.convert_to_tensor, passes), tf.convert_to_tensor(matrix), *biases)


def probabilities_of(states, weights, bias=None):
    """softmax(states weights^T + b), (N, V), in the dtype of states (N, D) and weights (V, D)."""
    logits = tf.matmul(states, weights, transpose_b=True)
    return tf.nn.softmax(logits if bias is None else logits + tf.cast(bias, states.dtype))


def cross_entropy_of(probabilities, labels):
    """-log p_y float32 (N,), and whether no token is likelier, bool (N,), for probabilities (N, V) and labels (N,)."""
    of_labels = tf.gather_nd(probabilities, tf.stack([tf.range(tf.size(labels)), labels], axis=1))
    smallest = SMALLEST[probabilities.dtype]  # a smaller one is 0 in this dtype, and its logarithm infinite
    cross_entropy = -tf.math.log(tf.maximum(tf.cast(of_labels, tf.float32), smallest))
    return cross_entropy, of_labels >= largest(probabilities)


def largest(probabilities):
    """The maximum of every row of probabilities (N, V), none of them negative.

    Positive floats have the order of the integers with the same bits. TensorFlow finds the largest of 16-bit integers
    eight times as fast as the largest of bfloat16 on a CPU.
    """
    integer = tf.int32 if probabilities.dtype == tf.float32 else tf.int16
    return tf.bitcast(tf.reduce_max(tf.bitcast(probabilities, integer), axis=-1), probabilities.dtype)


def log_ratio(p, q):
    """log p - log q of probabilities (N, V), in their dtype. The logarithm of the ratio is exact where they are near.

    In half precision, each logarithm alone has the rounding error of its own size.
    """
    smallest = SMALLEST[p.dtype]
    if p.dtype == tf.float16:  # which has no number for a large ratio
        p, q = (tf.cast(x, tf.float32) for x in (p, q))
        return tf.cast(tf.math.log(tf.maximum(p, smallest) / tf.maximum(q, smallest)), tf.float16)
    return tf.math.log(tf.maximum(p, smallest) / tf.maximum(q, smallest))


def mean_of(p, values):
    """The expectation of values (N, V) under probabilities p (N, V): float32 (N, 1)."""
    return tf.reduce_sum(tf.cast(p * values, tf.float32), axis=-1, keepdims=True)
