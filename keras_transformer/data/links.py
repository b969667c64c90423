"""Links between tokens of source and target, which `GuidedAlignment` trains a head of attention to follow.

The links of a pair are numbers: place in the target x `PLACES` + place in the source. The places count the tokens of a
text from 0, without tag, bos and eos.
"""

import numpy as np

from keras_transformer.data.encoded import Sentences

PLACES = 1 << 16  # more than a text has tokens
_TWICE = 1 << 32  # two numbers below this become one: `unique` is quick with one


def as_rows(rows, targets, sources, count):
    """The links of `count` pairs as `Sentences`.

    Args:
        rows: int (L,), the pair of each link.
        targets, sources: int (L,), its places.
        count: number of pairs.
    """
    rows, numbers = np.divmod(np.unique(rows * _TWICE + targets * PLACES + sources), _TWICE)
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
    rows, (targets, sources) = _rows(links), np.divmod(np.asarray(links.ids, np.int64), PLACES)
    weights = np.zeros((len(links.starts) - 1, length, width), np.float32)
    weights[rows, targets, sources + first] = 1
    return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1)


def moved(before, after, widths):
    """The links of a batch whose texts are divided into other pieces now: tokens are linked if their characters were.

    A pair has no links any more if the length of one of its texts has changed.

    Args:
        before: `EncodedPairs` with links.
        after: `EncodedPairs` of the same pairs.
        widths: for source and target, the number of characters of every piece of the vocabulary, int (V,).

    Returns:
        `Sentences`.
    """
    rows, places = _rows(before.links), np.divmod(np.asarray(before.links.ids, np.int64), PLACES)
    for turn, side in enumerate(("target", "source")):
        old, new = getattr(before, side), getattr(after, side)
        common = _in_common(old, new, widths[1 - turn])
        which, tokens = _joined(old.starts[rows] + places[turn], *common)
        rows, places = rows[which], [each[which] for each in places]
        places[turn] = tokens - new.starts[rows]
    return as_rows(rows, *places, len(before))


def _rows(links):
    """The pair of every link."""
    return np.repeat(np.arange(len(links.starts) - 1), links.lengths)


def _in_common(old, new, widths):
    """The tokens of the same texts in old and in new pieces that have a character in common: int (N,) twice."""
    owners, sizes = [], []
    for side in (old, new):
        sizes.append(np.diff(np.concatenate([[0], np.cumsum(widths[side.ids])])[side.starts]))
    is_same = sizes[0] == sizes[1]
    for side in (old, new):
        tokens = np.flatnonzero(np.repeat(is_same, side.lengths))
        owners.append(np.repeat(tokens, widths[side.ids[tokens]]))
    return np.divmod(np.unique(owners[0] * _TWICE + owners[1]), _TWICE)


def _joined(tokens, keys, values):
    """Looks tokens (L,) up in sorted keys (N,), each of which may stand there several times or not at all.

    Returns:
        For every key that is found, the place of the token in `tokens`, and the value of the key.
    """
    first, last = (np.searchsorted(keys, tokens, side) for side in ("left", "right"))
    counts = last - first
    places = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(np.arange(len(tokens)), counts), values[places]
