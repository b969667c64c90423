import html
import re
import shutil
import subprocess
from collections import Counter
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from babel.messages.pofile import denormalize, read_po
from babel.messages.pofile import escape as quoted
from markdown_it.common.html_blocks import block_names

from keras_transformer.protection import Protection
from keras_transformer.tools.documents.files import translate_bytes
from keras_transformer.tools.documents.fragment import BLOCKS, INLINE, OPAQUE_INLINE
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, Reorders, Says, WordByWord, source_of

# The translation of a text, and the variables of it.
TEXTS = [
    ("COPY %1 OF %2 FILES", ["%1", "%2"]),
    ("JOIN%1%2, %L1 AND %n FILE(S)", ["%1", "%2", "%L1", "%n"]),
    ("SEE %'d FILES, % d ITEMS AND % 5.2f POINTS", ["%'d", "% d", "% 5.2f"]),
    ("SEE %<PRIu64> BYTES, %-5<PRId64> MORE, %<name>s AND %<n>.2f OF THEM", ["%<PRIu64>", "%-5<PRId64>"]),
    ("SEE %{count} USERS, #{name}, ${x} AND $count OF $user_name", ["%{count}", "#{name}", "${x}", "$count"]),
    ("SEE %@, %1$@, %2$lld, %0:d, %ld, %.2f, %*d AND %-10s", ["%@", "%1$@", "%2$lld", "%0:d", "%ld", "%.2f", "%*d"]),
    ("SEE %(name)s'S PAGE OF %(größe)d", ["%(name)s", "%(größe)d"]),
    ("SEE {{ n }}, {{{raw}}}, {name}, { name }, {0:.2f}, {} AND {n, number, percent}", ["{{ n }}", "{{{raw}}}"]),
    ("AM %Y-%m-%d UM %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
    *((text, []) for text in ("100 % DER LEUTE", "10 % D'EAU", "LE % D'EAU", "IT IS 100% SURE", "%50 INDIRIM")),
    *((text, []) for text in ("$5 OR US$6", "AA {TWO WORDS}")),
]


def translated(translator, text, **how):
    return translate_bytes(translator, text.encode(), "po", **how).decode()


def in_catalogue(translator, text, before="", **how):
    catalogue = f'msgid ""\nmsgstr "Language: de\\n"\n\n{before}msgid {quoted(text)}\nmsgstr ""\n'
    return denormalize(translated(translator, catalogue, **how).split("msgstr ")[-1].strip())


def in_xliff(translator, text, **how):
    unit = "<xliff><file><trans-unit><source>{}</source>{}</trans-unit></file></xliff>"
    found = translate_bytes(translator, unit.format(escape(text), "").encode(), "xliff", **how)
    return ElementTree.fromstring(found).findtext(".//target", "")


def in_html(translator, text, **how):
    return html.unescape(translate_bytes(translator, html.escape(text, quote=False).encode(), "html", **how).decode())


FORMATS = [in_catalogue, in_xliff, in_html]


@pytest.mark.parametrize("translated", FORMATS)
def test_variables_stay_and_words_are_translated_and_a_percent_sign_of_prose_is_no_variable(translated):
    for upper, variables in TEXTS:
        text = source_of(upper)
        assert translated(UPPER, text) == upper and translated(SAME, text) == text
        backwards = translated(BACKWARDS, text) or text  # moved, or left as it was
        assert Counter(re.findall(r"\S", backwards)) == Counter(re.findall(r"\S", text))
        assert [name for name in variables if name not in backwards] == []
        assert not {*variables} - {*Protection().hide(text).words}, text


@pytest.mark.parametrize("translated", FORMATS)
def test_branches_are_translated_and_their_skeleton_stays(translated):
    for text, upper in (
        (None, "{n, plural, one {# DAY} other {# DAYS}}"),
        (None, "IN {n, plural, offset:1 =0 {NO} one {# AT {a}} other {{g, select, m {HIS #} other {OUR}}}} DAYS"),
        (None, "{minutes, plural, =0 {JUST NOW} other {{{minutes}} MINUTES AGO}}"),
        ("{n, select, one {the #st} other {'{' and {l'{x}}}}}", "{n, select, one {THE #ST} other {'{' AND {L’{x}}}}}"),
        (None, "{g, select, a {ONE # TWO} other {}}"),
        ("{n, plural, one {day", "{N, PLURAL, ONE {DAY"),  # no message: text
    ):
        text = text or source_of(upper)
        assert translated(UPPER, text) == upper and translated(SAME, text) == text


def test_a_plural_moves_as_a_word_does_and_its_branches_stay_in_their_order():
    text = "You have {n, plural, one {<b>one</b> new message} other {{n} new messages}} of yours"
    found = in_catalogue(BACKWARDS, text)
    assert found == "yours of have {n, plural, one {message new <b>one</b>} other {{n} messages new}} You"
    assert in_catalogue(UPPER, "a <b>{n, plural, other {x y}}</b> b") == "A <b>{n, plural, other {X Y}}</b> B"


def test_a_translation_with_other_variables_is_not_written():
    for before, text, translation in (
        ("", "a {name}", "b {other}"),
        ("#, python-brace-format\n", "a", "b {c}"),
        ("", "{n, plural, one {a} other {b}}", "c }"),
        ("", "{n, plural, one {a} other {b}}", "c # d"),
        ("#, qt-format\n", "a", "%1 b"),
    ):
        left = []
        assert in_catalogue(Says(translation), text, before, on_left=left.append) in ("", "b {{c}}")
        assert left == [text] or "brace" in before


THEMES = "the {} theme inherits from the {} theme"


def test_variables_come_in_another_order_if_they_have_names_or_numbers_or_get_them_or_the_text_stays():
    for flags, one, other, numbered in (
        *(("", *pair, None) for pair in (("%s", "%d"), ("%d", "%d"), ("{}", "{}"), ("%@", "%@"))),
        *(("", *pair, pair[::-1]) for pair in (("%1$s", "%2$d"), ("%(a)s", "%(b)s"), ("%1", "%2"), ("{a}", "{b}"))),
        ("c-format", "%s", "%d", ("%2$d", "%1$s")),
        ("c-format", "%s", "%s", ("%2$s", "%1$s")),
        ("php-format, fuzzy", "%-5s", "%.2f", ("%2$.2f", "%1$-5s")),
        ("objc-format", "%@", "%ld", ("%2$ld", "%1$@")),
        ("java-printf-format", "%d", "$name", ("$name", "%d")),
        ("python-format", "%s", "%d", None),  # Python has names, and no numbers
        ("no-c-format", "{}", "{}", None),
        ("c-format", "%*d", "%d", None),  # the width takes a value, too
        ("c-format", "%m", "%d", None),  # no value of the program's
        ("c-format", "https://a.org/%s", "%d", None),
    ):
        expected = "theme the {} from inherits {} theme the".format(*numbered) if numbered else ""
        left, text = [], THEMES.format(one, other)
        assert in_catalogue(BACKWARDS, text, f"#, {flags}\n", on_left=left.append) == expected
        assert left == [text] * (not numbered)
    blocks = f"<p>{THEMES.format('%s', '%d')}</p><p>and %s now</p>"
    assert in_catalogue(BACKWARDS, blocks, "#, c-format\n") == ""


@pytest.mark.parametrize("translated", [in_catalogue, in_xliff])
def test_escaped_markup_is_markup(translated):
    found = '<a href="x y">ONE</a> &lt;b&gt;TWO&lt;/b&gt;'
    assert translated(UPPER, source_of(found)) == found
    assert translated(BACKWARDS, "<p>one two</p><p>three <br/>four</p>") == "<p>two one</p><p>four <br/>three</p>"
    assert translated(UPPER, "Terms&nbsp;&amp; &quot;uses&quot; &copy;") == "TERMS&nbsp;&amp; &quot;USES&quot; &copy;"
    assert translated(UPPER, "R&D &amp; &File") == "R&D &AMP; &FILE"  # which signs are escaped is not known


def test_a_message_has_the_blocks_and_the_elements_that_stay_of_a_page():
    assert set(block_names) - BLOCKS == set("base basefont col frame link menuitem param track".split())  # without text
    assert not (BLOCKS & INLINE or (BLOCKS | INLINE) & OPAQUE_INLINE)
    inside = {name: f"a b <{name}>c d</{name}> e" for name in sorted(BLOCKS | INLINE | OPAQUE_INLINE)}
    marked = ('a <b translate="no">c d</b> e', "a <i class='x notranslate'>b <i>c</i></i> d <code>e *f*\ng</code> h")
    for text in (*inside.values(), *marked):
        page = translate_bytes(BACKWARDS, text.encode(), "html").decode()
        assert in_catalogue(BACKWARDS, text) == page
        if text in marked or text[5 : text.index(">")] not in BLOCKS:
            assert translate_bytes(BACKWARDS, text.encode(), "markdown").decode() == page
    found = in_catalogue(BACKWARDS, "a <Form>b</Form> <link>c</link> <object> d")  # components, and a program's value
    assert found == "d <link>c</link> <object> <Form>b</Form> a"


CATALOGUE = r"""# a comment
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: a.c:3
#, c-format
msgctxt "menu"
msgid "Delete %s of <b>{count}</b> files\n"
msgstr "DELETE %s OF <b>{count}</b> FILES\n"

#~ msgid "old"
#~ msgstr ""

msgid ""
"two \"lines\"\n"
"of text"
msgstr ""
"TWO \"LINES\"\n"
"OF TEXT"

msgid "one file"
msgid_plural "%(n)d files"
msgstr[0] "ONE FILE"
msgstr[1] "%(n)d FILES"

msgid "kept"
msgstr "behalten"
"""


def test_messages_without_translation_get_one_and_those_of_people_stay_to_the_byte():
    empty = re.sub(r'(?m)^"(TWO|OF) .*\n', "", CATALOGUE)
    empty = re.sub(r'(?m)^(msgstr(?:\[\d\])?) ".*(?:FILE).*"$', r'\1 ""', empty)
    assert 'msgstr ""\n\n#~' in empty and 'msgstr[1] ""' in empty
    assert translated(UPPER, empty) == translated(SAME, CATALOGUE) == CATALOGUE


def header(*lines):
    return 'msgid ""\nmsgstr ""\n' + "".join(f'"{line}\\n"\n' for line in lines)


def message(text, flags="", plural=None, forms=1):
    strings = ['msgstr ""'] if plural is None else [f'msgstr[{i}] ""' for i in range(forms)]
    lines = [f"#, {flags}"] if flags else []
    lines += [f'msgid "{text}"', *([f'msgid_plural "{plural}"'] if plural else []), *strings]
    return "\n" + "\n".join(lines) + "\n"


def strings_of(found):
    """The strings of all translations but the one of the header."""
    return re.findall(r'^msgstr(?:\[\d+\])? "(.*)"$', found, re.MULTILINE)[1:]


def test_flags_choose_the_variables():
    head = header("Language: de")
    for flags, upper in (
        ("c-format", "SEE 50%% OF %d, %1$s OR % d"),
        ("c-format", "SEE %'d OF %-5<PRIu64> AND %*.*f"),
        ("c-format", "JUST 50 %, OF"),  # breaks the rules, so the sign is text
        ("python-format", "%(a b)d OF 5%%"),
        ("python-brace-format", "ONE {a!r:>{w}} {{TWO}}"),
        ("kde-format", "%1 OF 100 % DOGS AND % DD"),
        ("qt-format", "%1 OF %L2 AND %10"),
        ("objc-format", "%@ OF %2$@"),
        ("boost-format", "%1% OF %|2$d|"),
        ("java-format", "IT''SS {0} OF '{x}' AND {1,number,integer}"),
        ("csharp-format", "AA {0:N2} OF {{BB}}"),
        ("object-pascal-format", "%0:d OF %1:s"),
        ("ruby-format", "%<a>d OF %{b}"),
        ("lisp-format", "~5D OF ~a"),
        ("sh-format", "$a OF ${b}"),
        ("no-c-format", "ONLY %SS OF"),
        ("no-python-brace-format", "AA {BB} OF"),
        ("", "100 % DER %d"),
        ("", "SEE https://a.org/day%20x?a=b&amp;c, @ann OR :one:"),
        ("c-format", "OPEN %s AT https://a.org/%s/day?a=%%20 OR ann@a.org BY %d"),
        ("fuzzy, c-format", "SEE 100 %dER"),  # in a word, as gettext reads it
    ):
        text = "see 100 %der" if "dER" in upper else source_of(upper)
        assert strings_of(translated(UPPER, head + message(text, flags))) == [upper]


SLAVIC = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"


def test_each_form_is_translated_from_the_text_for_its_numbers_and_all_are_written_or_none():
    for forms, singular, upper in (
        ("nplurals=2; plural=(n != 1);", "one file", ["ONE FILE", "%d FILES"]),
        (f"nplurals=3; plural=({SLAVIC});", "one file", ["%d FILES"] * 3),  # the first is for 21, too
        (f"nplurals=3; plural=({SLAVIC});", "%d file", ["%d FILE", "%d FILES", "%d FILES"]),
        ("nplurals=1; plural=0;", "%d file", ["%d FILES"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", "one file", ["%d FILES", "ONE FILE", "%d FILES"]),
        ("nplurals=INTEGER; plural=EXPRESSION;", "one file", ["ONE FILE", "%d FILES"]),
    ):
        for number in {len(upper), 2}:  # a catalogue with too few forms or too many gets as many as its header says
            text = header(f"Plural-Forms: {forms}") + message(singular, "c-format", "%d files", number)
            assert strings_of(translated(UPPER, text)) == upper

    losing = WordByWord(lambda word: "%1" if word == "items" else word.upper())
    left, text = [], header("Plural-Forms: nplurals=2; plural=(n != 1);") + message("item", "qt-format", "items", 2)
    assert translated(losing, text, on_left=left.append) == text and left == ["item", "items"]


def test_the_header_declares_the_language_its_plural_forms_and_its_charset():
    lines = "Language: |Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;|Content-Type: text/plain; charset=CHARSET"
    text = header(*lines.split("|")) + message("one day", "", "%d days", 2)
    found = translated(UPPER, text, target_lang="ja")
    assert '"Language: ja\\n"' in found and "charset=UTF-8\\n" in found
    assert "nplurals=1; plural=0;" in found and strings_of(found) == ["%d DAYS"]
    found = translated(UPPER, text, target_lang="pl")
    assert '"Language: pl\\n"' in found and "nplurals=3; " in found and len(strings_of(found)) == 3
    old = 'msgid ""\nmsgstr "Language: en\\nPlural-Forms: nplurals=2; "\n"plural=(n != 1);\\nX: y"\n'
    found = translated(UPPER, old + message("one day", "", "%d days", 2), target_lang="ru_RU")
    assert 'msgstr "Language: ru_RU\\nPlural-Forms: nplurals=3; ' in found and len(strings_of(found)) == 3
    assert "nplurals=2; " in translated(UPPER, old + WHOLE.replace('[1] ""', '[1] "x"'), target_lang="ru")  # translated
    assert '"Language: pt_BR\\n"' in translated(SAME, header("X: y"), target_lang="pt-BR")
    same = header("Language: de_AT")
    assert translated(SAME, same, target_lang="de") == translated(SAME, same) == same  # a kind of German
    assert translated(SAME, message("a"), target_lang="de") == message("a").replace('msgstr ""', 'msgstr "a"')


WHOLE = header("Language: de", "Content-Type: text/plain; charset=UTF-8", "Plural-Forms: nplurals=2; plural=(n != 1);")
WHOLE += "".join(
    message(text.format(*variables), flags, plural and plural.format(*variables), 2)
    for text, plural in (
        ("the {} theme inherits from the {} theme, 5{} of it\\n", None),
        ("{}{} don't <b>copy {}</b>", None),
        ("copy {} of {}", "copy all {} files of {}, {}"),
    )
    for flags, variables in {
        "c-format": ("%s", "%d", "%%"),
        "c-format, no-wrap": ("%2$s", "%1$<PRIu64>", "%%"),
        "python-format": ("%(n)d", "%(m)s", "%%"),
        "python-brace-format": ("{n}", "{m:>5}", "{{"),
        "objc-format": ("%@", "%ld", "%%"),
        "qt-format": ("%1", "%2", "%"),
        "java-format": ("{0}", "{1,number}", "''"),
    }.items()
)


@pytest.mark.parametrize("translator", [UPPER, BACKWARDS, Reorders(BACKWARDS.order, word=lambda word: f"{word}% d")])
def test_gettext_and_babel_accept_the_result(translator, tmp_path):
    left, path = [], tmp_path / "a.po"
    path.write_text(translated(translator, WHOLE, on_left=left.append), encoding="utf-8")
    with path.open("rb") as file:
        messages = [each for each in read_po(file) if each.id]
    done = [each for each in messages if each.string and each.string != ("", "")]
    assert len(messages) == 21 and len(done) >= 8 and (len(done) == 21) == (not left)
    if shutil.which("msgfmt"):
        checked = subprocess.run(["msgfmt", "-c", "-o", tmp_path / "a.mo", path], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
