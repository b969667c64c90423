"""Beam search: the W best hypotheses of every row, side by side."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    append,
    empty_hypotheses,
    first_ids,
    no_hypotheses,
    normalised,
    penalty,
    per_row,
    presented,
    take,
    where_rows,
)
from keras_transformer.decoding.next_token import most_likely, most_likely_allowed
from keras_transformer.decoding.search import search


class Options(NamedTuple):
    """What may be another in every row."""

    limits: tf.Tensor  # int32 (B, 1)
    beam_size: tf.Tensor  # int32 (B, 1), 1 ... W
    length_penalty: tf.Tensor  # float32 (B, 1)
    constraints: Any  # `Constraints` or ()


class BeamState(NamedTuple):
    """Between two steps. In a row that is done, `live` and `finished` stay as they are and the rest means nothing."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, W): the tokens at `position`, which the step function reads next
    history: tf.Tensor  # bool (B, W, position * W): which of the tokens read before each of them follows
    live: Hypotheses  # of W, best first, of equal length in a row; scores are summed log-probabilities
    finished: Hypotheses  # of W, best first; scores are normalised
    done: tf.Tensor  # bool (B,)
    options: Options
    cache: Any  # nest of (B, ...)


class Candidates(NamedTuple):
    """N continuations of live hypotheses by one token, best first: 2W to choose from, W that are kept."""

    hypotheses: Hypotheses  # of N; scores are summed log-probabilities
    tokens: tf.Tensor  # int32 (B, N): the last token of each
    parents: tf.Tensor  # int32 (B, N): the live hypothesis that each extends


def beam_search(
    step, cache, limits, *, width, bos_id, eos_id, pad_id=0, length_penalty, beam_size=None, wanted=1, constraints=()
):
    """Keeps the W most likely unfinished hypotheses of every row, and the W best-scored that have reached eos.

    - A hypothesis finishes when eos puts it among the W most likely continuations of its row.
    - A row is done when W hypotheses have finished; when no live one can overtake the worst of the `wanted` best
      finished ones any more; at its limit; or when none of its live hypotheses has a continuation (logits that are
      not a distribution, such as NaN, or constraints that leave nothing).
    - A row that is done with no hypothesis finished returns its live ones as they stand, without eos.

    No row's result depends on the others. With a beam of 1 it is greedy search.

    Args:
        step: function (ids int32 (B, W), position int32 scalar, history, cache) -> (logits float (B, W, V), cache).
            `ids` are the tokens at `position`. Of all (position + 1) * W tokens that a row has read, W at each
            position and these last, `history`, bool (B, W, (position + 1) * W), is true for those that a hypothesis
            consists of. Rows that are done may still be passed to it, with arbitrary tokens, or left out.
        cache: nest of tensors (B, ...), whatever the step function needs to know of a row. Nothing in it is ever
            rearranged within a row: it is `history` that says what belongs to whom. Axes may grow from step to step,
            if they start out empty or of unknown size.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        width: W.
        bos_id: what the step function reads at position 0.
        eos_id: the token that ends a hypothesis.
        pad_id: what follows a hypothesis in `ids`.
        length_penalty: alpha of ((5 + n) / 6)^alpha, float32 scalar or (B,).
        beam_size: int32 (B,), 1 ... W: the W of each row, if not the same for all.
        wanted: int, or int32 scalar, 1 ... W: how many hypotheses of the list matter. The others are as good as the
            search happened to get.
        constraints: `Constraints` of every row, or (). Scores are those of the constrained log-probabilities.

    Returns:
        `Hypotheses` of W, best first.
    """
    limits = tf.convert_to_tensor(limits, tf.int32)
    options = Options(
        limits=limits[:, None],
        beam_size=per_row(width if beam_size is None else beam_size, limits, tf.int32),
        length_penalty=per_row(length_penalty, limits),
        constraints=constraints,
    )

    def advance(state):
        history = tf.concat([state.history, _of_itself(state.ids)], axis=2)
        logits, cache = step(state.ids, state.position, history, state.cache)
        candidates = _expand(state.live, logits, state.options.constraints)
        kept = _keep_live(candidates, state.options.beam_size, eos_id)
        finished = _keep_finished(state.finished, candidates, state.options, eos_id)

        moves = ~state.done & (candidates.hypotheses.scores[:, 0] > IMPOSSIBLE)
        live, finished = where_rows(moves, (kept.hypotheses, finished), (state.live, state.finished))
        done = ~moves | _is_decided(live, finished, state.options, wanted)
        history = take(history, kept.parents)
        return BeamState(state.position + 1, kept.tokens, history, live, finished, done, state.options, cache)

    state = search(advance, _first_state(cache, limits, options, width, bos_id, pad_id), _results)
    return presented(state, pad_id)


