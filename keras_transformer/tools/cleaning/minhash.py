"""Near duplicates by MinHash (Broder 1997): texts of similar shingles share a band of their signatures.

The Jaccard similarity of two sets is |A & B| / |A | B|. With this probability, a random function of the shingles has
the same minimum over both sets. A signature has the minima of `FUNCTIONS` functions, and a band has `rows` of these
minima. Two texts are compared if all rows of one band agree. The probability that texts of similarity s are compared is
1 - (1 - s^rows)^(FUNCTIONS / rows): with 8 rows 99.6 % for s = 0.9 and 4 % for s = 0.5, with 4 rows 99.99 % for s =
0.8. The comparison itself is exact (`similarity`). So MinHash only decides which texts are compared.

Whole lists of texts are hashed by NumPy. A library such as datasketch works on one set after the other, and its index
is a Python dict: five million pairs would need more time and memory than the rest of the preparation.
"""

import numpy as np

SHINGLE = 4  # characters
FUNCTIONS = 80
_END = "\n"  # around each text; no skeleton has it
_BASE = np.uint64(0x9E3779B97F4A7C15)
_SEED = 19  # of the random functions. Every process draws the same ones.
_FACTORS, _SUMMANDS = np.random.default_rng(_SEED).integers(0, 2**64, (2, FUNCTIONS), np.uint64)


def shingles(text: str) -> set[str]:
    """Lists the runs of `SHINGLE` characters of a skeleton, with its ends marked. Every text has one."""
    padded = f"{_END}{text}{_END * (SHINGLE - 1)}"
    return {padded[start : start + SHINGLE] for start in range(len(padded) - SHINGLE + 1)}


def similarity(ones: list[set[str]], others: list[set[str]]) -> float:
    """Computes the Jaccard similarity of two texts, or of two pairs of texts.

    Args:
        ones: list of set of str, the `shingles` of each side of the one. No set is empty.
        others: list of as many sets, the `shingles` of the other.

    Returns:
        float from 0 to 1. Equal shingles of different sides count as different.
    """
    both = sum(len(one & other) for one, other in zip(ones, others, strict=True))
    return both / (sum(map(len, ones)) + sum(map(len, others)) - both)


def signatures(texts: list[str], side: int = 0) -> np.ndarray:
    """Computes the MinHash signatures of the `shingles` of skeletons.

    Args:
        texts: list of N str.
        side: int; the same text has another signature on another side.

    Returns:
        uint32 (N, FUNCTIONS). The minimum of two signatures is the signature of both sets of shingles together.
    """
    if not texts:
        return np.zeros((0, FUNCTIONS), np.uint32)
    padded = [f"{_END}{text}{_END * (SHINGLE - 1)}" for text in texts]
    lengths = np.fromiter(map(len, padded), np.int64, len(padded))
    codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    hashes = np.full(len(codes) - SHINGLE + 1, side, np.uint64)
    for place in range(SHINGLE):
        hashes = (hashes + codes[place : place + len(hashes)]) * _BASE
        hashes ^= hashes >> np.uint64(29)
    ends = np.cumsum(lengths)
    inside = np.ones(len(codes), bool)  # shingles that do not reach into the next text
    inside[(ends[:, None] - np.arange(1, SHINGLE)).ravel()] = False
    hashes = hashes[inside[: len(hashes)]]
    starts = np.concatenate([[0], np.cumsum(lengths - SHINGLE + 1)[:-1]])
    minima = [
        np.minimum.reduceat(((hashes * factor + summand) >> np.uint64(32)).astype(np.uint32), starts)
        for factor, summand in zip(_FACTORS, _SUMMANDS, strict=True)
    ]
    return np.stack(minima, axis=1)


def bands(signatures: np.ndarray, rows: int) -> np.ndarray:
    """Hashes the bands of signatures.

    Args:
        signatures: uint32 (N, FUNCTIONS).
        rows: int, of a band; it divides FUNCTIONS.

    Returns:
        uint64 (N, FUNCTIONS / rows): two texts share a number if all rows of this band agree.
    """
    divided = signatures.reshape(-1, FUNCTIONS // rows, rows).astype(np.uint64)
    keys = np.broadcast_to(np.arange(divided.shape[1], dtype=np.uint64), divided.shape[:2])
    for row in range(rows):
        keys = (keys + divided[:, :, row]) * _BASE
        keys = keys ^ (keys >> np.uint64(29))
    return keys
