from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from keras_transformer.data.encoded import Share
from keras_transformer.data.pipeline import rows_of_epoch, sort_by_length, widest_rows

WEIGHTS = [Fraction(text) for text in ("1", "3", "0.3", "0.5", "1.5", "2.25", "0.01", "0.999")] + [Fraction(5, 29)]


def lengths(size, seed=0):
    """(source, target) lengths of many pairs, in no order."""
    draw = np.random.default_rng(seed)
    return draw.integers(1, 53, size), draw.integers(1, 59, size)


@pytest.mark.parametrize(("size", "weight"), zip([1, 7, 211] * 3, WEIGHTS, strict=True), ids=str)
def test_every_pair_is_taken_as_often_as_the_weight_says_and_every_epoch_takes_its_share(size, weight):
    """As many epochs as the denominator take every pair as often as the numerator; each is right up to one pair."""
    share = Share(size, weight)
    times = np.array([share.times(epoch) for epoch in range(3 * weight.denominator)])
    for cycle in np.split(times, 3):
        assert cycle.sum(axis=0).tolist() == [weight.numerator] * size
    assert times.min() >= int(weight) and times.max() <= -(-weight.numerator // weight.denominator)
    assert set(times.sum(axis=1).tolist()) == {share.fewest, share.most}
    assert abs(share.fewest - size * weight) < 1 and abs(share.most - size * weight) < 1
    expected = np.arange(1, size + 1) * float(weight)
    assert np.abs(np.cumsum(times, axis=1) - expected).max() <= 1  # of the short pairs and of the long ones


def test_rows_are_those_of_each_corpus_as_often_as_its_weight_says():
    shares = [Share(13), Share(70, Fraction("0.3")), Share(11, Fraction(2))]
    counts = Counter()
    for epoch in range(10):
        rows = rows_of_epoch(shares, *lengths(94), seed=5, epoch=epoch)
        assert np.diff(np.searchsorted(np.sort(rows), [0, 13, 83, 94])).tolist() == [13, 21, 22]
        counts.update(rows.tolist())
    assert [counts[row] for row in range(94)] == [10] * 13 + [3] * 70 + [20] * 11


def test_the_pairs_that_go_together_depend_on_the_seed_and_change_after_each_cycle():
    shares = [Share(70, Fraction("0.5"))]
    same = np.ones(70, int), np.ones(70, int)  # of one length: only the ties decide
    first = [frozenset(rows_of_epoch(shares, *same, seed, epoch).tolist()) for seed in (5, 7) for epoch in (0, 2)]
    assert len(set(first)) == 4
    assert frozenset(rows_of_epoch(shares, *same, 5, 0).tolist()) == first[0]


def test_no_epoch_is_wider_than_the_widest():
    for seed in range(5):
        draw = np.random.default_rng(seed)
        sizes = draw.integers(1, 61, 3).tolist()
        weights = [WEIGHTS[i] for i in draw.integers(0, len(WEIGHTS), 3)]
        shares = [Share(size, weight) for size, weight in zip(sizes, weights, strict=True)]
        sides = lengths(sum(sizes), seed)
        widths = np.maximum(*sides)
        bound = np.sort(widths[widest_rows(shares, *sides)])
        for epoch in range(61):
            found = np.sort(widths[rows_of_epoch(shares, *sides, 3, epoch)])
            assert len(found) <= len(bound)
            assert (found <= bound[len(bound) - len(found) :]).all()


def test_pairs_are_sorted_by_width_then_source_length_in_fours_then_ties():
    ties = np.random.default_rng(3).permutation(101)
    for scale in (1, 53, 10_007):  # widths of 8, 16 and 32 bits
        sources, targets = (side * scale for side in lengths(101))
        expected = sorted(range(101), key=lambda i: (max(sources[i], targets[i]), sources[i] // 4, ties[i]))
        assert sort_by_length(sources, targets, ties).tolist() == expected
