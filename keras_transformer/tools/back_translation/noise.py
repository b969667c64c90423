"""Noise on sentences that a model has written, so that another model learns to trust them less.

Noised beam search (Edunov et al. 2018, arXiv:1808.09381): words are left out, replaced by a filler, and moved.
"""

import zlib

import numpy as np

DELETED, REPLACED = 0.1, 0.1  # probabilities of each word
FURTHEST = 3  # words that a word may pass
FILLER = "<BLANK>"


def seed_of(text, seed):
    """A number for the random draws of one text: the same for the same text at any place.

    Args:
        text: str.
        seed: int.

    Returns:
        int, at least 0 and below 2^32.
    """
    return zlib.crc32(f"{seed} {text}".encode("utf-8", "surrogatepass"))


def add_noise(text, seed):
    """Leaves out words, replaces words by `FILLER`, and moves words past at most `FURTHEST` others.

    Args:
        text: str, whose words are divided by spaces.
        seed: int. The draws depend on it and on the text.

    Returns:
        str, with at least one word if `text` has one.
    """
    rng, words = np.random.default_rng(seed_of(text, seed)), text.split()
    stays = rng.random(len(words)) >= DELETED
    if not stays.any():
        stays[:1] = True
    kept = [word for word, is_kept in zip(words, stays, strict=True) if is_kept]
    filled = [FILLER if draw < REPLACED else word for word, draw in zip(kept, rng.random(len(kept)), strict=True)]
    order = np.argsort(np.arange(len(filled)) + rng.uniform(0, FURTHEST + 1, len(filled)), kind="stable")
    return " ".join(filled[place] for place in order)
