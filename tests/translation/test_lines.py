import io
import os
import threading
import time

import pytest

from keras_transformer.cli import line_files
from keras_transformer.cli.line_files import chunks_of_stream
from keras_transformer.errors import FileError, UserError
from keras_transformer.translation import lines
from keras_transformer.translation.lines import chunks_of, run_sorted, translate_lines


def twice(texts):
    """Two lines of every text."""
    return [[text.upper(), f"{text}!"] for text in texts]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    for module in (lines, line_files):
        monkeypatch.setattr(module, "CHUNK", 3)


def test_every_line_of_a_stream_gives_its_lines_in_order():
    source, target, sizes = io.BytesIO(b"one\ntwo\r\n\nf\xffur\nfive\nsix\nseven"), io.BytesIO(), []

    def answer(texts):
        sizes.append(len(texts))
        return twice(texts)

    translate_lines(answer, chunks_of(source), target)
    expected = "ONE\none!\nTWO\ntwo!\n\n!\nF\ufffdUR\nf\ufffdur!\nFIVE\nfive!\nSIX\nsix!\nSEVEN\nseven!\n"
    assert target.getvalue() == expected.encode()
    assert sizes == [3, 3, 1]


def test_lines_that_have_come_are_translated_when_no_more_come():
    """As of `tail -f`: the writer waits for the translation of the first lines before it writes the next."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"one\ntwo\nthr")
    with open(read_end, "rb") as stream:
        chunks = chunks_of_stream(stream)
        assert next(chunks) == [b"one", b"two"]
        os.write(write_end, b"ee\nfour\nfive\nsix\nseven")
        assert next(chunks) == [b"three", b"four", b"five"]  # a full chunk does not wait
        assert next(chunks) == [b"six"]
        os.close(write_end)
        assert list(chunks) == [[b"seven"]]


def test_a_stream_has_the_lines_of_a_file_and_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    mark = b"\xef\xbb\xbf"
    for text, lines_of_text in {
        **{b"": [], b"\n": [b""], b"\n\n": [b"", b""], b"a": [b"a"], b"x\n" * 7: [b"x"] * 7},
        **{mark: [b""], mark + b"\n": [b""], mark + b"one": [b"one"], b"\xef\xbb": [b"\xef\xbb"]},
        mark + b"one\n" + mark + b"two\n": [b"one", mark + b"two"],
    }.items():
        (tmp_path / "in").write_bytes(text)
        for read in (chunks_of, chunks_of_stream):
            with open(tmp_path / "in", "rb") as file:
                assert sum(read(file), []) == lines_of_text, text


def test_a_full_disk_is_named():
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(FileError, match="write /dev/full: No space left"):
        translate_lines(twice, [[b"one"]], full)


TEXTS = ["one two", "seven", "ten nine eight four zero", "Größe 😀"]


def test_batches_are_of_similar_length_longest_first_and_order_is_restored():
    batches, progress = [], []

    def shout(texts):
        batches.append(texts)
        return [text.upper() for text in texts]

    texts = ["ccc", "a", "eeeee", "bb", "dddd", "a2", "fffffff"]
    assert run_sorted(shout, texts, 3, progress.append) == [text.upper() for text in texts]
    assert sorted(batches) == [["a"], ["ccc", "bb", "a2"], ["fffffff", "eeeee", "dddd"]]
    assert progress == [3, 3, 1]
    for batch_size in (0, -1):
        with pytest.raises(UserError, match=rf"batch_size.*{batch_size}"):
            run_sorted(list, ["one"], batch_size)


def test_two_batches_are_under_way_at_a_time():
    both = threading.Barrier(2, timeout=30)

    def repeat(texts):
        both.wait()  # alone, the first would wait for ever
        return texts

    assert run_sorted(repeat, TEXTS, 1) == TEXTS


def test_a_failure_is_raised_and_ends_the_work():
    begun = []

    def fail_once(texts):
        begun.append(texts)
        if len(begun) == 1:
            raise RuntimeError("out of memory")
        time.sleep(0.05)
        return texts

    with pytest.raises(RuntimeError, match="out of memory"):
        run_sorted(fail_once, 100 * TEXTS, 1)
    assert len(begun) < 20
