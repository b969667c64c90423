import re

import pytest

from keras_transformer.tools.documents.files import format_of, translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, Says, source_of

# Files of the kinds that the documentation of each format shows. What is translated is in capitals.
ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2" >
    <string name="app" translatable="false">my app</string> <!-- two -->
    <string name="hello">HELLO, %1$s! YOU HAVE %2$d NEW MESSAGES.</string>
    <string name="good">AN EXAMPLE: \"THIS\'LL WORK\"</string><string name="quoted">"  ONE\'S  OWN "</string>
    <string name="html">WELCOME  TO <b>ANDROID</b>!\n\u0020NEW <a href="x?a=1&amp;b">ÄND</a></string>
    <string name="at">\@ HOME &lt;i>OLD&lt;/i> &amp; DAYS</string>
    <string name="days"><xliff:g id="time" example="5 days">%1$s</xliff:g> UNTIL IT</string>
    <string name="cdata"><![CDATA[SOME <b>BOLD</b> TEXT & MORE]]></string>
    <string name="empty"></string><string name="none"/><string name="ref">@string/hello</string>
    <string-array name="planets"><item>MERCURY</item><item>?attr/one</item></string-array>
    <plurals name="songs"><item quantity="one">%d SONG FOUND.</item>
        <item quantity="other">%d SONGS FOUND.</item></plurals>
    <integer name="n">5</integer><string name="url">https://a.org/open</string>
</resources>
"""
APPLE = r"""/* A "note" = "one"; */
"Insert Element" = "INSERT ELEMENT";
"error \"1\"" = "AN \"ERROR\" OF IT.\nTRY AGAIN";   // "two" = "three";
"%d columns" =
    "AT LEAST %1$d COLUMNS AND %2$d ROWS.";
Human.readable-name = "%@ SENT IT";
"""
STRINGSDICT = """<?xml version="1.0" encoding="utf-8"?><plist version="1.0"><dict><key>%d files</key> <!-- one --><dict>
        <key>NSStringLocalizedFormatKey</key><string>%#@files@ IN %2$#@folders@ &amp; MORE</string>
        <key>files</key><dict>
            <key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>
            <key>one</key><string>%d FILE</string> <key>other</key><string>%d FILES</string>
        </dict> </dict>
    <key>x</key><dict><key>NSStringLocalizedFormatKey</key><string>%#@x@</string></dict></dict></plist>
"""
JSON = r"""{
  "title": "OPEN IT", "number": 5, "yes": true, "none": null,
  "menu": {"open {{x}}": "OPEN {{name}}, $t(menu.open) NOW",
    "go": [{"id": "a b", "translation": "ON {day:%d %b} OR {0:d m yyyy}"}], "it": {"id": "A", "translation": "B"},
    "list": ["ONE TWO", 3, [], {}, "\u00dcBER \"IT\"\nNEW \u2026"], "empty": ""},
  "item_one": "{{count}} ITEM", "item_other": "{{count}} ITEMS", "own": {"message": "HELLO", "description": "OF THIS"}
}
"""
ARB = """{
  "@@locale": "en", "hello": "HELLO {userName}",
  "@hello": { "description": "not this", "placeholders": { "userName": { "type": "String", "example": "bob" } } },
  "n": "{count, plural, =0{NO DAYS} =1{ONE DAY} other{{count} DAYS}}"
}
"""
YAML = """# one: two
en:
  hello: "HELLO WORLD"   # three
  'quoted': 'IT''S OPEN'
  plain: OPEN THE FILE
  days:
    one: ONE DAY
    other: "%{count} DAYS"
  literal: |2
      FIRST LINE

    SECOND LINE
  folded: >-
    FIRST PART

    OTHER PART

  list:
    - SUNDAY MORNING
    -   {a: MONDAY, 'b': [TWO WORDS, 3, 4.5, no, 2026-01-01, ~]}
  order: [{id: readMore, translation: READ MORE}, {id: THE CARD}, {a: {id: THE, translation: ONE}}]
  date:
  - :year
  - ":DAY OF"
  "yes": &a "OPEN DOOR"
  again: *a
  empty: ""
