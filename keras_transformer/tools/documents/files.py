"""Documents from file to file: the format by the ending of the name, the same format out."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from keras_transformer.errors import FileError, UserError
from keras_transformer.files import packed, write_whole
from keras_transformer.tools.documents import html, lines, markdown, subtitles, word, xliff
from keras_transformer.tools.documents.units import FragmentTranslator, replaced
from keras_transformer.translation.lines import FIRST_BYTES, check_text


@dataclass(frozen=True)
class Format:
    """A format of documents.

    Attributes:
        endings: of the names of its files.
        finders: functions (text, path) -> list of `Unit`, one after the other; empty for an archive.
    """

    endings: tuple
    finders: tuple[Callable, ...] = ()


def _without_path(find):
    return lambda text, path: find(text)


FORMATS = {
    "lines": Format((".txt",), (_without_path(lines.find_lines),)),
    "html": Format((".html", ".htm", ".xhtml"), (_without_path(html.find_attributes), _without_path(html.find_blocks))),
    "markdown": Format((".md", ".markdown", ".mdx"), (markdown.find_images, markdown.find_blocks)),
    "xliff": Format((".xliff", ".xlf"), (xliff.find_units,)),
    "po": Format((".po", ".pot"), (lines.find_messages,)),
    "srt": Format((".srt",), (subtitles.find_subtitles,)),
    "vtt": Format((".vtt",), (subtitles.find_cues,)),
    "ass": Format((".ass", ".ssa"), (subtitles.find_dialogue,)),
    "docx": Format((".docx",)),
}


def format_of(path):
    """The name of the format of a file, by its ending, before `.gz` if it is packed; None for another ending."""
    ending = Path(str(path).lower().removesuffix(".gz")).suffix
    return next((name for name, format in FORMATS.items() if ending in format.endings), None)


def check_format(format):
    """Raises UserError for a format that does not exist, or that needs a package that is not installed."""
    if format not in FORMATS:
        raise UserError(f"`format` must be one of {', '.join(FORMATS)}. Received: {format!r}")
    if format == "markdown":
        markdown.load_parser()


def translate_bytes(translator, data, format, path="the document", on_progress=None):
    """Translates a document that is in memory.

    Args:
        translator: object with the methods `translate` and `explain` of `TextTranslator`.
        data: bytes, UTF-8 in every format that is text.
        format: name, of `FORMATS`.
        path: name of the document, for errors.
        on_progress: called with the number of texts done since its last call.

    Returns:
        bytes, of the same format.

    Raises:
        UserError: for an unknown format, a document that cannot be read, and a translator that does not explain.
    """
    check_format(format)
    translate = FragmentTranslator(translator, on_progress)
    if format == "lines":
        check_text(data[:FIRST_BYTES], path)
    if not FORMATS[format].finders:
        return word.translate_archive(data, path, translate)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8") from error
    mark, text = text[: text.startswith("\ufeff")], text.removeprefix("\ufeff")  # of byte order, no part of the text
    for find in FORMATS[format].finders:
        units = find(text, path)
        text = replaced(text, units, translate([unit.parts for unit in units]))
    return (mark + text).encode("utf-8")


def read_document(path):
    """The bytes of a document, unpacked if it is called gzip.

    Raises:
        FileError: if it cannot be read, or is damaged.
    """
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if str(path).endswith(".gz") else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # what gzip says of a file that is damaged
        raise FileError(f"cannot read {path}: {error}") from error
    except OSError as error:
        raise FileError.of("read", path, error) from error


def write_document(path, data):
    """Writes bytes into a file that appears when it is complete, packed if it is called gzip. Raises FileError."""

    def write(temporary):
        with open(temporary, "wb") as file, packed(file, path) as target:
            target.write(data)

    write_whole(path, write)


def translate_document(translator, path, output, format=None, on_progress=None):
    """Translates a document: a page, a text, subtitles, a catalogue of messages or a Word file.

    Only text changes. Tags stay around the words that they belong to, by the alignment that `explain` gives. Code,
    URLs, times, identifiers and everything with `translate="no"` stay. `output` appears when it is complete.

    Args:
        translator: a `Translator` or a `SavedModelTranslator`.
        path: of the document; .txt .md .html .srt .vtt .ass .po .xliff .docx. With .gz behind it, it is packed.
        output: path of its translation, of the same format. With .gz at its end, the translation is packed.
        format: "lines", "html", "markdown", "xliff", "po", "srt", "vtt", "ass" or "docx"; None: by the ending of
            `path`.
        on_progress: called with the number of texts done since its last call.

    Raises:
        UserError: for an unknown ending, a document that cannot be read, and a translator that does not explain.
        FileError: for a file that cannot be read or written.

    Example:

    ```python
    kt.translate_document(translator, "page.html", "seite.html")
    ```
    """
    format = format or format_of(path)
    if format is None:
        endings = " ".join(ending for known in FORMATS.values() for ending in known.endings)
        raise UserError(f"the ending of {path} is unknown: name a `format`, or use one of {endings}")
    write_document(output, translate_bytes(translator, read_document(path), format, path, on_progress))
