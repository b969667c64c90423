import functools

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer import translator as translator_module
from keras_transformer.tokenizer import BOS_ID, EOS_ID
from keras_transformer.translator import (
    SavedModelTranslator,
    Translator,
    load_translator,
    translate_sorted,
    translate_text,
)
from tests import tiny
from tests.decoding.scripted import plain_beam_search

TEXTS = ["one two", "seven", "ten nine eight four zero", "Größe 😀", "one one one one one one one"]
ALPHA = 0.7


@functools.cache
def model(eos=3.0):
    """A random model, in which eos is this much likelier than by chance: where it ends depends on what it reads."""
    model = tiny.transformer(seed=3)
    matrix, beta = model.embedding.matrix, model.decoder.layers[-1].feed_forward_residual.norm.beta
    direction = matrix.numpy()[EOS_ID]
    beta.assign_add(eos * direction / (direction @ direction))
    return model


@functools.cache
def translator(beam_size, eos=3.0, max_length=31):
    return Translator(model(eos), tiny.tokenizer(), beam_size, ALPHA, max_length, batch_size=3)


class FullPasses:
    """The model as the plain-Python search wants it: all that was decoded so far goes through all of the model."""

    def __init__(self, model, text, max_length=31):
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=tiny.tokenizer_model())
        self.source_ids = self.pieces.encode(text)[:max_length]
        self.model = graph_of(model)

    def log_probs(self, row, ids):
        """float64 (V,) of the token after bos and `ids`."""
        logits = self.model([self.source_ids], [[BOS_ID, *ids]])[0, -1].numpy().astype("float64")
        return logits - np.logaddexp.reduce(logits)

    def search(self, beam_size):
        """(text, score, ids) of the best hypothesis."""
        limit = len(self.source_ids) + 50
        score, ids = plain_beam_search(self, 0, limit, ALPHA, beam_size)[0]
        return self.pieces.decode([i for i in ids if i > EOS_ID]), score, ids


@functools.cache
def graph_of(model):
    spec = tf.TensorSpec([None, None], tf.int32)
    return tf.function(
        lambda source_ids, target_ids: model({"source_ids": source_ids, "target_ids": target_ids}),
        input_signature=[spec, spec],
    )


# What is searched for.


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_are_those_of_a_plain_search_over_full_passes(beam_size):
    texts, scores = translator(beam_size).translate_batch(TEXTS)
    expected = [FullPasses(model(), text).search(beam_size) for text in TEXTS]
    assert texts == [text for text, _, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4)
    lengths = {len(ids) for _, _, ids in expected}
    assert len(lengths) > 2 and min(lengths) < 30  # of their own, not the limit's


def test_a_beam_finds_what_greedy_search_does_not():
    greedy, _ = translator(1).translate_batch(TEXTS)
    beam, _ = translator(3).translate_batch(TEXTS)
    assert greedy != beam


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_translation_has_at_most_50_tokens_more_than_its_source(beam_size):
    """Of its own source: a longer one in the same batch lends it nothing."""
    texts = ["seven", "ten nine eight four zero"]
    endless = model(eos=-20.0)
    expected = [FullPasses(endless, text).search(beam_size) for text in texts]
    sources = [len(FullPasses(endless, text).source_ids) for text in texts]
    assert sources[1] > sources[0] > 0
    assert [len(ids) for _, _, ids in expected] == [n + 50 for n in sources]
    found, scores = translator(beam_size, eos=-20.0).translate_batch(texts)
    assert found == [text for text, _, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score, _ in expected], rtol=1e-4)


def test_a_source_is_cut_at_max_length_tokens():
    long = " ".join(tiny.ENGLISH * 3)
    texts, scores = translator(3, max_length=7).translate_batch([long, "one"])
    text, score, _ = FullPasses(model(), long, max_length=7).search(3)
    assert (texts[0], scores[0]) == (text, pytest.approx(score, rel=1e-4))
    assert texts[0] != translator(3).translate_batch([long])[0][0]


def test_eager_and_graph_agree():
    options = {"beam_size": 3, "length_penalty": ALPHA, "max_length": 31}
    eager = translate_text(model(), tiny.tokenizer(), tf.constant(TEXTS[:2]), **options)
    texts, scores = translator(3).translate_batch(TEXTS[:2])
    assert [text.decode() for text in eager.text.numpy()] == texts
    np.testing.assert_allclose(eager.score, scores, rtol=1e-5)


# What no translation depends on.


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_result_does_not_depend_on_who_shares_the_batch(beam_size):
    together_texts, together_scores = translator(beam_size).translate_batch([*TEXTS, "", " ".join(tiny.ENGLISH * 2)])
    for text, translation, score in zip(TEXTS, together_texts, together_scores, strict=False):
        alone_texts, alone_scores = translator(beam_size).translate_batch([text])
        assert alone_texts == [translation]
        assert alone_scores == pytest.approx([score], rel=1e-5)