def _first_state(cache, limits, options, width, bos_id, pad_id):
    live = empty_hypotheses(limits, width, pad_id)
    finished = no_hypotheses(limits, width, pad_id)
    history = tf.zeros([tf.shape(limits)[0], width, 0], tf.bool)
    return BeamState(tf.constant(0), first_ids(live, bos_id), history, live, finished, limits <= 0, options, cache)


def _of_itself(ids):
    """That every hypothesis follows the token it has just read, and none of the other W - 1: bool (B, W, W)."""
    rows, width = tf.shape(ids)[0], ids.shape[1]
    return tf.broadcast_to(tf.eye(width, dtype=tf.bool), [rows, width, width])


def _expand(live, logits, constraints):
    """The 2W most likely continuations of a row: at most W of them end in eos, so W at least go on."""
    width = live.scores.shape[1]
    # The W most likely that go on, and eos, are all that one hypothesis can contribute.
    if constraints:
        log_probs, tokens = most_likely_allowed(logits, live, constraints, width + 1)  # (B, W, W + 1)
    else:
        log_probs, tokens = most_likely(logits, width + 1)
    per_parent = tokens.shape[2]
    flat = [-1, width * per_parent]
    scores, chosen = tf.math.top_k(tf.reshape(live.scores[..., None] + log_probs, flat), 2 * width)  # (B, 2W)
    tokens = take(tf.reshape(tokens, flat), chosen)
    parents = chosen // per_parent
    return Candidates(append(take(live, parents), tokens, scores), tokens, parents)


def _keep_live(candidates, beam_size, eos_id):
    """The most likely candidates that have not ended, as many as the row's beam holds."""
    hypotheses, tokens, _ = candidates
    width = hypotheses.scores.shape[1] // 2
    scores, kept = tf.math.top_k(tf.where(tokens == eos_id, IMPOSSIBLE, hypotheses.scores), width)
    scores = tf.where(tf.range(width) < beam_size, scores, IMPOSSIBLE)
    candidates = take(candidates, kept)
    return candidates._replace(hypotheses=candidates.hypotheses._replace(scores=scores))


def _keep_finished(finished, candidates, options, eos_id):
    """The best of the finished hypotheses and of those first candidates of a row's beam that have just ended."""
    width = finished.scores.shape[1]
    slots = tf.range(width)
    ending, tokens, _ = tf.nest.map_structure(lambda x: x[:, :width], candidates)
    ending = normalised(ending, options.length_penalty)
    has_ended = (tokens == eos_id) & (slots < options.beam_size)
    ending = ending._replace(scores=tf.where(has_ended, ending.scores, IMPOSSIBLE))
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), finished, ending)  # of 2W
    scores, kept = tf.math.top_k(both.scores, width)
    return take(both, kept)._replace(scores=tf.where(slots < options.beam_size, scores, IMPOSSIBLE))


def _is_decided(live, finished, options, wanted):
    """Whether a row needs no further step, bool (B,)."""
    scores, lengths = live.scores[:, :1], live.lengths[:, :1]  # (B, 1)
    # Log-probabilities only fall, so the best that can come is today's best under the mildest penalty still ahead:
    # that of the limit, or of the next step where alpha is negative.
    alpha = options.length_penalty
    best_to_come = scores / tf.maximum(penalty(options.limits, alpha), penalty(lengths + 1, alpha))
    is_full = tf.gather(finished.scores, options.beam_size - 1, batch_dims=1) > IMPOSSIBLE
    is_hopeless = best_to_come <= finished.scores[:, wanted - 1, None]
    return tf.squeeze(is_full | is_hopeless | (lengths >= options.limits), axis=1)


def _results(state):
    has_finished = state.finished.scores[:, 0] > IMPOSSIBLE
    return where_rows(has_finished, state.finished, normalised(state.live, state.options.length_penalty))
