"""A trimmed vocabulary: the corpus is divided as before, no piece that is gone comes back, all text can be written."""

import gzip
import io
import itertools
import logging
import re

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import keras_transformer as kt
from keras_transformer.errors import TokenizerError, UserError
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.tools.importing import import_model
from keras_transformer.tools.importing.new_pieces import append_pieces, learn_pieces
from keras_transformer.tools.importing.trimming import Kept, corpus_files, needed_ids, texts_of
from keras_transformer.training.origin import mean_rows, new_in, spell
from tests import tiny
from tests.tools.importing.test_importing import expectations, unpacked
from tests.tools.importing.toy_corpus import pairs, train_pieces
from tests.training.curves import read_events

TEXTS = [text for pair in pairs(400, seed=2) for text in pair]  # more than the texts to keep
UNSEEN = ["Der zwölfte Baum wiegt 3 kg", "★ İstanbul 東京 한국어", "zzz", "  a\tb  "]


def random_words(count):
    draw = np.random.default_rng(3)
    words = ["".join(draw.choice([*"abcde"], size=draw.integers(1, 12))) for _ in range(8 * count)]
    return [" ".join(words[place : place + 8]) for place in range(0, len(words), 8)]


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "unigram", "size": 400},
        {"model_type": "unigram", "size": 700, "byte_fallback": True},
        {"model_type": "bpe", "size": 700, "byte_fallback": True, "user_defined_symbols": ["<x>", "Baum"]},
    ],
    ids=lambda settings: f"{settings['model_type']}-{settings['size']}",
)
def test_the_corpus_is_divided_as_before_and_other_text_into_pieces_that_stay(tmp_path, settings):
    texts, ids = [*TEXTS, *random_words(500), *UNSEEN[:2]], {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    train_pieces(tmp_path / "pieces", texts, character_coverage=1.0, **ids, **settings)
    model = (tmp_path / "pieces").read_bytes()
    corpus = [*TEXTS[:7], "ab <x>☂Baumhaus ☂☂", *random_words(25)]
    kept = Kept(np.array(sorted(needed_ids(ModelProto.FromString(model), iter(corpus)))))
    models = model, kept.tokenizer(ModelProto.FromString(model))
    before, after = (SentencePieceProcessor(model_proto=each) for each in models)
    assert after.vocab_size() == len(kept.ids) < before.vocab_size() - 10
    for text in corpus:
        assert after.encode(text, out_type=str) == before.encode(text, out_type=str)
        assert kept.new(before.encode(text)) == after.encode(text)
    pieces = {after.id_to_piece(id) for id in range(after.vocab_size())}
    characters = {before.id_to_piece(id) for id in range(before.vocab_size()) if len(before.id_to_piece(id)) == 1}
    assert characters <= pieces
    for text in TEXTS + UNSEEN:
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))  # nothing becomes unknown


def test_a_corpus_is_files_or_directories_of_training_text(tmp_path):
    (tmp_path / "train.en").write_text("one\ntwo\n")
    (tmp_path / "val.en").write_text("three\n")
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(b"four\tvier\n"))
    (tmp_path / "empty").mkdir()
    assert [*texts_of(corpus_files([tmp_path]))] == ["one", "two", "four", "vier"]
    assert [*texts_of(corpus_files([tmp_path / "val.en", tmp_path / "train.en"]))] == ["three", "one", "two"]
    nothing = "must name files or directories"
    refused = ([tmp_path / "empty"], "has no files train"), ([tmp_path / "no.en"], "cannot read")
    for paths, words in (*refused, ([], nothing), ([""], nothing)):
        with pytest.raises(UserError, match=words):
            [*texts_of(corpus_files(paths))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf_m2m100", "marian_two_vocabularies", "opennmt"])
def test_a_trimmed_model_translates_its_corpus_as_the_engine(name, tmp_path, caplog):
    expected, corpus = expectations(name)[0], tmp_path / "corpus"
    rows = expected["rows"][:9]
    corpus.write_text("\n".join(text for row in rows for text in (row["source"], row["beam"]["text"])))
    languages = expected["source_lang"], expected["target_lang"]
    with caplog.at_level(logging.INFO, "keras_transformer"):
        run = import_model(unpacked(name), tmp_path / "run", *languages, trim_vocabulary=corpus)
    stay, before = map(int, re.search(r"(\d+) of (\d+) pieces stay", caplog.text).groups())
    assert stay < before
    found = run.translator(beam_size=4, length_penalty=0.0, split_sentences=False)
    assert found.translate([row["source"] for row in rows]) == [row["beam"]["text"] for row in rows]


@pytest.mark.slow
def test_the_first_loss_is_that_of_the_engine_and_more_updates_lower_it(tmp_path):
    engine = expectations("hf_marian")[0]
    origin = import_model(unpacked("hf_marian"), tmp_path / "origin", engine["source_lang"], engine["target_lang"])
    tokenizer = SentencePieceProcessor(model_file=str(sorted(origin.path.glob("*tokenizer.model"))[-1]))
    found = [(row["source"], row["greedy"]) for row in engine["rows"]]
    found = [each for each in found if len(tokenizer.encode(each[1]["text"])) + 1 == len(each[1]["ids"])]
    assert len(found) > 15
    corpus = [(source, best["text"]) for source, best in found]
    how = {"source_lang": "en", "target_lang": "de", "dropout_rate": 0.0, "feed_forward_dropout_rate": 0.0}
    how |= {"label_smoothing": 0.0, "precision": "float32", "strategy": "one_device", "batch_tokens": 4000}
    expected = -sum(best["log_prob"] for _, best in found) / sum(len(best["ids"]) for _, best in found)
    how |= {"max_steps": 20, "peak_learning_rate": 1e-3, "warmup_steps": 1, "beam_size": 1}
    kt.train(corpus, validation=corpus, init_from=origin.path, model_dir=tmp_path / "run", **how)
    trained, validated = (read_events(tmp_path / "run" / "logs" / part)["loss"] for part in ("train", "validation"))
    assert trained[0] == (1, pytest.approx(expected, rel=1e-3)) and validated[-1][1] < 0.8 * expected


GERMAN = ["Der große Hund schläft, der Hund träumt.", "Ein Hund und 12 Häuser"] * 3
OTHERS = ["Привет, мир! привет, 12 мир", "\N{DEVANAGARI LETTER MA}\N{DEVANAGARI VOWEL SIGN E}"] * 3
NEW = GERMAN + OTHERS
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


def back(tokenizer, text):
    return tokenizer.decode(tokenizer.encode(tf.constant([text]))).numpy()[0].decode()


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=40)
@given(text=st.text(st.sampled_from(CHARACTERS) | st.characters(exclude_categories=["Cs"]), max_size=31))
def test_every_text_comes_back_as_from_the_old_tokenizer(kind, text):
    text = text.replace("▁", "").replace("\uffff", "")  # the first stands for a space, and the second is no character
    assert back(GROWN[kind], text) == back(OLD[kind], text)
    assert kind == "ours" or back(OLD[kind], text) == text


