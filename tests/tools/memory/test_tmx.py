"""Files written by hand, whose texts are known."""

import gzip

import pytest

from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.memory.tmx import read_units

HEADER = """<header creationtool="hand" creationtoolversion="1" segtype="sentence" o-tmf="none" adminlang="en"
 srclang="*all*" datatype="plaintext"><note xml:lang="en">no text</note></header>"""


def tmx(*segments, doctype='<!DOCTYPE tmx SYSTEM "tmx14.dtd">', declaration='<?xml version="1.0"?>'):
    """A memory of one unit for each segment, in English."""
    units = "".join(f'<tu><tuv xml:lang="en"><seg>{segment}</seg></tuv></tu>\n' for segment in segments)
    return f'{declaration}{doctype}<tmx version="1.4">{HEADER}<body>{units}</body></tmx>'


def read(tmp_path, data, name="memory.tmx"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(read_units(path))


def texts(tmp_path, data, name="memory.tmx"):
    return [segment.text for unit in read(tmp_path, data, name) for segment in unit]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("one two", "one two"),
        ("\n   one\n\ttwo  ", "one two"),
        ("one\u00a0: two", "one\u00a0: two"),  # no white space of XML
        ("a &lt;b&gt; &amp; c &#x4E2D;", "a <b> & c 中"),
        ("<![CDATA[a < b]]>", "a < b"),
        ("a<!-- comment --> b<?pi x?>", "a b"),
        ('The <bpt i="1" x="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept> house', "The red house"),
        ('<it pos="begin">{\\b</it>Bold <hi type="term">term <ph x="1">%s</ph>here</hi>', "Bold term here"),
        ('See<ph x="1">[note: <sub datatype="html">a <bpt i="1">b</bpt>note</sub>]</ph> below', "See below"),
        ("old <ut>{\\cs4</ut>code", "old code"),
        ('one<ph type="lb">&lt;br/&gt;</ph>two', "one two"),
        ("<ph/>", ""),
        ("", ""),
    ],
)
def test_the_text_of_a_segment_has_no_code_and_one_space_for_white_space(tmp_path, segment, text):
    assert texts(tmp_path, tmx(segment, "next")) == [text, "next"]


def test_a_unit_has_a_text_in_each_language_under_either_attribute(tmp_path):
    data = f"""<tmx version="1.1">{HEADER}<body>
    <tu tuid="1" lang="fr"><prop type="x">no text</prop>
      <tuv lang="EN"><note>none</note><seg>one</seg></tuv>
      <tuv xml:lang="de-AT" lang="x"><prop type="y">none</prop><seg>eins</seg></tuv>
      <tuv><seg>without a language</seg></tuv></tu>
    <tu><tuv xml:lang="fr"><seg>un</seg></tuv></tu></body></tmx>"""
    units = [[("EN", "one", True, ""), ("de-AT", "eins", True, "")], [("fr", "un", True, "")]]
    assert read(tmp_path, data) == units
    prefixed = data.replace("<", "<t:").replace("<t:/", "</t:").replace("tmx v", 'tmx xmlns:t="u" v')
    assert read(tmp_path, prefixed) == units


@pytest.mark.parametrize(
    ("charset", "declared"),
    [("utf-8-sig", ""), ("utf-16", ""), ("utf-16", "UTF-16"), ("utf-8", "utf-8"), ("cp1252", "windows-1252")],
)
def test_a_file_is_read_in_its_charset_packed_or_not(tmp_path, charset, declared):
    declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else '<?xml version="1.0"?>'
    data = tmx("Größe €", declaration=declaration).encode(charset)
    assert texts(tmp_path, data) == ["Größe €"]
    assert texts(tmp_path, gzip.compress(data), "memory.tmx.gz") == ["Größe €"]


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
FOREIGN = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (tmx("one", "&b;", doctype=BOMB), "an entity of its own in line 1.*: a"),
        (tmx("&a;", doctype=FOREIGN), "an entity of its own in line 1.*: a"),
        (tmx("one&nbsp;two", doctype=""), "line 2, column .*: undefined entity"),
        (tmx("one", "<b>two", "three"), "not well-formed XML: line 3, column .*: mismatched tag"),
        (tmx("one")[:-6], "not well-formed XML: line 3, column .*: no element found"),
        ("", "not well-formed XML: line 1, column 1: no element found"),
        ("one\ttwo\n", "not well-formed XML: line 1, column 1: syntax error"),
        ('<?xml version="1.0"?><xliff><tmx/></xliff>', "no TMX: its first element is `xliff`, not `tmx`"),
        (tmx("ö").encode("latin-1"), "not well-formed XML: line 2, column .*: not well-formed"),
        (tmx("one", declaration='<?xml version="1.0" encoding="none"?>'), "charset that cannot be read: .*none"),
        (tmx("one", declaration='<?xml version="1.0" encoding="shift_jis"?>'), "charset that cannot be read"),
    ],
)
def test_what_is_damaged_or_dangerous_is_refused_in_one_line(tmp_path, data, named):
    with pytest.raises(UserError, match=f"memory.tmx .*{named}") as caught:
        read(tmp_path, data)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, reason in ((tmp_path / "none.tmx", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(FileError, match=f"cannot read {path}: {reason}"):
            next(read_units(path))
    with pytest.raises(FileError, match="cannot read .*Not a gzipped file"):
        read(tmp_path, tmx("one"), "a.tmx.gz")
    with pytest.raises(FileError, match="cannot read .*ended before"):
        read(tmp_path, gzip.compress(tmx("one").encode())[:-9], "a.tmx.gz")


def test_units_come_before_the_end_of_the_file_is_read(tmp_path):
    (tmp_path / "memory.tmx").write_text(tmx(*("many words " * 100 for _ in range(1000)))[:-6])
    assert next(read_units(tmp_path / "memory.tmx"))[0][:3] == ("en", ("many words " * 100).strip(), True)
    with pytest.raises(UserError, match="no element found"):
        list(read_units(tmp_path / "memory.tmx"))


def test_what_stands_outside_a_unit_is_left_out(tmp_path):
    for body in ("<seg>lost</seg>", '<tuv xml:lang="en"><seg>lost</seg></tuv>', "<bpt>lost</bpt>"):
        assert texts(tmp_path, f"<tmx>{body}</tmx>") == []
