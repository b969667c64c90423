"""Greedy search and sampling: one hypothesis per row, extended by the most likely token or by one drawn at random."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding import search


class SearchState(NamedTuple):
    """A search for one hypothesis per row, between two steps."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, 1): the tokens at `position`, which the step function reads next
    hypotheses: search.Hypotheses  # of W = 1; scores are summed log-probabilities
    done: tf.Tensor  # bool (B,)
    limits: tf.Tensor  # int32 (B, 1)
    options: dict  # name -> (B, 1)
    state: Any  # of the model: nest of (B, ...)


class SingleSearch:
    """A search for one hypothesis per row, step by step, with the methods of `BeamSearch`.

    Args:
        step, bos_id, eos_id, pad_id: see `beam_search`; W = 1.
    """

    def __init__(self, step, *, bos_id, eos_id, pad_id):
        self.step, self.bos_id, self.eos_id, self.pad_id = step, bos_id, eos_id, pad_id

    def begin(self, state, limits, length_penalty, wanted=1, options=None, room=None):
        """The `SearchState` before the first step; `wanted` changes nothing. See `BeamSearch.begin`."""
        limits = tf.convert_to_tensor(limits, tf.int32)
        options = {name: option[:, None] for name, option in (options or {}).items()}
        options["length_penalty"] = search.per_row(length_penalty, limits)
        empty = search.empty_hypotheses(limits, 1, self.pad_id, room)
        ids = tf.fill(tf.shape(empty.lengths), self.bos_id)
        return SearchState(tf.constant(0), ids, empty, limits <= 0, limits[:, None], options, state)

    def advance(self, now):
        """The `SearchState` after one more step."""
        logits, state = self.step(now.ids, tf.zeros_like(now.ids), now.position, now.state)
        if "temperature" in now.options:
            chosen = search.drawn_tokens(logits, now.options, now.position)
        else:
            chosen = search.next_tokens(logits, now.hypotheses, {}, 1)
        log_probs, tokens = (x[..., 0] for x in chosen)  # (B, 1)
        longer = search.append(now.hypotheses, tokens, now.hypotheses.scores + log_probs)

        moves = ~now.done & (longer.scores[:, 0] > search.IMPOSSIBLE)
        hypotheses = search.where_rows(moves, longer, now.hypotheses)
        ended = tf.squeeze(search.is_finished(tokens, self.eos_id) | (hypotheses.lengths >= now.limits), axis=1)
        return now._replace(
            position=now.position + 1, ids=tokens, hypotheses=hypotheses, done=~moves | ended, state=state
        )

    def results(self, now):
        """The `Hypotheses` of a `SearchState`."""
        return search.normalised(now.hypotheses, now.options["length_penalty"])


def sample(step, state, limits, options, *, length_penalty, **how):
    """Extends one hypothesis per row by tokens drawn at random, until eos or the row's limit is reached.

    A row whose logits are no longer a distribution (NaN) keeps the hypothesis that it has. No row's result depends on
    the others.

    Args:
        step: see `beam_search`; W = 1.
        state: see `beam_search`.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        options: dict of the options of `drawn_tokens`, each (B,); {} takes the most likely token, as `beam_search`
            does with a beam of 1.
        length_penalty: alpha, float32 scalar or (B,). It changes the score, never the choice.
        **how: `bos_id`, `eos_id` and `pad_id`, see `beam_search`.

    Returns:
        `Hypotheses` of W = 1; scores are sums of the model's log-probabilities before the options.
    """
    searching = SingleSearch(step, **how)
    return search.run(searching, searching.begin(state, limits, length_penalty, options=options))
