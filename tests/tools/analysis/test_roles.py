import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.corpora import Kept
from keras_transformer.data.encoded import EncodedPairs, Sentences, encode_pairs
from keras_transformer.data.links import PLACES, as_weights
from keras_transformer.data.pipeline import teacher_forced
from keras_transformer.errors import CorpusError, UserError
from keras_transformer.tools.analysis import roles
from keras_transformer.tools.analysis.forced import explain_pairs, link_words
from keras_transformer.tools.analysis.links import describe, learn_links, links_of_file, open_links, write_links
from keras_transformer.tools.analysis.roles import diagonal, positional, rare
from keras_transformer.training.losses import GuidedAlignment
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.translation.results import Explanation
from tests import tiny


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
    rows = weights[:, [1, 2, 4]]
    np.testing.assert_array_equal(words, np.stack([rows[..., 0] + rows[..., 2], rows[..., 1]], axis=-1))


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


@pytest.mark.parametrize("make", [tiny.beam_translator, lambda: tiny.many_languages("both")])
def test_the_own_translation_of_a_model_is_explained_as_explain_does(make):
    translator, texts = make(), ["one two three", "ten", "five five zero nine"]
    expected = translator.explain(texts)
    translations = ["".join(each.pieces).removesuffix("</s>").replace("▁", " ").strip() for each in expected]
    compared = 0
    for found, own in zip(explain_pairs(translator, texts, translations), expected, strict=True):
        assert found.source_pieces == own.source_pieces
        if found.pieces == own.pieces:  # random weights choose pieces that no tokenizer would
            np.testing.assert_allclose(found.alignment, own.alignment, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.token_scores, own.token_scores, rtol=1e-3, atol=1e-4)
            compared += 1
    assert compared == 3 or make is not tiny.beam_translator
    rows = explain_pairs(translator, ["one two", "three"], ["eins", "zwei drei vier"])
    for row in rows:
        assert row.alignment.shape == (len(row.pieces), len(row.source_pieces))
        np.testing.assert_allclose(row.alignment.sum(axis=1), 1, rtol=1e-3)


def test_a_word_is_linked_with_the_word_at_which_its_pieces_look_most():
    weights = [[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.0, 0.9, 0.1], [0.04, 0.04, 0.04], [0.1, 0.1, 0.8]]
    pieces = ["▁Haus", "▁al", "te", "▁so", "</s>"]  # "alte" looks at "o", "ld" together with 0.1 + 0.9 + 0.0 + 0.1
    explanation = Explanation(["▁o", "ld", "▁house"], pieces, np.zeros(5), np.array(weights))
    assert link_words(explanation, "old house", "Haus alte so") == [(0, 0), (0, 1)]
    explanation.alignment[0] = [0.1, 0.2, 0.7]
    assert link_words(explanation, "old house", "Haus alte so") == [(1, 0), (0, 1)]
    with pytest.raises(UserError, match="only a run explains given translations. Received: a object"):
        explain_pairs(object(), ["one"], ["eins"])  # an export does not


def reordered(count, seed=0):
    """Pairs of random tokens 10 ... 39. Token n becomes token 2 n + 30, and the last two of a target change places."""
    rng, sources, targets = np.random.default_rng(seed), [], []
    for _ in range(count):
        source = rng.choice(np.arange(10, 40), rng.integers(3, 8), replace=False).tolist()
        target = [2 * token + 30 for token in source]
        target[-2:] = target[:-3:-1]
        sources.append(source)
        targets.append([*target, 3])
    return EncodedPairs(Sentences.of_lists(sources), Sentences.of_lists(targets), {})


def as_sets(links):
    return [{divmod(link, PLACES) for link in row} for row in links.lists()]


