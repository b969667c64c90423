import gzip
import os
from unittest.mock import Mock

import pytest

from keras_transformer.cli import line_files
from keras_transformer.cli.line_files import are_regular, check_files, checked, chunks_in, partial_path, translate_file
from keras_transformer.errors import FileError, UserError
from keras_transformer.tools import lines


def twice(texts, on_progress=None):
    """Two lines of every text."""
    return [[text.upper(), f"{text}!"] for text in texts]


class Interrupted:
    """`twice`, until it has answered so many chunks."""

    def __init__(self, chunks):
        self.left, self.texts = chunks, []

    def __call__(self, texts, on_progress):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.texts += texts
        return twice(texts)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 3)


@pytest.fixture
def source(tmp_path):
    (path := tmp_path / "in").write_bytes(b"one\ntwo\r\n\nf\xffur\nfive\nsix\nseven")
    return path


EXPECTED = "ONE\none!\nTWO\ntwo!\n\n!\nF\ufffdUR\nf\ufffdur!\nFIVE\nfive!\nSIX\nsix!\nSEVEN\nseven!\n".encode()


@pytest.mark.parametrize(("name", "read"), [("out", bytes), ("out.gz", gzip.decompress)])
def test_a_file_appears_when_it_is_complete_by_one_process_at_a_time(source, tmp_path, capsys, name, read):
    def answer(texts, on_progress):
        assert not (tmp_path / name).exists()
        with pytest.raises(UserError, match="another process writes .*partial"):
            translate_file(twice, source, tmp_path / name, ["model"], 2)
        return twice(texts)

    translate_file(answer, source, tmp_path / name, ["model"], lines_each=2)
    assert read((tmp_path / name).read_bytes()) == EXPECTED
    assert sorted(os.listdir(tmp_path)) == ["in", name] and capsys.readouterr().out == ""


@pytest.mark.parametrize(("chunks", "torn"), [(0, b"FOUR\nfo"), (1, b"FOUR\n"), (2, b"FOUR\nfo")])
def test_an_interrupted_file_is_gone_on_with_and_ends_as_if_never_interrupted(
    source, tmp_path, capsys, monkeypatch, chunks, torn
):
    target, asked, bar = tmp_path / "out", {"beam_size": 3}, Mock(wraps=line_files.tqdm)
    monkeypatch.setattr(line_files, "tqdm", bar)
    with pytest.raises(KeyboardInterrupt):
        translate_file(Interrupted(chunks), source, target, asked, lines_each=2)
    assert not target.exists()
    with open(partial_path(source, target, asked), "ab") as file:
        file.write(torn)  # as of a process that was killed while it wrote
    rest = Interrupted(7)
    translate_file(rest, source, target, asked, lines_each=2)
    assert target.read_bytes() == EXPECTED
    assert rest.texts == ["one", "two", "", "f\ufffdur", "five", "six", "seven"][3 * chunks :]
    assert bar.call_args.kwargs.items() >= {"total": 7, "initial": 3 * chunks}.items()
    said = "the same command goes on from here\n"
    said += f"{target}: goes on after {3 * chunks} of 7 lines\n" if chunks else ""
    assert capsys.readouterr().out == said and sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_another_text_or_request_never_goes_on_with_it(source, tmp_path):
    target, other = tmp_path / "out", Interrupted(7)
    with pytest.raises(KeyboardInterrupt):
        translate_file(Interrupted(1), source, target, {"beam_size": 3}, 2)
    translate_file(other, source, target, {"beam_size": 4}, 2)
    assert len(other.texts) == 7 and target.read_bytes() == EXPECTED
    before = partial_path(source, target, {"beam_size": 3})
    assert before.exists()
    source.write_bytes(b"ONE" + source.read_bytes()[3:])  # of the same size
    os.utime(source, ns=(0, 0))
    assert partial_path(source, target, {"beam_size": 3}) != before
    copy = source.with_name("copy")
    copy.write_bytes(source.read_bytes())
    os.utime(copy, ns=(0, 0))
    assert partial_path(copy, target, 5) != partial_path(source, target, 5)


