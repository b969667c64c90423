"""A scripted model, whose logits come from a table, and searches in plain Python to compare with.

The logits depend on every token that a hypothesis has read. The model keeps these tokens, as a recurrent model does.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

PAD, BOS, EOS = 0, 1, 2
IDS = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
ENTRIES = 211  # of the table; prime, so that different prefixes seldom share one
POWERS = tf.constant([pow(7, n, ENTRIES) for n in range(64)])


def table_of(vocabulary=7, table_seed=0, eos_bias=0.0, spread=1.0):
    """Random logits (ENTRIES, V) of the standard deviation `spread`. `eos_bias` is added to those of eos."""
    table = spread * np.random.default_rng(table_seed).normal(size=(ENTRIES, vocabulary)).astype("float32")
    table[:, EOS] += eos_bias
    return table


class Script:
    """A table of logits (ENTRIES, V), for rows that differ by their seed.

    The state of a search holds the ids that each hypothesis has read, and the seed of the row. Logits depend on both.
    So a hypothesis that does not continue its own parent, or a row that gets the state of another, has other logits.

    Args:
        seeds: int (B,), one of each row.
        table: float32 (ENTRIES, V); see `table_of`.
    """

    def __init__(self, seeds, table=None, **options):
        self.seeds = seeds
        self.table = table_of(**options) if table is None else table
        self.seen = []  # the ids that eager steps have read: {seed of the row: [[ids of a hypothesis], ...]}
        self.known = {}  # results of `log_probs`

    def start(self, width):
        seeds = tf.convert_to_tensor(self.seeds)
        return {"read": tf.zeros([tf.shape(seeds)[0], width, 0], tf.int32), "seed": seeds}

    def step(self, ids, parents, position, state):
        read = tf.concat([tf.gather(state["read"], parents, batch_dims=1), ids[..., None]], axis=2)  # (B, W, n)
        places = tf.range(position + 1)
        number = tf.reduce_sum((read * 3 + places) * tf.gather(POWERS, position - places), axis=-1)
        entry = (number + tf.reduce_sum(read, axis=-1) + state["seed"][:, None]) % ENTRIES
        if tf.executing_eagerly():
            self.seen.append(dict(zip(state["seed"].numpy().tolist(), read.numpy().tolist(), strict=True)))
        return tf.gather(self.table, tf.ensure_shape(entry, ids.shape)), {**state, "read": read}

    def log_probs(self, row, ids):
        """float64 (V,) after bos and `ids`, independently of `step`. Callers must not change the array."""
        if (row, ids) not in self.known:
            number = 0
            for position, token in enumerate((BOS, *ids)):
                number = (number * 7 + token * 3 + position) % ENTRIES
            logits = self.table[(number + BOS + sum(ids) + self.seeds[row]) % ENTRIES].astype("float64")
            self.known[row, ids] = logits - np.logaddexp.reduce(logits)
        return self.known[row, ids]

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
            log_prob = script.log_prob(row, ids)
            if log_prob > -math.inf:
                found.append((score(log_prob, len(ids), alpha), ids))
    return sorted(found, reverse=True)


class Asked(NamedTuple):
    """The options of one row: see `next_tokens`. A prefix has no token 0, which would end it."""

    prefix: tuple = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0


def allowed_log_probs(script, row, ids, asked=None):
    """`Script.log_probs` under the options of the row, token by token."""
    asked, log_probs = asked or Asked(), script.log_probs(row, ids)
    if len(ids) < len(asked.prefix):
        return np.where(np.arange(len(log_probs)) == asked.prefix[len(ids)], log_probs, -np.inf)
    n, allowed = asked.no_repeat_ngram, log_probs.copy()
    for token in set(ids):
        allowed[token] *= asked.repetition_penalty
    for token in range(len(allowed)):
        ngrams = [(*ids, token)[i : i + n] for i in range(len(ids) + 2 - n)] if n > 0 else []
        if ngrams and ngrams[-1] in ngrams[:-1]:
            allowed[token] = -np.inf
    return allowed


def endless_beam_search(script, row, limit, alpha, width, asked=None):
    """Beam search over Python lists that nothing stops before the limit.

    Yields:
        after every step, the `width` best finished and the live hypotheses: two lists [(score, ids)], best first.
    """
    live, finished = [(0.0, ())], []
    while live and len(live[0][1]) < limit:
        log_probs = [allowed_log_probs(script, row, ids, asked) for _, ids in live]
        candidates = [
            (s + p, (*ids, v)) for (s, ids), row_ in zip(live, log_probs, strict=True) for v, p in enumerate(row_)
        ]
        candidates = sorted((c for c in candidates if c[0] > -math.inf), reverse=True)
        finished += [(score(s, len(ids), alpha), ids) for s, ids in candidates[:width] if ids[-1] == EOS]
        finished = sorted(finished, reverse=True)[:width]
        dead_ends = [] if candidates else live
        live = [c for c in candidates if c[1][-1] != EOS][:width]
        yield finished, [(score(s, len(ids), alpha), ids) for s, ids in live or dead_ends]


def plain_beam_search(script, row, limit, alpha, width, asked=None):
    """What `beam_search` must find under options, in batches, with placeholders: [(score, ids)].

    It ends by the rule of `beam_search`, so it does not judge the rule. `exhaustive` and `endless_beam_search` do.
    """
    finished, live = [], [(0.0, ())]
    for finished, live in endless_beam_search(script, row, limit, alpha, width, asked):
        if len(finished) == width and not (live and live[0] > finished[0]):
            break
    return finished or live


def options_of(asked):
    """The `Asked` of all rows, as the options of a search."""
    longest = max(len(a.prefix) for a in asked)
    return {
        "prefix": tf.constant([[*a.prefix, *[0] * (longest - len(a.prefix))] for a in asked]),
        "repetition_penalty": tf.constant([a.repetition_penalty for a in asked]),
        "no_repeat_ngram": tf.constant([a.no_repeat_ngram for a in asked]),
    }


def assert_same(found, expected):
    """Both [(score, ids)], ids exactly."""
    assert [ids for _, ids in found] == [ids for _, ids in expected]
    np.testing.assert_allclose([s for s, _ in found], [s for s, _ in expected], atol=1e-5)


def as_lists(hypotheses):
    """Per row the filled slots of `Hypotheses`: [[(score, ids), ...], ...]."""
    ids, scores, lengths = (np.asarray(x) for x in hypotheses)
    return [
        [(s, tuple(slot[:n].tolist())) for slot, s, n in zip(*row, strict=True) if s > -1e8]
        for row in zip(ids, scores, lengths, strict=True)
    ]
