"""Sampling: every token is drawn at random, the more often the likelier it is."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.hypotheses import IMPOSSIBLE, per_row
from keras_transformer.decoding.single import follow


class Sampling(NamedTuple):
    """How tokens are drawn, for all rows or for each. Temperature 1 without bounds is the model's own distribution."""

    temperature: tf.Tensor  # float32, positive: below 1, likely tokens become likelier still
    top_k: tf.Tensor  # int32: only the so many most likely tokens; below 1, all
    top_p: tf.Tensor  # float32: only the most likely tokens that have this probability together, one at least
    seed: tf.Tensor  # int64: the same seed draws the same tokens, whoever shares the batch


def sample(step, cache, limits, sampling, **options):
    """Extends one hypothesis per row by tokens drawn at random.

    Args:
        sampling: `Sampling`, each of its fields a scalar or (B,).
        step, cache, limits, options: see `follow`.

    Returns:
        `Hypotheses` of W = 1; scores are of the model's own log-probabilities, whatever was drawn from.
    """
    dtypes = Sampling(tf.float32, tf.int32, tf.float32, tf.int64)
    columns = tf.nest.map_structure(lambda option, dtype: per_row(option, limits, dtype), sampling, dtypes)
    return follow(_draw, columns, step, cache, limits, **options)


def _draw(logits, position, sampling):
    """What `follow` wants of a choice; `sampling` has columns (B, 1)."""
    log_probs, tokens = tf.math.top_k(tf.nn.log_softmax(tf.cast(logits[:, 0], tf.float32)), logits.shape[-1])  # (B, V)
    shares = tf.nn.softmax(log_probs / sampling.temperature)
    ranks, before = tf.range(shares.shape[1]), tf.math.cumsum(shares, axis=1, exclusive=True)
    in_top_k = (ranks < sampling.top_k) | (sampling.top_k < 1)
    is_left = (ranks == 0) | (in_top_k & (before < sampling.top_p))
    mark = uniform(sampling.seed, position) * tf.reduce_sum(tf.where(is_left, shares, 0.0), axis=1, keepdims=True)
    drawn = tf.math.count_nonzero(is_left & (before <= mark), axis=1, keepdims=True) - 1  # the last that starts before
    log_prob, token = (tf.gather(x, tf.maximum(drawn, 0), batch_dims=1)[..., None] for x in (log_probs, tokens))
    return tf.where(tf.math.is_nan(log_prob), IMPOSSIBLE, log_prob), token


def uniform(seed, position):
    """A random number that depends on seed and position alone: their hash, float32 in [0, 1), in the shape of seed."""
    text = tf.strings.join([tf.strings.as_string(seed), tf.strings.as_string(position)], separator=" ")
    return tf.cast(tf.strings.to_hash_bucket_fast(text, 1 << 24), tf.float32) / (1 << 24)
