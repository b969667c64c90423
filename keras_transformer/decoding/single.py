"""Greedy search and sampling: one hypothesis per row, extended by the most likely token or by one drawn at random."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    Hypotheses,
    append,
    drawn_tokens,
    empty_hypotheses,
    is_finished,
    next_tokens,
    normalised,
    per_row,
    presented,
    search,
    where_rows,
)


class SearchState(NamedTuple):
    """A search for one hypothesis per row, between two steps."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, 1): the tokens at `position`, which the step function reads next
    hypotheses: Hypotheses  # of W = 1; scores are summed log-probabilities
    done: tf.Tensor  # bool (B,)
    limits: tf.Tensor  # int32 (B, 1)
    options: dict  # name -> (B, 1)
    state: Any  # of the model: nest of (B, ...)


def greedy_search(step, state, limits, **how):
    """Extends one hypothesis per row by its most likely token: the result of `beam_search` with a beam of 1.

    Arguments and result: see `_extend_until_end`.
    """
    return _extend_until_end(step, state, limits, {}, **how)


def sample(step, state, limits, options, **how):
    """Extends one hypothesis per row by tokens drawn at random.

    Args:
        options: dict of the options of `drawn_tokens`, each (B,).
        step, state, limits, how: see `_extend_until_end`.

    Returns:
        `Hypotheses` of W = 1; scores are sums of the model's log-probabilities before the options.
    """
    return _extend_until_end(step, state, limits, {name: option[:, None] for name, option in options.items()}, **how)


def _extend_until_end(step, state, limits, options, *, bos_id, eos_id, pad_id, length_penalty):
    """Extends one hypothesis per row until eos or the row's limit is reached.

    A row whose logits are no longer a distribution (NaN) keeps the hypothesis that it has. No row's result depends on
    the others.

    Args:
        step: see `beam_search`; W = 1.
        state: see `beam_search`.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        options: those of `drawn_tokens`; {} takes the most likely token.
        bos_id: the token at position 0.
        eos_id: the token that ends a hypothesis.
        pad_id: the token that fills `ids` after a hypothesis.
        length_penalty: alpha, float32 scalar or (B,). It changes the score, never the choice.

    Returns:
        `Hypotheses` of W = 1.
    """
    limits = tf.convert_to_tensor(limits, tf.int32)

    def advance(now):
        parents = tf.zeros_like(now.ids)
        logits, state = step(now.ids, parents, now.position, now.state)
        if options:
            chosen = drawn_tokens(logits, now.options, now.position)
        else:
            chosen = next_tokens(logits, now.hypotheses, {}, 1)
        log_probs, tokens = (x[..., 0] for x in chosen)  # (B, 1)
        longer = append(now.hypotheses, tokens, now.hypotheses.scores + log_probs)

        moves = ~now.done & (longer.scores[:, 0] > IMPOSSIBLE)
        hypotheses = where_rows(moves, longer, now.hypotheses)
        ended = tf.squeeze(is_finished(tokens, eos_id) | (hypotheses.lengths >= now.limits), axis=1)
        return now._replace(
            position=now.position + 1, ids=tokens, hypotheses=hypotheses, done=~moves | ended, state=state
        )

    empty = empty_hypotheses(limits, 1, pad_id)
    ids = tf.fill(tf.shape(empty.lengths), bos_id)
    start = SearchState(tf.constant(0), ids, empty, limits <= 0, limits[:, None], options, state)
    hypotheses = search(advance, start, lambda now: now.hypotheses)
    return presented(normalised(hypotheses, per_row(length_penalty, limits)), pad_id)
