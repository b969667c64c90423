import collections

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.tools import lexicon
from keras_transformer.tools.lexicon import likeliest, links, most_frequent, translation_probabilities
from tests import tiny

DAS, HAUS, BUCH, EIN = range(4, 8)
THE, HOUSE, BOOK, A = range(5, 9)
KOEHN = [([DAS, HAUS], [THE, HOUSE]), ([DAS, BUCH], [THE, BOOK]), ([EIN, BUCH], [A, BOOK])]


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


def test_links_join_every_target_token_with_every_token_of_its_source():
    sources, targets, _, tokens = links(encoded([([7, 8], [5]), ([9], [6, 4, 6])]), np.array([0, 1]))
    assert list(zip(sources, targets, tokens, strict=True)) == [(7, 5, 0), (8, 5, 0), (9, 6, 1), (9, 4, 2), (9, 6, 3)]


def test_probabilities_are_those_of_koehns_example():
    """Koehn, Statistical Machine Translation (2010), figure 4.4."""
    expected = {1: (0.5, 0.5, 0.5), 2: (0.6364, 0.4286, 0.5714), 3: (0.7479, 0.3466, 0.6534)}
    for iterations, (book_if_buch, book_if_ein, a_if_ein) in expected.items():
        t = as_dict(*translation_probabilities(encoded(KOEHN), iterations))
        found = [t[BUCH, BOOK], t[DAS, THE], t[EIN, BOOK], t[HAUS, THE], t[EIN, A], t[HAUS, HOUSE]]
        np.testing.assert_allclose(found, [book_if_buch] * 2 + [book_if_ein] * 2 + [a_if_ein] * 2, atol=5e-5)


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
    t = plain_model_1(pairs, lexicon.ITERATIONS)
    table = likeliest(encoded(pairs), 13, 5)
    assert table.shape == (13, 5)
    for e, row in enumerate(table.tolist()):
        probabilities = sorted((p for (source, _), p in t.items() if source == e), reverse=True)
        found = [t[e, f] for f in row if f != PAD_ID]
        np.testing.assert_allclose(found, probabilities[:5], rtol=1e-9)
        assert row[len(found) :] == [PAD_ID] * (5 - len(found))


def test_the_toys_words_are_found():
    encode, size = tiny.tokenizer().tokenize, tiny.tokenizer().vocabulary_size
    sources, targets = (encode(list(side)) for side in zip(*tiny.pairs(211), strict=True))
    table = likeliest(encoded(list(zip(sources, targets, strict=True))), size, 3)
    words = zip(encode(tiny.ENGLISH), encode(tiny.GERMAN), strict=True)
    whole = [(e[0], f[0]) for e, f in words if len(e) == len(f) == 1]
    assert len(whole) > 3 and all(f in table[e] for e, f in whole)


def test_the_most_frequent_pieces_are_counted_in_the_target():
    pairs = encoded([([9, 9, 9, 9], [5, 7]), ([9], [7, 4, 7, 4])])
    assert most_frequent(pairs, 2).tolist() == [7, 4]
    assert most_frequent(pairs, 53).tolist() == [7, 4, 5]
