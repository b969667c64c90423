import gzip
import json
import os

import pytest

from keras_transformer.data.corpora import BadLine, write_bad_lines
from keras_transformer.data.text_files import (
    languages_in,
    lines_of,
    open_aligned_files,
    open_tsv_file,
    text_files_corpus,
)
from keras_transformer.errors import CorpusError


def write(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def aligned(directory, source, target, ending=""):
    return open_aligned_files(write(directory / f"a.en{ending}", source), write(directory / f"a.de{ending}", target))


def test_each_pass_starts_anew_and_files_that_change_after_opening_do_not_shift_silently(tmp_path):
    pairs = aligned(tmp_path, "one\ntwo\nthree\n", "eins\nzwei\ndrei\n")
    assert pairs.size == 3
    first_pass = iter(pairs)
    assert next(first_pass) == ("one", "eins") and list(pairs) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert list(first_pass) == [("two", "zwei"), ("three", "drei")]
    write(tmp_path / "a.de", "eins\n")
    pytest.raises(ValueError, list, pairs)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_only_a_newline_ends_a_line_plain_or_packed(tmp_path, ending):
    signs = "\u2028\u2029\x85\x0b\x0c\x1c\r\ufeff"
    for source, target, expected in [
        ("one\ntwo", "eins\nzwei\n", [("one", "eins"), ("two", "zwei")]),  # no last line end
        ("\ufeffone\r\ntwo\r\n", "eins\nzwei\n", [("one", "eins"), ("two", "zwei")]),
        ("\n two \n", "eins\n\n", [("", "eins"), (" two ", "")]),
        (f"a{signs}b\nc\n", "d\ne\n", [(f"a{signs}b", "d"), ("c", "e")]),
    ]:
        assert list(aligned(tmp_path, source, target, ending)) == expected


def test_files_larger_than_one_block_are_counted_and_checked_to_the_end(tmp_path):
    lines = [f"satz nummer {number} ".ljust(100, "ü") for number in range(20_011)]
    text = "\n".join(lines)
    assert aligned(tmp_path, text, text).size == 20_011
    with pytest.raises(CorpusError, match=r"a\.de, line 20,012: not valid UTF-8"):
        aligned(tmp_path, text, text.encode() + b"\n\xff\n")


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("one\ntwo\nthree\n", "eins\nzwei\n", r"a\.en has 3 lines, but .*a\.de has 2"),
        ("one\ntwo\n", "eins\nfünf\n".encode("latin-1"), r"a\.de, line 2: not valid UTF-8"),
        ("one\n", b"\xef\xbb\xbf", r"a\.de is empty"),
        ("one\ntwo\n", "\n \n", r"a\.de has nothing but blank lines"),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path, source, target, said):
    with pytest.raises(CorpusError, match=said):
        aligned(tmp_path, source, target)


def test_an_unreadable_file_and_broken_gzip_are_named(tmp_path):
    names = tmp_path / "a.en.gz", tmp_path / "a.de.gz"
    with pytest.raises(CorpusError, match=r"cannot read .*a\.en.gz: No such file"):
        open_aligned_files(*names)
    data = gzip.compress("".join(f"sentence {n * n}\n" for n in range(1009)).encode())
    half = len(data) // 2
    for broken in (b"plain text\n", data[:half], data[:half] + bytes(13) + data[half + 13 :]):
        names[0].write_bytes(broken)
        with pytest.raises(CorpusError, match=r"a\.en\.gz is not a whole gzip file"):
            open_aligned_files(*names)


