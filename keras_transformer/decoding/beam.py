"""Beam search: the W best hypotheses of every row, side by side."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding import search

OWN_OPTIONS = ("beam_size", "length_penalty")  # which the search itself reads, and not `next_tokens`


class Beam(NamedTuple):
    """A beam search between two steps. In a row that is done, only `live` and `finished` are defined."""

    position: tf.Tensor  # int32 ()
    ids: tf.Tensor  # int32 (B, W): the tokens at `position`, which the step function reads next
    parents: tf.Tensor  # int32 (B, W): the hypothesis of the step before that each of them continues
    live: search.Hypotheses  # of W, best first, of equal length in a row; scores are summed log-probabilities
    finished: search.Hypotheses  # of W, best first; scores are normalised
    done: tf.Tensor  # bool (B,)
    limits: tf.Tensor  # int32 (B, 1)
    wanted: tf.Tensor  # int32 ()
    options: dict  # name -> (B, ...)
    state: Any  # of the model: nest of (B, ...)


class Candidates(NamedTuple):
    """N continuations of live hypotheses by one token, best first: 2W to choose from, W that are kept."""

    hypotheses: search.Hypotheses  # of N; scores are summed log-probabilities
    tokens: tf.Tensor  # int32 (B, N): the last token of each
    parents: tf.Tensor  # int32 (B, N): the live hypothesis that each extends


class BeamSearch:
    """A beam search, step by step. `beam_search` says what it does.

    Args:
        step, width, bos_id, eos_id, pad_id: those of `beam_search`.
    """

    def __init__(self, step, *, width, bos_id, eos_id, pad_id):
        self.step, self.width = step, width
        self.bos_id, self.eos_id, self.pad_id = bos_id, eos_id, pad_id

    def begin(self, state, limits, length_penalty, wanted=1, options=None, room=None):
        """The `Beam` before the first step. Its hypotheses have `room` columns, None for as many as the limits need."""
        limits = tf.convert_to_tensor(limits, tf.int32)
        options = {name: x if x.shape.rank == 2 else x[:, None] for name, x in (options or {}).items()}
        options.setdefault("beam_size", search.per_row(self.width, limits, tf.int32))
        options["length_penalty"] = search.per_row(length_penalty, limits)
        live = search.empty_hypotheses(limits, self.width, self.pad_id, room)
        finished = search.no_hypotheses(limits, self.width, self.pad_id, room)
        ids, parents = tf.fill(tf.shape(live.lengths), self.bos_id), tf.zeros_like(live.lengths)
        wanted = tf.convert_to_tensor(wanted, tf.int32)
        return Beam(tf.constant(0), ids, parents, live, finished, limits <= 0, limits[:, None], wanted, options, state)

    def advance(self, beam):
        """The `Beam` after one more step."""
        logits, state = self.step(beam.ids, beam.parents, beam.position, beam.state)
        chosen = {name: option for name, option in beam.options.items() if name not in OWN_OPTIONS}
        candidates = _expand(beam.live, logits, chosen)
        kept = _keep_live(candidates, beam.options["beam_size"], self.eos_id)
        finished = _keep_finished(beam.finished, candidates, beam.options, self.eos_id)

        moves = ~beam.done & (candidates.hypotheses.scores[:, 0] > search.IMPOSSIBLE)
        live, finished = search.where_rows(moves, (kept.hypotheses, finished), (beam.live, beam.finished))
        done = ~moves | _is_decided(live, finished, beam.limits, beam.options, beam.wanted)
        return beam._replace(
            position=beam.position + 1,
            ids=kept.tokens,
            parents=kept.parents,
            live=live,
            finished=finished,
            done=done,
            state=state,
        )

    def results(self, beam):
        """The `Hypotheses` of a `Beam`: those that have finished, and where there are none, those under way."""
        has_finished = beam.finished.scores[:, 0] > search.IMPOSSIBLE
        return search.where_rows(
            has_finished, beam.finished, search.normalised(beam.live, beam.options["length_penalty"])
        )


def beam_search(step, state, limits, *, length_penalty, wanted=1, options=None, **how):
    """Keeps the W most likely unfinished hypotheses of every row, and the W best-scored that have reached eos.

    - A hypothesis finishes when eos puts it among the W most likely continuations of its row.
    - A row is done when W hypotheses have finished, and no live one is ahead of the best of them as it is; when no live
      one can still overtake the worst of the `wanted` best finished ones; at its limit; or when none of its live
      hypotheses has a continuation (logits that are not a distribution, such as NaN, or options that leave nothing).
    - With alpha of 0 or less, going on would never improve the best result. With alpha above 0, a hypothesis that is
      behind can still win by its length alone. The search does not wait for it (see docs/figures/decoding.md).
    - A row that is done without a finished hypothesis returns its live hypotheses as they are, without eos.

    No row's result depends on the others. With a beam of 1 it is greedy search.

    Args:
        step: function (ids int32 (B, W), parents int32 (B, W), position int32 scalar, state)
            -> (logits float (B, W, V), state). `ids` are the tokens at `position`. `parents` names the hypothesis of
            the step before that each token continues. Rows that are done may be left out, or passed with arbitrary
            tokens.
        state: nest of tensors (B, ...), the state of the model for each row. Axes may grow from step to step
            if they start out empty or of unknown size.
        limits: int32 (B,), most tokens that each row may produce, eos included; 0 gives an empty hypothesis.
        length_penalty: alpha of ((5 + n) / 6)^alpha, float32 scalar or (B,).
        wanted: int, or int32 scalar, 1 ... W: how many hypotheses of the result matter. The search does not go on for
            the sake of the others.
        options: dict of options of each row, (B,) or (B, ...): those of `next_tokens`, and "beam_size", int32
            1 ... W. None for none. Scores are sums of log-probabilities after the options.
        **how: `width`, W; `bos_id`, the token at position 0; `eos_id`, the token that ends a hypothesis; `pad_id`, the
            token that fills `ids` after a hypothesis.

    Returns:
        `Hypotheses` of W, best first.
    """
    searching = BeamSearch(step, **how)
    return search.run(searching, searching.begin(state, limits, length_penalty, wanted, options))


def _expand(live, logits, options):
    """The 2W most likely continuations of a row: at most W of them end in eos, so at least W go on."""
    width = live.scores.shape[1]
    # One hypothesis can contribute no more than its W most likely continuations and eos.
    log_probs, tokens = search.next_tokens(logits, live, options, width + 1)  # (B, W, W + 1)
    per_parent = tokens.shape[2]
    flat = [-1, width * per_parent]
    scores, chosen = tf.math.top_k(tf.reshape(live.scores[..., None] + log_probs, flat), 2 * width)  # (B, 2W)
    tokens = search.take(tf.reshape(tokens, flat), chosen)
    parents = chosen // per_parent
    return Candidates(search.append(search.take(live, parents), tokens, scores), tokens, parents)


def _keep_live(candidates, beam_size, eos_id):
    """The most likely candidates that have not ended, as many as the row's beam holds."""
    hypotheses, tokens, _ = candidates
    width = hypotheses.scores.shape[1] // 2
    scores, kept = tf.math.top_k(
        tf.where(search.is_finished(tokens, eos_id), search.IMPOSSIBLE, hypotheses.scores), width
    )
    scores = tf.where(tf.range(width) < beam_size, scores, search.IMPOSSIBLE)
    candidates = search.take(candidates, kept)
    return candidates._replace(hypotheses=candidates.hypotheses._replace(scores=scores))


