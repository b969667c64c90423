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

# The text on disk.


def write(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def aligned(directory, source, target, ending=""):
    return open_aligned_files(write(directory / f"a.en{ending}", source), write(directory / f"a.de{ending}", target))


def test_lines_face_each_other_in_order_and_each_pass_starts_anew(tmp_path):
    pairs = aligned(tmp_path, "one\ntwo\nthree\n", "eins\nzwei\ndrei\n")
    assert pairs.size == 3
    first_pass = iter(pairs)
    assert next(first_pass) == ("one", "eins")
    assert list(pairs) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert list(first_pass) == [("two", "zwei"), ("three", "drei")]


def test_a_missing_last_line_end_loses_nothing(tmp_path):
    assert list(aligned(tmp_path, "one\ntwo", "eins\nzwei\n")) == [("one", "eins"), ("two", "zwei")]


def test_byte_order_mark_and_windows_line_ends_are_dropped(tmp_path):
    pairs = aligned(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\n", b"eins\nzwei\n")
    assert list(pairs) == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize("inner", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\ufeff"])
def test_only_a_newline_ends_a_line(tmp_path, inner):
    pairs = aligned(tmp_path, f"one{inner}more\ntwo\n", "eins\nzwei\n")
    assert list(pairs) == [(f"one{inner}more", "eins"), ("two", "zwei")]


def test_blank_sides_and_surrounding_spaces_are_kept(tmp_path):
    assert list(aligned(tmp_path, "\n two \n", "eins\n\n")) == [("", "eins"), (" two ", "")]


def test_gzip_reads_as_its_content(tmp_path):
    pairs = aligned(tmp_path, "\ufeffone\r\ntwo\u2028\n", "eins\nzwei\n", ending=".gz")
    assert list(pairs) == [("one", "eins"), ("two\u2028", "zwei")]


def test_files_larger_than_one_block_are_counted_and_checked_to_the_end(tmp_path):
    lines = [f"satz nummer {number} ".ljust(100, "ü") for number in range(20_011)]
    text = "\n".join(lines)
    assert aligned(tmp_path, text, text).size == 20_011
    with pytest.raises(CorpusError, match=r"a\.de, line 20,012: not valid UTF-8"):
        aligned(tmp_path, text, text.encode() + b"\n\xff\n")


def test_unequal_line_counts_name_both_files_and_both_counts(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.en has 3 lines, but .*a\.de has 2"):
        aligned(tmp_path, "one\ntwo\nthree\n", "eins\nzwei\n")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_invalid_utf8_names_file_and_line(tmp_path, ending):
    with pytest.raises(CorpusError, match=rf"a\.de{ending}, line 2: not valid UTF-8"):
        aligned(tmp_path, "one\ntwo\n", "eins\nfünf\n".encode("latin-1"), ending)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_named(tmp_path, content):
    with pytest.raises(CorpusError, match=r"a\.de is empty"):
        aligned(tmp_path, "one\n", content)


def test_a_file_of_blank_lines_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.de has nothing but blank lines"):
        aligned(tmp_path, "one\ntwo\n", "\n \n")


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot read .*a\.en: No such file"):
        open_aligned_files(tmp_path / "a.en", tmp_path / "a.de")


def test_a_file_that_is_not_gzip_is_named(tmp_path):
    (tmp_path / "a.en.gz").write_bytes(b"plain text\n")
    with pytest.raises(CorpusError, match=r"a\.en\.gz is not a whole gzip file"):
        open_aligned_files(tmp_path / "a.en.gz", tmp_path / "a.de.gz")


@pytest.mark.parametrize("fault", ["truncated", "corrupt"])
def test_broken_gzip_is_named(tmp_path, fault):
    data = bytearray(gzip.compress("".join(f"sentence {n * n}\n" for n in range(1009)).encode()))
    if fault == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2 : len(data) // 2 + 13] = bytes(13)
    (tmp_path / "a.en.gz").write_bytes(data)
    with pytest.raises(CorpusError, match=r"a\.en\.gz is not a whole gzip file"):
        open_aligned_files(tmp_path / "a.en.gz", tmp_path / "a.de.gz")


def test_files_that_change_after_opening_do_not_shift_silently(tmp_path):
    pairs = aligned(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    write(tmp_path / "a.de", "eins\n")
    with pytest.raises(ValueError):
        list(pairs)


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_reads_source_then_target(tmp_path, name):
    pairs = open_tsv_file(write(tmp_path / name, "\ufeffone\teins\r\n\tzwei\n"), "en", "de")
    assert pairs.size == 2
    assert list(pairs) == list(pairs) == [("one", "eins"), ("", "zwei")]


@pytest.mark.parametrize(("header", "pair"), [("en\tde", ("one", "eins")), ("de\ten", ("eins", "one"))])
def test_a_tsv_header_of_both_codes_tells_the_order(tmp_path, header, pair):
    pairs = open_tsv_file(write(tmp_path / "a.tsv", f"\ufeff{header}\r\none\teins\n"), "en", "de")
    assert pairs.size == 1
    assert list(pairs) == [pair]


@pytest.mark.parametrize("first_line", ["en\tfr", "EN\tDE", "en\ten"])
def test_any_other_first_tsv_line_is_a_pair(tmp_path, first_line):
    pairs = open_tsv_file(write(tmp_path / "a.tsv", f"{first_line}\none\teins\n"), "en", "de")
    assert list(pairs) == [tuple(first_line.split("\t")), ("one", "eins")]


@pytest.mark.parametrize(("line", "columns"), [("two", 1), ("two\tzwei\tdeux", 3), ("", 1)])
def test_a_tsv_line_without_two_columns_is_named(tmp_path, line, columns):
    path = write(tmp_path / "a.tsv", f"one\teins\n{line}\nthree\tdrei\n")
    with pytest.raises(CorpusError, match=rf"a\.tsv, line 2: needs exactly two columns.* has {columns}"):
        open_tsv_file(path, "en", "de")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\n", "line 1: needs exactly two columns.* has 1"),
        ("one\teins\tun\tuno\n", "line 1: needs exactly two columns.* has 4"),
        ("one\teins\tun\ntwo\tzwei\n", "line 2: needs exactly three columns, as the first line; it has 2"),
    ],
)
def test_a_tsv_file_has_two_columns_or_three_in_every_line(tmp_path, text, said):
    with pytest.raises(CorpusError, match=rf"a\.tsv, {said}"):
        open_tsv_file(write(tmp_path / "a.tsv", text), "en", "de")


@pytest.mark.parametrize("header", ["", "en\tde\tattribution\n"])
def test_a_third_column_is_ignored_and_noted_in_one_line(tmp_path, header):
    text = f"{header}one\teins\tCC-BY 2.0 (France)\ntwo\tzwei\t\n"
    fill(tmp_path, {"train.tsv": text, "val.tsv.gz": "three\tdrei\t0.7\n", "test.tsv": "four\tvier\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert list(corpus.train) == [("one", "eins"), ("two", "zwei")]
    assert (list(corpus.validation), list(corpus.test)) == ([("three", "drei")], [("four", "vier")])
    assert corpus.notes == ("the third column of train.tsv, val.tsv.gz is ignored",)


@pytest.mark.parametrize("stem", ["train", "val", "test"])
@pytest.mark.parametrize("names", [("{}.en", "{}.de.gz"), ("{}.de",)], ids=str)
def test_a_split_that_is_there_twice_is_refused(tmp_path, stem, names):
    fill(tmp_path, TRAIN if stem != "train" else {}, {f"{stem}.tsv": "one\teins\n"})
    fill(tmp_path, {name.format(stem): "x\n" for name in names})
    one = names[0].format(stem)
    assert message(tmp_path) == f"{tmp_path} has both {stem}.tsv and {one}: remove or rename one of them"


def test_a_tsv_file_of_a_header_alone_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.tsv has a header, but no pairs"):
        open_tsv_file(write(tmp_path / "a.tsv", "en\tde\n"), "en", "de")


def test_splits_know_their_number_of_pairs(tmp_path):
    numbers = "".join(f"{number}\n" for number in range(41))
    pairs = aligned(tmp_path, numbers, numbers)
    tsv = open_tsv_file(write(tmp_path / "a.tsv", "en\tde\none\teins\ntwo\tzwei\n"), "en", "de")
    assert (len(pairs), len(tsv)) == (41, 2)


# A corpus in a directory.

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


def test_lines_of_a_checked_file_are_read_packed_or_not(tmp_path):
    for name in ("plain", "packed.gz"):
        assert list(lines_of(write(tmp_path / name, "\ufeffone\r\ntwo\u2028three\n"))) == ["one", "two\u2028three"]
    with pytest.raises(CorpusError, match="bad, line 1: not valid UTF-8"):
        lines_of(write(tmp_path / "bad", b"\xff\n"))


@pytest.mark.parametrize("stem", ["val", "valid", "validation", "dev"])
def test_validation_goes_by_several_names(tmp_path, stem):
    fill(tmp_path, TRAIN, {f"{stem}.en": "three\n", f"{stem}.de": "drei\n"})
    corpus = text_files_corpus(tmp_path, "en", "de")
    assert list(corpus.validation) == [("three", "drei")] and not corpus.held_out


def test_without_validation_lines_of_train_are_held_out_and_noted(tmp_path):
    numbers = "\n".join(map(str, range(101)))
    corpus = text_files_corpus(fill(tmp_path, {"train.en": numbers, "train.de": numbers}), "en", "de")
    train, validation = set(corpus.train), set(corpus.validation)
    assert not train & validation
    assert train | validation == {(str(number), str(number)) for number in range(101)}
    assert len(validation) == 5 and corpus.held_out
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


def test_the_only_test_set_is_taken_with_any_name_that_begins_with_test(tmp_path):
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


def test_missing_training_text_names_the_files_sought_and_the_files_there(tmp_path):
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


BAD_TSV = b"""de\ten
eins\tone
zwei
drei\tthree
v\xfcnf\tfive

sechs\tsix\tmore
sieben\tseven
"""


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
def test_bad_lines_are_left_out_and_listed_if_the_user_wants_that(tmp_path, name):
    write(tmp_path / name, BAD_TSV)
    write(tmp_path / "val.tsv", "acht\teight\nneun\n")
    with pytest.raises(CorpusError, match=r"line 3: needs exactly two columns.* With `skip_bad_lines`, bad lines are"):
        text_files_corpus(tmp_path, "en", "de")
    corpus = text_files_corpus(tmp_path, "en", "de", skip_bad_lines=True)
    assert list(corpus.train) == [("one", "eins"), ("three", "drei"), ("seven", "sieben")] and len(corpus.train) == 3
    assert list(corpus.validation) == [("acht", "eight")]
    assert [bad[:2] for bad in corpus.bad_lines] == [(name, 3), (name, 5), (name, 6), (name, 7), ("val.tsv", 2)]
    assert corpus.bad_lines[1].text == r"v\xfcnf	five" and "not valid UTF-8" in corpus.bad_lines[1].fault
    (note,) = corpus.notes
    assert note.startswith(f"bad lines are skipped: 4 of {name}, 1 of val.tsv. The first one is line 3 of {name}: ")


def test_a_bad_line_of_either_file_takes_its_pair_with_it(tmp_path):
    write(tmp_path / "train.en", b"one\ntw\xff\nthree\nfour\nfive\n")
    write(tmp_path / "train.de", b"eins\nzwei\ndr\xffi\nvier\nf\xff\n")
    with pytest.raises(CorpusError, match=r"train\.en, line 2: not valid UTF-8.* With `skip_bad_lines`"):
        text_files_corpus(tmp_path, "en", "de")
    corpus = text_files_corpus(tmp_path, "en", "de", skip_bad_lines=True)
    assert sorted([*corpus.train, *corpus.validation]) == [("four", "vier"), ("one", "eins")]
    assert [bad[:2] for bad in corpus.bad_lines] == [("train.en", 2), ("train.de", 3), ("train.de", 5)]


def test_a_file_of_bad_lines_alone_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.tsv has 2 bad lines, but no pairs"):
        open_tsv_file(write(tmp_path / "a.tsv", "one\ntwo\n"), "en", "de", skip_bad_lines=True)


def test_a_program_without_the_flag_does_not_name_it(tmp_path):
    with pytest.raises(CorpusError) as refused:
        aligned(tmp_path, b"\xff\n", "eins\n")
    assert "skip_bad_lines" not in str(refused.value)


def test_bad_lines_are_written_as_lines_of_json(tmp_path):
    bad = [BadLine("train.tsv", 3, "needs two columns", 'a "b" ü'), BadLine("train.de", 7, "not valid UTF-8", r"\xff")]
    write_bad_lines(tmp_path / "bad.jsonl", bad)
    lines = (tmp_path / "bad.jsonl").read_text("utf-8").splitlines()
    assert [BadLine(**json.loads(line)) for line in lines] == bad


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
    assert list(before) == [*TRAIN, *VALIDATION]
    for name, text in (TRAIN | VALIDATION).items():
        stat = (tmp_path / name).stat()
        fill(tmp_path, {name: text.replace("e", "a")})
        os.utime(tmp_path / name, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as many bytes at the same time
        found = text_files_corpus(tmp_path, "en", "de").fingerprint
        assert [part for part in before if found[part] != before[part]] == [name]
        before = found


def test_copies_of_the_text_have_the_same_fingerprint(tmp_path):
    found = []
    for number, ending in enumerate(["", "", ".gz"]):
        directory = tmp_path / str(number)
        directory.mkdir()
        fill(directory, {f"{name}{ending}": text for name, text in (TRAIN | VALIDATION).items()})
        os.utime(directory / f"train.en{ending}", (number, number))
        found.append(text_files_corpus(directory, "en", "de").fingerprint)
    assert found[0] == found[1] == found[2]


def test_the_fingerprint_of_held_out_lines_is_that_of_the_training_text(tmp_path):
    before = text_files_corpus(fill(tmp_path, TRAIN), "en", "de").fingerprint
    assert before == text_files_corpus(tmp_path, "en", "de").fingerprint
    with_validation = text_files_corpus(fill(tmp_path, VALIDATION), "en", "de").fingerprint
    fill(tmp_path, {"train.en": "one\nthree\n"})
    assert before != with_validation != text_files_corpus(tmp_path, "en", "de").fingerprint