def test_words_that_translate_each_other_are_linked_wherever_they_stand_and_links_are_written(tmp_path):
    pairs = reordered(400)
    learnt = learn_links(pairs)
    write_links(learnt, tmp_path)
    again, found = open_links(tmp_path), as_sets(learnt)
    assert as_sets(again) == found
    for links, source in zip(found, pairs.source.lists(), strict=True):
        n = len(source)
        assert links <= {(place, place) for place in range(n - 2)} | {(n - 2, n - 1), (n - 1, n - 2)}
    right = sum(map(len, found)) / len(pairs.source.ids)  # a token has at most one link here
    assert right > 0.99 and describe(again, pairs) == ("400 pairs", pytest.approx(100 * right))
    with pytest.raises(CorpusError, match="no words of the corpus could be linked"):
        write_links(Sentences.of_lists([[], []]), tmp_path)


@pytest.mark.slow
def test_a_model_looks_where_its_guide_points():
    """The last two tokens change places. Without a guide, this model looks there at less than 80 % of its words."""
    pairs = reordered(300)
    links = learn_links(pairs)
    batch = teacher_forced(
        pairs.source.padded(rows := np.arange(len(pairs))),
        pairs.target.padded(rows),
        links=as_weights(links, int(pairs.target.lengths.max()), int(pairs.source.lengths.max())),
    )
    linked = batch[0]["links"].any(axis=-1)
    model = tiny.transformer(vocabulary_size=120, dropout_rate=0.0, num_layers=2, guided_alignment=0.5)
    trainer = TeacherForcing(model)
    trainer.compile(keras.optimizers.Adam(0.005), GuidedAlignment(0.1, 0.5))
    trainer.fit(tf.data.Dataset.from_tensors(batch).repeat(), steps_per_epoch=150, verbose=0)
    _, alignment = model.align(batch[0]["target_ids"], model.encode(batch[0]["source_ids"]))
    is_right = np.argmax(alignment, axis=-1) == np.argmax(batch[0]["links"], axis=-1)
    assert is_right[linked].mean() > 0.95


TEXTS = [("one two", "eins zwei"), ("  ", "leer"), ("three four five", "fünf drei vier"), ("ten", "zehn")]


def test_all_pieces_of_words_are_linked_as_a_file_says_whatever_pairs_were_dropped(tmp_path):
    tokenizers = [tiny.tokenizer(), tiny.spelling_tokenizer()]
    (tmp_path / "tokens").mkdir()
    pairs = encode_pairs(TEXTS, *tokenizers, 31, tmp_path / "tokens")
    (tmp_path / "links").write_text("0-1 1-0\n\n2-0 0-1\n\n", encoding="utf-8")
    found = as_sets(links_of_file(tmp_path / "links", TEXTS, pairs, tokenizers, 31))
    (tmp_path / "whole").write_text("0-1 1-0\n0-0\n\n2-0 0-1\n\n", encoding="utf-8")
    held_out = Kept([TEXTS[0], ("ten", "zehn"), *TEXTS[1:]], np.arange(5) != 1)
    assert as_sets(links_of_file(tmp_path / "whole", held_out, pairs, tokenizers, 31)) == found
    words, kept = [[(1, 0), (0, 1)], [(0, 2), (1, 0)], []], [TEXTS[0], *TEXTS[2:]]
    for links, (source, target), of_words in zip(found, kept, words, strict=True):
        pieces = [
            [tokenizer.tokenize([f" {word}"])[0] for word in text.split()]
            for tokenizer, text in zip(tokenizers, (source, target), strict=True)
        ]
        starts = [np.cumsum([0, *map(len, of_side)]) for of_side in pieces]
        places = [[range(*pair) for pair in zip(of_side[:-1], of_side[1:], strict=True)] for of_side in starts]
        assert links == {(t, s) for word, other in of_words for t in places[1][word] for s in places[0][other]}
    for text, message in (
        ("0-0\n\n", "links has 2 lines, but there are more pairs"),
        ("0-0\n\n\n\n\n", "links has more lines than there are pairs, 4"),
        ("0-0\n\n0-3\n\n", "links, line 3: 0-3 is outside of the sentences, which have 3 and 3 words"),
    ):
        (tmp_path / "links").write_text(text, encoding="utf-8")
        with pytest.raises(CorpusError, match=message):
            links_of_file(tmp_path / "links", TEXTS, pairs, tokenizers, 31)
