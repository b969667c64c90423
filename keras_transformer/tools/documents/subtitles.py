"""Plain text, line by line; and subtitles: SubRip (.srt), WebVTT (.vtt) and SubStation Alpha (.ass, .ssa)."""

import functools
import html
import re
from dataclasses import replace

from keras_transformer.errors import UserError
from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, Mark, parts_of
from keras_transformer.tools.documents.line_breaks import LINE_BREAK, apart
from keras_transformer.tools.documents.units import Unit, joined

LINE = re.compile(r"[^\r\n]+")
TIMES = re.compile(r"^[ \t]*\d+:\d\d:\d\d[,.]\d+[ \t]*-->[^\r\n]*(?:\r\n|\r|\n)?", re.MULTILINE)
NEXT_TIMES = re.compile(r"^(?:[ \t]*\d+[ \t]*[\r\n]+)?[ \t]*\d+:\d\d:\d\d[,.]\d+[ \t]*-->", re.MULTILINE)
SUBTITLE_TAG = re.compile(r"</?[A-Za-z][^<>]*>|\{\\[^{}]*\}")
SPEAKER = re.compile(r"[ \t]*[-–—]")

# WebVTT: blocks between blank lines. A cue is a name, which may be missing, times and text.
VTT_BLOCK = re.compile(r"(?:[^\r\n]+(?:\r\n|\r|\n|\Z))+")
VTT_CUE = re.compile(
    r"(?!(?:NOTE|STYLE|REGION)(?:[ \t\r\n]|\Z))(?:[^\r\n]*[\r\n]+)?[ \t]*[\d:.]+[ \t]+-->[^\r\n]*[\r\n]*"
)
VTT_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>")
VOICE = re.compile(r"[ \t]*<v[ \t.]")

# SubStation Alpha: the text of a dialogue is its last field. {\i1} begins italics, {\p1} a drawing, \N a line.
ASS_SECTION = re.compile(r"[ \t]*\[(.+)\]")
ASS_FIELDS = re.compile(r"[ \t]*Format[ \t]*:(.*)", re.IGNORECASE)
ASS_MARK = re.compile(r"\{[^{}]*\\p[1-9][^{}]*\}.*?(?:\{[^{}]*\\p0[^{}]*\}|\Z)|\{[^{}]*\}|\\[Nnh]")
ASS_PAIR = re.compile(r"\{\\([ibus])([01])\}")
ASS_FIELDS_BY_DEFAULT = 10


def find_lines(text):
    """The units of plain text, a line each."""
    return [Unit(*match.span(), [match[0]], joined) for match in LINE.finditer(text) if match[0].strip()]


def find_subtitles(text, path):
    """The units of SubRip: the text of each subtitle, with line breaks as tags. Dialogue is divided at each speaker.

    A subtitle ends where the next one begins. A blank line inside it divides its text, and stays.

    Raises:
        UserError: if the document has no times.
    """
    units = []
    for times in TIMES.finditer(text):
        following = NEXT_TIMES.search(text, times.end())
        for lines in _paragraphs(text, times.end(), following.start() if following else len(text)):
            units += _units(text, lines, functools.partial(_parts, SUBTITLE_TAG, str), _written)
    if not units and text.strip():
        raise UserError(f"{path} has no subtitles: a line such as 00:00:01,000 --> 00:00:02,500 comes before each")
    return units


def find_cues(text, path):
    """The units of WebVTT: the text of each cue. Its name, its times, its settings, notes and styles stay.

    Raises:
        UserError: if the document does not begin with WEBVTT.
    """
    if not re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", text):
        raise UserError(
            f"{path} is no WebVTT: its first line must begin with WEBVTT. Received: {text[:40].split(chr(10))[0]!r}"
        )
    units = []
    for block in VTT_BLOCK.finditer(text):
        cue = VTT_CUE.match(block[0])
        for lines in _paragraphs(text, block.start() + cue.end(), block.end()) if cue else ():
            read = functools.partial(_parts, VTT_TAG, html.unescape)
            units += _units(text, lines, read, functools.partial(_written, escape=_escaped))
    return units


def find_dialogue(text, path):
    """The units of SubStation Alpha: the text of each dialogue. Comments, styles and drawings stay.

    Raises:
        UserError: if the document has no dialogue.
    """
    units, section, fields = [], "", ASS_FIELDS_BY_DEFAULT
    for line in LINE.finditer(text):
        if match := ASS_SECTION.match(line[0]):
            section = match[1].lower()
        elif match := ASS_FIELDS.match(line[0]):
            fields = match[1].count(",") + 1
        elif match := re.match(rf"(?i)[ \t]*Dialogue[ \t]*:(?:[^,]*,){{{fields - 1}}}", line[0]):
            start = line.start() + match.end()
            if section == "events" and text[start : line.end()].strip():
                units.append(
                    Unit(start, line.end(), list(_dialogue_parts(text[start : line.end()])), _written_dialogue)
                )
    if not units and text.strip():
        raise UserError(f"{path} has no subtitles: each needs a line that begins with `Dialogue:` below [Events]")
    return units


def _paragraphs(text, start, end):
    """The lines between two places of a text, divided at blank ones: lists of (start, end)."""
    paragraphs, last = [], None
    for match in LINE.finditer(text, start, end):
        if not match[0].strip():
            continue
        if last is None or not LINE_BREAK.fullmatch(text, last, match.start()):
            paragraphs.append([])
        paragraphs[-1].append(match.span())
        last = match.end()
    return paragraphs


def _units(text, lines, read, written):
    """The units of the lines of a subtitle: one, or one for each speaker."""
    if not all(SPEAKER.match(text, *line) for line in lines):
        voices = [0, *(i for i, line in enumerate(lines) if i and VOICE.match(text, *line)), len(lines)]
        lines = [(lines[first][0], lines[last - 1][1]) for first, last in zip(voices, voices[1:], strict=False)]
    for start, end in lines:
        start += len(match[0]) if (match := SPEAKER.match(text, start, end)) else 0
        if text[start:end].strip():
            yield Unit(start, end, read(text[start:end]), written)


def _parts(pattern, unescape, text):
    """The parts of a text. A tag without a partner, such as a time of karaoke, stays after those before it."""
    return [
        unescape(part) if isinstance(part, str) else replace(part, is_ordered=part.kind == EMPTY and not part.breaks)
        for part in parts_of(text, pattern)
    ]


def _written(parts, escape=str):
    """A blank line would end the subtitle."""
    return joined(apart(parts), escape)


def _escaped(text):
    return html.escape(text, quote=False)


def _dialogue_parts(text):
    end = 0
    for match in ASS_MARK.finditer(text):
        yield text[end : match.start()]
        pair = ASS_PAIR.fullmatch(match[0])
        if pair:
            yield Mark(match[0], OPEN if pair[2] == "1" else CLOSE, pair[1])
        elif match[0].startswith("\\"):
            yield Mark(match[0], EMPTY, "" if match[0] == "\\h" else "br", True)
        else:
            yield Mark(match[0], is_ordered=True)
        end = match.end()
    yield text[end:]


def _written_dialogue(parts):
    """A brace of the translation would begin marks, and a line break would end the dialogue."""
    return joined(parts, lambda text: re.sub(r"[{}]", r"\\\g<0>", LINE_BREAK.sub(" ", text)))
