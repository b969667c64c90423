"""HTML and fragments of XHTML: blocks are translated, with their inline tags inside.

The parser of the standard library gives the places of all tags, so the rest of the document stays as it is.
"""

import collections
import html
import itertools
import re
from html.parser import HTMLParser
from typing import NamedTuple

from keras_transformer.tools.documents.code import between_statements, divided, find_code, hidden
from keras_transformer.tools.documents.declared import direction_of, is_same_language
from keras_transformer.tools.documents.fragment import (
    ATTRIBUTE,
    CLOSE,
    EMPTY,
    INLINE,
    OPAQUE_INLINE,
    OPEN,
    RAISED,
    SIGN,
    UNQUOTED,
    VOID,
    Mark,
    closings,
    is_marked,
    stays,
)
from keras_transformer.tools.documents.messages import Syntax
from keras_transformer.tools.documents.units import Unit, joined

# Attributes that a reader sees: of every tag, of some tags, and those of `meta` by its name.
SEEN = set("alt title placeholder aria-label aria-description aria-placeholder aria-roledescription".split())
SEEN_OF = {"optgroup": {"label"}, "option": {"label"}, "track": {"label"}}
BUTTONS = {"submit", "button", "reset"}  # types of `input` that show their value
META = set("description og:title og:description og:image:alt twitter:title twitter:description".split())
SPACE_ENTITY = re.compile(r"&(?:#0*(?:9|1[0-3]|32)|#[xX]0*(?:[9a-dA-D]|20)|Tab|NewLine);")

IN_TEXT, IN_ATTRIBUTE = Syntax(escape=lambda text: html.escape(text, quote=False)), Syntax(escape=html.escape)


