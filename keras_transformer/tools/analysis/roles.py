"""The roles of heads, read from their attention weights by NumPy functions.

Attention weights of one sentence are (H, T, S): T queries look at S keys. A *look* is the key that a query attends to
most. The figures of a corpus come from the looks of all its sentences, so no weights need to be kept.
"""

from typing import NamedTuple

import numpy as np

NEAR = 1  # positions beside the diagonal that count as on it


def entropies(weights):
    """How widely queries look: -sum p log p over the keys, 0 for one key and log S for all keys alike.

    Args:
        weights: (H, T, S).

    Returns:
        float64 (H, T), in nats.
    """
    p = np.asarray(weights, np.float64)
    return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)


def most_attended(weights):
    """The looks: weights (H, T, S) -> int (H, T)."""
    return np.argmax(weights, axis=-1)


def positional(looks, widths, is_causal=False):
    """Whether heads look at a fixed offset (Voita et al. 2019): -1 is the position before.

    Args:
        looks: list of int (H, T), one for each sentence.
        widths: list of int, S of each sentence.
        is_causal: whether a query sees no key after it.

    Returns:
        offsets int (H,), the most frequent offset of each head; and shares (H,) of the queries that look there, among
        the queries with a key at this offset.
    """
    places = np.concatenate([np.arange(look.shape[1]) for look in looks])  # (Q,), the queries of all sentences
    ends = np.repeat(widths, [look.shape[1] for look in looks])
    ends = np.minimum(ends, places + 1) if is_causal else ends
    best, shares = [], []
    for row in np.concatenate(looks, axis=1):
        offsets, counts = np.unique(row - places, return_counts=True)
        best.append(offsets[np.argmax(counts)])
        possible = (places + best[-1] >= 0) & (places + best[-1] < ends)
        shares.append(counts.max() / possible.sum())
    return np.array(best, int), np.array(shares, float)


def rare(looks, frequencies, is_causal=False):
    """How often heads look at the rarest of the tokens that the query sees.

    Args:
        looks: list of int (H, T), one for each sentence.
        frequencies: list of (S,), how often the token of each key occurs in the corpus. Tokens that are equally rare
            count alike.
        is_causal: whether a query sees no key after it.

    Returns:
        shares (H,) of the queries, and float, the share of a head that looks at random.
    """
    hits, chance, queries = 0, 0.0, 0
    for look, frequency in zip(looks, frequencies, strict=True):
        length, frequency = look.shape[1], np.asarray(frequency)
        seen = np.tri(length, len(frequency), dtype=bool) if is_causal else np.ones((length, len(frequency)), bool)
        rarest = np.where(seen, frequency, np.inf).min(axis=1)  # (T,)
        hits = hits + (frequency[look] == rarest).sum(axis=1)
        chance += np.mean(frequency == rarest[:, None], axis=1, where=seen).sum()
        queries += length
    return hits / queries, chance / queries


def diagonal(looks, widths):
    """How often heads look at the diagonal: keys at the same relative place in their sentence as the query in its own.

    Args:
        looks: list of int (H, T), one for each sentence.
        widths: list of int, S of each sentence.

    Returns:
        shares (H,) of the queries that look at most one position beside the diagonal.
    """
    hits, queries = 0, 0
    for look, width in zip(looks, widths, strict=True):
        length = look.shape[1]
        expected = (np.arange(length) + 0.5) * width / length - 0.5
        hits = hits + (np.abs(look - expected) <= NEAR).sum(axis=1)
        queries += length
    return hits / queries


def attention_of_words(weights, query_words, key_words):
    """The attention of words to words: from the last piece of one word, summed over the pieces of the other word.

    Args:
        weights: (H, T, S).
        query_words: for each word that looks, the list of its pieces, ascending numbers below T.
        key_words: for each word that is looked at, the list of its pieces, numbers below S.

    Returns:
        (H, number of query_words, number of key_words).
    """
    rows = np.asarray(weights)[:, [pieces[-1] for pieces in query_words]]
    return np.stack([rows[:, :, pieces].sum(axis=-1) for pieces in key_words], axis=-1)


def aligned(looks, links):
    """How often a target word looks at a source word that it is aligned with.

    Args:
        looks: list of int (H, target words), one for each sentence.
        links: list of lists of (source word, target word).

    Returns:
        shares (H,) of the target words that are aligned at all; NaN if there is none.
    """
    hits, words = np.zeros(len(looks[0])), 0
    for look, pairs in zip(looks, links, strict=True):
        sources = {}
        for source, target in pairs:
            sources.setdefault(target, []).append(source)
        for target, right in sources.items():
            hits += np.isin(look[:, target], right)
        words += len(sources)
    return hits / words if words else np.full(len(hits), np.nan)


class Relation(NamedTuple):
    """How well the heads of the encoder know one relation of dependency parses.

    Args:
        pairs: int, the dependents that have this relation.
        to_head: (H,), share of them that look at the word they depend on.
        to_dependent: (H,), share of the words they depend on that look at them.
        offset: int, the most frequent distance from a dependent to the word it depends on.
        baseline: float, the share of this distance, which a head that looks at a fixed offset finds, too.
    """

    pairs: int
    to_head: np.ndarray
    to_dependent: np.ndarray
    offset: int
    baseline: float


def syntactic(looks, trees):
    """How often words look along each relation of a dependency parse.

    Args:
        looks: list of int (H, words), one for each sentence.
        trees: list of lists, for each word of a sentence (the word that it depends on, the relation): an int, -1 for
            the root, which is left out; and a str.

    Returns:
        dict of relation -> `Relation`, the most frequent first.
    """
    found = {}
    for look, tree in zip(looks, trees, strict=True):
        for word, (governor, relation) in enumerate(tree):
            if governor >= 0:
                row = (governor - word, look[:, word] == governor, look[:, governor] == word)
                found.setdefault(relation, []).append(row)
    relations = {}
    for relation, rows in sorted(found.items(), key=lambda item: -len(item[1])):
        distances, to_head, to_dependent = zip(*rows, strict=True)
        offsets, counts = np.unique(distances, return_counts=True)
        relations[relation] = Relation(
            len(rows),
            np.mean(to_head, axis=0),
            np.mean(to_dependent, axis=0),
            int(offsets[np.argmax(counts)]),
            counts.max() / len(rows),
        )
    return relations
