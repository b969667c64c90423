"""Statistics of a corpus: pure functions of its text and of its lengths."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpora import Pair

LOPSIDED = 3  # A pair is lopsided if one side has more than three times as many pieces as the other side.


class Spread(NamedTuple):
    """The median, the 95th percentile and the maximum of some lengths, without interpolation."""

    median: int
    percentile_95: int
    longest: int


def spread(lengths: np.ndarray) -> Spread:
    """Computes the `Spread` of lengths: int (N,), not empty."""
    return Spread(*np.percentile(lengths, [50, 95, 100], method="inverted_cdf").tolist())


def character_lengths(sentences: Iterable[str]) -> np.ndarray:
    """Counts the characters (code points) of every sentence: int32 (N,)."""
    return np.fromiter(map(len, sentences), np.int32)


def count_repeated(pairs: Iterable[Pair]) -> int:
    """Counts the pairs that repeat an earlier pair on both sides.

    Only a 64-bit hash of each pair stays in memory. With five million pairs, the chance of a collision is one in a
    million.
    """
    hashes = np.fromiter(map(hash, pairs), np.int64)
    return len(hashes) - len(np.unique(hashes))


def count_lopsided(source_lengths: np.ndarray, target_lengths: np.ndarray) -> int:
    """Counts the lopsided pairs (see `LOPSIDED`), from the numbers of pieces on each side: int (N,)."""
    shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
    return int(np.count_nonzero(longer > LOPSIDED * shorter))


def count_characters(sentences: Iterable[str]) -> Counter:
    """Counts every character (code point) of the sentences."""
    return Counter(chain.from_iterable(sentences))
