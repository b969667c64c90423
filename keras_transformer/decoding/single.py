"""What greedy search and sampling share: they follow one hypothesis per row, each by its own choice of tokens."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    append,
    empty_hypotheses,
    first_ids,
    normalised,
    per_row,
    presented,
    where_rows,
)
from keras_transformer.decoding.search import search


class SingleState(NamedTuple):
    """Between two steps."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, 1): the tokens at `position`, which the step function reads next
    hypotheses: Hypotheses  # of W = 1; scores are summed log-probabilities
    done: tf.Tensor  # bool (B,)
    limits: tf.Tensor  # int32 (B, 1)
    options: Any  # of `choose`: nest of (B, ...)
    cache: Any  # nest of (B, ...)


def follow(choose, options, step, cache, limits, *, bos_id, eos_id, pad_id=0, length_penalty):
    """Extends one hypothesis per row by chosen tokens until that is eos or the row's limit is reached.

    A row whose logits are no longer a distribution (NaN) keeps what it has so far. No row's result depends on the
    others.

    Args:
        choose: function (logits (B, 1, V), position, options) -> log-probabilities float32 and tokens int32, (B, 1, 1).
        options: nest of tensors (B, ...) for `choose`.
        step: see `beam_search`; W = 1.
        cache: see `beam_search`.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        bos_id: what the step function reads at position 0.
        eos_id: the token that ends a hypothesis.
        pad_id: what follows a hypothesis in `ids`.
        length_penalty: alpha, float32 scalar or (B,). It changes the score, never the choice.

    Returns:
        `Hypotheses` of W = 1.
    """
    limits = tf.convert_to_tensor(limits, tf.int32)

    def advance(state):
        history = tf.fill([tf.shape(state.ids)[0], 1, state.position + 1], True)  # all that was read
        logits, cache = step(state.ids, state.position, history, state.cache)
        log_probs, tokens = (x[..., 0] for x in choose(logits, state.position, state.options))  # (B, 1)
        longer = append(state.hypotheses, tokens, state.hypotheses.scores + log_probs)

        moves = ~state.done & (longer.scores[:, 0] > IMPOSSIBLE)
        hypotheses = where_rows(moves, longer, state.hypotheses)
        ended = tf.squeeze((tokens == eos_id) | (hypotheses.lengths >= state.limits), axis=1)
        done = ~moves | ended
        return SingleState(state.position + 1, tokens, hypotheses, done, state.limits, state.options, cache)

    start = empty_hypotheses(limits, 1, pad_id)
    ids, done = first_ids(start, bos_id), limits <= 0
    state = SingleState(tf.constant(0), ids, start, done, limits[:, None], options, cache)
    hypotheses = search(advance, state, lambda state: state.hypotheses)
    return presented(normalised(hypotheses, per_row(length_penalty, limits)), pad_id)
