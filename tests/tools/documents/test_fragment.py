import re

import pytest

from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark, layout_of, parts_of
from keras_transformer.words import tokens_of

TAG = re.compile(r"<[^<>]+>")


def test_tokens_are_words_numbers_and_signs():
    text = "The dog's 2 bowls, 漢字."
    assert [text[start:end] for start, end in tokens_of(text)] == [
        *["The", "dog", "'", "s", "2", "bowls", ",", "漢", "字", "."]
    ]


def test_tags_are_opening_closing_and_empty_ones():
    parts = parts_of("a<b x='1'>c</b><br><i/>", TAG)
    assert parts[0] == "a" and parts[2] == "c"
    assert [(part.kind, part.name, part.breaks) for part in parts if isinstance(part, Mark)] == [
        *[(OPEN, "b", False), (CLOSE, "b", False), (EMPTY, "br", True), (EMPTY, "i", False)]
    ]


@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("<p> A <b>red</b>  bus</p>\n", "A red bus"),
        ("one<br>two\n   three", "one two three"),
        ("Press <kbd/>.", "Press."),
        ("see <x/> here", "see here"),
        ("a <b> c</b>", "a c"),
        ("<x/><b><i/></b>", ""),
    ],
)
def test_the_text_has_neither_tags_nor_white_space_of_the_layout(fragment, text):
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


def test_the_name_of_a_tag_ends_at_a_dot_as_in_subtitles():
    opening, _, closing = parts_of("<c.yellow.bg_blue>a</c>", re.compile("<[^<>]+>"))
    assert opening.name == closing.name == "c" and (opening.kind, closing.kind) == (OPEN, CLOSE)
