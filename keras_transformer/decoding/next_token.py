"""Which token comes next: the most likely ones, and the constraints that a user puts on them.

Shapes: B rows, W hypotheses per row, L tokens at most, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import IMPOSSIBLE

BLOCK = 64  # tokens looked at together in search of the most likely ones


class Constraints(NamedTuple):
    """What a user asks of each row, whatever the model thinks of it."""

    prefix: tf.Tensor  # int32 (B, P): the tokens that every hypothesis has to start with, then padding
    prefix_lengths: tf.Tensor  # int32 (B, 1)
    repetition_penalty: tf.Tensor  # float32 (B, 1), positive: log-probabilities of tokens used are multiplied by it
    no_repeat_ngram: tf.Tensor  # int32 (B, 1): no sequence of so many tokens comes twice; below 1, any may


def most_likely(logits, count):
    """The `count` (or V, if that is less) most likely next tokens of every hypothesis.

    A hypothesis whose logits are not a distribution (a NaN, an infinity, nothing but minus infinity) is a dead end:
    all its continuations are `IMPOSSIBLE`.

    The log-probability of a token is its logit, less that of the best token, plus the log-probability of the best. So
    the only passes over the vocabulary are a softmax, which is fused, and the search for the largest; a log-softmax
    and `tf.math.top_k` take three times as long.

    Args:
        logits: float (B, W, V).
        count: number of tokens.

    Returns:
        log-probabilities float32 (B, W, count), best first, and their tokens, int32 (B, W, count).
    """
    logits = tf.cast(logits, tf.float32)
    chosen, tokens = largest(logits, count)
    best = tf.gather(tf.nn.softmax(logits), tokens[..., :1], batch_dims=2)  # (B, W, 1)
    log_probs = chosen - chosen[..., :1] + tf.math.log(best)
    return tf.where(tf.math.is_nan(log_probs), IMPOSSIBLE, log_probs), tokens


def most_likely_allowed(logits, hypotheses, constraints, count):
    """As `most_likely`, given the hypotheses (B, W) that the logits continue, under `Constraints`."""
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    log_probs = tf.where(tf.math.is_nan(log_probs), IMPOSSIBLE, log_probs)
    size = log_probs.shape[-1]

    is_used = _marked(hypotheses.ids, _are_read(hypotheses), size)
    free = tf.where(is_used, log_probs * constraints.repetition_penalty[..., None], log_probs)
    would_repeat = _marked(hypotheses.ids, _end_repetitions(hypotheses, constraints.no_repeat_ngram), size)
    free = tf.where(would_repeat, IMPOSSIBLE, free)

    is_forced = hypotheses.lengths < constraints.prefix_lengths  # (B, W)
    forced = tf.gather(constraints.prefix, tf.where(is_forced, hypotheses.lengths, 0), batch_dims=1)
    only = tf.where(tf.range(size) == forced[..., None], log_probs, IMPOSSIBLE)
    return largest(tf.where(is_forced[..., None], only, free), count)


def largest(x, count):
    """What `tf.math.top_k` gives, in another order of equals: the largest values are in the blocks of largest maxima.

    Args:
        x: float32 (B, W, V); W and V are static.
        count: number of values, or V if that is less.

    Returns:
        values float32 (B, W, count), largest first, and their indices, int32.
    """
    width, size = x.shape[1:]
    if size % BLOCK:
        x = tf.pad(x, [[0, 0], [0, 0], [0, -size % BLOCK]], constant_values=IMPOSSIBLE)
    blocks = tf.reshape(x, [-1, width, x.shape[2] // BLOCK, BLOCK])
    _, first = tf.math.top_k(tf.reduce_max(blocks, axis=-1), min(count, blocks.shape[2]))  # (B, W, C)
    few = tf.reshape(tf.gather(blocks, first, batch_dims=2), [-1, width, first.shape[2] * BLOCK])
    values, index = tf.math.top_k(few, min(count, size))
    index = tf.gather(first, index // BLOCK, batch_dims=2) * BLOCK + index % BLOCK
    return values, tf.minimum(index, size - 1)  # of padding, where nothing else is left


def _are_read(hypotheses):
    """Which of the tokens are not padding, bool (B, W, L)."""
    return tf.range(tf.shape(hypotheses.ids)[-1]) < hypotheses.lengths[..., None]


def _marked(ids, which, size):
    """Whether each of `size` tokens is among those of ids, int32 (B, W, L), that `which`, bool, marks: (B, W, V)."""
    shape = [tf.shape(ids)[0], ids.shape[1], size]
    hypothesis = tf.reshape(tf.range(shape[0] * shape[1]), [-1, shape[1], 1])
    cells = tf.reshape(hypothesis * size + ids, [-1, 1])
    marks = tf.scatter_nd(cells, tf.reshape(tf.cast(which, tf.int32), [-1]), [tf.reduce_prod(shape)])
    return tf.reshape(marks > 0, shape)


def _end_repetitions(hypotheses, sizes):
    """Which tokens, if they came next, would end a sequence of `sizes` tokens that was there before: bool (B, W, L).

    They are those that follow an earlier occurrence of the last `sizes` - 1 tokens.
    """
    ids, _, lengths = hypotheses
    positions = tf.range(tf.shape(ids)[-1])
    back = 1 + tf.range(tf.clip_by_value(tf.reduce_max(sizes) - 1, 0, tf.shape(ids)[-1]))  # (J,)
    before = positions[:, None] - back  # (L, J): the J positions before each
    newest = tf.maximum(lengths[..., None] - back, 0)  # (B, W, J): the last J of the hypothesis
    is_same = tf.gather(ids, tf.maximum(before, 0), axis=2) == tf.gather(ids, newest, batch_dims=2)[:, :, None]
    is_same = tf.cast(is_same & (before >= 0), tf.int32)  # (B, W, L, J)
    agreeing = tf.reduce_sum(tf.math.cumprod(is_same, axis=-1), axis=-1)  # (B, W, L)
    return _are_read(hypotheses) & (sizes[..., None] >= 1) & (agreeing >= sizes[..., None] - 1)
