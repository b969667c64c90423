"""Plain text: lines between line breaks that stay."""

import re

from keras_transformer.tools.documents.units import Unit, joined

LINE = re.compile(r"[^\r\n]+")


def find_lines(text):
    """The units of plain text, a line each."""
    return [Unit(*match.span(), [match[0]], joined) for match in LINE.finditer(text) if match[0].strip()]
