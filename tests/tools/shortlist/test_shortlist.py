import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.search import IMPOSSIBLE
from keras_transformer.errors import UserError
from keras_transformer.layers.embedding import logits_of
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.tools.shortlist import FREQUENT, AllowedPieces, Shortlist
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.decoding.scripted import BOS, EOS, PAD, Script, as_lists, exhaustive, table_of

TEXTS = ["one two", "", "Größe 😀", "one\n\ntwo one"]
CONTROL = {0, 1, 2, 3}
NOT_GIVEN = {"no_repeat_ngram": 0}  # the search without options, in the graph of the one with options: one trace less


@functools.cache
def translator(shortlist, model, width):
    """A `Translator` of a random model, whose translations are made of anything; with the `Shortlist` of a function."""
    return Translator(model(), tiny.tokenizer(), beam_size=width, shortlist=shortlist and shortlist())


@functools.cache
def few(size=2):
    """A `Shortlist` of random pieces."""
    rng = np.random.default_rng(7)
    table = rng.integers(4, tiny.VOCABULARY, (tiny.VOCABULARY, size))
    table[PAD_ID] = PAD_ID
    return Shortlist(table, rng.integers(4, tiny.VOCABULARY, 5), tiny.VOCABULARY)


def lists_of(shortlist, source_ids, prefix):
    """The list of each row, in plain Python: list of sets."""
    table, frequent = shortlist.table.numpy(), shortlist.frequent.numpy()
    return [
        {*CONTROL, *frequent.tolist(), *ids, *np.ravel(table[list(row)]).tolist()}
        for row, ids in zip(source_ids, prefix, strict=True)
    ]


def test_a_row_may_choose_what_its_own_pieces_the_prefix_and_the_frequent_ones_list():
    source_ids, prefix = [[5, 7, 11], [13, 0, 0], [0, 0, 0]], [[17, 300], [19, 0], [0, 0]]
    pieces, hidden = few().candidates(tf.constant(source_ids), tf.constant(prefix))  # padding lists nothing
    expected = lists_of(few(), [[i for i in row if i] for row in source_ids], prefix)
    assert pieces.numpy().tolist() == sorted(set.union(*expected))
    for row, own in enumerate(expected):
        allowed = [0.0 if piece in own else IMPOSSIBLE for piece in pieces.numpy().tolist()]
        assert hidden[row, 0].numpy().tolist() == allowed


def test_the_logits_of_the_listed_pieces_are_theirs_with_their_biases():
    model, states = biased(), tf.random.stateless_normal([3, tiny.SIZES["d_model"]], (1, 2))
    candidates = few().candidates(tf.constant([[5, 7, 11]]), tf.zeros([1, 0], tf.int32))
    found = logits_of(states, *candidates.projections([model])[0])
    np.testing.assert_allclose(found, tf.gather(model.logits(states), candidates.pieces, axis=1), rtol=1e-4, atol=1e-5)
    assert np.any(tf.gather(model.output_bias, candidates.pieces))


@pytest.mark.parametrize("width", [3, 131])
def test_beam_search_finds_the_best_of_all_sequences_of_the_own_list(width):
    lists = [{PAD, BOS, EOS, 3, 5}, {PAD, BOS, EOS, 4}, {PAD, BOS, EOS, 3, 4, 6}]
    script = Script(np.array([2, 5, 7], "int32"), vocabulary=7, eos_bias=-1.0)
    pieces = tf.constant(sorted(set.union(*lists)))
    hidden = [[[0.0 if i in own else IMPOSSIBLE for i in pieces.numpy().tolist()]] for own in lists]
    candidates = AllowedPieces(pieces, tf.constant(hidden))

    def step(*arguments):
        logits, state = script.step(*arguments)
        return tf.gather(logits, pieces, axis=2), state

    how = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD, "length_penalty": 0.6, "width": width}
    start = candidates.state(script.start(width))
    found = as_lists(candidates.hypotheses(beam_search(candidates.step(step), start, [4] * 3, **how)))
    for row, own in enumerate(lists):
        table = table_of(7, eos_bias=-1.0)
        table[:, [i for i in range(7) if i not in own]] = IMPOSSIBLE
        best = exhaustive(Script(script.seeds, table), row, 4, 0.6)[0]
        assert all(own.issuperset(ids) for _, ids in found[row])
        if width == 131:  # nothing is ever dropped
            assert found[row][0][1] == best[1] and found[row][0][0] == pytest.approx(best[0], abs=1e-5)


