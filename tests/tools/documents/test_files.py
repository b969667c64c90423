import gzip

import pytest

import keras_transformer as kt
from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.documents.files import FORMATS, format_of, translate_bytes
from tests.tools.documents.fake import UPPER


def test_the_ending_tells_the_format():
    names = {"a.TXT": "lines", "b.md": "markdown", "o.mdx": "markdown", "c.htm": "html", "d.xlf": "xliff", "e.po": "po"}
    names |= {"f.srt": "srt", "k.srt.gz": "srt", "i.vtt": "vtt", "j.SSA": "ass", "p.html.erb": "html", "q.php": "html"}
    names |= {"g.docx": "docx", **dict.fromkeys(["l.gz", "m.odt", "n.odt.gz", "h.pdf", "md"])}
    assert {name: format_of(name) for name in names} == names
    assert {format_of(f"x{ending}") for format in FORMATS.values() for ending in format.endings} == set(FORMATS)


def test_a_document_is_written_when_it_is_complete(tmp_path):
    source, target = tmp_path / "a.html", tmp_path / "b.html"
    source.write_text("<p>one <b>two</b></p>")
    target.write_text("before")
    target.chmod(0o640)
    done = []
    assert kt.translate_document(UPPER, source, target, on_progress=done.append) == []
    assert target.read_text() == "<p>ONE <b>TWO</b></p>" and sum(done) == 1
    assert target.stat().st_mode & 0o777 == 0o640
    source.write_bytes(b"<p>\xff</p>")
    with pytest.raises(UserError, match="a.html is not UTF-8: .* at byte 3. Save it as UTF-8"):
        kt.translate_document(UPPER, source, target)
    assert target.read_text() == "<p>ONE <b>TWO</b></p>" and sorted(tmp_path.iterdir()) == [source, target]


def test_a_document_is_packed_as_its_name_says(tmp_path):
    text = b"1\n00:00:01,000 --> 00:00:02,000\none\n"
    (tmp_path / "a.srt.gz").write_bytes(gzip.compress(text))
    for name in ("b.srt.gz", "b.srt"):
        kt.translate_document(UPPER, tmp_path / "a.srt.gz", tmp_path / name)
    assert (tmp_path / "b.srt").read_bytes() == text.replace(b"one", b"ONE")
    assert gzip.decompress((tmp_path / "b.srt.gz").read_bytes()) == text.replace(b"one", b"ONE")
    (tmp_path / "a.srt.gz").write_bytes(gzip.compress(text)[:-5])
    with pytest.raises(FileError, match="cannot read .*a.srt.gz"):
        kt.translate_document(UPPER, tmp_path / "a.srt.gz", tmp_path / "c.srt")
    (tmp_path / "a.txt").write_bytes(b"PK\x03\x04one")
    with pytest.raises(UserError, match="a.txt is no text: it is a zip archive"):
        kt.translate_document(UPPER, tmp_path / "a.txt", tmp_path / "c.txt")
    assert not list(tmp_path.glob("c.*"))


def test_a_byte_order_mark_stays_at_the_beginning_and_is_no_text():
    marked = {"lines": "a", "html": "a", "markdown": "# a", "po": 'msgid ""\nmsgstr "x"'}
    for format, text in {**marked, "srt": "0:00:01,0 --> 0:00:02,0\na"}.items():
        found = translate_bytes(UPPER, f"\ufeff{text}".encode(), format)
        assert found == f"\ufeff{translate_bytes(UPPER, text.encode(), format).decode()}".encode()


def test_mistakes_are_told(tmp_path):
    with pytest.raises(UserError, match="the ending of a.pdf is unknown: name a `format`, or use one of .txt .html"):
        kt.translate_document(UPPER, "a.pdf", tmp_path / "b.pdf")
    with pytest.raises(UserError, match="`format` must be one of lines, html, .* Received: 'pdf'"):
        translate_bytes(UPPER, b"", "pdf")
    with pytest.raises(FileError, match="cannot read .*nowhere.html: No such file"):
        kt.translate_document(UPPER, tmp_path / "nowhere.html", tmp_path / "b.html")
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(FileError, match="cannot write .*a.txt/b.txt: File exists"):
        kt.translate_document(UPPER, tmp_path / "a.txt", tmp_path / "a.txt" / "b.txt")
