"""Runs of several directions: their tags, their batches, what they start from, and their validation."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import BOS_ID, Config
from keras_transformer.data.corpora import Corpus, pairs_corpus
from keras_transformer.data.pipeline import evaluation_batches, training_batches
from keras_transformer.errors import ConfigError, TokenizerError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tags import load_tags
from keras_transformer.tokenizer import SHARED, Tokenizer
from keras_transformer.tools.shortlist import compare_with_all_pieces
from keras_transformer.tools.variation.protected_pairs import PairProtection
from keras_transformer.training.decide import languages_of
from keras_transformer.training.origin import Origin
from keras_transformer.training.preparation import prepare, validation_pairs
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import make_network, variation
from keras_transformer.training.validation import pairs_by_direction, validation_bleu
from tests import tiny
from tests.training.test_mixtures import finish, spelling_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"))


def config_of(corpus, model_dir, *pairs, **settings):
    """A `Config` of the corpus in the directions `pairs`, such as "en-de:0.5"."""
    names = [f"files:{corpus}@{pair}" for pair in pairs or ("en-de", "de-en")]
    config = tiny.config("", model_dir)
    return Config(**{**vars(config), "dataset": names, "source_lang": None, "target_lang": None, **settings})


def prepared(config):
    return prepare(config, RunDirectory(config.model_dir))


@pytest.fixture(scope="module")
def both(corpus, tmp_path_factory):
    """(config, data) of a run of both directions; tests do not change it."""
    config = config_of(corpus, tmp_path_factory.mktemp("both") / "run")
    return config, prepared(config)


def language_of(text):
    """The language whose number words a text has."""
    return "en" if any(word in text for word in tiny.ENGLISH) else "de"


def rows_of(batches, count=None):
    """(source ids, target ids, labels) of every row of some batches, lists without padding."""
    for inputs, labels in batches.take(count or -1):
        for row in zip(inputs["source_ids"].numpy(), inputs["target_ids"].numpy(), labels.numpy(), strict=True):
            yield [ids[ids > 0].tolist() for ids in row]


@pytest.mark.parametrize("settings", [{}, {"tags": "both", "typos": 0.5, "noise": 0.5, "subword_dropout_rate": 0.3}])
def test_every_pair_has_the_tags_of_its_own_direction_and_none_else(corpus, tmp_path, settings):
    config = config_of(corpus, tmp_path / "run", "en-de", "de-en:0.5", **settings)
    data = prepared(config)
    tokenizer, tags = data.source_tokenizer, data.languages
    pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    named = {name: pieces.piece_to_id(f"<2{name}>") for name in ("en", "de")}
    assert sorted(named.values()) == [331, 332] == list(range(331, tokenizer.vocabulary_size))
    batches = training_batches(data.train, 401, 1, vary=variation(config, data, 10**6))
    directions = set()
    for source, target, labels in [*rows_of(batches, 9), *rows_of(evaluation_batches(data.validation, 401))]:
        language = language_of(pieces.decode(labels))
        languages = [{"en": "de", "de": "en"}[language], language]
        directions.add(tuple(languages))
        first = (named[languages[0]], named[languages[1]]) if settings else (named[languages[1]], 2)
        assert (source[0], target[0]) == first == tags.ids(*languages)
        assert target[1:] == labels[:-1] and not set(named.values()) & {*source[1:], *labels}
    assert directions == {("en", "de"), ("de", "en")}


def test_a_batch_counts_its_tags(both):
    for inputs, labels in training_batches(both[1].train, 61, 1).take(50):
        assert max(np.prod(inputs["source_ids"].shape), np.prod(labels.shape)) <= 61


def test_a_run_of_one_direction_has_no_tags(corpus, tmp_path):
    """Whether a corpus says its pair or the settings do: the pieces, the files and the batches are the same."""
    one, other = map(prepared, (tiny.config(corpus, tmp_path / "a"), config_of(corpus, tmp_path / "b", "en-de")))
    assert one.languages is other.languages is None and one.source_tokenizer.model == other.source_tokenizer.model
    for run in ("a", "b"):
        assert not (tmp_path / run / "languages.json").exists()
        assert "directions" not in json.loads((tmp_path / run / "tokens" / "train" / "about.json").read_text())
    batches = [list(rows_of(training_batches(data.train, 401, 1), 5)) for data in (one, other)]
    assert batches[0] == batches[1] and all(target[0] == 2 for _, target, _ in batches[0])


def test_settings_that_do_not_go_with_the_directions_are_refused_before_the_work(corpus, tmp_path):
    several = config_of(corpus, tmp_path / "run", share_vocabulary=False)
    for config, message in (
        (several, "several directions need one vocabulary"),
        (config_of(corpus, tmp_path / "run", "en-de", tags="both"), "`tags` has no effect with one direction"),
    ):
        with pytest.raises(ConfigError, match=message):
            prepared(config)
        assert not (tmp_path / "run").exists()
    two = ("cldr:en-de", "cldr:en-fr")
    for temperature, settings, message in (
        (0.5, {"dataset": two}, "at least 1"),
        (2, {"dataset": "cldr:en-de"}, "several corpora"),
        (2, {"dataset": two, "init_from": "a", "replay": 0.1}, "does not go with `replay`"),
    ):
        with pytest.raises(ConfigError, match=f"`sampling_temperature` .*{message}"):
            Config(sampling_temperature=temperature, **settings)


def test_a_temperature_decides_how_many_pairs_an_epoch_takes(corpus, tmp_path):
    """The square roots of 211 and of 0.04 * 211 are as 5 to 1."""
    config = config_of(corpus, tmp_path / "run", "en-de", "de-en:0.04", sampling_temperature=2.0)
    data = prepared(config)
    assert [share.weight * 211 for share in data.train.shares] == [183, 36]  # of 1.04 * 211 pairs


def test_a_given_tokenizer_gets_the_tags_that_it_lacks_and_languages_json_has_them(corpus, tmp_path):
    def with_tokenizer(model):
        (tmp_path / "own.model").write_bytes(model)
        config = config_of(corpus, tmp_path / "run", "de-en", "en-de", tokenizer=str(tmp_path / "own.model"))
        return prepared(config)

    description = ModelProto.FromString(tiny.tokenizer_model())
    description.pieces.add(piece="<2de>", type=ModelProto.SentencePiece.USER_DEFINED)
    with pytest.raises(TokenizerError, match="train one with spm_train --control_symbols=<2de>"):  # text yields it
        with_tokenizer(description.SerializeToString())
    data = with_tokenizer(tiny.tokenizer_model())
    assert load_tags(tmp_path / "run") == data.languages
    assert data.languages.targets == {"de": 332, "en": 331} and data.languages.default == ("de", "en")
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "run" / SHARED))
    assert [model.id_to_piece(id) for id in (331, 332)] == ["<2en>", "<2de>"]
    assert all(model.is_control(id) for id in (331, 332)) and not {331, 332} & {*model.encode("<2de> one <2en>")}
    shutil.rmtree(tmp_path / "run")
    again = with_tokenizer(data.source_tokenizer.model)
    assert again.source_tokenizer.model == data.source_tokenizer.model and again.languages == data.languages


# Going on.


def going_on(config, **settings):
    return Config(**{**vars(config), "init_from": config.model_dir, **settings})


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A finished run of both directions with random weights; tests do not change it."""
    return finish(config_of(corpus, tmp_path_factory.mktemp("finished") / "run", tags="both"))


