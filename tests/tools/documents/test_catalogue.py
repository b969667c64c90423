import re
import shutil
import subprocess

import pytest
from babel.messages.checkers import python_format
from babel.messages.pofile import read_po

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import BACKWARDS, SAME, UPPER, WordByWord, backwards, source_of

CATALOGUE = r"""# a comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

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


def empty(catalogue):
    """The catalogue without the translations that are upper-cased sources."""
    catalogue = re.sub(r'(?m)^"(TWO|OF) .*\n', "", catalogue)
    return re.sub(r'(?m)^(msgstr(?:\[\d\])?) ".*(?:FILE).*"$', r'\1 ""', catalogue)


def test_messages_without_translation_get_one_and_those_of_people_stay_to_the_byte():
    assert 'msgstr ""\n\n#~' in empty(CATALOGUE) and 'msgstr[1] ""' in empty(CATALOGUE)
    assert translate_bytes(UPPER, empty(CATALOGUE).encode(), "po").decode() == CATALOGUE
    assert translate_bytes(SAME, CATALOGUE.encode(), "po") == CATALOGUE.encode()


@pytest.mark.parametrize("line", ["hello", 'msgid no quote"', 'msgid "open'])
def test_a_line_that_belongs_to_no_message_is_named(line):
    with pytest.raises(UserError, match="a.po is no gettext catalogue: line 3 belongs to no message"):
        translate_bytes(SAME, f'msgid ""\nmsgstr "x"\n{line}\n'.encode(), "po", "a.po")


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


def translated(translator, text, **how):
    return translate_bytes(translator, text.encode(), "po", **how).decode()


@pytest.mark.parametrize(
    ("flags", "upper"),
    [
        ("c-format", "SEE 50%% OF %d, %1$s OR % d"),
        ("c-format", "SEE %'d OF %-5<PRIu64> AND %*.*f"),
        ("c-format", "JUST 50 %, OF"),  # breaks the rules, so the sign is text
        ("python-format", "%(a b)d OF 5%%"),
        ("python-brace-format", "ONE {a!r:>{w}} {{TWO}}"),
        ("python-brace-format", "100 % DER {n}"),
        ("kde-format", "%1 OF 100 % DOGS AND % DD"),
        ("qt-format", "%1 OF %L2 AND %10"),
        ("qt-plural-format", "%n FILE"),
        ("objc-format", "%@ OF %2$@"),
        ("boost-format", "%1% OF %|2$d|"),
        ("java-format", "IT''SS {0} OF '{x}' AND {1,number,integer}"),
        ("csharp-format", "AA {0:N2} OF {{BB}}"),
        ("perl-brace-format", "AA {count} OF"),
        ("object-pascal-format", "%0:d OF %1:s"),
        ("ruby-format", "%<a>d OF %{b}"),
        ("lisp-format", "~5D OF ~a"),
        ("sh-format", "$a OF ${b}"),
        ("no-c-format", "ONLY %SS OF"),
        ("no-python-brace-format", "AA {BB} OF"),
        ("", "100 % DER %d"),
    ],
)
def test_flags_choose_the_variables(flags, upper):
    text = header("Language: de") + message(source_of(upper), flags)
    assert strings_of(translated(UPPER, text)) == [upper]


def test_a_variable_may_stand_in_a_word_as_gettext_reads_it():
    assert '"SEE 100 %dER"' in translated(UPPER, header("Language: de") + message("see 100 %der", "fuzzy, c-format"))


SLAVIC = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"


@pytest.mark.parametrize(
    ("forms", "singular", "upper"),
    [
        ("nplurals=2; plural=(n != 1);", "one file", ["ONE FILE", "%d FILES"]),
        ("nplurals=2; plural=(n > 1);", "one file", ["ONE FILE", "%d FILES"]),
        (f"nplurals=3; plural=({SLAVIC});", "one file", ["%d FILES"] * 3),  # the first is for 21, too
        (f"nplurals=3; plural=({SLAVIC});", "%d file", ["%d FILE", "%d FILES", "%d FILES"]),
        ("nplurals=1; plural=0;", "%d file", ["%d FILES"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", "one file", ["%d FILES", "ONE FILE", "%d FILES"]),
        ("nplurals=INTEGER; plural=EXPRESSION;", "one file", ["ONE FILE", "%d FILES"]),
    ],
)
def test_each_form_is_translated_from_the_text_for_its_numbers(forms, singular, upper):
    for number in {len(upper), 2}:  # a catalogue with too few forms or too many gets as many as its header says
        text = header(f"Plural-Forms: {forms}") + message(singular, "c-format", "%d files", number)
        assert strings_of(translated(UPPER, text)) == upper


def test_forms_are_written_together_or_not_at_all():
    class Losing(WordByWord):
        def translate(self, texts, on_progress=None):
            return ["%1" if "items" in text else text.upper() for text in texts]

    left, text = [], header("Plural-Forms: nplurals=2; plural=(n != 1);") + message("item", "qt-format", "items", 2)
    assert translated(Losing(), text, on_left=left.append) == text and left == ["item", "items"]


def test_the_header_declares_the_language_its_plural_forms_and_its_charset():
    lines = "Language: |Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;|Content-Type: text/plain; charset=CHARSET"
    text = header(*lines.split("|")) + message("one day", "", "%d days", 2)
    found = translated(UPPER, text, target_lang="ja")
    assert '"Language: ja\\n"' in found and "charset=UTF-8\\n" in found
    assert "nplurals=1; plural=0;" in found and strings_of(found) == ["%d DAYS"]
    found = translated(UPPER, text, target_lang="pl")
    assert '"Language: pl\\n"' in found and "nplurals=3; " in found and len(strings_of(found)) == 3
    assert '"Language: pt_BR\\n"' in translated(SAME, header("X: y"), target_lang="pt-BR")
    same = header("Language: de_AT")
    assert translated(SAME, same, target_lang="de") == same  # a kind of German
    assert translated(SAME, same) == same
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


@pytest.mark.parametrize("translator", [SAME, UPPER, BACKWARDS, backwards(lambda word: f"{word}% d")])
def test_gettext_and_babel_accept_the_result(translator, tmp_path):
    left, path = [], tmp_path / "a.po"
    path.write_text(translated(translator, WHOLE, on_left=left.append), encoding="utf-8")
    with path.open("rb") as file:
        messages = [each for each in read_po(file) if each.id]
    for each in messages:
        if "%(" in str(each.id) and each.string:
            python_format(None, each)  # raises TranslationError
    done = [each for each in messages if each.string and each.string != ("", "")]
    assert len(messages) == 21 and len(done) >= 8
    assert (len(done) == 21) == (not left)
    if shutil.which("msgfmt"):
        checked = subprocess.run(["msgfmt", "-c", "-o", tmp_path / "a.mo", path], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
