import io
import itertools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.errors import TokenizerError
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.tools.importing.new_pieces import append_pieces, count_words, learn_pieces
from keras_transformer.training.origin import mean_rows, new_in, spell
from tests import tiny

GERMAN = ["Der große Hund schläft, der Hund träumt.", "Ein Hund und 12 Häuser"] * 3
OTHERS = ["Привет, мир! привет, 12 мир", "\N{DEVANAGARI LETTER MA}\N{DEVANAGARI VOWEL SIGN E}"] * 3
NEW = GERMAN + OTHERS
NASTY = ["", " ", "  zwei  Hunde ", "\t\n", "Hund\u00a0Hund", "▁Hund", "<0x0A></s>", "Hu\u0301nd", "\x00Hund\x7f"]
NASTY += ["\N{WOMAN}\u200d\N{GIRL} Hund"]
CHARACTERS = "Hundt риß<é\t\N{WOMAN}\u200d\uff101."
MOST = 61


def trained(kind):
    """A SentencePiece model of number words, bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain.from_iterable(tiny.pairs(211)),
        model_writer=model,
        vocab_size=400 if kind == "unigram" else 331,
        hard_vocab_limit=False,
        model_type=kind,
        byte_fallback=kind != "word",
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        **{f"{name}_id": number for number, name in enumerate(("pad", "unk", "bos", "eos"))},
        minloglevel=2,
    )
    return model.getvalue()


MODELS = {"ours": tiny.tokenizer_model(), "unigram": trained("unigram")}
LEARNT = {name: learn_pieces(model, NEW, MOST) for name, model in MODELS.items()}
GROWN = {name: Tokenizer(append_pieces(model, LEARNT[name])) for name, model in MODELS.items()}
OLD = {name: Tokenizer(model) for name, model in MODELS.items()}


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def pieces_of(tokenizer, text):
    return [piece.decode() for piece in tokenizer.pieces(tokenizer.encode(tf.constant([text]))[0]).numpy()]


def test_old_pieces_keep_their_ids_and_new_ones_stand_behind_them(name):
    before, after = (ModelProto.FromString(each).pieces for each in (MODELS[name], GROWN[name].model))
    assert list(after[: len(before)]) == list(before)
    assert [piece.piece for piece in after[len(before) :]] == LEARNT[name] == new_in(GROWN[name].model, MODELS[name])
    assert len(set(LEARNT[name])) == len(LEARNT[name]) == MOST
    assert not set(LEARNT[name]) & {piece.piece for piece in before}
    processor = sentencepiece.SentencePieceProcessor(model_proto=GROWN[name].model)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [0, 1, 2, 3]


def test_new_words_become_pieces_and_new_text_shorter(name):
    assert {"▁Hund", "▁мир"} <= set(LEARNT[name])
    for text in (*GERMAN[:2], OTHERS[0]):
        assert len(pieces_of(GROWN[name], text)) < 0.6 * len(pieces_of(OLD[name], text))


def test_new_pieces_are_characters_or_words_of_letters(name):
    several = [piece.removeprefix("▁") for piece in LEARNT[name] if len(piece.removeprefix("▁")) > 1]
    assert len(several) > 13 and not any(c in ".,!0123456789▁ " for piece in several for c in piece)
    assert {",", "!", "."} <= set(LEARNT[name])


def test_text_without_new_pieces_is_divided_as_before(name):
    grown = Tokenizer(append_pieces(MODELS[name], learn_pieces(MODELS[name], OTHERS, MOST)))
    for text in (*itertools.chain.from_iterable(tiny.pairs(53, seed=3)), "5 一 x"):
        assert pieces_of(grown, text) == pieces_of(OLD[name], text)


def back(tokenizer, text):
    return tokenizer.decode(tokenizer.encode(tf.constant([text]))).numpy()[0].decode()


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=40)
@given(text=st.text(st.sampled_from(CHARACTERS) | st.characters(exclude_categories=["Cs"]), max_size=31))
def test_every_text_comes_back_as_from_the_old_tokenizer(kind, text):
    text = text.replace("▁", "").replace("\uffff", "")  # the first stands for a space, and the second is no character
    assert back(GROWN[kind], text) == back(OLD[kind], text)
    assert kind == "ours" or back(OLD[kind], text) == text


@pytest.mark.parametrize("text", NASTY)
def test_nasty_text_comes_back_as_from_the_old_tokenizer(name, text):
    assert back(GROWN[name], text) == back(OLD[name], text)


def test_every_new_piece_is_spelt_by_old_ones(name):
    for piece, ids in zip(LEARNT[name], spell(MODELS[name], LEARNT[name]), strict=True):
        assert max(ids) < OLD[name].vocabulary_size and 1 not in ids
        assert OLD[name].decode(tf.constant([ids])).numpy()[0].decode().strip() == piece.replace("▁", " ").strip()


def test_new_rows_are_the_mean_of_the_rows_that_spell_them(name):
    matrix = np.random.default_rng(3).normal(size=(OLD[name].vocabulary_size, 13)).astype("float32")
    rows = mean_rows(matrix, MODELS[name], LEARNT[name])
    assert rows.shape == (MOST, 13) and rows.dtype == matrix.dtype
    number = LEARNT[name].index("▁мир")
    ids = pieces_of(OLD[name], "мир")
    whole = OLD[name].encode(tf.constant(["мир"]))[0].numpy()
    assert len(ids) > 3
    np.testing.assert_allclose(rows[number], sum(matrix[i] for i in whole) / len(whole), rtol=1e-5)
    assert mean_rows(matrix, MODELS[name], []).shape == (0, 13)
    np.testing.assert_array_equal(mean_rows(matrix[:, 5], MODELS[name], LEARNT[name]), rows[:, 5])  # a bias


def test_every_new_piece_is_used_where_it_stands_alone(name):
    unused = [
        piece
        for piece in LEARNT[name]
        if piece.startswith("▁") and pieces_of(GROWN[name], piece.removeprefix("▁")) != [piece]
    ]
    assert unused == []


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_no_more_pieces_are_learnt_than_were_asked_for_or_are_there(most):
    found = learn_pieces(MODELS["ours"], NEW, most)
    assert found[: len(LEARNT["ours"])] == LEARNT["ours"][:most]
    assert len(found) <= most


@pytest.mark.parametrize("sentences", [[], [""], ["one two three"], ["12 34 .."]], ids=str)
def test_text_that_has_nothing_new_gives_few_pieces_or_none(sentences):
    assert all(len(piece) == 1 for piece in learn_pieces(MODELS["ours"], sentences, 7))


def test_words_that_occur_once_are_not_learnt():
    assert learn_pieces(MODELS["ours"], ["one neun zehnneun"], 7) == []


def test_words_are_counted_in_the_pieces_of_the_old_tokenizer():
    words = count_words(MODELS["ours"], ["two two. Ж", "x2y"])
    expected = {"▁two": 2, ".": 1, "▁Ж": 1, "▁x": 1, "2": 1, "y": 1}
    assert {"".join(word): count for word, count in words.items()} == expected


def test_a_tokenizer_of_words_cannot_grow():
    model = trained("word")
    with pytest.raises(TokenizerError, match="only a BPE or unigram tokenizer can get new pieces"):
        learn_pieces(model, NEW, 7)


def test_a_tokenizer_that_begins_otherwise_is_no_longer_one():
    assert new_in(MODELS["unigram"], MODELS["ours"]) is None
    assert new_in(MODELS["ours"], MODELS["ours"]) == []
    assert new_in(b"x", MODELS["ours"]) is None
