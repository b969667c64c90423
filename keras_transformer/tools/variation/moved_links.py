"""Links of a batch whose texts are divided into other pieces: see `data/links.py`."""

import numpy as np

from keras_transformer.data.links import PLACES, TWICE, as_rows, rows_of


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
    rows, places = rows_of(before.links), np.divmod(np.asarray(before.links.ids, np.int64), PLACES)
    for turn, side in enumerate(("target", "source")):
        old, new = getattr(before, side), getattr(after, side)
        common = _in_common(old, new, widths[1 - turn])
        which, tokens = _joined(old.starts[rows] + places[turn], *common)
        rows, places = rows[which], [each[which] for each in places]
        places[turn] = tokens - new.starts[rows]
    return as_rows(rows, *places, len(before))


def _in_common(old, new, widths):
    """The tokens of the same texts in old and in new pieces that have a character in common: int (N,) twice."""
    owners, sizes = [], []
    for side in (old, new):
        sizes.append(np.diff(np.concatenate([[0], np.cumsum(widths[side.ids])])[side.starts]))
    is_same = sizes[0] == sizes[1]
    for side in (old, new):
        tokens = np.flatnonzero(np.repeat(is_same, side.lengths))
        owners.append(np.repeat(tokens, widths[side.ids[tokens]]))
    return np.divmod(np.unique(owners[0] * TWICE + owners[1]), TWICE)


def _joined(tokens, keys, values):
    """Looks tokens (L,) up in sorted keys (N,), each of which may stand there several times or not at all.

    Returns:
        For every key that is found, the place of the token in `tokens`, and the value of the key.
    """
    first, last = (np.searchsorted(keys, tokens, side) for side in ("left", "right"))
    counts = last - first
    places = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(np.arange(len(tokens)), counts), values[places]
