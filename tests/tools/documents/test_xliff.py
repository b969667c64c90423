import re

import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import layout_of
from keras_transformer.tools.documents.xliff import find_units
from tests.tools.documents.fake import SAME, UPPER

OLD = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"><body>
  <trans-unit id="1">
    <source>Hello <g id="1">big <x id="2"/> world</g> &amp; all</source>
    <target>HELLO <g id="1">BIG <x id="2"/> WORLD</g> &amp; ALL</target>
    <note>keep me</note>
  </trans-unit>
  <trans-unit id="2"><source>done</source><target state="final">fertig</target></trans-unit>
  <trans-unit id="3" translate="no"><source>stay</source></trans-unit>
  <trans-unit id="4"><source>a <bpt id="1">&lt;b></bpt>b<ept id="1">&lt;/b></ept> c</source><target>A <bpt id="1">&lt;b></bpt>B<ept id="1">&lt;/b></ept> C</target></trans-unit>
</body></file></xliff>
"""  # noqa: E501
NEW = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de"><file id="f">
  <unit id="u"><notes><note>keep me</note></notes>
    <segment>
      <source>one <pc id="1">two</pc> <sc id="2"/>three<ec startRef="2"/> <mrk id="m" translate="no">Name</mrk></source>
      <target>ONE <pc id="1">TWO</pc> <sc id="2"/>THREE<ec startRef="2"/> <mrk id="m" translate="no">Name</mrk></target>
    </segment>
    <segment><source>12</source><target>12</target></segment>
  </unit>
  <unit id="v" translate="no"><segment><source>stay</source></segment></unit>
</file></xliff>
"""


def without_targets(text):
    return re.sub(r"\s*<target>.*?</target>", "", text)


@pytest.mark.parametrize("text", [OLD, NEW])
def test_sources_get_targets_and_all_the_rest_stays(text):
    assert translate_bytes(UPPER, without_targets(text).encode(), "xliff").decode() == text


@pytest.mark.parametrize("text", [OLD, NEW])
def test_targets_stay_to_the_byte_whatever_the_model(text):
    assert (
        translate_bytes(UPPER, text.encode(), "xliff") == translate_bytes(SAME, text.encode(), "xliff") == text.encode()
    )


def test_empty_targets_are_filled_and_keep_their_attributes():
    text = '<xliff><x:trans-unit xmlns:x="u"><x:source>a</x:source>{}</x:trans-unit></xliff>'
    filled = text.format('<x:target state="new">A</x:target>')
    for empty in (
        '<x:target state="new" />',
        '<x:target state="new"></x:target>',
        '<x:target state="new"> </x:target>',
    ):
        assert translate_bytes(UPPER, text.format(empty).encode(), "xliff").decode() == filled
    assert translate_bytes(UPPER, text.format("").encode(), "xliff").decode() == text.format("<x:target>A</x:target>")


def test_partners_across_the_border_of_an_element_do_not_tear_it():
    text = '<xliff><segment><source>a <sc id="2"/>b <pc id="1">c <ec startRef="2"/>d</pc></source></segment></xliff>'
    (unit,) = find_units(text, "a.xliff")
    elements = layout_of(unit.parts).root.children
    assert [element.opening.text for element in elements if element.closing] == ['<pc id="1">']


def test_other_xml_is_refused():
    with pytest.raises(UserError, match="the document is no XLIFF: it has no element `xliff`"):
        translate_bytes(SAME, b"<tmx/>", "xliff")
