import itertools

import numpy as np

from keras_transformer.tools.cleaning.duplicates import MOST_COMPARED, comparisons, near_duplicates, repeated
from keras_transformer.tools.cleaning.minhash import similarity

SETS = [{1, 2, 3, 4}, {1, 2, 3}, {7, 8}, {2, 3, 4, 5}, {7, 8, 9}]


def test_of_equal_texts_the_one_with_the_smallest_key_stays():
    keys = np.array([[5, 1], [3, 9], [3, 7], [0, 0]], np.uint64)
    texts = np.array([[2, 2], [2, 2], [2, 2], [2, 3]], np.uint64)
    for order in map(list, itertools.permutations(range(4))):
        assert repeated(keys[order], texts[order])[np.argsort(order)].tolist() == [True, True, False, False]
    same = np.ones((5, 2), np.uint64)
    assert repeated(same, same).sum() == 4


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
    assert similarity([SETS[0]], [SETS[1]]) == 0.75
