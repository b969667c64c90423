import gzip

import pytest
from keras_transformer.data.parallel_text import hold_out, open_aligned_files, open_tsv_file

from keras_transformer.data.corpus import CorpusError


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


def test_what_is_not_gzip_is_named(tmp_path):
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


def test_a_tsv_file_of_a_header_alone_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"a\.tsv has a header, but no pairs"):
        open_tsv_file(write(tmp_path / "a.tsv", "en\tde\n"), "en", "de")


def test_every_kth_line_is_held_out_and_the_rest_stays_in_order(tmp_path):
    numbers = [str(number) for number in range(1, 48)]
    text = "\n".join(numbers)
    train, validation = hold_out(aligned(tmp_path, text, text))
    assert validation == (("23", "23"), ("46", "46"))  # 5 % of 47 is 2, so every 23rd
    assert list(train) == list(train) == [(n, n) for n in numbers if n not in ("23", "46")]


def test_lines_are_held_out_by_number_not_by_content(tmp_path):
    train, validation = hold_out(aligned(tmp_path, "yes\n" * 7, "ja\n" * 7))
    assert (len(list(train)), len(validation)) == (6, 1)


def test_one_pair_cannot_be_divided(tmp_path):
    with pytest.raises(CorpusError, match="1 training pair"):
        hold_out(aligned(tmp_path, "one\n", "eins\n"))


def test_splits_know_their_number_of_pairs(tmp_path):
    numbers = "".join(f"{number}\n" for number in range(41))
    pairs = aligned(tmp_path, numbers, numbers)
    tsv = open_tsv_file(write(tmp_path / "a.tsv", "en\tde\none\teins\ntwo\tzwei\n"), "en", "de")
    assert (len(pairs), len(tsv)) == (41, 2)
    train, held_out = hold_out(pairs)
    assert (len(train), len(held_out)) == (len(list(train)), 2) == (39, 2)
