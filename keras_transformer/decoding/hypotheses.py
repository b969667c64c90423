"""Hypotheses, and what every search does with them: extend, score, select, present.

Shapes: B rows, W hypotheses per row, L tokens at most, V vocabulary.

While a search runs, a score of `IMPOSSIBLE` marks a slot that holds no hypothesis: minus infinity stays what it is
under sums, divisions and maxima, so that no search has to treat such a slot apart. Nothing infinite is ever returned.
"""

from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")
UNFILLED_SCORE = -1e9  # finite, because infinity is not JSON


class Hypotheses(NamedTuple):
    """W hypotheses per row, best first.

    As a result: the score is the log-probability divided by the GNMT length penalty. The first of every row is always
    a hypothesis, perhaps an empty one; a later slot without one has `UNFILLED_SCORE`, length 0 and only padding.
    """

    ids: tf.Tensor  # int32 (B, W, L): without bos, with eos where it was reached, then padding
    scores: tf.Tensor  # float32 (B, W)
    lengths: tf.Tensor  # int32 (B, W): tokens, eos included


def no_hypotheses(limits, width, pad_id):
    """`width` slots per row without a hypothesis, with room for the largest of `limits`, int32 (B,)."""
    rows = tf.shape(limits)[0]
    room = tf.maximum(tf.reduce_max(limits), 0)  # the maximum over no rows is the smallest int32
    return Hypotheses(
        ids=tf.fill([rows, width, room], pad_id),
        scores=tf.fill([rows, width], IMPOSSIBLE),
        lengths=tf.zeros([rows, width], tf.int32),
    )


def empty_hypotheses(limits, width, pad_id):
    """The start of a search: one empty hypothesis of log-probability 0 per row, and `width` - 1 slots without one.

    One, because `width` equal starts would fill the beam with copies of the same hypothesis.
    """
    none = no_hypotheses(limits, width, pad_id)
    scores = tf.one_hot(0, width, on_value=0.0, off_value=IMPOSSIBLE)  # (W,)
    return none._replace(scores=tf.broadcast_to(scores, tf.shape(none.scores)))


def first_ids(hypotheses, bos_id):
    """What the step function reads first: bos, int32 (B, W)."""
    return tf.fill(tf.shape(hypotheses.lengths), bos_id)


def append(hypotheses, tokens, scores):
    """Every hypothesis one token longer: tokens int32 (B, W), scores float32 (B, W) of the longer ones."""
    ids, _, lengths = hypotheses
    here = tf.range(tf.shape(ids)[-1]) == lengths[..., None]  # (B, W, L)
    return Hypotheses(tf.where(here, tokens[..., None], ids), scores, lengths + 1)


def take(nest, indices):
    """Row by row the slots named by `indices`, int32 (B, W'), of every tensor (B, W, ...) of the nest."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices, batch_dims=1), nest)


def where_rows(rows, nest, otherwise):
    """`nest` in the rows where `rows`, bool (B,), is true, else `otherwise`; both nests of tensors (B, ...)."""

    def pick(x, y):
        return tf.where(tf.reshape(rows, [-1] + [1] * (x.shape.rank - 1)), x, y)

    return tf.nest.map_structure(pick, nest, otherwise)


def per_row(option, limits, dtype=tf.float32):
    """An option, a scalar or (B,), as a column (B, 1), which broadcasts over (B, W); `limits` is (B,)."""
    return tf.broadcast_to(tf.reshape(tf.cast(option, dtype), [-1, 1]), [tf.shape(limits)[0], 1])


def penalty(lengths, length_penalty):
    """((5 + n) / 6)^alpha (Wu et al. 2016, equation 14).

    Args:
        lengths: n, int32, broadcastable with `length_penalty`.
        length_penalty: alpha, float32, finite; 0 compares log-probabilities, larger values favour longer hypotheses.
    """
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, length_penalty)


def normalised(hypotheses, length_penalty):
    """The hypotheses with their summed log-probabilities divided by the penalty of their length."""
    return hypotheses._replace(scores=hypotheses.scores / penalty(hypotheses.lengths, length_penalty))


def presented(hypotheses, pad_id):
    """The hypotheses as a result: no infinities, no left-overs in unfilled slots, no more columns than needed."""
    ids, scores, lengths = hypotheses
    filled = scores > IMPOSSIBLE
    lengths = tf.where(filled, lengths, 0)
    columns = tf.maximum(tf.reduce_max(lengths), 0)
    ids = tf.where(filled[..., None], ids, pad_id)[..., :columns]
    return Hypotheses(ids, tf.where(filled, scores, UNFILLED_SCORE), lengths)


def last_repeated(hypotheses):
    """The last hypothesis of every row in place of those that were not found."""
    found = tf.math.count_nonzero(hypotheses.scores > UNFILLED_SCORE, axis=1, keepdims=True, dtype=tf.int32)
    return take(hypotheses, tf.minimum(tf.range(hypotheses.scores.shape[1]), found - 1))
