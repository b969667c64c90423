"""Searches that give every placeholder of a source exactly once: a constraint on the logits of each step."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.search import IMPOSSIBLE


class Required(NamedTuple):
    """The placeholders that the hypotheses of each row must have: M tokens, whose ids follow that of eos.

    A hypothesis cannot end before it has all of them. No placeholder comes more often than the source requires, so a
    row whose source has no placeholder never gets one. When a row's limit leaves no room for other tokens, only
    placeholders may come. Everything is decided row by row.
    """

    counts: tf.Tensor  # int32 (B, M): how often each must come
    limits: tf.Tensor  # int32 (B,): most tokens of each row, with room for them

    @classmethod
    def of(cls, source_ids, prefix, limits, first_id, number):
        """The placeholders that the sources require.

        Args:
            source_ids: int32 (B, S).
            prefix: int32 (B, P), tokens that are forced, then padding 0. A placeholder of the prefix may come even if
                the source has none.
            limits: int32 (B,), most tokens of each row.
            first_id: int, of the first placeholder.
            number: M, int.
        """
        placeholders = tf.range(first_id, first_id + number)

        def count(ids):
            return tf.math.count_nonzero(ids[:, :, None] == placeholders, axis=1, dtype=tf.int32)  # (B, M)

        counts = tf.maximum(count(source_ids), count(prefix))
        forced = tf.math.count_nonzero(prefix, axis=1, dtype=tf.int32)
        return cls(counts, tf.maximum(limits, forced + tf.reduce_sum(counts, axis=1)))

    def state(self, state, width):
        """Turns the first state of the model into that of `constrained`, for W hypotheses."""
        missing = tf.repeat(self.counts[:, None], width, axis=1)  # (B, W, M)
        return {"model": state, "missing": missing, "limits": self.limits[:, None]}


def constrained(step, eos_id):
    """The step function of a search under the constraint of `Required`.

    Args:
        step: that of the model (see `beam_search`).
        eos_id: int.
    """

    def step_with(ids, parents, position, state):
        logits, model_state = step(ids, parents, position, state["model"])
        had = tf.gather(state["missing"], parents, batch_dims=1)
        missing = had - tf.one_hot(ids - eos_id - 1, had.shape[-1], dtype=tf.int32)
        allowed = _allowed(logits, missing, state["limits"] - position, eos_id)
        return allowed, {**state, "model": model_state, "missing": missing}

    return step_with


def _allowed(logits, missing, room, eos_id):
    """The logits (B, W, V), with `IMPOSSIBLE` at the tokens that may not come next.

    Args:
        logits: float (B, W, V).
        missing: int32 (B, W, M), how often each placeholder must still come.
        room: int32 (B, 1), the number of tokens that may still come.
        eos_id: int.
    """
    first, stop = eos_id + 1, eos_id + 1 + missing.shape[-1]
    number = tf.reduce_sum(missing, axis=-1, keepdims=True)  # (B, W, 1)
    end = tf.where(number > 0, IMPOSSIBLE, logits[..., eos_id:first])
    placeholders = tf.where(missing <= 0, IMPOSSIBLE, logits[..., first:stop])
    others = tf.where((number > 0) & (number >= room[..., None]), IMPOSSIBLE, 0.0)  # (B, W, 1)
    return tf.concat([logits[..., :eos_id] + others, end, placeholders, logits[..., stop:] + others], axis=-1)
