import io
import zipfile

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import layout_of
from keras_transformer.tools.documents.word import find_paragraphs
from keras_transformer.tools.documents.xml import parse
from tests.tools.documents.fake import SAME, UPPER

BOLD, LINK = "<w:rPr><w:b/></w:rPr>", '<w:rPr><w:rStyle w:val="L"/></w:rPr>'
FIELD = "".join(
    f"<w:r>{inside}</w:r>"
    for inside in (
        *('<w:fldChar w:fldCharType="begin"/>', "<w:instrText>PAGE</w:instrText>"),
        *('<w:fldChar w:fldCharType="separate"/>', "<w:t>seven</w:t>", '<w:fldChar w:fldCharType="end"/>'),
    )
)


def run(text, format=""):
    return f'<w:r>{format}<w:t xml:space="preserve">{text}</w:t></w:r>'


def document(*paragraphs):
    body = "".join(f'<w:p w:rsidR="1"><w:pPr><w:jc/></w:pPr>{content}</w:p>\n' for content in paragraphs)
    start = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:document xmlns:w="u" xmlns:r="v"><w:body>'
    return f"{start}{body}</w:body></w:document>"


def archive(text):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (("[Content_Types].xml", "<Types/>"), ("word/document.xml", text), ("word/a.png", "PNG")):
            file.writestr(zipfile.ZipInfo(name, (2020, 2, 3, 4, 5, 6)), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def translated(text):
    with zipfile.ZipFile(io.BytesIO(translate_bytes(UPPER, archive(text), "docx"))) as file:
        assert [(info.filename, info.date_time[0]) for info in file.infolist()] == [
            *[("[Content_Types].xml", 2020), ("word/document.xml", 2020), ("word/a.png", 2020)]
        ]
        assert file.read("word/a.png") == b"PNG"
        found = file.read("word/document.xml").decode()
    parse(found, "the translation")
    return found


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (run("plain &amp; simple"), run("PLAIN &amp; SIMPLE")),
        (
            run("a ") + run("sm", BOLD) + "<w:proofErr/>" + run("all", BOLD) + run(" b"),
            run("A ") + run("SMALL", BOLD) + run(" B"),
        ),
        (run("all bold", BOLD), run("ALL BOLD", BOLD)),
        (
            run("see the ") + f'<w:hyperlink r:id="x">{run("link here", LINK)}</w:hyperlink>' + run(" now"),
            run("SEE THE ") + f'<w:hyperlink r:id="x">{run("LINK HERE", LINK)}</w:hyperlink>' + run(" NOW"),
        ),
        (run("page ") + FIELD + run(" of the book"), run("PAGE ") + FIELD + run(" OF THE BOOK")),
        (
            "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t></w:r>",
            '<w:r><w:t xml:space="preserve">ONE</w:t><w:br/><w:t xml:space="preserve">TWO</w:t></w:r>',
        ),
        ("<w:r><w:drawing><w:p><w:r><w:t>box</w:t></w:r></w:p></w:drawing></w:r>", None),
        ("", None),
    ],
)
def test_paragraphs_are_translated_with_their_formats(source, target):
    assert translated(document(source)) == document(source if target is None else target)


def test_a_document_with_equal_translations_is_the_same_to_the_byte():
    data = archive(document(run("a ") + run("b", BOLD) + FIELD, f"<w:bookmarkStart/>{run('c')}"))
    assert translate_bytes(SAME, data, "docx") == data


def test_a_tab_in_a_run_of_its_own_divides_words():
    (unit,) = find_paragraphs(document(run("one") + "<w:r><w:tab/></w:r>" + run("two")), "a.docx")
    assert layout_of(unit.parts).text == "one two"


def test_other_files_are_refused():
    with pytest.raises(UserError, match="a.docx is no Word document: File is not a zip file"):
        translate_bytes(SAME, b"text", "docx", "a.docx")
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(UserError, match="it has no word/document.xml"):
        translate_bytes(SAME, empty.getvalue(), "docx")
    with pytest.raises(UserError, match="a.docx, word/document.xml is not well-formed XML: line 1"):
        translate_bytes(SAME, archive("<w:p>"), "docx", "a.docx")
