"""Plain text and subtitles (.srt): text between lines that stay."""

import re

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import parts_of
from keras_transformer.tools.documents.line_breaks import apart
from keras_transformer.tools.documents.units import Unit, joined

LINE = re.compile(r"[^\r\n]+")
TIMES = re.compile(r"^[ \t]*\d+:\d\d:\d\d[,.]\d+[ \t]*-->[^\r\n]*(?:\r\n|\r|\n)?", re.MULTILINE)
NEXT_TIMES = re.compile(r"^(?:[ \t]*\d+[ \t]*[\r\n]+)?[ \t]*\d+:\d\d:\d\d[,.]\d+[ \t]*-->", re.MULTILINE)
BLANK_LINE = re.compile(r"(?:\r\n|\n|\r(?!\n))[ \t]*(?=[\r\n]|\Z)|\Z")
SUBTITLE_TAG = re.compile(r"</?[A-Za-z][^<>]*>|\{\\[^{}]*\}")
SPEAKER = re.compile(r"[ \t]*[-–—]")


def find_lines(text):
    """The units of plain text, a line each."""
    return [Unit(*match.span(), [match[0]], joined) for match in LINE.finditer(text) if match[0].strip()]


def find_subtitles(text, path):
    """The units of subtitles: the text of each, with line breaks as tags. Dialogue is divided at each speaker.

    Raises:
        UserError: if the document has no times.
    """
    units = []
    for times in TIMES.finditer(text):
        end = BLANK_LINE.search(text, times.end()).start()
        following = NEXT_TIMES.search(text, times.end(), end)  # without a blank line before it, or after an empty text
        end = following.start() if following else end
        lines = [match.span() for match in LINE.finditer(text, times.end(), end)]
        if lines and not all(SPEAKER.match(text, *line) for line in lines):
            lines = [(lines[0][0], lines[-1][1])]
        for start, stop in lines:
            start += len(match[0]) if (match := SPEAKER.match(text, start, stop)) else 0
            if text[start:stop].strip():
                units.append(Unit(start, stop, parts_of(text[start:stop], SUBTITLE_TAG), _written_subtitle))
    if not units and text.strip():
        raise UserError(f"{path} has no subtitles: a line such as 00:00:01,000 --> 00:00:02,500 comes before each")
    return units


def _written_subtitle(parts):
    """A blank line would end the subtitle."""
    return joined(apart(parts))
