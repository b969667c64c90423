import gzip
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import keras_transformer as kt
from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.documents.declared import language_of
from keras_transformer.tools.documents.files import FORMATS, format_of, translate_bytes
from tests import tiny
from tests.tools.documents.fake import SAME, UPPER, WordByWord


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
    assert target.read_text() == "<p>ONE <b>TWO</b></p>" and sum(done) == 1 and target.stat().st_mode & 0o777 == 0o640
    source.write_bytes(b"<p>\xff</p>")
    with pytest.raises(UserError, match="a.html is not UTF-8: .* at byte 3. Save it as UTF-8"):
        kt.translate_document(UPPER, source, target)
    assert target.read_text() == "<p>ONE <b>TWO</b></p>" and sorted(tmp_path.iterdir()) == [source, target]


def test_a_byte_order_mark_stays_at_the_beginning_and_is_no_text():
    marked = {"lines": "a", "html": "a", "markdown": "# a", "po": 'msgid ""\nmsgstr "x"'}
    for format, text in {**marked, "srt": "0:00:01,0 --> 0:00:02,0\na"}.items():
        found = translate_bytes(UPPER, f"\ufeff{text}".encode(), format)
        assert found == f"\ufeff{translate_bytes(UPPER, text.encode(), format).decode()}".encode()


def test_mistakes_are_told(tmp_path):
    with pytest.raises(UserError, match="the ending of a.pdf is unknown: name a `format`, or use one of .txt .html"):
        kt.translate_document(UPPER, "a.pdf", tmp_path / "b.pdf")
    with pytest.raises(UserError, match="would take the place of its source"):
        kt.translate_document(UPPER, __file__, __file__, "lines")
    with pytest.raises(UserError, match="`format` must be one of lines, html, .* Received: 'pdf'"):
        translate_bytes(UPPER, b"", "pdf")
    with pytest.raises(UserError, match="a.txt is no text: it is a zip archive"):
        translate_bytes(UPPER, b"PK\x03\x04one", "lines", "a.txt")
    (tmp_path / "a.srt.gz").write_bytes(gzip.compress(b"one\n")[:-5])
    with pytest.raises(FileError, match="cannot read .*a.srt.gz"):
        kt.translate_document(UPPER, tmp_path / "a.srt.gz", tmp_path / "c.srt")
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(FileError, match="cannot write .*a.txt/b.txt: File exists"):
        kt.translate_document(UPPER, tmp_path / "a.txt", tmp_path / "a.txt" / "b.txt")


def test_a_document_of_another_kind_is_refused_in_one_line():
    for format, text, named in (
        ("android", "<manifest/>", "is no Android resource: its first element is `manifest`, not `resources`"),
        ("qt", "const a = 1;", "is not well-formed XML: line 1.*--format lines"),
        ("resx", "<svg/>", "is no resource of .NET: its first element is `svg`, not `root`"),
        ("stringsdict", "<svg/>", "is no property list of Apple: its first element is `svg`, not `plist`"),
        ("json", "{\n'a': 1}", "is no JSON: .* line 2 column 1.*--format lines"),
        ("json", "[" * 100_000, "is no JSON: "),
        ("yaml", "a: [\nb", "is no YAML: .*line 2, column 2.*--format lines"),
        ("apple", '/* a */\n"a" = b;', "is no file of Apple's strings: line 2 cannot be read: .*--format lines"),
        ("po", 'msgid ""\nmsgstr "x"\nmsgid "open', "is no gettext catalogue: line 3 belongs to no message"),
        ("xliff", "<tmx/>", "is no XLIFF: it has no element `xliff`"),
        *(("xliff", text, "is not well-formed XML: line 3, column ") for text in ("<a>\n<b>\n</a>", "<a>\n\n&x;</a>")),
        ("docx", "text", "is no Word document: File is not a zip file"),
        ("srt", "one\n", "has no subtitles: a line such as 00:00:01,000 -->"),
        ("vtt", "one\ntwo", "is no WebVTT: its first line must begin with WEBVTT. Received: 'one'"),
        ("ass", "[Events]\none", "has no subtitles: each needs a line that begins with `Dialogue:`"),
    ):
        with pytest.raises(UserError, match=f"the document {named}") as caught:
            translate_bytes(UPPER, text.encode(), format)
        assert "\n" not in str(caught.value)


PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "one café charset=x"\nmsgstr ""\n'
XLIFF = '<?xml version="1.0" encoding="{}"?>\n<xliff><trans-unit id="1"><source>one café</source></trans-unit></xliff>'
HTML = '<!-- <meta charset="x"> --><html><head><meta {}><title>café</title></head><p title="one">one</p></html>'
SPOKEN = {"ISO-8859-1": "één", "iso-8859-15": "5 €", "windows-1251": "один", "Shift_JIS": "一つ", "GB18030": "一😀"}


def translating_one(word):
    return WordByWord(lambda text: word if text == "one" else text)


@pytest.mark.parametrize(("charset", "word"), SPOKEN.items())
def test_a_document_keeps_the_charset_that_it_declares(charset, word):
    translator = translating_one(word)
    for format, text in (
        ("po", PO.format(charset)),
        ("xliff", XLIFF.format(charset)),
        ("html", HTML.format(f"http-equiv=Content-Type content='text/html; charset={charset}'")),
    ):
        if charset in ("windows-1251", "Shift_JIS"):
            text = text.replace("café", "kafe")
        data = text.encode(charset)
        assert format != "html" or translate_bytes(SAME, data, format) == data
        found = translate_bytes(translator, data, format).decode(charset)
        assert word in found and charset in found and text.split(charset)[0] == found.split(charset)[0]


