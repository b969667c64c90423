import logging
import shutil
import sys

import pytest
import tensorflow_datasets as tfds

from keras_transformer.data.tfds_corpus import tfds_corpus
from keras_transformer.errors import CorpusError

SIZES = {"full": {"train": 13, "validation": 3, "test": 2}, "no_validation": {"train": 41}, "no_train": {"test": 2}}


def sentence(language, split, number):
    return f"{language} {split} {number} ü"


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """Numbered sentences; prepared by TFDS itself, without network."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in SIZES]

    def _info(self):
        features = tfds.features.Translation(languages=("pt", "en"))
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("pt", "en"))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split, n) for split, n in SIZES[self.builder_config.name].items()}

    def _generate_examples(self, split, count):
        for number in range(count):
            yield number, {language: sentence(language, split, number) for language in ("pt", "en")}


class ThreeLanguages(tfds.core.GeneratorBasedBuilder):
    """A corpus without a direction of its own, and with a broken sentence."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.Translation(languages=("fr", "en", "de")))

    def _split_generators(self, dl_manager):
        return {split: iter([(0, {"fr": "un", "en": "one", "de": b"f\xfcnf"})]) for split in ("train", "dev")}

    def _generate_examples(self):
        raise NotImplementedError


class NoTranslation(ThreeLanguages):
    """A dataset of other things."""

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "author": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)


class UnreachableTranslate(TinyTranslate):
    """A corpus on a server that does not answer."""

    def _split_generators(self, dl_manager):
        dl_manager.download("http://127.0.0.1:9/corpus.zip")
        return {}


@pytest.fixture(scope="module", autouse=True)
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(directory))
        yield directory


def pairs(split, numbers, languages=("pt", "en")):
    return {tuple(sentence(language, split, number) for language in languages) for number in numbers}


def message(name, *languages):
    with pytest.raises(CorpusError) as caught:
        tfds_corpus(name, *languages)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_splits_come_in_the_direction_of_the_corpus(data_dir):
    corpus = tfds_corpus("tiny_translate/full")
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("tfds:tiny_translate/full", "pt", "en")
    assert set(corpus.train) == pairs("train", range(13))
    assert set(corpus.validation) == pairs("validation", range(3))
    assert set(corpus.test) == pairs("test", range(2))
    assert corpus.notes == ()
    assert (data_dir / "tiny_translate" / "full" / "1.0.0").is_dir()


def test_each_pass_starts_anew_in_the_same_order():
    train = tfds_corpus("tiny_translate/full").train
    half_read = iter(train)
    next(half_read)
    assert list(train) == list(train)
    assert len(list(train)) == 13


@pytest.mark.parametrize("languages", [("en", "pt"), ("en", None), (None, "pt")])
def test_languages_turn_the_direction_around(languages):
    corpus = tfds_corpus("tiny_translate/full", *languages)
    assert (corpus.source_lang, corpus.target_lang) == ("en", "pt")
    assert set(corpus.test) == pairs("test", range(2), ("en", "pt"))


def test_without_validation_some_of_train_is_held_out_and_noted():
    corpus = tfds_corpus("tiny_translate/no_validation")
    train, validation = list(corpus.train), list(corpus.validation)
    assert (len(train), len(validation)) == (39, 2) and corpus.held_out
    assert set(train) | set(validation) == pairs("train", range(41))
    assert corpus.test is None
    assert corpus.notes == ("no validation split: 2 of the 41 training pairs were held out for it",)


def test_a_prepared_directory_needs_no_code(data_dir):
    tfds_corpus("tiny_translate/full")
    corpus = tfds_corpus(str(data_dir / "tiny_translate" / "full" / "1.0.0"), "en", "pt")
    assert set(corpus.validation) == pairs("validation", range(3), ("en", "pt"))


def test_among_three_languages_two_must_be_chosen():
    found = message("three_languages")
    for part in ("de", "en", "fr", "`source_lang`", "`target_lang`"):
        assert part in found
    assert "`target_lang`" in message("three_languages", "en")
    assert list(tfds_corpus("three_languages", "en", "fr").train) == [("one", "un")]


def test_invalid_utf8_is_replaced():
    assert list(tfds_corpus("three_languages", "en", "de").validation) == [("one", "f\ufffdnf")]


@pytest.mark.parametrize("languages", [("de", "en"), ("pt", "de"), ("de", None)])
def test_an_unknown_language_names_those_there_are_and_the_configurations(languages):
    found = message("tiny_translate/full", *languages)
    for part in ("no language 'de'", "pt and en", "full, no_validation"):
        assert part in found


