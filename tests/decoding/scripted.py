"""A scripted model: logits from a table, by everything decoded so far. And plain-Python searches to compare with."""

import itertools
import math

import numpy as np
import tensorflow as tf

BOS, EOS = 1, 2
ENTRIES = 211  # of the table; prime, so that different prefixes seldom share one


class Script:
    """A table of logits (ENTRIES, V), for rows that differ by their seed.

    The cache holds the whole prefix, which grows, and a running number, which does not: logits depend on both, so
    that a cache that does not follow its hypothesis gives other logits.
    """

    def __init__(self, seeds, vocabulary=7, table_seed=0, eos_bias=0.0):
        self.seeds = seeds
        self.table = np.random.default_rng(table_seed).normal(size=(ENTRIES, vocabulary)).astype("float32")
        self.table[:, EOS] += eos_bias
        self.seen = []  # what eager steps have read: int (B, W, position + 1)

    def cache(self, width):
        rows = tf.shape(self.seeds)[0]
        return {"prefix": tf.zeros([rows, width, 0], tf.int32), "number": tf.zeros([rows, width], tf.int32)}

    def step(self, ids, position, cache):
        prefix = tf.concat([cache["prefix"], ids[..., None]], axis=-1)
        number = (cache["number"] * 7 + ids * 3 + position) % ENTRIES
        entry = (number + tf.reduce_sum(prefix, axis=-1) + self.seeds[:, None]) % ENTRIES
        if tf.executing_eagerly():
            self.seen.append(prefix.numpy())
        return tf.gather(self.table, entry), {"prefix": prefix, "number": number}

    def log_probs(self, row, ids):
        """float64 (V,) after bos and `ids`, independently of `step`."""
        number = 0
        for position, token in enumerate((BOS, *ids)):
            number = (number * 7 + token * 3 + position) % ENTRIES
        logits = self.table[(number + BOS + sum(ids) + self.seeds[row]) % ENTRIES].astype("float64")
        return logits - np.logaddexp.reduce(logits)

    def log_prob(self, row, ids):
        return math.fsum(self.log_probs(row, ids[:n])[token] for n, token in enumerate(ids))


def score(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


def exhaustive(script, row, limit, alpha):
    """Every sequence of at most `limit` tokens that ends in eos: [(score, ids)], best first."""
    others = [token for token in range(script.table.shape[1]) if token != EOS]
    found = []
    for length in range(limit):
        for start in itertools.product(others, repeat=length):
            ids = (*start, EOS)
            found.append((score(script.log_prob(row, ids), len(ids), alpha), ids))
    return sorted(found, reverse=True)


def plain_beam_search(script, row, limit, alpha, width):
    """Beam search over Python lists, which stops at `width` finished hypotheses or at the limit: [(score, ids)]."""
    live, finished = [(0.0, ())], []
    while live and len(live[0][1]) < limit and len(finished) < width:
        candidates = sorted(
            ((s + p, (*ids, v)) for s, ids in live for v, p in enumerate(script.log_probs(row, ids))), reverse=True
        )
        finished += [(score(s, len(ids), alpha), ids) for s, ids in candidates[:width] if ids[-1] == EOS]
        live = [c for c in candidates if c[1][-1] != EOS][:width]
    found = finished or [(score(s, len(ids), alpha), ids) for s, ids in live]
    return sorted(found, reverse=True)[:width]


def as_lists(hypotheses):
    """Per row the filled slots of `Hypotheses`: [[(score, ids), ...], ...]."""
    ids, scores, lengths = (np.asarray(x) for x in hypotheses)
    return [
        [(s, tuple(slot[:n].tolist())) for slot, s, n in zip(*row, strict=True) if s > -1e8]
        for row in zip(ids, scores, lengths, strict=True)
    ]
