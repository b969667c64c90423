import io
import re
import zipfile

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.word import find_paragraphs
from keras_transformer.tools.documents.xml import parse
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER

BOLD, LINK = "<w:rPr><w:b/></w:rPr>", '<w:rPr><w:rStyle w:val="L"/></w:rPr>'
BEGIN, SEPARATE, END = (f'<w:fldChar w:fldCharType="{kind}"/>' for kind in ("begin", "separate", "end"))
FIELD_PARTS = [BEGIN, "<w:instrText>PAGE</w:instrText>", SEPARATE, "<w:t>seven</w:t>", END]
FIELD = "".join(f"<w:r>{part}</w:r>" for part in FIELD_PARTS)


def run(text, format=""):
    return f'<w:r>{format}<w:t xml:space="preserve">{text}</w:t></w:r>'


def document(*paragraphs):
    body = "".join(f'<w:p w:rsidR="1"><w:pPr><w:jc/></w:pPr>{content}</w:p>\n' for content in paragraphs)
    start = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:document xmlns:w="u" xmlns:r="v"><w:body>'
    return f"{start}{body}</w:body></w:document>"


def archive_of(**parts):
    """An archive of parts: name -> text."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6)), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def relationships(**targets):
    """The part that names the parts of these types."""
    start = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    inside = "".join(f'<Relationship Id="r" Type="{start}/{kind}" Target="{to}"/>' for kind, to in targets.items())
    return f"<Relationships>{inside}</Relationships>"


def archive(text):
    return archive_of(**{"[Content_Types].xml": "<Types/>", "word/document.xml": text, "word/a.png": "PNG"})


def translated(text, translator=UPPER):
    with zipfile.ZipFile(io.BytesIO(translate_bytes(translator, archive(text), "docx"))) as file:
        assert file.namelist() == ["[Content_Types].xml", "word/document.xml", "word/a.png"]
        assert {info.date_time[0] for info in file.infolist()} == {2020} and file.read("word/a.png") == b"PNG"
        found = file.read("word/document.xml").decode()
    parse(found, "the translation")
    return found


def upper(text):
    """What `UPPER` makes of a document: the texts of its runs but SEVEN, which stands for the number of a page."""
    text = re.sub(r"(?<=<w:t>)[^<]+|(?<=<w:t xml:space=\"preserve\">)[^<&]+", lambda match: match[0].upper(), text)
    return text.replace("SEVEN", "seven")


def test_paragraphs_are_translated_with_their_formats():
    small = run("sm", BOLD) + "<w:proofErr/>" + run("all", BOLD)
    box = "<w:r><w:drawing><w:p><w:r><w:t>box</w:t></w:r></w:p></w:drawing></w:r>"
    for source, target in (
        (run("plain &amp; simple"), run("PLAIN &amp; SIMPLE")),
        (run("a ") + small + run(" b"), run("A ") + run("SMALL", BOLD) + run(" B")),
        (run("all bold", BOLD), None),
        (run("see the ") + f'<w:hyperlink r:id="x">{run("link here", LINK)}</w:hyperlink>' + run(" now"), None),
        (run("page ") + FIELD + run(" of the book"), None),
        ("<w:r><w:t>one</w:t><w:br/><w:t>two</w:t></w:r>", run('ONE</w:t><w:br/><w:t xml:space="preserve">TWO')),
        (box, box),
        ("", None),
    ):
        assert translated(document(source)) == document(upper(source) if target is None else target)
        assert translate_bytes(SAME, archive(document(source)), "docx") == archive(document(source))


def test_paragraphs_runs_tables_and_sections_have_the_direction_of_the_language():
    left = (
        "<w:p><w:pPr><w:pStyle/><w:jc/><w:rPr><w:b/></w:rPr></w:pPr><w:r><w:rPr><w:b/><w:sz w:v='9'/><w:lang/></w:rPr>"
        "<w:t>A</w:t></w:r><w:r><w:t>B</w:t></w:r><w:r><w:rPr/><w:t>C</w:t></w:r><w:r><w:tab/></w:r></w:p>"
        "<w:p><w:r><w:rPr><w:i/><w:iCs/><w:sz w:v='8'/></w:rPr><w:t>D</w:t></w:r></w:p><w:p/><w:p><w:pPr/></w:p>"
        "<w:tbl><w:tblPr><w:tblStyle/><w:tblW/></w:tblPr></w:tbl><w:sectPr><w:cols/><w:docGrid/></w:sectPr>"
    )
    right = (
        "<w:p><w:pPr><w:pStyle/><w:bidi/><w:jc/><w:rPr><w:b/></w:rPr></w:pPr><w:r><w:rPr><w:b/><w:bCs/><w:sz w:v='9'/>"
        "<w:szCs w:v='9'/><w:rtl/><w:lang/></w:rPr><w:t>A</w:t></w:r><w:r><w:rPr><w:rtl/></w:rPr><w:t>B</w:t></w:r>"
        "<w:r><w:rPr><w:rtl/></w:rPr><w:t>C</w:t></w:r><w:r><w:tab/></w:r></w:p>"
        "<w:p><w:pPr><w:bidi/></w:pPr><w:r><w:rPr><w:i/><w:iCs/><w:sz w:v='8'/><w:szCs w:v='8'/><w:rtl/></w:rPr>"
        "<w:t>D</w:t></w:r></w:p><w:p/><w:p><w:pPr><w:bidi/></w:pPr></w:p><w:tbl><w:tblPr><w:tblStyle/><w:bidiVisual/>"
        "<w:tblW/></w:tblPr></w:tbl><w:sectPr><w:cols/><w:bidi/><w:docGrid/></w:sectPr>"
    )

    def in_language(body, language, styles="<w:styles xmlns:w='u'><w:rPr><w:rtl/></w:rPr></w:styles>"):
        text = f'<w:document xmlns:w="u"><w:body>{body}</w:body></w:document>'
        named = {"word/_rels/document.xml.rels": relationships(styles="styles.xml"), "word/styles.xml": styles}
        data = archive_of(**{"word/document.xml": text}, **named)
        with zipfile.ZipFile(io.BytesIO(translate_bytes(UPPER, data, "docx", target_lang=language))) as file:
            found = file.read("word/document.xml").decode()
            assert (file.read("word/styles.xml").decode() == styles) is (language != "de")
        return found[found.index("<w:body>") + 8 : found.index("</w:body>")]

    for language in ("ar", "fa-IR", "he", "ur"):
        assert in_language(left, language) == right and in_language(right, language) == right
        assert in_language(right.replace("<w:rtl/>", '<w:rtl w:val="0"/>'), language) == right
    assert in_language(left, None) == left and in_language(right, None) == right
    back = in_language(right, "de")
    assert not re.search("bidi|rtl", back) and in_language(back, "ar") == right


CONTAINERS = {
    "content control": ("<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>", "</w:sdtContent></w:sdt>"),
    "other direction": ('<w:bdo w:val="rtl">', "</w:bdo>"),
    "direction": ('<w:dir w:val="rtl">', "</w:dir>"),
    "custom": ('<w:customXml w:element="e"><w:customXmlPr><w:a/></w:customXmlPr>', "</w:customXml>"),
    "smart tag": ('<w:smartTag w:element="e"><w:smartTagPr/>', "</w:smartTag>"),
    "insertion": ('<w:ins w:id="1">', "</w:ins>"),
    "link": ('<w:hyperlink r:id="x">', "</w:hyperlink>"),
    "link in a link": ('<w:ins w:id="1"><w:hyperlink r:id="x">', "</w:hyperlink></w:ins>"),
    "simple field of a link": ('<w:fldSimple w:instr=" HYPERLINK x ">', "</w:fldSimple>"),
    "field of a link": (
        f'<w:r>{BEGIN}</w:r><w:r><w:instrText> HYPERLINK "x y"</w:instrText></w:r><w:r>{SEPARATE}</w:r>',
        f"<w:r>{END}</w:r>",
    ),
}


@pytest.mark.parametrize(("first", "last"), CONTAINERS.values(), ids=CONTAINERS)
def test_text_in_containers_is_translated(first, last):
    words = run("one ") + first + run("two ") + run("three", BOLD) + last + run(" four")
    source = document(words, first + run("five") + last)
    assert translated(source) == upper(source)
    (words,) = (unit for unit in find_paragraphs(translated(source, BACKWARDS), "a") if len(unit.parts) > 9)
    assert "".join(part for part in words.parts if isinstance(part, str)).split() == ["four", "three", "two", "one"]


def test_text_around_fields_is_translated():
    start, end = (f"<w:r>{BOLD}{part}</w:r>" for part in (BEGIN, END))
    start += f"<w:r><w:instrText>TOC one</w:instrText></w:r><w:r>{SEPARATE}</w:r>"
    one_run = f"<w:r>{BOLD}<w:t>one </w:t>{''.join(FIELD_PARTS)}<w:t> two</w:t></w:r>"
    first, page = f"<w:r>{BOLD}{''.join(FIELD_PARTS[:3])}</w:r>", f"<w:r>{BOLD}<w:t>seven</w:t></w:r>"
    for source, target in (
        ([FIELD + run("one")], None),
        ([start + run("two"), run("three")], None),
        ([run("one") + end + run(" two")], None),
        ([end + run("two"), run("three")], None),
        ([f"<w:r>{END}<w:t>one</w:t></w:r>"], [f"<w:r>{END}</w:r>{run('ONE')}"]),
        ([one_run], [run("ONE ", BOLD) + first + page + end + run(" TWO", BOLD)]),
        ([f"<w:hyperlink>{run('one')}{FIELD}</w:hyperlink>"], None),
    ):
        assert translated(document(*source)) == document(*(target or map(upper, source)))


@pytest.mark.parametrize(("prefix", "declared"), [("", "xmlns"), ("w:", "xmlns:w"), ("a.b-c:", "xmlns:a.b-c")])
def test_elements_have_any_prefix(prefix, declared):
    link = f"{CONTAINERS['link'][0]}{run('three')}</w:hyperlink>"
    text = document(f"{run('one ')}{run('two', BOLD)}<w:r><w:br/></w:r><m:r>{run('formula')}</m:r>{link}").replace(
        'xmlns:w="u"', 'xmlns:w="u" xmlns:m="f"'
    )
    own = re.sub(r"(</?)w:", rf"\g<1>{prefix}", text).replace("xmlns:w=", f'xmlns:w="u" {declared}=', prefix != "w:")
    assert translated(own) == own.replace(">one", ">ONE").replace(">two", ">TWO").replace(">three", ">THREE")
    # A run may declare the namespace.
    text = document('<x:r xmlns:x="u"><x:rPr><x:b/></x:rPr><x:t>one</x:t></x:r>')
    assert '<w:r xmlns:x="u"><x:rPr><x:b/></x:rPr><w:t xml:space="preserve">ONE</w:t></w:r>' in translated(text)


def test_relationships_name_the_parts():
    text = document(run("one"))
    parts = dict.fromkeys(["other/document2.xml", "head.xml", "other/notes.xml", "other/a.xml"], text)
    parts |= {"word/footer3.xml": f"\ufeff{text}", "_rels/.rels": relationships(officeDocument="/other/document2.xml")}
    named = relationships(header="../head.xml", footnotes="notes.xml", image="a.xml")
    data = archive_of(**parts, **{"other/_rels/document2.xml.rels": named})
    with zipfile.ZipFile(io.BytesIO(translate_bytes(UPPER, data, "docx"))) as file:
        found = {name for name in file.namelist() if b"ONE" in file.read(name)}
    assert found == {"other/document2.xml", "head.xml", "other/notes.xml", "word/footer3.xml"}
    assert translate_bytes(SAME, data, "docx") == data
    table = {"_rels/.rels": relationships(officeDocument="xl/workbook.xml")}
    for parts, message in (
        (table, "it has no xl/workbook.xml"),
        ({**table, "xl/workbook.xml": "<a/>"}, "its main part is xl/workbook.xml, which is no document"),
        ({}, "it has no word/document.xml"),
        ({"word/document.xml": "<w:p>"}, "the document, word/document.xml is not well-formed XML: line 1"),
    ):
        with pytest.raises(UserError, match=message):
            translate_bytes(SAME, archive_of(**parts), "docx")


def test_what_is_raised_stays_behind_its_word_and_a_tab_in_a_run_of_its_own_divides_words():
    raised = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
    text = document(run("5 km") + run("2", raised) + run(" here"), run("one ") + run("two", raised))
    found = translated(text, BACKWARDS)
    assert re.findall(r"<w:t[^>]*>([^<]*)", found) == ["here km", "2", " 5", "two", " one"]
    found = translated(document(run("my H") + run("2", raised) + run("O is")), BACKWARDS)
    assert re.findall(r"<w:t[^>]*>([^<]*)", found) == ["H", "2", "O is my"]
    hyphens = (
        "<w:r><w:t>an e</w:t><w:noBreakHyphen/><w:t>ma</w:t></w:r><w:r><w:softHyphen/></w:r><w:r><w:t>il</w:t></w:r>"
    )
    assert re.findall(r"<w:t[^>]*>([^<]*)", translated(document(hyphens), BACKWARDS)) == ["e\u2011mail an"]
    found = translated(document(run("one") + "<w:r><w:tab/></w:r>" + run("two")), BACKWARDS)
    assert re.findall(r"<w:t[^>]*>([^<]*)", found) == ["two", "", "one"]
