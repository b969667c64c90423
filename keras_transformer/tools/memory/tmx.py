"""Translation memories in TMX, up to version 1.4b, read in a stream: https://www.gala-global.org/tmx-14b

A file has units. A unit has one text, the segment, in each of several languages.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from keras_transformer.errors import FileError, UserError

BLOCK_BYTES = 1 << 16
# Elements of a segment that hold code of another format. Text inside code, `sub`, is a text of its own, such as the
# title of a link. The text of `hi` is text of the segment.
CODE = {"bpt", "ept", "it", "ph", "ut", "sub"}
BREAKS = {"lb", "pb", "cb"}  # types of code that divides words: breaks of lines, pages and columns
WHITE_SPACE = re.compile(r"[ \t\r\n]+")  # of XML


class Segment(NamedTuple):
    """The text of a unit in one language.

    Args:
        language: str, its code.
        text: str, without code. White space of XML is one space.
        is_plain: bool, whether there was no code.
        changed: str, the time of its last change, such as "20260131T235959Z"; "" if it is not known.
    """

    language: str
    text: str
    is_plain: bool
    changed: str = ""


def read_units(path) -> Iterator[list[Segment]]:
    """Reads a translation memory. No more of it than a block is in memory at a time.

    Args:
        path: of the file, in UTF-8, UTF-16 or the charset that it declares. With .gz at its end, it is packed.

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
        self._text, self._is_plain, self._depth = None, True, 0  # of a segment that is open; of code inside it
        self._is_tmx = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._parser.SkippedEntityHandler = self._refuse_entity

    def read(self, block, is_last=False):
        """list of the units that end in a block of bytes."""
        self._complete = []
        try:
            self._parser.Parse(block, is_last)
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
            self._text, self._is_plain, self._depth = [], True, 0
        elif name in CODE:
            self._depth, self._is_plain = self._depth + 1, False
            if attributes.get("type") in BREAKS:
                self._characters(" ", depth=1)

    def _end(self, name):
        name = name.rpartition(":")[2]
        if name == "tu":
            self._complete.append(self._unit)
            self._unit = None
        elif name == "seg":
            if self._unit is not None and self._language:
                text = WHITE_SPACE.sub(" ", "".join(self._text)).strip(" ")
                self._unit.append(Segment(self._language, text, self._is_plain, self._changed))
            self._text = None
        elif name in CODE:
            self._depth -= 1

    def _characters(self, text, depth=0):
        if self._text is not None and self._depth == depth:
            self._text.append(text)

    def _refuse_entity(self, name, *_):
        line = self._parser.CurrentLineNumber
        raise UserError(f"{self._path} has an entity of its own in line {line}, which is not read: {name}")


def _time_of(attributes):
    return attributes.get("changedate") or attributes.get("creationdate") or ""
