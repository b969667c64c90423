"""Label-smoothed cross-entropy (section 5.4), with its gradient written out."""

import tensorflow as tf

SMALLEST = 1e-37  # probability whose logarithm is still finite


def token_losses(labels, logits, label_smoothing=0.0):
    """Cross-entropy of every token, with and without label smoothing.

    The smoothed target is (1 - eps) on the label plus eps / V on every token, so with z the logits and y the label

        smoothed = cross_entropy + eps (z_y - mean z)
        d smoothed / d z = softmax(z) - eps / V - (1 - eps) one_hot(y)

    The (N, V) arrays are what training spends most memory traffic on, hence one softmax for loss and gradient, and no
    one-hot targets. (On CPU, TensorFlow's fused cross-entropy takes ten times as long as its softmax.)

    Args:
        labels: int (N,).
        logits: float32 (N, V).
        label_smoothing: eps.

    Returns:
        smoothed float32 (N,), differentiable; cross_entropy float32 (N,), which carries no gradient.
    """

    @tf.custom_gradient
    def losses(logits):
        label_positions = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)  # (N, 2)
        probabilities = tf.nn.softmax(logits)
        cross_entropy = -tf.math.log(tf.maximum(tf.gather_nd(probabilities, label_positions), SMALLEST))
        label_logits = tf.gather_nd(logits, label_positions)
        smoothed = cross_entropy + label_smoothing * (label_logits - tf.reduce_mean(logits, axis=-1))

        def gradient(upstream, _):
            uniform = label_smoothing / logits.shape[-1]
            dense = (probabilities - uniform) * upstream[:, None]  # (N, V)
            return tf.tensor_scatter_nd_sub(dense, label_positions, (1.0 - label_smoothing) * upstream)

        return (smoothed, cross_entropy), gradient

    return losses(logits)
