import re

import pytest

from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import layout_of
from keras_transformer.tools.documents.xliff import find_units
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER

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


def upper(text):
    return translate_bytes(UPPER, text.encode(), "xliff").decode()


@pytest.mark.parametrize("text", [OLD, NEW])
def test_sources_get_targets_and_all_the_rest_stays(text):
    assert upper(re.sub(r"\s*<target>.*?</target>", "", text)) == text
    assert translate_bytes(SAME, text.encode(), "xliff").decode() == upper(text) == text  # and so do targets


def test_empty_targets_are_filled_and_keep_their_attributes():
    text = '<xliff><x:trans-unit xmlns:x="u"><x:source>a</x:source>{}</x:trans-unit></xliff>'
    filled = text.format('<x:target state="new">A</x:target>')
    for end in (" />", "></x:target>", "> </x:target>"):
        assert upper(text.format(f'<x:target state="new"{end}')) == filled
    assert upper(text.format("")) == text.format("<x:target>A</x:target>")


def test_partners_across_the_border_of_an_element_do_not_tear_it():
    text = '<xliff><segment><source>a <sc id="2"/>b <pc id="1">c <ec startRef="2"/>d</pc></source></segment></xliff>'
    (unit,) = find_units(text, "a.xliff")
    elements = layout_of(unit.parts).root.children
    assert [element.opening.text for element in elements if element.closing] == ['<pc id="1">']


def test_two_empty_elements_of_angular_are_the_tags_of_a_pair():
    a, b, end = ('<x id="START_H1"/>', '<x id="START_H1_1"/>', '<x id="CLOSE_H1"/>')
    source = f"<xliff><trans-unit><source>see {a}our terms{end} or {b}two{end} now</source></trans-unit></xliff>"
    found = translate_bytes(BACKWARDS, source.encode(), "xliff").decode()
    assert f"<target>now {b}two{end} or {a}terms our{end} see</target>" in found
    found = translate_bytes(BACKWARDS, source.replace("H1", "BLOCK_IF").encode(), "xliff").decode()
    assert "<target>see <x" in found


def unit(content):
    return f'<xliff version="1.2"><file><trans-unit id="1">{content}</trans-unit></file></xliff>'


def segment(number, text):
    return f'<mrk mtype="seg" mid="{number}">{text}</mrk>'


DONE = '<mrk mtype="seg" mid="1" comment="x">fertig</mrk>'
SEGMENTED = "<source>A b. C d.</source><seg-source>" + segment(1, "A b.") + " " + segment(2, "C d.") + "</seg-source>"
FILLED = segment(1, "A B.") + " " + segment(2, "C D.")


def test_each_segment_gets_a_target_and_the_done_one_is_kept():
    for target, filled in (
        ("", FILLED),
        ("<target/>", FILLED),
        (f"<target>{segment(1, '')} {segment(2, '')}</target>", FILLED),
        (f"<target>{DONE}</target>", f"{DONE} {segment(2, 'C D.')}"),
        (f"<target>{segment(1, '')} {segment(2, 'ja')}</target>", f"{segment(1, 'A B.')} {segment(2, 'ja')}"),
        (f"<target state='new'>{DONE} {segment(2, 'C d.')}</target>", f"{DONE} {segment(2, 'C D.')}"),
    ):
        opening = "<target state='new'>" if "state" in target else "<target>"
        assert upper(unit(SEGMENTED + target)) == unit(SEGMENTED + f"{opening}{filled}</target>")


def test_segments_are_translated_one_by_one_and_a_branch_of_angular_keeps_the_elements_inside():
    found = translate_bytes(BACKWARDS, unit(SEGMENTED).encode(), "xliff").decode()
    assert found == unit(SEGMENTED + f"<target>{segment(1, 'b. A')} {segment(2, 'd. C')}</target>")
    source = '{VAR, plural, =0 {just now} other {<x id="I" equiv-text="{{ n }}"/> minutes ago}}'
    found = translate_bytes(BACKWARDS, unit(f"<source>{source}</source>").encode(), "xliff").decode()
    target = '{VAR, plural, =0 {now just} other {<x id="I" equiv-text="{{ n }}"/> ago minutes}}'
    assert found == unit(f"<source>{source}</source><target>{target}</target>")


def test_what_is_done_stays_and_a_copy_that_waits_for_its_translation_is_translated():
    for content in (
        SEGMENTED + f"<target>{segment(1, 'eins')} {segment(2, 'zwei')}</target>",
        SEGMENTED + "<target>eins und zwei</target>",
        SEGMENTED + f"<target>{segment(1, 'eins')}{segment(7, 'sieben')}</target>",
        '<source>a</source><target state="needs-translation">ein A</target>',
        '<source>a</source><target state="translated">a</target>',
        "<source>a</source><target>a</target>",
    ):
        assert upper(unit(content)) == unit(content)
    text = '<source>a <g id="1">b</g></source><target state="{}">{}</target>'
    for state in ("needs-translation", "new"):
        assert upper(unit(text.format(state, 'a <g id="1">b</g>'))) == unit(text.format(state, 'A <g id="1">B</g>'))
    new = '<xliff trgLang="de"><segment state="initial"><source>a</source><target>{}</target></segment></xliff>'
    assert upper(new.format("a")) == new.format("A")


def test_markup_that_is_escaped_or_in_cdata_is_markup():
    for source, target in (
        ("<![CDATA[<p>a, <b>b</b> & c</p>]]>", "<![CDATA[<p>A, <b>B</b> & C</p>]]>"),
        (" <![CDATA[a]]> ", "<![CDATA[ A ]]>"),
        ("&lt;b title=&quot;x&quot;&gt;a&lt;/b&gt; b", '&lt;b title="x"&gt;A&lt;/b&gt; B'),
        ("a &amp;amp; b &lt; c", "A &amp;amp; B &lt; C"),
        ("%&lt;PRIu64&gt; a", "%&lt;PRIu64&gt; A"),
        ("%#@files@ in %2$#@more files@", "%#@files@ IN %2$#@more files@"),
        ("a <![CDATA[b <i>c</i>]]>", "A B &lt;i&gt;C&lt;/i&gt;"),
        ('<mrk mtype="protected">a</mrk> b', '<mrk mtype="protected">a</mrk> B'),
    ):
        found = unit(f"<source>{source}</source><target>{target}</target>")
        assert upper(unit(f"<source>{source}</source>")) == found
