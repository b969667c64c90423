import collections

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.tools import lexicon
from keras_transformer.tools.lexicon import likeliest, most_frequent, translation_probabilities


def encoded(pairs):
    """`EncodedPairs` of lists of ids."""
    return EncodedPairs(*(Sentences.of_lists(side) for side in zip(*pairs, strict=True)), {})


def random_pairs(count=23):
    """Pairs of different lengths, in which pieces come more than once."""
    rng = np.random.default_rng(5)
    return [tuple(rng.integers(4, 11, rng.integers(1, 8)).tolist() for _ in range(2)) for _ in range(count)]


def plain_model_1(pairs, iterations):
    """IBM model 1 as its definition says it, in Python: {(e, f): t(f | e)}."""
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts = collections.defaultdict(float)
        for source, target in pairs:
            for f in target:
                for e in source:
                    counts[e, f] += t[e, f] / sum(t[other, f] for other in source)
        totals = collections.defaultdict(float)
        for (e, _), count in counts.items():
            totals[e] += count
        t = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return t


def as_dict(sources, targets, t):
    return dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), t.tolist(), strict=True))


def test_probabilities_are_those_of_the_definition():
    pairs = random_pairs()
    found, expected = as_dict(*translation_probabilities(encoded(pairs), 4)), plain_model_1(pairs, 4)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=1e-9)


def test_of_a_large_corpus_evenly_spaced_pairs_are_counted(monkeypatch):
    pairs = random_pairs()
    total = sum(len(source) * len(target) for source, target in pairs)
    expected = as_dict(*translation_probabilities(encoded(pairs[::3])))
    monkeypatch.setattr(lexicon, "MOST_LINKS", total // 3 + 1)
    assert as_dict(*translation_probabilities(encoded(pairs))) == expected


def test_the_likeliest_pieces_come_first_and_padding_where_there_are_none():
    pairs = random_pairs(7)
    t, table = plain_model_1(pairs, lexicon.ITERATIONS), likeliest(encoded(pairs), 13, 5)
    assert table.shape == (13, 5)
    for e, row in enumerate(table.tolist()):
        probabilities = sorted((p for (source, _), p in t.items() if source == e), reverse=True)
        found = [t[e, f] for f in row if f != PAD_ID]
        np.testing.assert_allclose(found, probabilities[:5], rtol=1e-9)
        assert row[len(found) :] == [PAD_ID] * (5 - len(found))


def test_the_most_frequent_pieces_are_counted_in_the_target():
    pairs = encoded([([9, 9, 9, 9], [5, 7]), ([9], [7, 4, 7, 4])])
    assert most_frequent(pairs, 2).tolist() == [7, 4] and most_frequent(pairs, 53).tolist() == [7, 4, 5]