def test_what_a_charset_lacks_is_a_reference_or_the_document_becomes_utf_8():
    translator = translating_one("один")
    found = translate_bytes(translator, HTML.format("charset=iso-8859-1").encode("latin-1"), "html")
    assert b'title="&#1086;&#1076;&#1080;&#1085;">&#1086;&#1076;&#1080;&#1085;<' in found
    assert b"charset=iso-8859-1" in found and "café".encode("latin-1") in found
    found = translate_bytes(translator, XLIFF.format("ISO-8859-1").encode("latin-1"), "xliff")
    assert b"&#1086;" in found and ElementTree.fromstring(found).findtext(".//target") == "один café"
    data = XLIFF.format("ISO-8859-1").replace("one café", "<![CDATA[one café]]>").encode("latin-1")
    found = translate_bytes(translator, data, "xliff")
    assert b'encoding="UTF-8"' in found and ElementTree.fromstring(found).findtext(".//target") == "один café"
    found = translate_bytes(translator, PO.format("ISO-8859-1").encode("latin-1"), "po").decode()
    assert "charset=UTF-8\\n" in found and 'msgid "one café charset=x"\nmsgstr "один café charset=x"' in found
    assert translate_bytes(translator, PO.format("CHARSET").encode(), "po").decode().count("charset=UTF-8\\n") == 1


def test_a_browser_reads_latin_1_as_windows_1252_a_mark_of_byte_order_decides_and_a_wrong_charset_is_told():
    data = b"<meta charset=iso-8859-1><p>one \x96 \x80</p>"
    assert translate_bytes(translating_one("5 €"), data, "html") == data.replace(b"one", b"5 \x80")
    for code in ("<?php info( 'charset' ); ?>", "{{ charset }}"):  # it declares none
        data = HTML.format(f'charset="{code}"').encode()
        assert translate_bytes(translating_one("один"), data, "html") == data.replace(b"one", "один".encode())
    for charset in ("utf-16-be", "utf-8"):
        data = ("\ufeff" + XLIFF.format("UTF-16")).encode(charset)
        found = translate_bytes(translating_one("один"), data, "xliff").decode(charset)
        assert found.startswith("\ufeff<?xml") and "<target>один café</target>" in found
    for name in ("klingon", "base64", "undefined"):
        with pytest.raises(UserError, match=f"a.po declares a charset that does not exist.* Received: '{name}'"):
            translate_bytes(SAME, PO.format(name).encode(), "po", "a.po")
    with pytest.raises(UserError, match=r"a.po is not ASCII: .* at byte \d+. Save it as UTF-8"):
        translate_bytes(SAME, PO.format("ASCII").encode(), "po", "a.po")


def test_xliff_declares_the_language_of_its_targets():
    old = '<xliff version="1.2"><file source-language="en"/><file original="a" target-language=\'fr\' x="y"/></xliff>'
    found = translate_bytes(SAME, old.encode(), "xliff", target_lang="pt_BR").decode()
    assert found == old.replace('"en"', '"en" target-language="pt-BR"').replace("'fr'", '"pt-BR"')
    assert translate_bytes(SAME, old.encode(), "xliff").decode() == old
    new = '<xliff version="2.0" srcLang="en"><file><unit><segment><source>a</source></segment></unit></file></xliff>'
    for language, written in (("de", "de"), (None, "und")):  # XLIFF 2 asks for one where there are targets
        found = translate_bytes(SAME, new.encode(), "xliff", target_lang=language).decode()
        assert found.startswith(f'<xliff version="2.0" srcLang="en" trgLang="{written}"><file>')
    same = new.replace('"en"', '"en" trgLang="de-CH"').replace("<unit>", '<unit translate="no">')
    assert translate_bytes(SAME, same.encode(), "xliff", target_lang="de").decode() == same


def test_the_model_tells_the_language():
    for known, language in (((None, None), None), (("en", "pt_br"), "pt-br"), (("en", "target"), None)):
        assert language_of(SimpleNamespace(languages=known)) == language  # pairs without languages have no code
    assert language_of(SAME) is None and language_of(SAME, "pt_BR") == "pt-BR"


def test_a_translator_of_many_languages_writes_and_declares_the_one_that_is_given():
    translators = []

    class Many(WordByWord):
        tags = tiny.tags("source")

        def between(self, source_lang, target_lang):
            translators.append(Many(lambda word: f"{word}-{target_lang}"))
            translators[-1].tags = replace(self.tags, default=self.tags.find(source_lang, target_lang))
            return translators[-1]

    page = b'<html lang="de"><p>one</p></html>'
    found = translate_bytes(Many(), page, "html", source_lang="de", target_lang="zho")
    assert found == b'<html lang="zh"><p>one-zho</p></html>' and translators[-1].tags.default == ("de", "zh_Hans")
    subtitle = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    found = translate_bytes(Many(), subtitle.format("one").encode(), "srt", target_lang="fr")
    assert found.decode() == subtitle.format("one-fr")
