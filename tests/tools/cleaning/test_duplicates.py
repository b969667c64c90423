import itertools

import numpy as np
import pytest

from keras_transformer.tools.cleaning.duplicates import MOST_COMPARED, comparisons, near_duplicates
from keras_transformer.tools.cleaning.minhash import bands, shingles, signatures, similarity
from tests import tiny

SETS = [{1, 2, 3, 4}, {1, 2, 3}, {7, 8}, {2, 3, 4, 5}, {7, 8, 9}]


def test_pairs_are_compared_where_they_share_a_band():
    bands = np.array([[1, 7], [2, 7], [1, 8], [3, 9], [1, 7]], np.uint64)
    later, earlier = comparisons(bands)
    assert list(zip(later, earlier, strict=True)) == [(1, 0), (2, 0), (4, 0), (4, 1), (4, 2)]
    assert [len(side) for side in comparisons(np.zeros((0, 2), np.uint64))] == [0, 0]
    # A huge band is compared with its first pairs only.
    later, earlier = comparisons(np.zeros((MOST_COMPARED * 5, 1), np.uint64))
    assert earlier.max() == MOST_COMPARED - 1 and set(later) == set(range(1, MOST_COMPARED * 5))


def test_a_pair_goes_if_a_similar_one_comes_before_it():
    """With one band for all, the oracle is the definition, over all pairs of pairs."""
    for least in (0.3, 0.6, 0.75):
        expected = {}
        for later, earlier in itertools.combinations(range(len(SETS)), 2):
            if len(SETS[later] & SETS[earlier]) / len(SETS[later] | SETS[earlier]) >= least:
                expected[max(later, earlier)] = min(expected.get(max(later, earlier), 99), min(later, earlier))
        found = near_duplicates(np.zeros((len(SETS), 3), np.uint64), lambda number: [SETS[number]], least)
        assert dict(found) == expected


@pytest.mark.parametrize(("rows", "least", "found"), [(8, 0.9, 0.98), (4, 0.8, 0.995)])
def test_similar_texts_share_a_band_and_different_ones_none(rows, least, found):
    rng = np.random.default_rng(5)
    originals = [" ".join(pair) for pair in tiny.pairs(1500, seed=3) if len(pair[0]) > 20]
    places = [int(place) for place in rng.integers(1, 20, len(originals))]
    changed = [text[:place] + text[place + 1 :] for text, place in zip(originals, places, strict=True)]
    ones, others = (bands(signatures(texts), rows) for texts in (originals, changed))
    shared = np.any(ones == others, axis=1)
    similar = [similarity([shingles(a)], [shingles(b)]) >= least for a, b in zip(originals, changed, strict=True)]
    assert sum(similar) > 30 and np.mean(shared[similar]) >= found
    texts = [f"{word} {number} {word[::-1]}" for number, word in enumerate(tiny.ENGLISH + tiny.GERMAN)]
    keys = bands(signatures(texts), 8)
    assert len(np.unique(keys)) == keys.size
