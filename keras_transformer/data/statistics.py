"""What a corpus is like, in figures: pure functions of its text and of its lengths."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpus import Pair

LOPSIDED = 3  # times as many pieces on one side as on the other: rarely a translation


class Spread(NamedTuple):
    """The middle, the 95th percentile and the largest of some lengths; each of them is one of the lengths."""

    median: int
    percentile_95: int
    longest: int


def spread(lengths: np.ndarray) -> Spread:
    """Computes the `Spread` of lengths, an int array that is not empty."""
    return Spread(*np.percentile(lengths, [50, 95, 100], method="inverted_cdf").tolist())


def character_lengths(sentences: Iterable[str]) -> np.ndarray:
    """Counts the characters (code points) of every sentence: int32 (N,)."""
    return np.fromiter(map(len, sentences), np.int32)


def count_repeated(pairs: Iterable[Pair]) -> int:
    """Counts the pairs that have occurred before, both sides the same.

    Of every pair only a hash of 64 bits is kept: that two of five million have the same by chance happens to one corpus
    in a million.
    """
    hashes = np.fromiter(map(hash, pairs), np.int64)
    return len(hashes) - len(np.unique(hashes))


def count_lopsided(source_lengths: np.ndarray, target_lengths: np.ndarray) -> int:
    """Counts the pairs with more than `LOPSIDED` times as many pieces on one side as on the other; ints (N,)."""
    shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
    return int(np.count_nonzero(longer > LOPSIDED * shorter))


def count_characters(sentences: Iterable[str]) -> Counter:
    """Counts every character (code point) of the sentences."""
    return Counter(chain.from_iterable(sentences))
