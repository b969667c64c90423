"""Greedy search: the most likely token at every step."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    append,
    empty_hypotheses,
    first_ids,
    most_likely,
    normalised,
    per_row,
    presented,
    search,
    where_rows,
)


class GreedyState(NamedTuple):
    """Between two steps."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, 1): the tokens at `position`, which the step function reads next
    hypotheses: Hypotheses  # of W = 1; scores are summed log-probabilities
    done: tf.Tensor  # bool (B,)
    cache: Any  # nest of (B, 1, ...)


def greedy_search(step, cache, limits, *, bos_id, eos_id, pad_id=0, length_penalty):
    """Extends one hypothesis per row by its most likely token until that is eos or the row's limit is reached.

    It finds what `beam_search` finds with a beam of 1, without the bookkeeping. A row whose logits are no longer a
    distribution (NaN) keeps what it has so far. No row's result depends on the others.

    Args:
        step: see `beam_search`; W = 1.
        cache: nest of tensors (B, 1, ...).
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
        logits, cache = step(state.ids, state.position, state.cache)
        log_probs, tokens = (x[..., 0] for x in most_likely(logits, 1))  # (B, 1)
        longer = append(state.hypotheses, tokens, state.hypotheses.scores + log_probs)

        moves = ~state.done & (longer.scores[:, 0] > IMPOSSIBLE)
        hypotheses = where_rows(moves, longer, state.hypotheses)
        ended = (tokens[:, 0] == eos_id) | (hypotheses.lengths[:, 0] >= limits)
        return GreedyState(state.position + 1, tokens, hypotheses, ~moves | ended, cache)

    start = empty_hypotheses(limits, 1, pad_id)
    state = search(advance, GreedyState(tf.constant(0), first_ids(start, bos_id), start, limits <= 0, cache))
    return presented(normalised(state.hypotheses, per_row(length_penalty)), pad_id)
