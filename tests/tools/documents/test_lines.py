import pytest

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.files import translate_bytes
from tests.tools.documents.fake import SAME, UPPER

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


def test_lines_are_translated_and_blank_ones_stay():
    text = b"one  two\n\n \ttwo \r\nthree"
    assert translate_bytes(UPPER, text, "lines") == b"ONE  TWO\n\n \tTWO \r\nTHREE"
    assert translate_bytes(SAME, text, "lines") == text


def test_variables_of_a_format_are_tags():
    text = 'msgid "a {b.c} {0:.2f} ${d}"\nmsgstr ""\n'
    assert b'msgstr "A {b.c} {0:.2f} ${d}"' in translate_bytes(UPPER, text.encode(), "po")


def empty(catalogue):
    """The catalogue without the translations that are upper-cased sources."""
    lines = [line for line in catalogue.split("\n") if not line.startswith(('"TWO', '"OF'))]
    return "\n".join(
        line.split('"')[0] + '""'
        if line.startswith("msgstr")
        and line.upper()
        == line.replace("msgstr", "MSGSTR")
        .replace("%s", "%S")
        .replace("{count}", "{COUNT}")
        .replace("<b>", "<B>")
        .replace("</b>", "</B>")
        .replace("\\n", "\\N")
        .replace("%(n)d", "%(N)D")
        else line
        for line in lines
    )


def test_messages_without_translation_get_one_with_their_variables():
    assert 'msgstr ""\n\n#~' in empty(CATALOGUE) and 'msgstr[1] ""' in empty(CATALOGUE)
    assert translate_bytes(UPPER, empty(CATALOGUE).encode(), "po").decode() == CATALOGUE


def test_translations_of_people_stay_to_the_byte():
    assert translate_bytes(SAME, CATALOGUE.encode(), "po") == CATALOGUE.encode()


@pytest.mark.parametrize("line", ["hello", 'msgid no quote"', 'msgid "open'])
def test_a_line_that_belongs_to_no_message_is_named(line):
    with pytest.raises(UserError, match="a.po is no gettext catalogue: line 3 belongs to no message"):
        translate_bytes(SAME, f'msgid ""\nmsgstr "x"\n{line}\n'.encode(), "po", "a.po")