def test_a_run_that_starts_from_one_of_one_direction_gets_tags_with_mean_vectors_and_no_adapters(corpus, tmp_path):
    old = finish(tiny.config(corpus, tmp_path / "old"))
    config = going_on(config_of(corpus, tmp_path / "run"), init_from=old.model_dir)
    data = prepared(config)
    assert data.languages.targets == {"de": 331, "en": 332}
    network = make_network(config, data, "float32")
    Origin(config).load(network, [tmp_path / "run" / SHARED])
    before = load_model(RunDirectory(old.model_dir).model).output_matrix.numpy()
    found = network.output_matrix.numpy()
    ids = spelling_of("<2de>", Tokenizer.load(tmp_path / "old" / SHARED))
    np.testing.assert_array_equal(found[:331], before)
    np.testing.assert_allclose(found[331], before[ids].mean(axis=0), rtol=1e-5)
    network.trainable = False  # as with adapters, which cannot learn the vectors of tags
    with pytest.raises(ConfigError, match="leave out `lora_rank`"):
        Origin(config).load(network, [tmp_path / "run" / SHARED])


def test_a_run_that_starts_from_tags_keeps_them_even_with_one_direction_or_pairs_without_languages(
    finished, corpus, tmp_path
):
    before = load_tags(finished.model_dir)
    config = going_on(finished, dataset=f"files:{corpus}@de-en", model_dir=str(tmp_path / "run"))
    data = prepared(config)
    assert (data.languages.sources, data.languages.targets) == (before.sources, before.targets)
    assert data.languages.default == ("de", "en") != before.default == ("en", "de")
    for source, target, _ in rows_of(training_batches(data.train, 401, 1), 3):
        assert (source[0], target[0]) == (before.sources["de"], before.targets["en"])
    config = going_on(finished, dataset="pairs", model_dir=str(tmp_path / "pairs"))
    pairs = pairs_corpus(tiny.pairs(47), **languages_of(config))
    assert prepare(config, RunDirectory(config.model_dir), pairs).languages == before


def test_a_new_language_gets_a_tag_behind_all_pieces(finished, tmp_path):
    tiny.write_pairs(tmp_path, "train", tiny.pairs(47))
    (tmp_path / "train.de").rename(tmp_path / "train.fr")
    config = going_on(finished, dataset=f"files:{tmp_path}@en-fr", model_dir=str(tmp_path / "run"))
    languages, before = prepared(config).languages, load_tags(finished.model_dir)
    assert languages.targets == {**before.targets, "fr": 333}
    assert languages.default == ("en", "fr") and languages.ids("de", "fr")[1] == 333