def test_old_pieces_keep_their_ids_and_new_ones_stand_behind_them(name):
    before, after = (ModelProto.FromString(each).pieces for each in (MODELS[name], GROWN[name].model))
    assert list(after[: len(before)]) == list(before)
    assert [piece.piece for piece in after[len(before) :]] == LEARNT[name] == new_in(GROWN[name].model, MODELS[name])
    assert len(set(LEARNT[name])) == len(LEARNT[name]) == MOST
    assert not set(LEARNT[name]) & {piece.piece for piece in before}
    processor = sentencepiece.SentencePieceProcessor(model_proto=GROWN[name].model)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [0, 1, 2, 3]


def test_new_pieces_are_characters_or_words_of_letters_and_make_new_text_shorter(name):
    assert {"▁Hund", "▁мир", ",", "!", "."} <= set(LEARNT[name])
    several = [piece.removeprefix("▁") for piece in LEARNT[name] if len(piece.removeprefix("▁")) > 1]
    assert len(several) > 13 and not any(c in ".,!0123456789▁ " for piece in several for c in piece)
    for text in (*GERMAN[:2], OTHERS[0]):
        assert len(pieces_of(GROWN[name], text)) < 0.6 * len(pieces_of(OLD[name], text))
    for piece in LEARNT[name]:  # each is used where it stands alone
        assert not piece.startswith("▁") or pieces_of(GROWN[name], piece.removeprefix("▁")) == [piece]


def test_text_without_new_pieces_is_divided_as_before(name):
    grown = Tokenizer(append_pieces(MODELS[name], learn_pieces(MODELS[name], OTHERS, MOST)))
    for text in (*itertools.chain.from_iterable(tiny.pairs(53, seed=3)), "5 一 x"):
        assert pieces_of(grown, text) == pieces_of(OLD[name], text)


def test_new_pieces_are_spelt_by_old_ones_and_new_rows_are_the_mean_of_their_rows(name):
    spelt = dict(zip(LEARNT[name], spell(MODELS[name], LEARNT[name]), strict=True))
    for piece, ids in spelt.items():
        assert max(ids) < OLD[name].vocabulary_size and 1 not in ids
        assert OLD[name].decode(tf.constant([ids])).numpy()[0].decode().strip() == piece.replace("▁", " ").strip()
    matrix = np.random.default_rng(3).normal(size=(OLD[name].vocabulary_size, 13)).astype("float32")
    rows = mean_rows(matrix, MODELS[name], LEARNT[name])
    assert rows.shape == (MOST, 13) and rows.dtype == matrix.dtype
    ids = OLD[name].encode(tf.constant(["мир"]))[0].numpy()
    assert len(ids) > 3
    np.testing.assert_allclose(rows[LEARNT[name].index("▁мир")], sum(matrix[i] for i in ids) / len(ids), rtol=1e-5)
    assert mean_rows(matrix, MODELS[name], []).shape == (0, 13)
    np.testing.assert_array_equal(mean_rows(matrix[:, 5], MODELS[name], LEARNT[name]), rows[:, 5])  # a bias


def test_no_more_pieces_are_learnt_than_were_asked_for_or_occur_twice():
    for most in (1, 5, 1000):
        found = learn_pieces(MODELS["ours"], NEW, most)
        assert found[: len(LEARNT["ours"])] == LEARNT["ours"][:most] and len(found) <= most
    for sentences in ([], [""], ["one two three"], ["12 34 .."]):
        assert all(len(piece) == 1 for piece in learn_pieces(MODELS["ours"], sentences, 7))
    assert learn_pieces(MODELS["ours"], ["one neun zehnneun"], 7) == []


def test_a_tokenizer_of_words_cannot_grow_and_one_that_begins_otherwise_has_not_grown():
    with pytest.raises(TokenizerError, match="only a BPE or unigram tokenizer can get new pieces"):
        learn_pieces(trained("word"), NEW, 7)
    assert new_in(MODELS["unigram"], MODELS["ours"]) is None and new_in(MODELS["ours"], MODELS["ours"]) == []
    assert new_in(b"x", MODELS["ours"]) is None
