"""Plain text and gettext catalogues (.po): text between lines that stay."""

import re

from babel.messages.pofile import denormalize, escape

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import parts_of
from keras_transformer.tools.documents.units import Unit, joined

LINE = re.compile(r"[^\r\n]+")

# An entry of a catalogue: keywords, each with strings on one or more lines.
KEYWORD = re.compile(
    r'^[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*((?:"(?:[^"\\\r\n]|\\.)*"\s*)+)', re.MULTILINE
)
OTHER = re.compile(r"^[ \t]*(?!#|msg|\")\S.*|^[ \t]*(?:msg\S*|\").*$", re.MULTILINE)
# Tags, and the variables of C, Python and JavaScript: %s, %(name)d, {name}, {0:.2f}, ${name}.
VARIABLE = re.compile(
    r"</?[A-Za-z][^<>]*>|%(?:\(\w+\))?[-+#0]*[\d.*]*(?:\d+\$)?(?:hh?|ll?|[zjtL])?[a-zA-Z%]|\$?\{[^{}\s]*\}"
)


def find_lines(text):
    """The units of plain text, a line each."""
    return [Unit(*match.span(), [match[0]], joined) for match in LINE.finditer(text) if match[0].strip()]


def find_messages(text, path):
    """The units of a catalogue: each message without a translation. Variables such as %s are tags.

    Raises:
        UserError: for a line that belongs to no message, with its number.
    """
    units, message, plural, last = [], "", "", 0
    for match in KEYWORD.finditer(text):
        _check_between(text, last, match.start(), path)
        last = match.end()
        strings = match[2].split("\n")
        value = denormalize("\n".join(line.strip() for line in strings if line.strip()))
        if match[1] == "msgid":
            message, plural = value, ""
        elif match[1] == "msgid_plural":
            plural = value
        elif match[1].startswith("msgstr") and message and not value:
            source = message if match[1] in ("msgstr", "msgstr[0]") else plural
            end = match.start(2) + len(match[2].rstrip())
            units.append(Unit(match.start(2), end, parts_of(source, VARIABLE), _written_string, is_apart=True))
    _check_between(text, last, len(text), path)
    return units


def _check_between(text, start, end, path):
    """Raises UserError for a line between two strings that is neither blank nor a comment."""
    wrong = OTHER.search(text, start, end)
    if wrong:
        line = text.count("\n", 0, wrong.start()) + 1
        raise UserError(f"{path} is no gettext catalogue: line {line} belongs to no message: {wrong[0].strip()[:60]}")


def _written_string(parts):
    text = joined(parts)
    if "\n" not in text.rstrip("\n"):
        return escape(text)
    return "\n".join(['""', *(escape(line) for line in text.splitlines(keepends=True))])