class _Events(HTMLParser):
    """Tags and texts with their places: a list of (kind, name, attributes, start)."""

    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.lines = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]
        self.found = []
        self.feed(text)
        self.close()

    def note(self, kind, name="", attributes=()):
        line, column = self.getpos()
        self.found.append((kind, name, dict(attributes), self.lines[line - 1] + column))

    def handle_starttag(self, tag, attrs):
        self.note(EMPTY if tag in VOID else OPEN, tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.note(EMPTY, tag, attrs)

    def handle_endtag(self, tag):
        before = self.found[-1][1] if self.found else None
        if tag not in VOID or tag != before:  # <img></img> is one tag
            self.note(CLOSE, tag)

    def handle_data(self, data):
        self.note("text")

    handle_entityref = handle_charref = handle_data

    def handle_comment(self, data):
        self.note("comment")

    def handle_decl(self, decl):
        self.note("declaration")

    handle_pi = unknown_decl = handle_decl

    def parse_html_declaration(self, i):
        try:
            return super().parse_html_declaration(i)
        except AssertionError:  # the standard library about "<![x"
            return self.parse_bogus_comment(i)


class _Event(NamedTuple):
    """A tag, a text, code, or an element that stays.

    Args:
        kind: OPEN, EMPTY or CLOSE for a tag; "text", "code", "comment", "declaration", and "opaque" for an element.
        name: str, of the tag. "statement" is the name of code that divides text.
        attributes: dict.
        start, end: its place.
        tag_end: the end of the tag; of an element, that of its opening tag.
        divides: bool, whether it is the border of a block.
    """

    kind: int | str
    name: str
    attributes: dict
    start: int
    end: int
    tag_end: int
    divides: bool


def _events(text, code):
    """The events of a document. Content that stays, with its tags and texts, is one event, "opaque"."""
    found = _Events(hidden(text, code, "x")).found
    starts = [*(start for *_, start in found), len(text)]
    events = list(_with_code([(*event, end) for event, end in zip(found, starts[1:], strict=True)], code))
    place, is_in_text, partners = 0, False, closings(events)
    while place < len(events):
        kind, name, attributes, start, end = events[place]
        is_attached = name in RAISED and is_in_text and not text[start - 1].isspace()
        is_in_text = not _divides(kind, name) and kind != EMPTY and (is_in_text or kind == "text")
        if kind in (OPEN, EMPTY) and (is_attached or stays(name, attributes)):
            last = partners.get(place) or _last(events, place) if kind == OPEN else place
            seen = {} if is_marked(attributes) else attributes
            yield _Event("opaque", name, seen, start, events[last][4], end, name not in INLINE | OPAQUE_INLINE)
            place = last
        else:
            yield _Event(kind, name, attributes, start, end, end, _divides(kind, name))
        place += 1


def _with_code(events, code):
    """The events, where code in a text is an event of its own: (kind, name, attributes, start, end)."""
    waiting, last = collections.deque(code), 0
    for kind, name, attributes, start, end in events:
        start = max(start, last)
        while waiting and waiting[0].start < end:
            span = waiting.popleft()
            if kind == "text":
                yield kind, name, attributes, start, span.start
                yield "code", "statement" if span.is_statement else "", {}, span.start, span.end
                start = last = span.end
        if start < end:
            yield kind, name, attributes, start, end


def _last(events, place):
    """The place of the last event of an element without a closing tag: the one before the next block."""
    following = range(place + 1, len(events))
    return next((at for at in following if _divides(*events[at][:2])), len(events)) - 1


def _divides(kind, name):
    """Whether an event is the border of a block."""
    if kind == "code":
        return name == "statement"
    return kind not in ("text", "comment") and name not in INLINE


def in_language(text, path, language):
    """A page whose element `html` has a language, and its direction, in place of those that it declares."""
    if not language:
        return text
    code = find_code(text)
    seen, pieces, last = hidden(text, code), [], 0
    for event in _events(text, code):
        if event.name == "html" and event.kind in (OPEN, EMPTY):
            for start, end, new in _declarations(seen, event, language):
                pieces += [text[last:start], new]
                last = end
    return "".join([*pieces, text[last:]])


def _declarations(seen, event, language):
    """Yields what changes in a tag: (start, end, new text). A value that code writes stays: a program decides it."""
    direction, names = direction_of(language), set()
    for match in ATTRIBUTE.finditer(seen, event.start + 1, event.tag_end):
        name, value = match[1].lower(), match[match.lastindex]
        names.add(name)
        is_other = name == "dir" or (name in ("lang", "xml:lang") and not is_same_language(value, language))
        if is_other and SIGN not in value:
            yield *match.span(match.lastindex), direction if name == "dir" else language
    if direction == "rtl" and "dir" not in names:
        end = event.tag_end - len("/>" if seen[event.tag_end - 2] == "/" else ">")
        yield end, end, ' dir="rtl"'


def find_attributes(text):
    """The units of the attributes that a reader sees, such as alt, title, the words of buttons and the description."""
    code, units = find_code(text), []
    seen = hidden(text, code)
    for event in _events(text, code):
        if not event.attributes:
            continue
        for match in ATTRIBUTE.finditer(seen, event.start + 1, event.tag_end):
            if _is_seen(event, match[1].lower()):
                written = _written_attribute if match.lastindex < UNQUOTED else _quoted
                for start, end in between_statements(*match.span(match.lastindex), code):
                    parts = divided(text, start, end, code, html.unescape)
                    units.append(Unit(start, end, parts, written, syntax=IN_ATTRIBUTE))
    return units


def _is_seen(event, name):
    """Whether a reader sees the attribute of this name, of a tag."""
    if name == "value":
        return event.name == "input" and (event.attributes.get("type") or "").lower() in BUTTONS
    if name == "content":
        named = (event.attributes.get(key) or "" for key in ("name", "property"))
        return event.name == "meta" and any(key.lower() in META for key in named)
    return name in SEEN or name in SEEN_OF.get(event.name, ())


def find_blocks(text):
    """The units of the text: everything between the borders of two blocks."""
    units, block, end = [], [], len(text)
    for event in [*_events(text, find_code(text)), _Event("declaration", "", {}, end, end, end, True)]:
        if not event.divides:
            block.append(event)
            continue
        if any(event.kind == "text" and text[event.start : event.end].strip() for event in block):
            units.append(Unit(block[0].start, block[-1].end, _parts(text, block), _written, syntax=IN_TEXT))
        block = []
    return units


def _parts(text, block):
    parts, raw = [], ""
    for event in block:
        if event.kind == "text":
            raw += text[event.start : event.end]
            continue
        parts += [_read(raw)] if raw else []
        raw = ""
        kind = event.kind if event.kind in (OPEN, CLOSE) else EMPTY
        parts.append(Mark(text[event.start : event.end], kind, event.name, event.name == "br"))
    return [*parts, _read(raw)] if raw else parts


def _read(raw):
    """Text without entities. One of white space is a space, as in a browser: it begins no line."""
    return html.unescape(SPACE_ENTITY.sub(" ", raw))


def _written(parts):
    return joined(parts, lambda text: html.escape(text, quote=False))


def _written_attribute(parts):
    return joined(parts, html.escape)


def _quoted(parts):
    return f'"{_written_attribute(parts)}"'