"""
PROPERTIES = r"""# one = two
! two
  website : https://a.org/open
language = ENGLISH LANGUAGE
key\ with\=signs=THE VALUE
tab=\u00dcBER C:\\WIKI\tOF  IT
empty=
files={0} FILES IN {1}
it:IT''S {0,number} O''CLOCK
spaced   \ VALUE HERE
"""
RESX = """<?xml version="1.0" encoding="utf-8"?><root>
  <xsd:schema id="root" xmlns="" xmlns:xsd="http://www.w3.org/2001/XMLSchema"><xsd:element name="root" /></xsd:schema>
  <resheader name="resmimetype"><value>text/microsoft-resx</value></resheader>
  <data name="Title"><value>OLD CARS</value><comment>two</comment></data>
  <data name="$this.Text" xml:space="preserve"><value>HELLO {0} &amp; {1}
OTHER &lt;b&gt;LINE&lt;/b&gt;</value></data>
  <data name="icon" type="System.Drawing.Bitmap, System.Drawing" mimetype="application/x"><value>aaee bb</value></data>
  <data name="&gt;&gt;label1.Name" xml:space="preserve"><value>label</value></data></root>
"""
QT = """<?xml version="1.0" encoding="utf-8"?>
<TS version="2.1" language="de_DE"><context><name>button</name>
    <message><location filename="main.cpp" line="64"/><source>hello &amp;world %1!</source>
        <translation type="unfinished">HELLO &amp;WORLD %1!</translation></message>
    <message numerus="yes"><source>%n of it in %L1</source> <translation type="unfinished">
            <numerusform>%n OF IT IN %L1</numerusform> <numerusform>%n OF IT IN %L1</numerusform>
        </translation></message>
    <message><source>done</source><translation>fertig</translation></message>
    <message><source>old</source><translation type="vanished"></translation></message></context></TS>
