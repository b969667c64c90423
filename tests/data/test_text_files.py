import gzip
import os

import pytest

from keras_transformer.data.corpus import CorpusError
from keras_transformer.data.text_files import languages_in, text_files_corpus

TRAIN = {"train.en": "one\ntwo\n", "train.de": "eins\nzwei\n"}
VALIDATION = {"val.en": "three\n", "val.de": "drei\n"}


def fill(directory, *contents):
    for name, text in {name: text for content in contents for name, text in content.items()}.items():
        (directory / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return directory


def test_each_split_is_its_own_files(tmp_path):
    fill(tmp_path, TRAIN, VALIDATION, {"test.en": "four\n", "test.de": "vier\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == (f"files:{tmp_path}", "en", "de")
    assert list(corpus.train) == list(corpus.train) == [("one", "eins"), ("two", "zwei")]
    assert list(corpus.validation) == [("three", "drei")]
    assert list(corpus.test) == [("four", "vier")]
    assert corpus.notes == ()


def test_either_language_may_be_the_source(tmp_path):
    corpus = text_files_corpus(fill(tmp_path, TRAIN, VALIDATION), "de", "en")
    assert list(corpus.train) == [("eins", "one"), ("zwei", "two")]
    assert corpus.test is None


@pytest.mark.parametrize("stem", ["val", "valid", "validation", "dev"])
def test_validation_goes_by_several_names(tmp_path, stem):
    fill(tmp_path, TRAIN, {f"{stem}.en": "three\n", f"{stem}.de": "drei\n"})
    assert list(text_files_corpus(tmp_path, "en", "de").validation) == [("three", "drei")]


def test_without_validation_lines_of_train_are_held_out_and_noted(tmp_path):
    numbers = "\n".join(map(str, range(101)))
    corpus = text_files_corpus(fill(tmp_path, {"train.en": numbers, "train.de": numbers}), "en", "de")
    train, validation = set(corpus.train), set(corpus.validation)
    assert not train & validation
    assert train | validation == {(str(number), str(number)) for number in range(101)}
    assert len(validation) == 5
    assert corpus.notes == ("no validation split: 5 of the 101 training pairs were held out for it",)
    assert set(text_files_corpus(tmp_path, "en", "de").validation) == validation


def test_tsv_gzip_and_plain_files_may_be_mixed(tmp_path):
    fill(
        tmp_path,
        {"train.tsv.gz": "one\teins\n", "val.tsv": "de\ten\ndrei\tthree\n"},
        {"test.en.gz": "four\n", "test.de": "vier\n"},
    )
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert list(corpus.train) == [("one", "eins")]
    assert list(corpus.validation) == [("three", "drei")]
    assert list(corpus.test) == [("four", "vier")]


def test_the_only_test_set_is_taken_whatever_follows_test_in_its_name(tmp_path):
    fill(tmp_path, TRAIN, VALIDATION, {"test2016.en": "four\n", "test2016.de.gz": "vier\n", "test2017.en": "five\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert list(corpus.test) == [("four", "vier")]
    assert corpus.notes == ("the test set is test2016.en and test2016.de",)


def test_a_plain_test_set_comes_before_numbered_ones(tmp_path):
    fill(
        tmp_path, TRAIN, VALIDATION, {"test.en": "four\n", "test.de": "vier\n"}, {"test1.en": "x\n", "test1.de": "y\n"}
    )
    assert list(text_files_corpus(tmp_path, "en", "de").test) == [("four", "vier")]


def test_among_several_test_sets_none_is_chosen(tmp_path):
    several = {f"test{year}.{language}": "x\n" for year in (2016, 2017) for language in ("en", "de")}
    corpus = text_files_corpus(fill(tmp_path, TRAIN, VALIDATION, several), "en", "de")
    assert corpus.test is None
    assert len(corpus.notes) == 1 and "test2016, test2017" in corpus.notes[0]


def test_a_leading_tilde_is_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path, TRAIN, VALIDATION)
    assert list(text_files_corpus("~", "en", "de").validation) == [("three", "drei")]
    assert languages_in("~") == ["de", "en"]


def message(directory, source_lang="en", target_lang="de"):
    with pytest.raises(CorpusError) as caught:
        text_files_corpus(directory, source_lang, target_lang)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_directory_is_named(tmp_path):
    assert message(tmp_path / "absent") == f"no such directory: {tmp_path / 'absent'}"


def test_missing_training_text_names_what_was_looked_for_and_what_is_there(tmp_path):
    found = message(fill(tmp_path, TRAIN), "fr", "it")
    for part in ("train.fr", "train.it", "train.tsv", "files there: train.de, train.en"):
        assert part in found
    (tmp_path / "sub").mkdir()
    assert "files there: none" in message(tmp_path / "sub")


@pytest.mark.parametrize("stem", ["train", "val", "test"])
def test_a_missing_side_of_any_split_is_named(tmp_path, stem):
    fill(tmp_path, TRAIN, VALIDATION, {f"{stem}.en": "x\n"})
    (tmp_path / f"{stem}.de").unlink(missing_ok=True)
    assert f"has {stem}.en, but no {stem}.de; files there: " in message(tmp_path)


@pytest.mark.parametrize("stem", ["train", "val", "test", "test2016"])
def test_a_bad_split_is_refused_when_the_corpus_is_opened(tmp_path, stem):
    fill(tmp_path, TRAIN, VALIDATION, {f"{stem}.en": "x\ny\nz\n", f"{stem}.de": "x\n"})
    found = message(tmp_path)
    assert f"{stem}.en has 3 lines" in found and f"{stem}.de has 1" in found


def test_languages_are_the_endings_of_training_files(tmp_path):
    fill(tmp_path, TRAIN, {"train.pt_BR.gz": "x\n", "train.tsv": "x\ty\n", "val.fr": "x\n", "README": "x\n"})
    assert languages_in(tmp_path) == ["de", "en", "pt_BR"]
    with pytest.raises(CorpusError, match="no such directory"):
        languages_in(tmp_path / "absent")


def test_the_fingerprint_is_that_of_the_files_that_are_read(tmp_path):
    fill(tmp_path, TRAIN, VALIDATION, {"test.en": "four\n", "test.de": "vier\n", "train.fr": "un\n"})
    before = text_files_corpus(tmp_path, "en", "de").fingerprint
    fill(tmp_path, {"test.en": "five\n", "train.fr": "un deux\n", "notes.txt": "x"})
    assert text_files_corpus(tmp_path, "en", "de").fingerprint == before
    found = {before, text_files_corpus(tmp_path, "de", "en").fingerprint}
    for name in (*TRAIN, *VALIDATION):
        fill(tmp_path, {name: (tmp_path / name).read_text().replace("e", "eé")})
        found.add(text_files_corpus(tmp_path, "en", "de").fingerprint)
    stat = (tmp_path / "train.en").stat()
    os.utime(tmp_path / "train.en", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))  # as many bytes, written later
    found.add(text_files_corpus(tmp_path, "en", "de").fingerprint)
    assert len(found) == 7


def test_the_fingerprint_of_held_out_lines_is_that_of_the_training_text(tmp_path):
    before = text_files_corpus(fill(tmp_path, TRAIN), "en", "de").fingerprint
    assert before == text_files_corpus(tmp_path, "en", "de").fingerprint
    with_validation = text_files_corpus(fill(tmp_path, VALIDATION), "en", "de").fingerprint
    fill(tmp_path, {"train.en": "one\nthree\n"})
    assert len({before, with_validation, text_files_corpus(tmp_path, "en", "de").fingerprint}) == 3
