"""Links between tokens of source and target, which `GuidedAlignment` trains a head of attention to follow.

The links of a pair are numbers: place in the target x `PLACES` + place in the source. The places count the tokens of a
text from 0, without tag, bos and eos.
"""

import numpy as np

from keras_transformer.data.encoded import Sentences

PLACES = 1 << 16  # more than a text has tokens
TWICE = 1 << 32  # two numbers below this become one: `unique` is quick with one


def as_rows(rows, targets, sources, count):
    """The links of `count` pairs as `Sentences`.

    Args:
        rows: int (L,), the pair of each link.
        targets, sources: int (L,), its places.
        count: number of pairs.
    """
    rows, numbers = np.divmod(np.unique(rows * TWICE + targets * PLACES + sources), TWICE)
    return Sentences(numbers, np.searchsorted(rows, np.arange(count + 1)))


def as_weights(links, length, width, first=0):
    """The links of B pairs as `GuidedAlignment` reads them.

    Args:
        links: `Sentences` of B rows.
        length: T.
        width: S.
        first: place of the first token of a source, 1 behind a tag.

    Returns:
        float32 (B, T, S). A row has the sum 1, or 0 if its target token has no link.
    """
    rows, (targets, sources) = rows_of(links), np.divmod(np.asarray(links.ids, np.int64), PLACES)
    weights = np.zeros((len(links.starts) - 1, length, width), np.float32)
    weights[rows, targets, sources + first] = 1
    return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1)


def rows_of(links):
    """The pair of every link, int (L,)."""
    return np.repeat(np.arange(len(links.starts) - 1), links.lengths)