def _keep_finished(finished, candidates, options, eos_id):
    """The best of the finished hypotheses and of the first candidates of a row's beam that have just ended."""
    width = finished.scores.shape[1]
    slots = tf.range(width)
    ending, tokens, _ = tf.nest.map_structure(lambda x: x[:, :width], candidates)
    ending = search.normalised(ending, options["length_penalty"])
    has_ended = search.is_finished(tokens, eos_id) & (slots < options["beam_size"])
    ending = ending._replace(scores=tf.where(has_ended, ending.scores, search.IMPOSSIBLE))
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), finished, ending)  # of 2W
    scores, kept = tf.math.top_k(both.scores, width)
    return search.take(both, kept)._replace(scores=tf.where(slots < options["beam_size"], scores, search.IMPOSSIBLE))


def _is_decided(live, finished, limits, options, wanted):
    """Whether a row needs no further step, bool (B,)."""
    scores, lengths = live.scores[:, :1], live.lengths[:, :1]  # (B, 1)
    # Log-probabilities only fall. So the best score still to come is at most today's best log-probability under the
    # mildest penalty ahead: that of the limit, or that of the next step where alpha is negative.
    alpha = options["length_penalty"]
    best_to_come = scores / tf.maximum(search.penalty(limits, alpha), search.penalty(lengths + 1, alpha))
    is_hopeless = best_to_come <= tf.gather(finished.scores, wanted - 1, axis=1)[:, None]
    is_full = tf.gather(finished.scores, options["beam_size"] - 1, batch_dims=1) > search.IMPOSSIBLE
    # Behind the best, whatever is wanted: so the first of several results is the one result of a search for one. All
    # of this step have the same length, so with a beam of 1 no live hypothesis is ahead of one that has just finished.
    is_behind = scores / search.penalty(lengths, alpha) <= finished.scores[:, :1]
    return tf.squeeze(is_hopeless | (is_full & is_behind) | (lengths >= limits), axis=1)
