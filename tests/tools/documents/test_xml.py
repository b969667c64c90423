import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.xml import parse

TEXT = '<?xml version="1.0"?>\n<a:r xmlns:a="u" k="v">ä <b/>&amp;<c>x<!-- c --></c><![CDATA[<y>]]></a:r>\n'


def test_every_element_has_its_place():
    root = parse(TEXT, "file")
    (node,) = root.children
    assert (node.name, node.attributes) == ("r", {"xmlns:a": "u", "k": "v"})
    assert TEXT[node.start : node.inner_start] == '<a:r xmlns:a="u" k="v">'
    assert TEXT[node.inner_end : node.end] == "</a:r>"
    assert [TEXT[child.start : child.end] for child in node.children if child.name] == [*["<b/>", "<c>x<!-- c --></c>"]]
    assert "".join(child.text for child in node.walk()) == "ä &x<y>"
    assert node.find("b").inner_start == node.find("b").inner_end == node.find("b").end
    assert node.find("d") is None and [child.name for child in node.walk() if child.name] == ["r", "b", "c"]


@pytest.mark.parametrize(("text", "line"), [("<a>\n<b></a>", 2), ("", 1), ("<a>\n\n&x;</a>", 3), ("<a/><b/>", 1)])
def test_broken_xml_is_named_with_its_line(text, line):
    with pytest.raises(UserError, match=f"page.xliff is not well-formed XML: line {line}, column "):
        parse(text, "page.xliff")
