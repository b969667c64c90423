"""Translation memories in TMX, up to version 1.4b, read in a stream: https://www.gala-global.org/tmx-14b

A file has units. A unit has one text, the segment, in each of several languages.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.words import CLOSING_SIGN

BLOCK_BYTES = 1 << 16
# Elements of a segment that hold code of another format. Text inside code, `sub`, is a text of its own, such as the
# title of a link. The text of `hi` is text of the segment.
CODE = {"bpt", "ept", "it", "ph", "ut", "sub"}
BREAKS = {"lb", "pb", "cb"}  # types of code that divides words: breaks of lines, pages and columns
PAIR = {"bpt", "ept"}  # code before and after a part of a segment, such as a word in bold
WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # of XML
# Characters that XML forbids, as bytes and as references, and the beginning of a reference.
FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:[xX]([0-9A-Fa-f]{1,12})|([0-9]{1,12}));")
BEGINNING = re.compile(rb"&[^&;<]{0,15}\Z")
WIDE = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}


class Segment(NamedTuple):
    """The text of a unit in one language.

    Args:
        language: str, its code.
        text: str, without code. White space of XML is one space.
        is_plain: bool, whether there was no code.
        changed: str, the time of its last change, such as "20260131T235959Z"; "" if it is not known.
        places: dict, (kind, name) of code -> (start, end), the characters of `text` between the two codes of a pair,
            or before any other code. White space does not count.
        asked: str, the text as a document asks for it: without a space where code stood before a sign.
        written: str, the text with the content of its codes, such as "%s"; "" without code, or if some has no content.
        codes: tuple of str, the contents in `written`, sorted.
    """

    language: str
    text: str
    is_plain: bool
    changed: str = ""
    places: dict = {}  # never changed
    asked: str = ""
    written: str = ""
    codes: tuple = ()


def read_units(path) -> Iterator[list[Segment]]:
    """Reads a translation memory. No more of it than a block is in memory at a time.

    A character that XML forbids, such as a control character of an old editor, is left out.

    Args:
        path: of the file, in UTF-8, UTF-16 or a charset of one byte a character, as it declares. With .gz at its
            end, it is packed.

    Yields:
        For each unit, a list of `Segment`.

    Raises:
        FileError: if the file cannot be read.
        UserError: if it is no TMX, if it is damaged, and if it has entities of its own; with the line.
    """
    reader = _Reader(path)
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield from reader.read(block)
            yield from reader.read(b"", is_last=True)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # what gzip says of a file that is damaged
        raise FileError(f"cannot read {path}: {error}") from error
    except OSError as error:
        raise FileError.of("read", path, error) from error


class _Reader:
    """What expat tells of a file, as units."""

    def __init__(self, path):
        self._path = path
        self._complete = []  # units
        self._unit, self._language = None, None  # that are open
        self._changed = self._unit_changed = ""  # of the text that is open, and of its unit
        self._items, self._depth = None, 0  # texts and `_Code`s of a segment that is open; code around the place
        self._is_tmx = False
        self._parser, self._decoder, self._rest = None, None, b""

    def _open(self, block):
        """Makes the parser. UTF-16 is decoded for it, so that each control character is one byte."""
        charset = WIDE.get(block[:2])
        self._decoder = codecs.getincrementaldecoder(charset)() if charset else None
        self._parser = expat.ParserCreate("utf-8" if charset else None)
        self._parser.buffer_text = True
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._parser.SkippedEntityHandler = self._refuse_entity

    def read(self, block, is_last=False):
        """list of the units that end in a block of bytes."""
        self._complete = []
        try:
            if self._parser is None:
                self._open(block)
            block = self._rest + (self._decoder.decode(block, is_last).encode() if self._decoder else block)
            rest = None if is_last else BEGINNING.search(block)
            self._rest = rest[0] if rest else b""
            self._parser.Parse(FORBIDDEN.sub(_allowed, block.removesuffix(self._rest)), is_last)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise UserError(
                f"{self._path} is not well-formed XML: line {error.lineno}, column {error.offset + 1}: {reason}"
            ) from None
        except UserError:
            raise
        except (LookupError, ValueError) as error:  # what Python says of a charset
            raise UserError(f"{self._path} is in a charset that cannot be read: {error}. Save it as UTF-8") from None
        return self._complete

    def _start(self, name, attributes):
        name = name.rpartition(":")[2]
        if not self._is_tmx and name != "tmx":
            raise UserError(f"{self._path} is no TMX: its first element is `{name}`, not `tmx`")
        self._is_tmx = True
        if name == "tu":
            self._unit, self._unit_changed = [], _time_of(attributes)
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang")
            self._changed = _time_of(attributes) or self._unit_changed
        elif name == "seg":
            self._items, self._depth = [], 0
        elif name in CODE:
            self._depth += 1
            if self._items is not None and self._depth == 1:
                self._items.append(_Code(name, attributes, []))

    def _end(self, name):
        name = name.rpartition(":")[2]
        if name == "tu" and self._unit is not None:
            self._complete.append(self._unit)
            self._unit = None
        elif name == "seg":
            if self._unit is not None and self._language:
                self._unit.append(_segment(self._language, self._items, self._changed))
            self._items = None
        elif name in CODE:
            self._depth -= 1

    def _characters(self, text):
        if self._items is not None and self._depth == 0:
            self._items.append(text)
        elif self._items and self._depth == 1:
            self._items[-1].content.append(text)

    def _refuse_entity(self, name, *_):
        line = self._parser.CurrentLineNumber
        raise UserError(f"{self._path} has an entity of its own in line {line}, which is not read: {name}")


class _Code(NamedTuple):
    """Code inside a segment.

    Args:
        kind: str, the name of its element.
        attributes: dict.
        content: list of str.
    """

    kind: str
    attributes: dict
    content: list


def _segment(language, items, changed):
    """The `Segment` of texts and `_Code`s."""
    text, places, open_ones, spaces, last = "", {}, {}, [], None
    codes = [item for item in items if isinstance(item, _Code)]
    for item in items:
        if not isinstance(item, _Code):
            if last and last.kind not in PAIR and text.endswith(" ") and CLOSING_SIGN.match(item):
                spaces.append(len(text) - 1)
            text = _added(text, item)
        elif item.kind == "bpt":
            open_ones[item.attributes.get("i")] = item, _length(text)
        elif item.kind == "ept":
            first, start = open_ones.pop(item.attributes.get("i"), (item, None))
            if start is not None:
                places["pair", first.attributes.get("x", first.attributes.get("i"))] = start, _length(text)
        else:
            text = _added(text, " " if item.attributes.get("type") in BREAKS else "")
            places["place", item.attributes.get("x", len(places))] = 0, _length(text)
        last = item if isinstance(item, _Code) else None
    contents = ["".join(code.content) for code in codes]
    written = ""
    if all(contents):
        for item in items if codes else ():
            written = _added(written, "".join(item.content) if isinstance(item, _Code) else item)
    text, written = text.rstrip(" "), written.rstrip(" ")
    asked = "".join(sign for place, sign in enumerate(text) if place not in spaces)
    return Segment(language, text, not codes, changed, places, asked, written, tuple(sorted(contents)))


def _length(text):
    return len("".join(text.split()))


def _added(text, more):
    """A text and more of it. White space of XML is one space, and none at the start."""
    more = WHITE_SPACE.sub(" ", more)
    return text + (more if text and not text.endswith(" ") else more.lstrip(" "))


def _allowed(found):
    """The reference of a character, bytes; nothing for a character that XML forbids."""
    number = int(found[1], 16) if found[1] else int(found[2] or 0)
    is_character = number in (9, 10, 13) or 0x20 <= number < 0xD800 or 0xE000 <= number < 0xFFFE
    return found[0] if is_character or 0x10000 <= number <= 0x10FFFF else b""


def _time_of(attributes):
    return attributes.get("changedate") or attributes.get("creationdate") or ""
