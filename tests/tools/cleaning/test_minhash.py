import numpy as np
import pytest

from keras_transformer.tools.cleaning.minhash import FUNCTIONS, bands, shingles, signatures, similarity
from keras_transformer.tools.cleaning.text import skeleton
from tests import tiny

TEXTS = ["", "a", "the same text", "der gleiche text", "𝕬 astral text 漢字", "one two three"]


def test_shingles_are_the_runs_of_four_characters_with_both_ends_and_similarity_is_that_of_jaccard():
    assert shingles("ab") == {"\nab\n", "ab\n\n", "b\n\n\n"}
    assert len(shingles("")) == 1
    assert similarity([{"a", "b"}, {"c"}], [{"a"}, {"c", "d"}]) == 2 / 4
    assert similarity([{"a"}], [{"a"}]) == 1


def test_a_signature_does_not_depend_on_the_texts_beside_it():
    together = signatures(TEXTS)
    for text, signature in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(signatures([text])[0], signature)
    assert together.shape == (len(TEXTS), FUNCTIONS) and signatures([]).shape == (0, FUNCTIONS)
    assert len(np.unique(together, axis=0)) == len(TEXTS)
    assert not np.any(signatures(TEXTS, side=0) == signatures(TEXTS, side=1))


def test_the_share_of_equal_minima_estimates_the_similarity():
    texts = [skeleton(source) for source, _ in tiny.pairs(150)]
    minima, sets = signatures(texts), [shingles(text) for text in texts]
    errors = [np.mean(minima[i] == minima[j]) - similarity([sets[i]], [sets[j]]) for i in range(150) for j in range(i)]
    assert abs(np.mean(errors)) < 0.01  # no bias
    assert np.std(errors) < 0.5 / FUNCTIONS**0.5  # the greatest standard error of a share


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
