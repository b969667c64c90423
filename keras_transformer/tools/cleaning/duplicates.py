"""Which pairs repeat another one, exactly or nearly. Of each group of copies, the pair with the smallest key stays."""

from collections.abc import Callable, Iterator

import numpy as np

from keras_transformer.tools.cleaning.minhash import similarity

MOST_COMPARED = 32
"""In each band, a pair is compared with this many pairs of the smallest keys. A band of boilerplate can be huge."""


def repeated(keys: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Finds the pairs that have the same text as a pair with a smaller key.

    Args:
        keys: uint64 (N, 2), the key of each pair.
        texts: uint64 (N, 2), the hash of each pair's mended text.

    Returns:
        bool (N,).
    """
    order = np.lexsort((keys[:, 1], keys[:, 0], texts[:, 1], texts[:, 0]))
    in_order = texts[order]
    again = np.zeros(len(keys), bool)
    again[order[1:]] = np.all(in_order[1:] == in_order[:-1], axis=1)
    return again


def comparisons(bands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists the comparisons: pairs that share a band are compared (see `MOST_COMPARED`).

    Args:
        bands: uint64 (N, B), those of the pairs in the order of their keys.

    Returns:
        (later, earlier): int64 (C,) each, numbers of pairs, sorted by the later one, then by the earlier one.
    """
    found = [np.zeros(0, np.int64)]
    for band in bands.T:
        order = np.argsort(band, kind="stable")  # so the pairs of a group stay in the order of their keys
        is_first = np.concatenate([[True], np.diff(band[order]) != 0]) if len(band) else np.zeros(0, bool)
        starts = np.maximum.accumulate(np.where(is_first, np.arange(len(band)), 0))
        places = np.arange(len(band)) - starts  # of each pair in its group
        for place in range(min(MOST_COMPARED, places.max(initial=0))):
            later = np.flatnonzero(places > place)
            found.append(order[later] * len(band) + order[starts[later] + place])
    both = np.unique(np.concatenate(found))
    return both // max(1, len(bands)), both % max(1, len(bands))


def near_duplicates(
    bands: np.ndarray, sides_of: Callable[[int], list[set[str]]], least: float
) -> Iterator[tuple[int, int]]:
    """Finds the pairs that are similar to a pair with a smaller key.

    A pair is dropped even if the similar pair is itself dropped for a third one. So the order of the decisions does not
    matter.

    Args:
        bands: uint64 (N, B), those of the pairs in the order of their keys.
        sides_of: function from the number of a pair to the shingles of its sides.
        least: float, the smallest Jaccard similarity of near duplicates.

    Yields:
        (number of the pair, number of the first similar one).
    """
    last = -1
    for later, earlier in zip(*map(np.ndarray.tolist, comparisons(bands)), strict=True):
        if later != last and similarity(sides_of(later), sides_of(earlier)) >= least:
            last = later
            yield later, earlier
