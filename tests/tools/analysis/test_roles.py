"""By hand: each head of each example looks where the test says."""

import math

import numpy as np
import pytest

from keras_transformer.tools.analysis import roles
from keras_transformer.tools.analysis.roles import diagonal, positional, rare


def test_the_entropy_of_one_key_is_0_and_of_all_alike_the_logarithm_of_their_number():
    weights = np.array([[[0, 1, 0, 0, 0], [0.2] * 5], [[0.5, 0.5, 0, 0, 0], [0.25, 0.25, 0.5, 0, 0]]])
    expected = [[0, math.log(5)], [math.log(2), 1.5 * math.log(2)]]
    np.testing.assert_allclose(roles.entropies(weights), expected, atol=1e-12)
    looks = roles.most_attended([[[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]])  # the keys with the largest weights
    np.testing.assert_array_equal(looks, [[1, 0]])


def test_the_best_offset_is_the_most_frequent_one_among_queries_that_have_such_a_key():
    before = [np.array([[0, 0, 1, 2, 3], [1, 2, 3, 4, 0]]), np.array([[2, 0, 1], [1, 2, 1]])]
    offsets, shares = positional(before, [5, 3])
    np.testing.assert_array_equal(offsets, [-1, 1])
    np.testing.assert_allclose(shares, [6 / 6, 6 / 6])
    one_wrong = [np.array([[0, 0, 1, 2, 0]])]
    assert [x.tolist() for x in positional(one_wrong, [5])] == [[-1], [3 / 4]]

    # A query that sees no later key has none at a later offset; the keys of another sentence have their own end.
    assert positional([np.array([[0, 1, 2, 3, 4]])], [5], is_causal=True)[1].tolist() == [1]
    assert positional([np.array([[1, 2, 3, 3, 4]])], [7])[1].tolist() == [3 / 5]
    for length, share in ((5, 1), (7, 3 / 5)):
        offsets, shares = positional([np.array([[2, 3, 4, 0, 0]])], [length])
        assert (offsets.tolist(), shares.tolist()) == ([2], [share])


def test_a_head_of_rare_words_looks_at_the_least_frequent_token():
    looks = [np.array([[1, 1, 1], [1, 0, 2]]), np.array([[0, 0, 0, 1, 3], [4, 4, 4, 4, 4]])]
    frequencies = [[7, 2, 7], [3, 11, 11, 3, 5]]  # in the second sentence, two tokens are equally rare
    shares, chance = rare(looks, frequencies)
    np.testing.assert_allclose(shares, [7 / 8, 1 / 8])
    assert chance == pytest.approx((3 * 1 / 3 + 5 * 2 / 5) / 8)
    # A query of the decoder knows the rarest token so far.
    shares, chance = rare([np.array([[0, 0, 2], [0, 1, 1]])], [[5, 11, 2]], is_causal=True)
    np.testing.assert_allclose(shares, [3 / 3, 1 / 3])
    assert chance == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_the_diagonal_of_sentences_of_different_lengths():
    looks = [np.array([[0, 0, 1, 2, 2], [2, 2, 2, 0, 0]])]  # the diagonal is at -0.2, 0.4, 1, 1.6, 2.2 of 3 keys
    np.testing.assert_allclose(diagonal(looks, [3]), [1, 1 / 5])
    far = [np.array([[0, 5]])]  # at 1.25 and 4.75 of 7 keys
    np.testing.assert_allclose(diagonal(far, [7]), [1 / 2])


def test_a_word_looks_from_its_last_piece_at_the_sum_over_the_pieces_of_another():
    weights = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    words = roles.attention_of_words(weights, [[0, 1], [2], [3, 4]], [[0, 2], [1]])
    assert words.shape == (2, 3, 2)
    for head in range(2):
        for t, row in enumerate((1, 2, 4)):
            assert words[head, t].tolist() == [weights[head, row, 0] + weights[head, row, 2], weights[head, row, 1]]


def test_a_head_that_aligns_looks_at_a_word_that_is_aligned():
    looks = [np.array([[0, 2, 1], [0, 0, 0]]), np.array([[1, 1], [0, 3]])]
    links = [[(0, 0), (1, 2)], [(3, 1), (1, 1)]]  # word 1 of the first target has no source, that of the second two
    np.testing.assert_allclose(roles.aligned(looks, links), [3 / 3, 2 / 3])
    assert np.isnan(roles.aligned([np.array([[0], [1]])], [[]])).tolist() == [True, True]  # nothing is known


def test_the_relations_of_parses_are_compared_with_the_best_fixed_offset():
    # The dogs bark . / Cats sleep
    trees = [[(1, "det"), (2, "nsubj"), (-1, "root"), (2, "punct")], [(1, "nsubj"), (-1, "root")]]
    trees.append([(2, "nsubj"), (0, "x"), (-1, "root")])
    looks = [np.array([[1, 2, 1, 2], [0, 1, 2, 3]]), np.array([[0, 0], [1, 1]]), np.array([[2, 2, 0], [0, 0, 1]])]
    found = roles.syntactic(looks, trees)
    assert list(found) == ["nsubj", "det", "punct", "x"]
    nsubj = found["nsubj"]
    assert (nsubj.pairs, nsubj.offset, nsubj.baseline) == (3, 1, pytest.approx(2 / 3))
    np.testing.assert_allclose(nsubj.to_head, [2 / 3, 1 / 3])
    np.testing.assert_allclose(nsubj.to_dependent, [3 / 3, 0])
    assert (found["punct"].offset, found["punct"].to_head.tolist()) == (-1, [1, 0])
