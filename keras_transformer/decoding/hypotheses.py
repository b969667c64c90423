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


def most_likely(logits, count):
    """The `count` (or V, if that is less) most likely next tokens of every hypothesis.

    A hypothesis whose logits are not a distribution (a NaN, an infinity, nothing but minus infinity) is a dead end:
    its log-softmax is NaN throughout, which top_k leaves in place, and all its continuations are `IMPOSSIBLE`.

    Args:
        logits: float (B, W, V).
        count: number of tokens.

    Returns:
        log-probabilities float32 (B, W, count), best first, and their tokens, int32 (B, W, count).
    """
    count = tf.minimum(count, tf.shape(logits)[-1])
    log_probs, tokens = tf.math.top_k(tf.nn.log_softmax(tf.cast(logits, tf.float32)), count)
    return tf.where(tf.math.is_nan(log_probs), IMPOSSIBLE, log_probs), tokens


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


def per_row(option):
    """An option, a scalar or (B,), as a float32 column (1, 1) or (B, 1), which broadcasts over (B, W)."""
    return tf.reshape(tf.cast(option, tf.float32), [-1, 1])


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


def search(advance, state):
    """Advances the state until all of `state.done`, bool (B,), is true.

    Args:
        advance: function from state to state.
        state: a NamedTuple of nests of tensors (B, ...) and scalars. An axis that grows from step to step (one that
            the cache is appended to) must start out empty, or of unknown size: the other axes keep their static size.

    Returns:
        the last state.
    """

    def invariant(tensor):
        sizes = [None, *(size or None for size in tensor.shape[1:])]
        return tf.TensorShape(sizes[: tensor.shape.rank])

    (state,) = tf.while_loop(
        cond=lambda state: ~tf.reduce_all(state.done),
        body=lambda state: (advance(state),),
        loop_vars=(state,),
        shape_invariants=(tf.nest.map_structure(invariant, state),),
    )
    return state