def test_a_run_of_one_direction_can_leave_tags_behind_and_no_run_can_move_them(finished, corpus, tmp_path):
    config = going_on(finished, tags="none", dataset=f"files:{corpus}@en-de", model_dir=str(tmp_path / "run"))
    data = prepared(config)
    assert data.languages is None and load_tags(tmp_path / "run") is None
    assert data.source_tokenizer.model == Tokenizer.load(RunDirectory(finished.model_dir).path / SHARED).model
    known = {*load_tags(finished.model_dir).sources.values()}
    for source, target, _ in rows_of(training_batches(data.train, 401, 1), 3):
        assert not known & {*source, *target} and target[0] == BOS_ID
    assert prepared(Config(**{**vars(config), "tags": "both"})).train.tags  # another start, which trained nothing
    for tags, message in (
        ("none", "several directions need `tags`"),
        ("source", "was trained with `tags` both. Received: tags=source"),
    ):
        with pytest.raises(ConfigError, match=message):
            prepared(going_on(finished, tags=tags, model_dir=str(tmp_path / "other")))
    assert not (tmp_path / "other").exists()


def test_every_direction_is_validated_and_translated_to_its_language(both):
    (config, data), asked = both, []
    assert len(data.validation) == 26 and data.validation.directions == (("en", "de"), ("de", "en"))
    assert data.others == {}  # the loss is over the validation pairs of all corpora

    def translate(texts, **languages):
        asked.append((len(texts), languages))
        return texts

    def evaluate(translations, references, target_lang):
        return SimpleNamespace(bleu={"de": 30.0, "en": 50.0}[target_lang])

    callback = validation_bleu(config, data, translate, evaluate, None, None)
    measures = {
        part.name: part.score(part.translate([source for source, _ in part.pairs]), []) for part in callback.parts
    }
    assert measures == {"en-de": 30.0, "de-en": 50.0}
    assert asked == [(5, {"source_lang": "en", "target_lang": "de"}), (5, {"source_lang": "de", "target_lang": "en"})]


def test_the_corpora_of_a_direction_have_equal_parts_of_its_sentences_and_blank_ones_are_left_out():
    corpora = [Corpus(str(n), "en", "de", [], [], None, {}) for n in range(3)]
    first = [("", "blank"), ("blank", " "), ("a", "b")]
    validation = [first, *[[(f"{n} {k}", "x") for k in range(9)] for n in (1, 2)]]
    corpora = [replace(each, validation=pairs) for each, pairs in zip(corpora, validation, strict=True)]
    corpora[1] = replace(corpora[1], source_lang="de", target_lang="en")
    how = SimpleNamespace(validation_sentences=4)
    assert pairs_by_direction(how, replace(corpora[0], others=tuple(corpora[1:]))) == {
        ("en", "de"): [("a", "b"), ("2 0", "x"), ("2 1", "x")],
        ("de", "en"): [(f"1 {k}", "x") for k in range(4)],
    }
    assert validation_pairs(how, corpora[0]) == [("a", "b")]


def test_words_that_translate_each_other_are_learnt_for_each_direction(corpus, tmp_path):
    """Two languages of a source word share its probability, so a lexicon of all directions at once would find less."""
    (other := tmp_path / "other").mkdir()
    backwards = [(source, " ".join(word[::-1] for word in target.split())) for source, target in tiny.pairs(211)]
    tiny.write_pairs(other, "train", backwards)
    (other / "train.de").rename(other / "train.xx")
    config = config_of(corpus, tmp_path / "run", protect=0.5, vocabulary_size=397)
    names = (*config.corpora, f"files:{other}@en-xx")
    data = prepared(Config(**{**vars(config), "dataset": names}))
    models = [tokenizer.model for tokenizer in data.tokenizers]
    there, back, third = PairProtection(data.train, *models, 0.5, 31).terms
    assert there == dict(zip(tiny.ENGLISH, tiny.GERMAN, strict=True))
    assert back == dict(zip(tiny.GERMAN, tiny.ENGLISH, strict=True))
    assert third == dict(zip(tiny.ENGLISH, (word[::-1] for word in tiny.GERMAN), strict=True))


def test_what_a_shortlist_changes_is_measured_in_the_direction_of_each_pair(both):
    config, data = both
    tokenizer, asked = data.source_tokenizer, []

    def translate(texts, source_lang, target_lang):
        asked.extend(zip(texts, source_lang, target_lang, strict=True))
        return texts

    tokenizers = {"source_tokenizer": tokenizer, "target_tokenizer": tokenizer}
    translator = SimpleNamespace(**tokenizers, model=None, translate=translate)
    translator.with_model = lambda model, shortlist: translator
    found = compare_with_all_pieces(translator, RunDirectory(config.model_dir))
    assert (found["sentences"], found["equal"], len(asked)) == (26, 26, 52)
    assert all(language_of(text) == source != target for text, source, target in asked)
    assert {target for _, _, target in asked} == {"en", "de"}