def test_links_pipes_and_devices_are_not_renamed(source, tmp_path):
    (tmp_path / "real").write_bytes(b"before")
    (tmp_path / "out").symlink_to("real")
    translate_file(twice, source, tmp_path / "out", [], 2)
    assert (tmp_path / "out").is_symlink() and (tmp_path / "real").read_bytes() == EXPECTED
    os.mkfifo(tmp_path / "pipe")
    assert are_regular(source, tmp_path / "out") and are_regular(source, source)
    assert not are_regular(source, "/dev/null") and not are_regular(tmp_path / "pipe", tmp_path / "out")


def test_files_that_cannot_be_read_or_written_are_named_at_once(source, tmp_path):
    nowhere = tmp_path / "nowhere"
    for given, named in (
        ((nowhere, None), "nowhere"),
        ((tmp_path, None), str(tmp_path)),
        ((source, tmp_path), str(tmp_path)),
        ((source, nowhere / "out"), "nowhere"),
        ((source, tmp_path / "." / "in"), "in for both"),
    ):
        with pytest.raises(UserError, match=named):
            check_files(*given)
    for given in ((None, None), (source, tmp_path / "out")):
        check_files(*given)


NO_TEXT = {
    "zip archive": b"PK\x03\x04abc",
    "gzip": gzip.compress(b"one"),
    "PDF": b"%PDF-1.7\none",
    "RTF": b"{\\rtf1 one}",
    "picture": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "UTF-16": "one".encode("utf-16"),
    "charset": "один\n\nдва\nthree\nчетыре\n".encode("cp1251"),
}


@pytest.mark.parametrize("kind", NO_TEXT)
def test_a_file_that_is_no_text_is_refused_and_nothing_is_written(tmp_path, kind):
    for name, data in (("a.odt", NO_TEXT[kind]), ("a.gz", gzip.compress(NO_TEXT[kind]))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=f"{name} is no text: it is .*{kind}"):
            translate_file(twice, tmp_path / name, tmp_path / "out", [], 2)
    with pytest.raises(UserError, match="standard input is no text"):
        list(checked([NO_TEXT[kind].split(b"\n")], "standard input"))
    assert sorted(os.listdir(tmp_path)) == ["a.gz", "a.odt"]


def test_a_byte_0_in_a_text_is_no_picture_and_many_are_named_with_their_line(tmp_path):
    (path := tmp_path / "in").write_bytes(b"one\0\n" + b"two three\n" * 9)
    assert sum(map(len, chunks_in(path))) == 10
    path.write_bytes(b"one\ntwo\n\0\0\n")
    with pytest.raises(UserError, match="with a byte 0 in line 3"):
        list(chunks_in(path))


def test_a_file_that_is_zipped_is_read_as_its_text(source, tmp_path):
    (zipped := tmp_path / "in.gz").write_bytes(gzip.compress(source.read_bytes()))
    translate_file(twice, zipped, tmp_path / "out", [], 2)
    assert (tmp_path / "out").read_bytes() == EXPECTED
    zipped.write_bytes(zipped.read_bytes()[:-7])
    for read in (lambda: translate_file(twice, zipped, tmp_path / "out", [], 2), lambda: [*chunks_in(zipped)]):
        with pytest.raises(FileError, match="cannot read .*in.gz"):
            read()


def test_a_text_that_is_refused_leaves_an_old_file_and_nothing_else(source, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(UserError), line_files.LateFile(tmp_path / "out"):
        raise UserError
    with pytest.raises(UserError, match="no pair"):
        translate_file(Mock(side_effect=UserError("no pair")), source, tmp_path / "out", [])
    assert (tmp_path / "out").read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["in", "out"]