def test_order_is_kept_across_batches_of_sorted_lengths():
    texts = ["seven", *TEXTS, "", "one two", "seven"]
    translations = translator(3).translate(texts)
    assert translations == [translator(3).translate_batch([text])[0][0] for text in texts]
    assert translations[0] == translations[-1] and len(set(translations)) > 3


BLANK = ["", " ", " \t\n", "\u00a0", "\u3000", "\u200b\ufeff", "\x00\x07", "\u2028 \r\n"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_blank_text_gives_blank_text_and_score_0(beam_size):
    texts, scores = translator(beam_size).translate_batch(BLANK)
    assert texts == [""] * len(BLANK) and scores == [0.0] * len(BLANK)


def test_text_around_which_there_is_space_is_not_blank():
    texts, scores = translator(3).translate_batch(["\u00a0 one \t", "\x00two", "0", "."])
    assert 0.0 not in scores and "" not in texts


def test_no_texts_give_no_translations():
    assert translator(3).translate_batch([]) == ([], [])
    assert translator(3).translate([]) == []


def test_odd_texts_are_translated_too():
    odd = ["\ufffd", "\U0010ffff\ufffe", "</s><pad>", "a" * 3000, "مرحبا", "e\u0301\u0302" * 20]
    texts, scores = translator(1).translate_batch(odd)
    assert len(texts) == len(odd) and np.isfinite(scores).all()


# Sorting.


def test_batches_are_of_similar_length_longest_first_and_order_is_restored():
    batches, progress = [], []

    def translate_batch(texts):
        batches.append(texts)
        return [text.upper() for text in texts], [0.0] * len(texts)

    texts = ["ccc", "a", "eeeee", "bb", "dddd", "a2", "fffffff"]
    assert translate_sorted(translate_batch, texts, 3, progress.append) == [text.upper() for text in texts]
    assert batches == [["fffffff", "eeeee", "dddd"], ["ccc", "bb", "a2"], ["a"]]
    assert progress == [3, 3, 1]


def test_translators_use_their_batch_size(monkeypatch):
    sizes = []
    some = Translator(model(), tiny.tokenizer(), beam_size=1, batch_size=2)
    monkeypatch.setattr(some, "translate_batch", lambda texts: sizes.append(len(texts)) or (texts, texts))
    assert some.translate(TEXTS) == TEXTS
    assert sizes == [2, 2, 1]


# Loading.


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    tiny.config("nowhere", directory, beam_size=3, length_penalty=ALPHA).save(directory / "config.yaml")
    (directory / "tokenizer.model").write_bytes(tiny.tokenizer_model())
    model().save(directory / "model.keras")
    return directory


def test_a_run_directory_has_all_that_a_translator_needs(model_dir):
    loaded = load_translator(str(model_dir), None, None, None, batch_size=5)
    assert type(loaded) is Translator and loaded.batch_size == 5
    assert loaded.options == {"beam_size": 3, "length_penalty": ALPHA, "max_length": 31}
    assert loaded.translate_batch(TEXTS) == translator(3).translate_batch(TEXTS)


def test_given_options_override_those_of_the_run(model_dir):
    loaded = load_translator(model_dir, None, beam_size=1, length_penalty=0.0, batch_size=32)
    assert loaded.options == {"beam_size": 1, "length_penalty": 0.0, "max_length": 31}


def test_a_missing_model_says_what_makes_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"no model\.keras in {tmp_path}.*train\.py"):
        Translator.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"train\.py"):
        load_translator(tmp_path / "nowhere", None, None, None, 32)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["", "7"])
def test_a_missing_saved_model_says_what_makes_one(tmp_path, name):
    (tmp_path / "here").mkdir()
    for directory in ("here", "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"no SavedModel.*export\.py"):
            SavedModelTranslator(tmp_path / directory / name)


def test_a_damaged_model_is_named(model_dir, tmp_path):
    for name in ("config.yaml", "tokenizer.model"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    (tmp_path / "model.keras").write_bytes((model_dir / "model.keras").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cannot read a model from .*model\.keras"):
        Translator.load(tmp_path)


def test_search_options_beside_a_saved_model_are_refused(tmp_path):
    for options in ({"beam_size": 3, "length_penalty": None}, {"beam_size": None, "length_penalty": 0.0}):
        with pytest.raises(ValueError, match=r"export\.py"):
            load_translator(None, tmp_path, **options, batch_size=32)


@pytest.mark.parametrize(("name", "value"), [("beam_size", 0), ("beam_size", -1), ("batch_size", 0), ("max_length", 0)])
def test_impossible_options_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"{name}.*{value}"):
        Translator(model(), tiny.tokenizer(), **{name: value})


def test_the_latest_version_is_taken(tmp_path, monkeypatch):
    taken = []

    def load(path):
        taken.append(path)
        return type("Loaded", (), {"signatures": {"serving_default": None}})

    monkeypatch.setattr(translator_module.tf.saved_model, "load", load)
    for version in ("1", "9", "10", ".11.partial", "12x"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").touch()
    SavedModelTranslator(tmp_path)
    SavedModelTranslator(tmp_path / "9")
    assert taken == [str(tmp_path / "10"), str(tmp_path / "9")]
