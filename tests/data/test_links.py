"""Links between tokens, on their way from a corpus to a batch."""

import numpy as np

from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.data.links import PLACES, as_rows, as_weights
from keras_transformer.data.pipeline import make_batch, training_batches
from keras_transformer.tools.variation.moved_links import moved
from tests import tiny

# Pieces, and the texts "abcd ef" -> "uvw x" in two divisions. </s> ends a target.
PIECES = ["", "ab", "cd", "a", "b", "c", "d", "▁ef", "uv", "w", "u", "vw", "▁x", "</s>", "abc"]
WIDTHS = [np.array([len(piece) for piece in PIECES])] * 2


def ids(*pieces):
    return [PIECES.index(piece) for piece in pieces]


def linked(pairs, links):
    """`EncodedPairs` of lists of ids; `links` are a set of (target place, source place) for each pair."""
    flat = np.array([(row, *link) for row, of_pair in enumerate(links) for link in of_pair]).reshape(-1, 3)
    sides = (Sentences.of_lists(side) for side in zip(*pairs, strict=True))
    return EncodedPairs(*sides, {}, links=as_rows(*flat.T, len(pairs)))


def as_sets(links):
    return [{divmod(link, PLACES) for link in row} for row in links.lists()]


BEFORE = [
    (ids("ab", "cd", "▁ef"), ids("uv", "w", "▁x", "</s>")),
    (ids("cd", "ab"), ids("w", "</s>")),
    (ids("▁ef"), ids("▁x", "</s>")),
]
LINKS = [{(0, 0), (2, 2), (2, 1)}, {(0, 1)}, set()]


def test_links_come_back_in_any_order_and_as_weights_behind_a_tag():
    pairs = linked(BEFORE, LINKS)
    assert as_sets(pairs.links) == LINKS and as_sets(pairs.of(np.array([2, 0])).links) == [set(), LINKS[0]]
    weights = as_weights(pairs.links, 5, 4, first=1)
    assert weights.shape == (3, 5, 4)
    expected = np.zeros((3, 5, 4))
    expected[0, 0, 1] = expected[1, 0, 2] = 1
    expected[0, 2, 2:4] = 0.5
    np.testing.assert_array_equal(weights, expected)


def test_pieces_are_linked_as_their_characters_were():
    after = [
        (ids("a", "b", "c", "d", "▁ef"), ids("u", "vw", "▁x", "</s>")),
        (ids("cd", "ab"), ids("w", "</s>")),
        (ids("▁ef"), ids("▁x", "</s>")),
    ]
    pairs = linked(BEFORE, LINKS)
    # "uv" was linked with "ab": so are "u" and "vw", which has the v. "▁x" was linked with "cd" and "▁ef".
    expected = [{(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (2, 4)}, {(0, 1)}, set()]
    assert as_sets(moved(pairs, linked(after, [set()] * 3), WIDTHS)) == expected
    assert as_sets(moved(pairs, pairs, WIDTHS)) == LINKS
    # A pair whose text has another length loses its links alone.
    longer = [(ids("abc", "▁ef"), BEFORE[0][1]), *BEFORE[1:]]
    assert as_sets(moved(pairs, linked(longer, [set()] * 3), WIDTHS)) == [set(), {(0, 1)}, set()]


def test_batches_have_the_links_of_their_pairs_if_there_are_any():
    pairs = tiny.encoded_pairs([3, 5, 2, 4], [2, 4, 3, 5], tiny.VOCABULARY)
    links = as_rows(np.arange(4), np.array([1, 0, 2, 1]), np.array([2, 4, 0, 1]), 4)
    pairs = EncodedPairs(pairs.source, pairs.target, {}, links=links)
    source_ids, labels, weights = make_batch(pairs, np.array([1, 3]))
    assert weights.shape == (*labels.shape, source_ids.shape[1])
    assert [tuple(place) for place in np.argwhere(weights)] == [(0, 0, 4), (1, 1, 1)]
    for inputs, labels in training_batches(pairs, 11, seed=1).take(5):
        assert inputs["links"].shape == (*labels.shape, inputs["source_ids"].shape[1])
        assert float(np.sum(inputs["links"])) == len(labels)
    without = tiny.encoded_pairs([3, 5], [2, 4], tiny.VOCABULARY)
    assert len(make_batch(without, np.array([0, 1]))) == 2
    assert training_batches(without, 11, seed=1).element_spec[0].keys() == {"source_ids", "target_ids"}