def test_lines_of_a_file_are_checked(tmp_path):
    for name in ("plain", "packed.gz"):
        assert list(lines_of(write(tmp_path / name, "\ufeffone\r\ntwo\u2028three\n"))) == ["one", "two\u2028three"]
    with pytest.raises(CorpusError, match="bad, line 1: not valid UTF-8"):
        lines_of(write(tmp_path / "bad", b"\xff\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufeffone\teins\r\n\tzwei\n", [("one", "eins"), ("", "zwei")]),
        ("\ufeffen\tde\r\none\teins\n", [("one", "eins")]),  # a header of both codes tells the order
        ("de\ten\neins\tone\n", [("one", "eins")]),
        ("DE\tEN \neins\tone\n", [("one", "eins")]),  # in whatever form
        ("deu_Latn\ten-US\neins\tone\n", [("one", "eins")]),
        ("en\ten\none\teins\n", [("en", "en"), ("one", "eins")]),
    ],
)
def test_a_tsv_file_has_source_and_target_and_perhaps_a_header(tmp_path, text, expected):
    for name in ("a.tsv", "a.tsv.gz"):
        pairs = open_tsv_file(write(tmp_path / name, text), "en", "de")
        assert list(pairs) == list(pairs) == expected and pairs.size == len(pairs) == len(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\n", ", line 1: needs exactly two columns.* has 1"),
        ("one\teins\n\nthree\tdrei\n", ", line 2: needs exactly two columns.* has 1"),
        ("one\teins\ntwo\tzwei\tdeux\n", ", line 2: needs exactly two columns.* has 3"),
        ("one\teins\tun\ntwo\tzwei\n", ", line 2: needs exactly three columns, as the first line; it has 2"),
        ("en\tde\n", " has a header, but no pairs"),
    ],
)
def test_a_tsv_file_has_two_columns_or_three_in_every_line(tmp_path, text, said):
    with pytest.raises(CorpusError, match=rf"a\.tsv{said}"):
        open_tsv_file(write(tmp_path / "a.tsv", text), "en", "de")
    with pytest.raises(CorpusError, match=r"a\.tsv has 2 bad lines, but no pairs"):
        open_tsv_file(write(tmp_path / "a.tsv", "one\ntwo\n"), "en", "de", skip_bad_lines=True)


