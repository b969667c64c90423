"""The scores of given labels: their log-probabilities, and how much each looks at each token of its source."""

import tensorflow as tf

from keras_transformer.config import PAD_ID
from keras_transformer.tokenizer import shift_right

LOGITS_AT_A_TIME = 1024  # tokens: the (B, T, V) of a large batch would be gigabytes


def explain_labels(model, encode, sources, labels, batch_size):
    """log P(y_t | y_1 ... y_t-1, source) of every label, and how much it looks at each token of its source.

    Args:
        model: `SequenceToSequence`.
        encode: `model.encode`, or a tf.function of it.
        sources: RaggedTensor int32 (P, None).
        labels: RaggedTensor int32 (P, None), N in all.
        batch_size: int64 scalar, most pairs at a time.

    Returns:
        float32 (N,), and the alignments of all labels, flat: float32 (M,). Each label has as many as its source has
        tokens, and they sum to 1.
    """
    log_probs, alignments = tf.zeros([0]), tf.zeros([0])
    flat = tf.TensorShape([None])
    for start in tf.range(0, sources.nrows(), batch_size):
        tf.autograph.experimental.set_loop_options(
            parallel_iterations=1, shape_invariants=[(log_probs, flat), (alignments, flat)]
        )
        some_sources, some_labels = (x[start : start + batch_size] for x in (sources, labels))
        memory = encode(some_sources.to_tensor(PAD_ID))
        states, alignment = model.align(shift_right(some_labels.to_tensor(PAD_ID)), memory)
        is_label, is_source = (tf.sequence_mask(x.row_lengths()) for x in (some_labels, some_sources))
        more = label_log_probs(model, tf.boolean_mask(states, is_label), some_labels.values)
        log_probs = tf.concat([log_probs, more], axis=0)
        alignment = tf.boolean_mask(alignment, is_label[:, :, None] & is_source[:, None, :])
        alignments = tf.concat([alignments, alignment], axis=0)
    return log_probs, alignments


def label_log_probs(model, states, labels):
    """The log-probabilities of labels int32 (N,), given the states (N, D) that predict them: float32 (N,)."""
    log_probs = tf.zeros([0])
    for start in tf.range(0, tf.size(labels), LOGITS_AT_A_TIME):
        tf.autograph.experimental.set_loop_options(
            parallel_iterations=1, shape_invariants=[(log_probs, tf.TensorShape([None]))]
        )
        some = slice(start, start + LOGITS_AT_A_TIME)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[some], model.logits(states[some]))
        log_probs = tf.concat([log_probs, -losses], axis=0)
    return log_probs
