"""HTML and fragments of XHTML: blocks are translated, with their inline tags inside.

The parser of the standard library gives the places of all tags, so the rest of the document stays as it is.
"""

import html
import itertools
import re
from html.parser import HTMLParser

from keras_transformer.tools.documents.fragment import CLOSE, EMPTY, OPEN, VOID, Mark
from keras_transformer.tools.documents.messages import Syntax
from keras_transformer.tools.documents.units import Unit, joined

INLINE = set(
    "a abbr acronym b bdi bdo big br cite data del dfn em font i img input ins label mark q rp rt ruby s small span "
    "strike strong sub sup time tt u wbr".split()
)
OPAQUE_INLINE = set("code kbd samp var svg math canvas".split())  # inline, with content that stays
OPAQUE = OPAQUE_INLINE | set("script style pre template textarea iframe object noembed".split())
ATTRIBUTE = re.compile(r"""(?is)\s(?:alt|title|placeholder|aria-label)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
DESCRIPTION = re.compile(r"""(?is)\scontent\s*=\s*(?:"([^"]*)"|'([^']*)')""")
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


def _events(text):
    """Dictionaries of the tags and texts. Content that stays, with its tags and texts, is one event, "opaque"."""
    found = _Events(text).found
    starts = [*(start for *_, start in found), len(text)]
    events = [(*event, end) for event, end in zip(found, starts[1:], strict=True)]
    place = 0
    while place < len(events):
        kind, name, attributes, start, end = events[place]
        if kind in (OPEN, EMPTY) and _stays(name, attributes):
            last = _closing(events, place) if kind == OPEN else place
            is_inline = name in INLINE | OPAQUE_INLINE
            yield "opaque", name if is_inline else "block", {}, start, events[last][4]
            place = last
        else:
            yield events[place]
        place += 1


def _stays(name, attributes):
    classes = (attributes.get("class") or "").split()
    return name in OPAQUE or (attributes.get("translate") or "").lower() == "no" or "notranslate" in classes


def _closing(events, place):
    """The place of the closing tag of an element; without one, the place before the next block."""
    name, depth = events[place][1], 0
    for at, (kind, other, *_) in enumerate(events[place:], place):
        depth += {OPEN: 1, CLOSE: -1}.get(kind, 0) if other == name else 0
        if depth == 0 and kind == CLOSE and other == name:
            return at
    blocks = (at for at, event in enumerate(events[place + 1 :], place) if _divides(event[0], event[1]))
    return next(blocks, len(events) - 1)


def _divides(kind, name):
    """Whether an event is the border of a block."""
    if kind in ("text", "comment"):
        return False
    return name == "block" if kind == "opaque" else name not in INLINE


def find_attributes(text):
    """The units of the attributes that a reader sees: alt, title, placeholder, aria-label, and the description."""
    units = []
    for kind, name, attributes, start, end in _events(text):
        if kind not in (OPEN, EMPTY):
            continue
        is_description = name == "meta" and (attributes.get("name") or "").lower() == "description"
        for match in (DESCRIPTION if is_description else ATTRIBUTE).finditer(text, start, end):
            begin, stop = match.span(1) if match[1] is not None else match.span(2)
            if stop > begin:
                units.append(
                    Unit(begin, stop, [html.unescape(text[begin:stop])], _written_attribute, syntax=IN_ATTRIBUTE)
                )
    return units


def find_blocks(text):
    """The units of the text: everything between the borders of two blocks."""
    units, block = [], []
    for event in [*_events(text), ("declaration", "", {}, len(text), len(text))]:
        if not _divides(event[0], event[1]):
            block.append(event)
            continue
        if any(kind == "text" and text[start:end].strip() for kind, _, _, start, end in block):
            units.append(Unit(block[0][3], block[-1][4], _parts(text, block), _written, syntax=IN_TEXT))
        block = []
    return units


def _parts(text, block):
    parts, raw = [], ""
    for kind, name, _, start, end in block:
        if kind == "text":
            raw += text[start:end]
            continue
        parts += [_read(raw)] if raw else []
        raw = ""
        parts.append(Mark(text[start:end], kind if kind in (OPEN, CLOSE) else EMPTY, name, name == "br"))
    return [*parts, _read(raw)] if raw else parts


def _read(raw):
    """Text without entities. One of white space is a space, as in a browser: it begins no line."""
    return html.unescape(SPACE_ENTITY.sub(" ", raw))


def _written(parts):
    return joined(parts, lambda text: html.escape(text, quote=False))


def _written_attribute(parts):
    return joined(parts, html.escape)