def test_a_third_column_is_ignored_and_noted_in_one_line(tmp_path):
    text = "en\tde\tattribution\none\teins\tCC-BY 2.0 (France)\ntwo\tzwei\t\n"
    fill(tmp_path, {"train.tsv": text, "val.tsv.gz": "three\tdrei\t0.7\n", "test.tsv": "four\tvier\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    found = [list(pairs) for pairs in (corpus.train, corpus.validation, corpus.test)]
    assert found == [[("one", "eins"), ("two", "zwei")], [("three", "drei")], [("four", "vier")]]
    assert corpus.notes == ("the third column of train.tsv, val.tsv.gz is ignored",)


@pytest.mark.parametrize(
    ("stem", "names"), [("train", ["train.en", "train.de.gz"]), ("val", ["val.de"]), ("test", ["test.en", "test.de"])]
)
def test_a_split_that_is_there_twice_is_refused(tmp_path, stem, names):
    fill(tmp_path, TRAIN if stem != "train" else {}, {f"{stem}.tsv": "one\teins\n"}, dict.fromkeys(names, "x\n"))
    one = names[0]
    assert message(tmp_path) == f"{tmp_path} has both {stem}.tsv and {one}: remove or rename one of them"


# A corpus in a directory.

TRAIN = {"train.en": "one\ntwo\n", "train.de": "eins\nzwei\n"}
VALIDATION = {"val.en": "three\n", "val.de": "drei\n"}


def fill(directory, *contents):
    for content in contents:
        for name, text in content.items():
            write(directory / name, text)
    return directory


def test_each_split_is_its_own_files_and_either_language_may_be_the_source(tmp_path):
    fill(tmp_path, TRAIN, VALIDATION)
    corpus = text_files_corpus(tmp_path, "de", "en")
    assert list(corpus.train) == [("eins", "one"), ("zwei", "two")] and corpus.test is None
    fill(tmp_path, {"test.en.gz": "four\n", "test.de": "vier\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == (f"files:{tmp_path}", "en", "de")
    assert list(corpus.train) == list(corpus.train) == [("one", "eins"), ("two", "zwei")]
    assert list(corpus.validation) == [("three", "drei")]
    assert list(corpus.test) == [("four", "vier")] and corpus.notes == ()


@pytest.mark.parametrize(
    ("sets", "found", "note"),
    [
        (["test2016"], [("test2016 en", "test2016 de")], "the test set is test2016.en and test2016.de"),
        (["test", "test1"], [("test en", "test de")], None),
        (["test2016", "test2017"], None, "test2016, test2017"),
    ],
)
def test_the_only_test_set_is_taken_and_among_several_the_plain_one_or_none(tmp_path, sets, found, note):
    texts = {f"{name}.{language}": f"{name} {language}\n" for name in sets for language in ("en", "de")}
    corpus = text_files_corpus(fill(tmp_path, TRAIN, VALIDATION, texts, {"test2018.en": "five\n"}), "en", "de")
    assert (corpus.test and list(corpus.test)) == found
    assert len(corpus.notes) == (note is not None) and (note or "") in "".join(corpus.notes)


HELD_OUT_NOTE = "no validation split: 5 of the 103 training pairs were held out for it"


def test_validation_goes_by_several_names_and_without_it_lines_of_train_are_held_out_and_noted(tmp_path):
    for stem in ("val", "valid", "validation", "dev"):
        (tmp_path / stem).mkdir()
        fill(tmp_path / stem, TRAIN, {f"{stem}.en": "three\n", f"{stem}.de": "drei\n"})
        corpus = text_files_corpus(tmp_path / stem, "en", "de")
        assert list(corpus.validation) == [("three", "drei")] and not corpus.held_out
    numbers = "\n".join([*map(str, range(101)), " ", "19\u00ad "])  # a blank pair, and a copy of one that is held out
    corpus = text_files_corpus(fill(tmp_path, {"train.en": numbers, "train.de": numbers}), "en", "de")
    assert len(corpus.validation) == 5 and corpus.held_out and not {*corpus.train} & {*corpus.validation}
    assert corpus.notes == (f"{HELD_OUT_NOTE}, and 1 copy of these left out of training",)


def message(directory, source_lang="en", target_lang="de"):
    with pytest.raises(CorpusError) as caught:
        text_files_corpus(directory, source_lang, target_lang)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_training_text_names_the_directory_the_files_sought_and_the_files_there(tmp_path):
    assert message(tmp_path / "absent") == f"no such directory: {tmp_path / 'absent'}"
    found = message(fill(tmp_path, TRAIN), "fr", "it")
    for part in ("train.fr", "train.it", "train.tsv", "files there: train.de, train.en"):
        assert part in found
    (tmp_path / "sub").mkdir()
    assert "files there: none" in message(tmp_path / "sub")


@pytest.mark.parametrize("stem", ["train", "val", "test2016"])
def test_a_bad_split_and_a_missing_side_are_named_when_the_corpus_is_opened(tmp_path, stem):
    fill(tmp_path, TRAIN, VALIDATION, {f"{stem}.en": "x\ny\nz\n", f"{stem}.de": "x\n"})
    found = message(tmp_path)
    assert f"{stem}.en has 3 lines" in found and f"{stem}.de has 1" in found
    (tmp_path / f"{stem}.de").unlink()
    if stem != "test2016":
        assert f"has {stem}.en, but no {stem}.de; files there: " in message(tmp_path)


BAD_TSV = b"de\ten\neins\tone\nzwei\ndrei\tthree\nv\xfcnf\tfive\n\nsechs\tsix\tmore\nsieben\tseven\n"


def test_bad_lines_are_left_out_and_listed_if_the_user_wants_that(tmp_path):
    name = "train.tsv.gz"
    write(tmp_path / name, BAD_TSV)
    write(tmp_path / "val.tsv", "acht\teight\nneun\n")
    with pytest.raises(CorpusError, match=r"line 3: needs exactly two columns.* With `skip_bad_lines`, bad lines are"):
        text_files_corpus(tmp_path, "en", "de")
    corpus = text_files_corpus(tmp_path, "en", "de", skip_bad_lines=True)
    assert list(corpus.train) == [("one", "eins"), ("three", "drei"), ("seven", "sieben")] and len(corpus.train) == 3
    assert list(corpus.validation) == [("acht", "eight")]
    assert [bad[:2] for bad in corpus.bad_lines] == [(name, 3), (name, 5), (name, 6), (name, 7), ("val.tsv", 2)]
    assert corpus.bad_lines[1].text == r"v\xfcnf	five" and "not valid UTF-8" in corpus.bad_lines[1].fault
    write_bad_lines(tmp_path / "bad.jsonl", corpus.bad_lines)
    lines = (tmp_path / "bad.jsonl").read_text("utf-8").splitlines()
    assert [BadLine(**json.loads(line)) for line in lines] == list(corpus.bad_lines)
    (note,) = corpus.notes
    assert note.startswith(f"bad lines are skipped: 4 of {name}, 1 of val.tsv. The first one is line 3 of {name}: ")


def test_a_bad_line_of_either_file_takes_its_pair_with_it(tmp_path):
    write(tmp_path / "train.en", b"one\ntw\xff\nthree\nfour\nfive\n")
    write(tmp_path / "train.de", b"eins\nzwei\ndr\xffi\nvier\nf\xff\n")
    with pytest.raises(CorpusError, match=r"train\.en, line 2: not valid UTF-8.* With `skip_bad_lines`"):
        text_files_corpus(tmp_path, "en", "de")
    with pytest.raises(CorpusError, match=r"line 2: not valid UTF-8(?!.*skip_bad_lines)"):  # a program without the flag
        open_aligned_files(tmp_path / "train.en", tmp_path / "train.de")
    corpus = text_files_corpus(tmp_path, "en", "de", skip_bad_lines=True)
    assert sorted([*corpus.train, *corpus.validation]) == [("four", "vier"), ("one", "eins")]
    assert [bad[:2] for bad in corpus.bad_lines] == [("train.en", 2), ("train.de", 3), ("train.de", 5)]


def test_languages_are_the_endings_of_training_files_and_a_leading_tilde_is_the_home_directory(tmp_path, monkeypatch):
    fill(tmp_path, TRAIN, {"train.pt_BR.gz": "x\n", "train.tsv": "x\ty\n", "val.fr": "x\n", "README": "x\n"})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert languages_in(tmp_path) == languages_in("~") == ["de", "en", "pt_BR"]
    with pytest.raises(CorpusError, match="no such directory"):
        languages_in(tmp_path / "absent")
    (tmp_path / "train.tsv").unlink()
    assert len(text_files_corpus("~", "en", "de").train) == 1


def test_the_fingerprint_is_that_of_the_files_that_are_read(tmp_path):
    fill(tmp_path, TRAIN, VALIDATION, {"test.en": "four\n", "test.de": "vier\n", "train.fr": "un\n"})
    before = text_files_corpus(tmp_path, "en", "de").fingerprint
    fill(tmp_path, {"test.en": "five\n", "train.fr": "un deux\n", "notes.txt": "x"})
    assert text_files_corpus(tmp_path, "en", "de").fingerprint == before and list(before) == [*TRAIN, *VALIDATION]
    for name, text in (TRAIN | VALIDATION).items():
        stat = (tmp_path / name).stat()
        fill(tmp_path, {name: text.replace("e", "a")})
        os.utime(tmp_path / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as many bytes at the same time
        found = text_files_corpus(tmp_path, "en", "de").fingerprint
        assert [part for part in before if found[part] != before[part]] == [name]
        before = found


def test_copies_of_the_text_have_the_same_fingerprint_and_held_out_lines_that_of_the_training_text(tmp_path):
    def fingerprint(name, *contents, ending=""):
        (tmp_path / name).mkdir(exist_ok=True)
        fill(tmp_path / name, *({f"{file}{ending}": text for file, text in content.items()} for content in contents))
        return text_files_corpus(tmp_path / name, "en", "de").fingerprint

    whole = fingerprint("a", TRAIN, VALIDATION)
    assert whole == fingerprint("b", TRAIN, VALIDATION) == fingerprint("c", TRAIN, VALIDATION, ending=".gz")
    assert fingerprint("d", TRAIN) == fingerprint("d") != fingerprint("d", VALIDATION) == whole
    assert fingerprint("d", {"train.en": "one\nthree\n"}) != whole