def test_an_unknown_name_suggests_similar_ones():
    found = message("tiny_translat/full")
    assert "'tiny_translat'" in found and "tiny_translate" in found.partition("did you mean")[2]
    assert "no dataset 'qqqqqqqq'" in message("qqqqqqqq")


def test_an_unknown_configuration_names_those_there_are():
    found = message("tiny_translate/fulll")
    assert "tiny_translate/fulll" in found and "full, no_validation, no_train" in found


def test_a_malformed_name_is_quoted():
    assert "a b" in message("a b")


def test_other_datasets_are_told_by_their_features():
    assert "text, author" in message("no_translation")


def test_a_corpus_without_training_split_is_refused():
    assert "no split `train`, only test" in message("tiny_translate/no_train")


def test_a_failed_download_names_the_remedy_and_is_not_repeated_in_the_log(monkeypatch, caplog):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("tensorflow_datasets.core.download.downloader.MAX_RETRIES", 3)
    with caplog.at_level(logging.WARNING, logger="urllib3.connectionpool"):
        found = message("unreachable_translate/full")
    for part in ("unreachable_translate/full", "127.0.0.1", "copy ", "files:DIR", "cldr:A-B"):
        assert part in found
    assert len([record for record in caplog.records if record.name == "urllib3.connectionpool"]) == 1
    assert not logging.getLogger("urllib3.connectionpool").filters


def test_missing_tfds_names_the_packages_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert "pip install tensorflow-datasets importlib_resources" in message("tiny_translate/full")


def write_folder(directory, **texts):
    for name, text in texts.items():
        (directory / f"{name.replace('_', '.')}.txt").write_text(text)
    return str(directory)


def test_translate_folder_reads_as_tfds_does(tmp_path):
    name = write_folder(
        tmp_path, en_train="one\ntwo\n", de_train="eins\nzwei\n", en_dev="three\n", de_dev="drei\n",
        en_test="four\n", de_test="vier\n",
    )  # fmt: skip
    corpus = tfds_corpus(name, "en", "de")
    builder = tfds.folder_dataset.TranslateFolder(name)
    for split, read in {"train": corpus.train, "dev": corpus.validation, "test": corpus.test}.items():
        examples = tfds.as_numpy(builder.as_dataset(split=split))
        assert list(read) == [(example["en"].decode(), example["de"].decode()) for example in examples]
    assert (tfds_corpus(name).source_lang, tfds_corpus(name).target_lang) == ("de", "en")


def test_translate_folder_without_validation_holds_out_and_notes_it(tmp_path):
    corpus = tfds_corpus(write_folder(tmp_path, en_train="one\ntwo\n", de_train="eins\nzwei\n"), "en", "de")
    assert (list(corpus.train), list(corpus.validation)) == ([("one", "eins")], [("two", "zwei")])
    assert corpus.test is None and len(corpus.notes) == 1 and corpus.held_out


def test_bad_folders_are_told_apart(tmp_path):
    assert f"no such directory: {tmp_path / 'absent'}" in message(str(tmp_path / "absent"))
    assert "LANG.train.txt" in message(str(tmp_path)) and "files there: none" in message(str(tmp_path))
    name = write_folder(tmp_path, en_train="one\ntwo\n", de_train="eins\nzwei\n", en_test="four\n")
    assert "no language 'fr', only de and en" in message(name, "fr", "en")
    assert "has en.test.txt, but no de.test.txt" in message(name)
    write_folder(tmp_path, de_test="vier\nfünf\n")
    assert "en.test.txt has 1 line, but" in message(name, "en", "de")


def test_splits_know_their_number_of_pairs(data_dir):
    corpus = tfds_corpus("tiny_translate/full")
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (13, 3, 2)
    corpus = tfds_corpus("tiny_translate/no_validation")
    assert (len(corpus.train), len(corpus.validation)) == (39, 2)


def test_the_identity_tells_corpora_and_directions_apart():
    corpora = [("tiny_translate/full",), ("tiny_translate/no_validation",), ("tiny_translate/full", "en", "pt")]
    identities = [tfds_corpus(*arguments).identity for arguments in corpora]
    assert identities[0] != identities[1] != identities[2] != identities[0]
    assert list(identities[1]) == ["languages", "train"]
    assert identities[0]["train"].startswith("tiny_translate/full/1.0.0, 13 examples in ")


def test_a_copy_of_a_prepared_corpus_has_the_same_fingerprint(data_dir, tmp_path):
    prepared = tfds_corpus("tiny_translate/full").fingerprint
    copy = shutil.copytree(data_dir / "tiny_translate" / "full" / "1.0.0", tmp_path / "1.0.0")
    assert tfds_corpus(str(copy)).fingerprint == prepared