"""
FILES = {"strings.xml": ANDROID, "a.strings": APPLE, "a.stringsdict": STRINGSDICT, "en.json": JSON, "en.yml": YAML}
FILES |= {"app_en.arb": ARB, "a.properties": PROPERTIES, "a.resx": RESX, "a_de.ts": QT}


@pytest.mark.parametrize("name", FILES)
def test_texts_of_apps_are_translated_and_all_else_stays_to_the_byte(name):
    left, format = [], format_of(name)
    text = source_of(re.sub(r">[A-Z%][^<]*</(translation|numerusform)>", r"></\1>", FILES[name]))
    text = text.replace("[cdata[", "[CDATA[").replace("<ts ", "<TS ").replace("</ts>", "</TS>")
    assert translate_bytes(UPPER, text.encode(), format, on_left=left.append).decode() == FILES[name] and left == []
    if format != "qt":
        assert translate_bytes(SAME, text.encode(), format) == text.encode()


def test_what_programs_write_into_a_text_comes_in_another_order_or_the_text_stays():
    extension = '{"a": {"message": "HELLO $user$", "description": "not", "placeholders": {"user": {"content": "not"}}}}'
    assert translate_bytes(UPPER, source_of(extension).encode(), "json").decode() == extension
    for format, text, right in (
        ("apple", '"a" = "the %@ theme of the %d theme";', '"a" = "theme the %2$d of %1$@ theme the";'),
        ("json", '{"a": "the %s theme of the %d theme"}', '{"a": "the %s theme of the %d theme"}'),
        ("json", '{"a": "the {{x}} theme of the {y} theme"}', '{"a": "theme the {y} of {{x}} theme the"}'),
        ("yaml", "a: >\n  one\n   two\nb: 1", 'a: "two\\n one\\n"\nb: 1'),
        ("android", *(f"<resources><string><p>{p}</p><p>c</p></string></resources>" for p in ("a b", "b a"))),
        ("yaml", "a: the %{x} of it", "a: it %{x} of the"),
        ("properties", "a=o''clock, the {0} of it", "a=it of the {0} o''clock,"),
        ("properties", "a=it''s 5 % of", "a=of % 5 it''s"),
    ):
        assert translate_bytes(BACKWARDS, text.encode(), format).decode() == right


def test_a_translation_is_written_as_its_format_needs_it():
    for format, text, new, right in (
        ("yaml", "a: one # x", "b: c", 'a: "b: c" # x'),
        ("yaml", "a: one", "no", 'a: "no"'),
        ("yaml", "- [one, 'two']", "a, b", """- ["a, b", 'a, b']"""),
        ("yaml", "a: |+\r\n    one\r\n\r\n\r\nb: !!str 'two'", "c", "a: |+\r\n    c\r\n\r\n\r\nb: !!str 'c'"),
        ("json", '["one"]', 'a "b" \\', '["a \\"b\\" \\\\"]'),
        ("json", '["\\u00e4 b"]', "ä€😀", '["\\u00e4\\u20ac\\ud83d\\ude00"]'),
        ("apple", '"a"="one";', 'ä "b"', '"a"="ä \\"b\\"";'),
        ("android", "<resources><string>a</string></resources>", "?'", r"<resources><string>\?\'</string></resources>"),
        ("properties", "a=one", "ä€😀\\", r"a=\u00e4\u20ac\ud83d\ude00" + "\\\\"),
        ("properties", "a=\\\n  one \\\r\n  two\n b = é", "x", "a=x\n b = x"),
    ):
        assert translate_bytes(Says(new), text.encode(), format).decode() == right
    assert translate_bytes(UPPER, b'["\\ud83d a"]', "json") == b'["\\ufffd A"]'


def test_charsets_are_those_of_the_formats():
    assert translate_bytes(UPPER, "a=é und".encode("latin-1"), "properties") == "a=É UND".encode("latin-1")
    assert translate_bytes(UPPER, '"a" = "é";'.encode("utf-16"), "apple") == '"a" = "É";'.encode("utf-16")
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><resources><string>é</string></resources>'
    found = translate_bytes(Says("€ é"), text.encode("latin-1"), "android")
    assert found == text.replace("é", "&#8364; é").encode("latin-1")


PLURAL = """<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist><dict><key>one</key><string>day</string>
 <key>other</key><string>days</string></dict></plist>"""


def test_forms_of_plurals_and_the_language_are_those_of_the_translation():
    forms = '<item quantity="one">day</item>\n <item quantity="other">%d days</item>'
    text = f"<resources><plurals>\n {forms}</plurals></resources>"
    found = translate_bytes(UPPER, text.encode(), "android", target_lang="ru").decode()
    forms = [("one", "DAY"), *((form, "%d DAYS") for form in ("few", "many", "other"))]
    assert re.findall(r'"(\w+)">(.*?)<', found) == forms
    kept = re.sub(r'<item quantity="(?:few|many)">.*?</item>\n ', "", found)
    assert kept == text.replace("day", "DAY").replace("DAYs", "DAYS")
    for format, source, new in (
        ("json", '{"x_one": "day",\n "x_other": "days", "y_other": "z"}', '"x_few": "DAYS",\n "x_many": "DAYS",\n "x_'),
        ("json", '{"a": {"x_ordinal_one": "st", "x_ordinal_other": "th", "other": "of"}}', ""),
        ("yaml", "a:\n  one: day\n  'other': days # x", "'few': DAYS\n  'many': DAYS\n  '"),
        ("yaml", "a: {one: day, other: days}", ""),
        ("stringsdict", PLURAL, "ey>few</key><string>DAYS</string>\n <key>many</key><string>DAYS</string>\n <key>"),
    ):
        upper = translate_bytes(UPPER, source.encode(), format).decode()
        right = upper.replace(f"{new[-3:].strip()}other", f"{new.lstrip()}other", 1) if new else upper
        assert translate_bytes(UPPER, source.encode(), format, target_lang="ru").decode() == right
        assert translate_bytes(UPPER, source.encode(), format, target_lang="de").decode() == upper
    assert translate_bytes(Says("{x}"), text.encode(), "android").decode() == text  # all forms or none
    for format, text in (("arb", '{{"@@locale": "{}"}}'), ("qt", '<TS version="2.1" language="{}"/>')):
        found = translate_bytes(UPPER, text.format("en").encode(), format, target_lang="pt-BR").decode()
        assert found == text.format("pt_BR")
