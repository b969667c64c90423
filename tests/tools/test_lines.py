import io
import os

import pytest

from keras_transformer.cli import line_files
from keras_transformer.cli.line_files import chunks_of_stream
from keras_transformer.errors import FileError
from keras_transformer.tools import lines
from keras_transformer.tools.lines import chunks_of, translate_lines


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
    assert target.getvalue() == expected.encode() and sizes == [3, 3, 1]


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
