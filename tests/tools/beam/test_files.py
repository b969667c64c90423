import gzip
import os

import pytest

from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.beam import files
from keras_transformer.tools.beam.files import find_files, new_file, open_text
from keras_transformer.tools.lines import packed

ASKED = {"beam_size": 3}


@pytest.fixture
def texts(tmp_path):
    for name in ("b.txt", "a.txt", "c.txt.gz", "deep/a.txt", "other.md"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"one\n")
    return tmp_path


def targets(texts, pattern):
    files = find_files(str(texts / pattern), str(texts / "out"), ASKED)
    return {os.path.relpath(file.source, texts): os.path.relpath(file.target, texts) for file in files}


def test_translations_stand_where_their_sources_stand_below_the_pattern(texts, monkeypatch):
    assert targets(texts, "in/*.txt*") == {f"in/{name}": f"out/{name}" for name in ("a.txt", "b.txt", "c.txt.gz")}
    assert targets(texts, "in/**/a.txt") == {"in/deep/a.txt": "out/deep/a.txt"}
    assert targets(texts, "*/*/a.txt") == {"in/deep/a.txt": "out/in/deep/a.txt"}
    assert targets(texts, "in/b.txt") == {"in/b.txt": "out/b.txt"}
    # A relative path is that of this directory.
    monkeypatch.chdir(texts / "in")
    (file,) = find_files("b*.txt", "../out", ASKED)
    assert (file.source, file.target) == (str(texts / "in/b.txt"), str(texts / "out/b.txt"))
    assert file.errors == str(texts / "out/errors-b.txt.jsonl")


def test_what_is_in_the_output_directory_is_no_input_of_a_second_start(texts):
    before = targets(texts, "**.txt")
    files.prepare_output(str(texts / "out"))
    (texts / "out" / "a.txt").write_bytes(b"eins\n")
    assert targets(texts, "**.txt") == before and len(before) == 3
    below = find_files(str(texts / "in/deep/*"), str(texts / "in"), ASKED)  # an output directory above the input
    assert [file.target for file in below] == [str(texts / "in/a.txt")]


def test_files_that_cannot_be_found_or_would_be_lost_are_refused(texts):
    for pattern, output, said in (
        ("in/*.tsv", "out", r"no file matches .*\*\.tsv"),
        ("in", "out", r".*in is a directory: name the files in it, such as '.*in/\*\.txt'"),
        ("in/*.txt", "in", "would take the place of its source. Received: .*a.txt for both"),
    ):
        with pytest.raises(UserError, match=said):
            find_files(str(texts / pattern), str(texts / output), ASKED)
    with pytest.raises(FileError, match="cannot list nowhere://b"):
        find_files("nowhere://b/*", "out", ASKED)
    (texts / "out").write_bytes(b"a file")
    with pytest.raises(FileError, match="cannot write into .*out: Not a directory"):
        files.prepare_output(str(texts / "out"))


def test_another_text_or_request_has_other_parts(texts):
    def work(asked=ASKED):
        (file,) = find_files(str(texts / "in/a.txt"), str(texts / "out"), asked)
        return file.work

    before = work()
    assert before == work() != work({"beam_size": 5})
    os.utime(texts / "in/a.txt", ns=(0, 0))
    assert work() != before


def test_a_file_is_finished_when_translation_and_errors_are_as_recorded(texts):
    (file,) = find_files(str(texts / "in/a.txt"), str(texts / "out"), ASKED)
    assert not file.is_finished() and file.size() is None
    for path, content in ((file.target, b"eins\n"), (file.record, b'{"bytes": 5, "errors": true}')):
        with new_file(path, file.work) as target:
            target.write(content)
    assert not file.is_finished()
    with new_file(file.errors, file.work) as target:
        target.write(b"{}\n")
    assert file.is_finished()
    (texts / "out/a.txt").write_bytes(b"edited by hand\n")
    assert not file.is_finished()


def test_a_new_file_appears_complete_takes_the_place_of_another_and_leaves_nothing(tmp_path):
    path, work = tmp_path / "deep" / "file", tmp_path / "work"
    for content in (b"one", b"two"):
        with new_file(str(path), str(work)) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"one"
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"] and os.listdir(work) == []
    with pytest.raises(ZeroDivisionError), new_file(str(path), str(work)) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]
    files.remove_directory(str(work))
    files.remove_directory(str(work))
    assert os.listdir(tmp_path) == ["deep"]


def test_gzip_is_read_and_written_and_equal_texts_give_equal_bytes(tmp_path):
    for name in ("a.gz", "b.gz", "c.txt"):
        with open(tmp_path / name, "wb") as file, packed(file, name) as text:
            text.write(b"one\ntwo")
        with open_text(str(tmp_path / name)) as text:
            assert list(text) == [b"one\n", b"two"]
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes() != b"one\ntwo"
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == (tmp_path / "c.txt").read_bytes() == b"one\ntwo"


def test_a_file_that_is_damaged_or_no_text_is_named(tmp_path):
    path, whole = tmp_path / "in.gz", gzip.compress(b"one\n" * 99)
    for damaged in (whole[:-9], whole + b"x" * 9, b"no", whole[:10] + b"\xff" * 9 + whole[19:]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="cannot read .*in.gz"), open_text(str(path)) as text:
            list(text)
    with pytest.raises(FileError, match="cannot read .*missing"), open_text(str(tmp_path / "missing")) as text:
        list(text)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_bytes(b"one\n")
    (tmp_path / "in/b.odt").write_bytes(b"PK\x03\x04one")
    found = find_files(str(tmp_path / "in/*"), str(tmp_path / "out"), [])
    files.check_texts(found[:1])
    with pytest.raises(UserError, match=r"in/b.odt is no text: it is a zip archive"):
        files.check_texts(found)
