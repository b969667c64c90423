"""What documents are divided into: XML, tags, text, and the units that are written again."""

import re

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark, layout_of, parts_of
from keras_transformer.tools.documents.units import Unit, joined, replaced
from keras_transformer.tools.documents.xml import parse

TAG = re.compile(r"<[^<>]+>")


def test_broken_xml_is_named_with_its_line():
    for text, line in (("<a>\n<b></a>", 2), ("", 1), ("<a>\n\n&x;</a>", 3), ("<a/><b/>", 1)):
        with pytest.raises(UserError, match=f"page.xliff is not well-formed XML: line {line}, column "):
            parse(text, "page.xliff")


def test_tags_are_opening_closing_and_empty_ones():
    parts = parts_of("a<b x='1'>c</b><br><i/><c.yellow.bg_blue>", TAG)
    assert parts[0] == "a" and parts[2] == "c"
    found = [(part.kind, part.name, part.breaks) for part in parts if isinstance(part, Mark)]
    assert found[:3] == [(OPEN, "b", False), (CLOSE, "b", False), (EMPTY, "br", True)]
    assert found[3:] == [(EMPTY, "i", False), (OPEN, "c", False)]  # in subtitles, a name ends at a dot


def test_the_text_has_neither_tags_nor_white_space_of_the_layout():
    for fragment, text in (
        ("<p> A <b>red</b>  bus</p>\n", "A red bus"),
        ("one<br>two\n   three", "one two three"),
        ("Press <kbd/>.", "Press."),
        ("see <x/> here", "see here"),
        ("a <b> c</b>", "a c"),
        ("<x/><b><i/></b>", ""),
    ):
        assert layout_of(parts_of(fragment, TAG)).text == text


def test_tags_around_the_whole_stay_outside():
    layout = layout_of(parts_of("<p> <b>one <i>two</i></b> <br></p>", TAG))
    assert "".join(getattr(part, "text", part) for part in layout.before) == "<p> <b>"
    assert "".join(getattr(part, "text", part) for part in layout.after) == "</b> <br></p>"
    assert [(child.start, child.end) for child in layout.root.children] == [(4, 7)]


@pytest.mark.parametrize("fragment", ["a <b>c", "a</b> c", "x <b>a <i>c</b> d</i> e"])
def test_tags_without_partner_are_empty_ones(fragment):
    layout = layout_of(parts_of(fragment, TAG))
    elements = [*layout.root.children, *(inner for child in layout.root.children for inner in child.children)]
    assert [element.opening.text for element in elements if element.closing] == (["<b>"] if "<i>" in fragment else [])


def test_only_the_spans_of_changed_units_are_replaced():
    units = [Unit(0, 1, ["a"], joined), Unit(2, 3, ["b"], joined), Unit(4, 4, ["c"], joined, is_apart=True)]
    assert replaced("a b c", units, [units[0].parts, ["B"], units[2].parts]) == "a B cc"
