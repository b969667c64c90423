"""Beam search: the W best hypotheses of every row, side by side."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    append,
    empty_hypotheses,
    first_ids,
    most_likely,
    no_hypotheses,
    normalised,
    penalty,
    per_row,
    presented,
    search,
    take,
    where_rows,
)


class BeamState(NamedTuple):
    """Between two steps. In a row that is done, `live` and `finished` stay as they are and the rest means nothing."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, W): the tokens at `position`, which the step function reads next
    live: Hypotheses  # of W, best first, of equal length in a row; scores are summed log-probabilities
    finished: Hypotheses  # of W, best first; scores are normalised
    done: tf.Tensor  # bool (B,)
    cache: Any  # nest of (B, W, ...)


class Candidates(NamedTuple):
    """N continuations of live hypotheses by one token, best first: 2W to choose from, W that are kept."""

    hypotheses: Hypotheses  # of N; scores are summed log-probabilities
    tokens: tf.Tensor  # int32 (B, N): the last token of each
    parents: tf.Tensor  # int32 (B, N): the live hypothesis that each extends


def beam_search(step, cache, limits, *, beam_size, bos_id, eos_id, pad_id=0, length_penalty):
    """Keeps the W most likely unfinished hypotheses of every row, and the W best-scored that have reached eos.

    - A hypothesis finishes when eos puts it among the W most likely continuations of its row.
    - A row is done when W hypotheses have finished; when no live one can overtake the best finished one any more,
      which leaves the first hypothesis as it would be, but the list behind it perhaps shorter than W; at its limit; or
      when none of its live hypotheses has a continuation (logits that are not a distribution, such as NaN).
    - A row that is done with no hypothesis finished returns its live ones as they stand, without eos.

    No row's result depends on the others. With a beam of 1 it is greedy search.

    Args:
        step: function (ids int32 (B, W), position int32 scalar, cache) -> (logits float (B, W, V), cache). `ids` are
            the tokens at `position`. Rows that are done are still passed to it, with arbitrary tokens.
        cache: nest of tensors (B, W, ...) that follow their hypothesis. Axes after W may grow from step to step, if
            they start out empty or of unknown size. What is constant belongs to the step function, not in here.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        beam_size: W.
        bos_id: what the step function reads at position 0.
        eos_id: the token that ends a hypothesis.
        pad_id: what follows a hypothesis in `ids`.
        length_penalty: alpha of ((5 + n) / 6)^alpha, float32 scalar or (B,).

    Returns:
        `Hypotheses`, best first.
    """
    limits = tf.convert_to_tensor(limits, tf.int32)
    length_penalty = per_row(length_penalty)

    def advance(state):
        logits, cache = step(state.ids, state.position, state.cache)
        candidates = _expand(state.live, logits)
        kept = _keep_live(candidates, beam_size, eos_id)
        finished = _keep_finished(state.finished, candidates, eos_id, length_penalty)

        moves = ~state.done & (candidates.hypotheses.scores[:, 0] > IMPOSSIBLE)
        live, finished = where_rows(moves, (kept.hypotheses, finished), (state.live, state.finished))
        done = ~moves | _is_decided(live, finished, limits, length_penalty)
        return BeamState(state.position + 1, kept.tokens, live, finished, done, take(cache, kept.parents))

    state = search(advance, _first_state(cache, limits, beam_size, bos_id, pad_id))
    return presented(_results(state, length_penalty), pad_id)


def _first_state(cache, limits, beam_size, bos_id, pad_id):
    live = empty_hypotheses(limits, beam_size, pad_id)
    finished = no_hypotheses(limits, beam_size, pad_id)
    return BeamState(tf.constant(0), first_ids(live, bos_id), live, finished, limits <= 0, cache)


def _expand(live, logits):
    """The 2W most likely continuations of a row: at most W of them end in eos, so W at least go on."""
    width = live.scores.shape[1]
    # The W most likely that go on, and eos, are all that one hypothesis can contribute.
    log_probs, tokens = most_likely(logits, width + 1)  # (B, W, W + 1)
    per_parent = tf.shape(tokens)[-1]
    flat = [-1, width * per_parent]
    scores, chosen = tf.math.top_k(tf.reshape(live.scores[..., None] + log_probs, flat), 2 * width)  # (B, 2W)
    tokens = take(tf.reshape(tokens, flat), chosen)
    parents = chosen // per_parent
    return Candidates(append(take(live, parents), tokens, scores), tokens, parents)


def _keep_live(candidates, beam_size, eos_id):
    """The W most likely candidates that have not ended."""
    hypotheses, tokens, _ = candidates
    scores, kept = tf.math.top_k(tf.where(tokens == eos_id, IMPOSSIBLE, hypotheses.scores), beam_size)
    candidates = take(candidates, kept)
    return candidates._replace(hypotheses=candidates.hypotheses._replace(scores=scores))


def _keep_finished(finished, candidates, eos_id, length_penalty):
    """The W best of the finished hypotheses and of those candidates among the first W that have just ended."""
    width = finished.scores.shape[1]
    ending, tokens, _ = tf.nest.map_structure(lambda x: x[:, :width], candidates)
    ending = normalised(ending, length_penalty)
    ending = ending._replace(scores=tf.where(tokens == eos_id, ending.scores, IMPOSSIBLE))
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), finished, ending)  # of 2W
    return take(both, tf.math.top_k(both.scores, width).indices)


def _is_decided(live, finished, limits, length_penalty):
    """Whether a row needs no further step, bool (B,)."""
    lengths, limits = live.lengths[:, :1], limits[:, None]  # (B, 1)
    # Log-probabilities only fall, so the best that can come is today's best under the mildest penalty still ahead:
    # that of the limit, or of the next step where alpha is negative.
    mildest = tf.maximum(penalty(limits, length_penalty), penalty(lengths + 1, length_penalty))
    hopeless = live.scores[:, :1] / mildest <= finished.scores[:, :1]
    full = finished.scores[:, -1:] > IMPOSSIBLE
    return tf.squeeze(full | hopeless | (lengths >= limits), axis=1)


def _results(state, length_penalty):
    has_finished = state.finished.scores[:, 0] > IMPOSSIBLE
    return where_rows(has_finished, state.finished, normalised(state.live, length_penalty))
