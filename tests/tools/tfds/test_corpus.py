import logging
import shutil
import sys

import pytest
import tensorflow_datasets as tfds

from keras_transformer.errors import CorpusError
from keras_transformer.tools.tfds.corpus import tfds_corpus

SIZES = {"full": {"train": 13, "validation": 3, "test": 2}, "no_validation": {"train": 41}, "no_train": {"test": 2}}
PT_EN, EN_PT = ("pt", "en"), ("en", "pt")


def sentence(language, split, number):
    return f"{language} {split} {number} ü"


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """Numbered sentences; prepared by TFDS itself, without network."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in SIZES]

    def _info(self):
        features = tfds.features.Translation(languages=PT_EN)
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=PT_EN)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split, n) for split, n in SIZES[self.builder_config.name].items()}

    def _generate_examples(self, split, count):
        for number in range(count):
            yield number, {language: sentence(language, split, number) for language in PT_EN}


class ThreeLanguages(TinyTranslate):
    """A corpus without a direction of its own, and with a broken sentence."""

    BUILDER_CONFIGS = []

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.Translation(languages=("fr", "en", "de")))

    def _split_generators(self, dl_manager):
        return {split: iter([(0, {"fr": "un", "en": "one", "de": b"f\xfcnf"})]) for split in ("train", "dev")}


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


def pairs(split, numbers, languages=PT_EN):
    return {tuple(sentence(language, split, number) for language in languages) for number in numbers}


def message(name, *languages):
    with pytest.raises(CorpusError) as caught:
        tfds_corpus(name, *languages)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_splits_come_in_the_direction_of_the_corpus_or_of_the_languages_and_each_pass_starts_anew(data_dir):
    corpus = tfds_corpus("tiny_translate/full")
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("tfds:tiny_translate/full", "pt", "en")
    for split, count in SIZES["full"].items():
        found = getattr(corpus, split)
        half_read = iter(found)
        next(half_read)
        assert set(found) == pairs(split, range(count)) and len(found) == len(list(found)) == count
    assert list(corpus.train) == list(corpus.train) and corpus.notes == ()
    assert (data_dir / "tiny_translate" / "full" / "1.0.0").is_dir()
    for languages in (EN_PT, ("en", None), (None, "pt")):
        corpus = tfds_corpus("tiny_translate/full", *languages)
        assert (corpus.source_lang, corpus.target_lang) == EN_PT
    assert set(corpus.test) == pairs("test", range(2), EN_PT)


def test_without_validation_some_of_train_is_held_out_and_noted():
    corpus = tfds_corpus("tiny_translate/no_validation")
    train, validation = list(corpus.train), list(corpus.validation)
    assert (len(train), len(validation)) == (len(corpus.train), len(corpus.validation)) == (39, 2) and corpus.held_out
    assert set(train) | set(validation) == pairs("train", range(41)) and corpus.test is None
    assert corpus.notes == ("no validation split: 2 of the 41 training pairs were held out for it",)


def test_among_three_languages_two_must_be_chosen_and_invalid_utf8_is_replaced():
    found = message("three_languages")
    assert [part for part in ("de", "en", "fr", "`source_lang`", "`target_lang`") if part not in found] == []
    assert "`target_lang`" in message("three_languages", "en")
    assert list(tfds_corpus("three_languages", "en", "fr").train) == [("one", "un")]
    assert list(tfds_corpus("three_languages", "en", "de").validation) == [("one", "f\ufffdnf")]


def test_what_is_unknown_or_lacks_a_part_is_named_with_those_there_are(monkeypatch):
    for arguments, *said in (
        (("tiny_translate/full", "pt", "de"), "no language 'de'", "pt and en", "full, no_validation"),
        (("tiny_translat/full",), "'tiny_translat'", "did you mean", "tiny_translate"),
        (("qqqqqqqq",), "no dataset 'qqqqqqqq'"),
        (("tiny_translate/fulll",), "tiny_translate/fulll", "full, no_validation, no_train"),
        (("a b",), "a b"),
        (("no_translation",), "text, author"),
        (("tiny_translate/no_train",), "no split `train`, only test"),
    ):
        found = message(*arguments)
        assert [part for part in said if part not in found] == []
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert "pip install tensorflow-datasets importlib_resources" in message("tiny_translate/full")


def test_a_failed_download_names_the_remedy_and_is_not_repeated_in_the_log(monkeypatch, caplog):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("tensorflow_datasets.core.download.downloader.MAX_RETRIES", 3)
    with caplog.at_level(logging.WARNING, logger="urllib3.connectionpool"):
        found = message("unreachable_translate/full")
    for part in ("unreachable_translate/full", "127.0.0.1", "copy ", "files:DIR", "cldr:A-B"):
        assert part in found
    assert len([record for record in caplog.records if record.name == "urllib3.connectionpool"]) == 1
    assert not logging.getLogger("urllib3.connectionpool").filters


def write_folder(directory, **texts):
    for name, text in texts.items():
        (directory / f"{name.replace('_', '.')}.txt").write_text(text)
    return str(directory)


def test_translate_folder_reads_as_tfds_does_and_bad_folders_are_told_apart(tmp_path):
    assert f"no such directory: {tmp_path / 'absent'}" in message(str(tmp_path / "absent"))
    assert "LANG.train.txt" in message(str(tmp_path)) and "files there: none" in message(str(tmp_path))
    name = write_folder(tmp_path, en_train="one\ntwo\n", de_train="eins\nzwei\n")
    corpus = tfds_corpus(name, "en", "de")
    assert (list(corpus.train), list(corpus.validation)) == ([("one", "eins")], [("two", "zwei")])
    assert corpus.test is None and len(corpus.notes) == 1 and corpus.held_out
    assert "no language 'fr', only de and en" in message(name, "fr", "en")
    write_folder(tmp_path, en_test="four\n")
    assert "has en.test.txt, but no de.test.txt" in message(name)
    write_folder(tmp_path, de_test="vier\nfünf\n")
    assert "en.test.txt has 1 line, but" in message(name, "en", "de")
    write_folder(tmp_path, en_dev="three\n", de_dev="drei\n", de_test="vier\n")
    corpus, builder = tfds_corpus(name, "en", "de"), tfds.folder_dataset.TranslateFolder(name)
    for split, read in {"train": corpus.train, "dev": corpus.validation, "test": corpus.test}.items():
        examples = tfds.as_numpy(builder.as_dataset(split=split))
        assert list(read) == [(example["en"].decode(), example["de"].decode()) for example in examples]
    assert (tfds_corpus(name).source_lang, tfds_corpus(name).target_lang) == ("de", "en")
    (tmp_path / "br").mkdir()
    brazil = write_folder(tmp_path / "br", **{"en_train": "one\ntwo\n", "pt-BR_train": "um\ndois\n"})
    assert tfds_corpus(brazil, "en", "pt_BR").target_lang == "pt-BR"  # as files:DIR


def test_the_identity_tells_corpora_and_directions_apart_and_a_copied_directory_has_the_same(data_dir, tmp_path):
    corpora = [("tiny_translate/full",), ("tiny_translate/no_validation",), ("tiny_translate/full", *EN_PT)]
    identities = [tfds_corpus(*arguments).identity for arguments in corpora]
    assert identities[0] != identities[1] != identities[2] != identities[0]
    assert list(identities[1]) == ["languages", "train"]
    assert identities[0]["train"].startswith("tiny_translate/full/1.0.0, 13 examples in ")
    prepared = tfds_corpus("tiny_translate/full").fingerprint
    path = data_dir / "tiny_translate" / "full" / "1.0.0"  # it needs no code
    assert set(tfds_corpus(str(path), *EN_PT).validation) == pairs("validation", range(3), EN_PT)
    assert tfds_corpus(str(shutil.copytree(path, tmp_path / "1.0.0"))).fingerprint == prepared