def biased():
    return tiny.transformer(logits_bias=True)


@pytest.mark.slow
def test_a_list_of_all_pieces_changes_nothing():
    whole = Shortlist(np.zeros((tiny.VOCABULARY, 1)), np.arange(tiny.VOCABULARY), tiny.VOCABULARY)
    exact, short = (translator(shortlist, biased, 3) for shortlist in (None, lambda: whole))
    found, expected = (each.translate_scored(TEXTS, no_repeat_ngram=2) for each in (short, exact))
    assert [x.text for x in found] == [x.text for x in expected]
    np.testing.assert_allclose([x.score for x in found], [x.score for x in expected], rtol=1e-4)


@pytest.mark.slow
def test_a_text_is_translated_the_same_alone_and_in_any_batch():
    exact, short = (translator(shortlist, tiny.transformer, 3) for shortlist in (None, few))
    prefix = ["x", "one", "Größe", ""]
    together, forced = short.translate_scored(TEXTS), short.translate_scored(TEXTS, prefix=prefix, max_length=11)
    assert [x.text for x in together] != exact.translate(TEXTS, **NOT_GIVEN)
    assert all(found.text.startswith(start) for found, start in zip(forced, prefix, strict=True) if found.text)
    for text, start, whole, with_prefix in zip(TEXTS, prefix, together, forced, strict=True):
        for found, alone in (
            (whole, short.translate_scored(text)),
            (with_prefix, short.translate_scored(text, prefix=start, max_length=11)),
        ):
            assert found.text == alone.text and found.score == pytest.approx(alone.score, rel=1e-4)


@pytest.mark.slow
def test_scores_explanations_and_samples_are_those_of_all_pieces():
    exact, short = (translator(shortlist, tiny.transformer, 3) for shortlist in (None, few))
    for signature, given in {
        "score": {"translation": ["zwei", "null", "", "eins\n\nzwei zwei"]},
        "explain": {},
        "sample": {"seed": 5, "top_k": 7},
    }.items():
        rows = zip(short.ask(signature, text=TEXTS, **given), exact.ask(signature, text=TEXTS, **given), strict=True)
        for found, expected in rows:
            for name in expected:
                np.testing.assert_array_equal(found[name], expected[name])


def toy_pairs():
    texts = zip(*tiny.pairs(53), strict=True)
    lengths = [tiny.tokenizer().encode(list(side)).row_lengths().numpy() for side in texts]
    return tiny.encoded_pairs(*lengths, tiny.VOCABULARY)


def test_a_counted_list_has_the_likeliest_pieces_and_the_piece_itself():
    shortlist = Shortlist.count(toy_pairs(), tiny.tokenizer(), tiny.tokenizer(), 5)
    assert shortlist.table.shape == (tiny.VOCABULARY, 5 + 1)
    np.testing.assert_array_equal(shortlist.table[:, -1], range(tiny.VOCABULARY))
    frequencies = np.bincount(toy_pairs().target.ids, minlength=tiny.VOCABULARY)
    frequent = set(shortlist.frequent.numpy().tolist())
    assert frequent >= {*CONTROL, EOS_ID, int(np.argmax(frequencies))} and len(frequent) <= FREQUENT + len(CONTROL)


def test_a_piece_of_another_tokenizer_is_copied_by_its_text():
    german = Tokenizer(train_tokenizer([text for _, text in tiny.pairs(211)], 300))
    table = Shortlist.count(toy_pairs(), tiny.tokenizer(), german, 1).table.numpy()
    pieces = [tokenizer.pieces(tf.range(tokenizer.vocabulary_size)).numpy() for tokenizer in (tiny.tokenizer(), german)]
    for piece, copy in zip(pieces[0], table[:, -1], strict=True):
        assert pieces[1][copy] == piece if piece in pieces[1] else copy == 0
    assert np.count_nonzero(table[:, -1]) >= 256  # all bytes
    with pytest.raises(UserError, match="`shortlist` must be a whole number of at least 1. Received: shortlist=0"):
        Shortlist.count(toy_pairs(), tiny.tokenizer(), tiny.tokenizer(), 0)
