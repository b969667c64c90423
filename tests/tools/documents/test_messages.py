import html
import re
from collections import Counter
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from babel.messages.pofile import denormalize
from babel.messages.pofile import escape as quoted

from keras_transformer.protection import Protection
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, WordByWord, source_of

# A text, and the variables of it.
TEXTS = [
    ("copy %1 of %2 files", ["%1", "%2"]),
    ("join%1%2, %L1 and %n file(s)", ["%1", "%2", "%L1", "%n"]),
    ("see %'d files, % d items and % 5.2f points", ["%'d", "% d", "% 5.2f"]),
    ("see %<PRIu64> bytes, %-5<PRId64> more, %<name>s and %<n>.2f of them", ["%<PRIu64>", "%-5<PRId64>"]),
    ("see %{count} users, #{name}, ${x} and $count of $user_name", ["%{count}", "#{name}", "${x}", "$count"]),
    ("see %@, %1$@, %2$lld, %0:d, %ld, %.2f, %*d and %-10s", ["%@", "%1$@", "%2$lld", "%0:d", "%ld", "%.2f", "%*d"]),
    ("see %(name)s's page of %(größe)d", ["%(name)s", "%(größe)d"]),
    ("see {{ n }}, {{{raw}}}, {name}, { name }, {0:.2f}, {} and {n, number, percent}", ["{{ n }}", "{{{raw}}}"]),
    ("am %Y-%m-%d um %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
]
PROSE = ["100 % der Leute", "10 % d'eau", "le % d'eau", "it is 100% sure", "%50 indirim", "$5 or US$6", "a {two words}"]


def catalogue(text, before=""):
    return f'msgid ""\nmsgstr "Language: de\\n"\n\n{before}msgid {quoted(text)}\nmsgstr ""\n'.encode()


def in_catalogue(translator, text, before="", **how):
    found = translate_bytes(translator, catalogue(text, before), "po", **how).decode()
    return denormalize(found.split("msgstr ")[-1].strip())


def in_xliff(translator, text, **how):
    unit = "<xliff><file><trans-unit><source>{}</source>{}</trans-unit></file></xliff>"
    found = translate_bytes(translator, unit.format(escape(text), "").encode(), "xliff", **how)
    return ElementTree.fromstring(found).findtext(".//target", "")


def in_html(translator, text, **how):
    found = translate_bytes(translator, f"<p>{html.escape(text, quote=False)}</p>".encode(), "html", **how).decode()
    return html.unescape(found.removeprefix("<p>").removesuffix("</p>"))


FORMATS = [in_catalogue, in_xliff, in_html]


@pytest.mark.parametrize("translated", FORMATS)
@pytest.mark.parametrize(("text", "variables"), TEXTS)
def test_variables_stay_and_words_are_translated(translated, text, variables):
    found = translated(UPPER, text)
    assert [name for name in variables if name not in found] == []
    words = re.findall(r"\b(?:see|copy|join|am|files?|items|users|page|points|of|and|more|um)\b", text)
    assert words and [word for word in words if word.upper() not in found] == []
    assert translated(SAME, text) == text
    left = []
    backwards = translated(BACKWARDS, text, on_left=left.append) or text  # moved, or left as it was
    assert Counter(re.findall(r"\S", backwards)) == Counter(re.findall(r"\S", text))
    assert [name for name in variables if name not in backwards] == []


def test_protection_keeps_the_same_variables():
    for text, variables in TEXTS:
        assert not {*variables} - {*Protection().hide(text).words}, text


@pytest.mark.parametrize("translated", FORMATS)
def test_a_percent_sign_of_prose_is_no_variable(translated):
    assert [translated(UPPER, text) for text in PROSE] == [text.upper() for text in PROSE]


@pytest.mark.parametrize("translated", FORMATS)
@pytest.mark.parametrize(
    ("text", "upper"),
    [
        (None, "{n, plural, one {# DAY} other {# DAYS}}"),
        (
            None,
            "SAVED {n, plural, offset:1 =0 {NO FILES} one {# FILE IN {dir}} other {{g, select, male {HIS # FILES} "
            "other {THEIR FILES}}}} TODAY",
        ),
        (None, "{minutes, plural, =0 {JUST NOW} other {{{minutes}} MINUTES AGO}}"),
        (
            "{n, select, one {the #st} other {a '{' and {l'{name}}}}}",
            "{n, select, one {THE #ST} other {A '{' AND {L’{name}}}}}",
        ),
        (None, "{g, select, a {ONE # TWO} other {}}"),
        ("{n, plural, one {day", "{N, PLURAL, ONE {DAY"),  # no message: text
    ],
)
def test_branches_are_translated_and_their_skeleton_stays(translated, text, upper):
    text = text or source_of(upper)
    assert translated(UPPER, text) == upper
    assert translated(SAME, text) == text


def test_a_plural_moves_as_a_word_does_and_its_branches_stay_in_their_order():
    text = "You have {n, plural, one {<b>one</b> new message} other {{n} new messages}} of yours"
    found = in_catalogue(BACKWARDS, text)
    assert found == "yours {n, plural, one {message new <b>one</b>} other {{n} messages new}} of have You"
    tagged = "a <b>{n, plural, one {x y} other {z w}}</b> b"
    assert in_catalogue(UPPER, tagged) == "A <b>{n, plural, one {X Y} other {Z W}}</b> B"


class Writing(WordByWord):
    """Writes one text for every source."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def translate(self, texts, on_progress=None):
        return [self.text] * len(texts)


@pytest.mark.parametrize(
    ("before", "text", "translation"),
    [
        ("", "a {name}", "b {other}"),
        ("", "a %s", "b $c"),
        ("#, python-brace-format\n", "a", "b {c}"),
        ("", "{n, plural, one {a} other {b}}", "c }"),
        ("", "{n, plural, one {a} other {b}}", "c # d"),
        ("#, qt-format\n", "a", "%1 b"),
    ],
)
def test_a_translation_with_other_variables_is_not_written(before, text, translation):
    left = []
    assert in_catalogue(Writing(translation), text, before, on_left=left.append) in ("", "b {{c}}")
    assert left == [text] or "brace" in before


def test_unnumbered_variables_keep_their_order_or_the_text_stays():
    left, text = [], "the {} theme inherits from the {} theme"
    for one, other in (("%s", "%d"), ("%d", "%d"), ("{}", "{}"), ("%@", "%@")):
        assert in_catalogue(BACKWARDS, text.format(one, other), on_left=left.append) == ""
    assert left == [text.format(*pair) for pair in (("%s", "%d"), ("%d", "%d"), ("{}", "{}"), ("%@", "%@"))]
    for one, other in (("%1$s", "%2$d"), ("%(a)s", "%(b)s"), ("%1", "%2"), ("{a}", "{b}")):
        assert in_catalogue(BACKWARDS, text.format(one, other)) == f"theme the {other} from inherits {one} theme the"


@pytest.mark.parametrize(
    ("flags", "one", "other", "numbered"),
    [
        ("c-format", "%s", "%d", ("%2$d", "%1$s")),
        ("c-format", "%s", "%s", ("%2$s", "%1$s")),
        ("php-format, fuzzy", "%-5s", "%.2f", ("%2$.2f", "%1$-5s")),
        ("objc-format", "%@", "%ld", ("%2$ld", "%1$@")),
        ("java-printf-format", "%d", "$name", ("$name", "%d")),
        ("c-format", "%2$s", "%1$d", ("%1$d", "%2$s")),
        ("python-format", "%s", "%d", None),  # Python has names, and no numbers
        ("c-format, python-format", "%s", "%d", None),
        ("no-c-format", "{}", "{}", None),
        ("c-format", "%*d", "%d", None),  # the width takes a value, too
        ("c-format", "%m", "%d", None),  # no value of the program's
    ],
)
def test_variables_in_another_order_get_numbers_where_the_format_has_them(flags, one, other, numbered):
    text = f"the {one} theme inherits from the {other} theme"
    expected = "theme the {} from inherits {} theme the".format(*numbered) if numbered else ""
    assert in_catalogue(BACKWARDS, text, f"#, {flags}\n") == expected


def test_a_message_of_several_blocks_gets_no_numbers():
    text = "<p>the %s theme inherits from the %d theme</p><p>and %s now</p>"
    assert in_catalogue(BACKWARDS, text, "#, c-format\n") == ""


@pytest.mark.parametrize("translated", [in_catalogue, in_xliff])
def test_escaped_markup_is_markup(translated):
    assert translated(UPPER, '<a href="a b">one</a> &lt;b&gt;two&lt;/b&gt;') == (
        '<a href="a b">ONE</a> &lt;b&gt;TWO&lt;/b&gt;'
    )
    assert translated(BACKWARDS, "<p>one two</p><p>three <br/>four</p>") == "<p>two one</p><p>four <br/>three</p>"
    assert translated(UPPER, "Terms&nbsp;&amp; &quot;uses&quot; &copy;") == "TERMS&nbsp;&amp; &quot;USES&quot; &copy;"
    assert translated(UPPER, "R&D &amp; &File") == "R&D &AMP; &FILE"  # which signs are escaped is not known
