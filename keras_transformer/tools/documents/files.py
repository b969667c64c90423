"""Documents from file to file: the format by the ending of the name, the same format out."""

import gzip
import itertools
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_transformer.errors import FileError, UserError
from keras_transformer.files import write_whole
from keras_transformer.tools.documents import apps, catalogue, declared, html, markdown, subtitles, word, xliff
from keras_transformer.tools.documents.messages import translate_units
from keras_transformer.tools.documents.units import FragmentTranslator, replaced
from keras_transformer.tools.lines import FIRST_BYTES, check_text, packed

if TYPE_CHECKING:  # it loads TensorFlow, and documents take any translator
    from keras_transformer.translation.translator import TextTranslator


LF = re.compile(r"(?<!\r)\n")


@dataclass(frozen=True)
class Format:
    """A format of documents.

    Attributes:
        endings: of the names of its files.
        finders: functions (text, path) -> list of `Unit`, one after the other; empty for an archive.
        in_language: function (text, path, code of a language or None) -> the text, which declares the language; None
            for a format that declares none.
    """

    endings: tuple
    finders: tuple[Callable, ...] = ()
    in_language: Callable | None = None


def _without_path(find):
    return lambda text, path: find(text)


HTML = tuple(".html .htm .xhtml .php .phtml .erb .ejs .hbs .mustache .twig .liquid .vue".split())
FORMATS = {
    "lines": Format((".txt",), (_without_path(subtitles.find_lines),)),
    "html": Format(
        HTML,
        (_without_path(html.find_attributes), _without_path(html.find_blocks)),
        html.in_language,
    ),
    "markdown": Format((".md", ".markdown", ".mdx"), (markdown.find_images, markdown.find_blocks)),
    "xliff": Format((".xliff", ".xlf"), (xliff.find_units,), xliff.in_language),
    "po": Format((".po", ".pot"), (catalogue.find_messages,), catalogue.in_language),
    "srt": Format((".srt",), (subtitles.find_subtitles,)),
    "vtt": Format((".vtt",), (subtitles.find_cues,)),
    "ass": Format((".ass", ".ssa"), (subtitles.find_dialogue,)),
    "docx": Format((".docx",)),
    "android": Format((".xml",), (apps.find_android,), apps.android_in_language),
    "apple": Format((".strings",), (apps.find_strings,)),
    "stringsdict": Format((".stringsdict",), (apps.find_stringsdict,), apps.stringsdict_in_language),
    "json": Format((".json",), (apps.find_json,), apps.json_in_language),
    "arb": Format((".arb",), (apps.find_json,), apps.arb_in_language),
    "yaml": Format((".yaml", ".yml"), (apps.find_yaml,), apps.yaml_in_language),
    "properties": Format((".properties",), (apps.find_properties,)),
    "resx": Format((".resx", ".resw"), (apps.find_resx,)),
    "qt": Format((".ts",), (apps.find_qt,), apps.qt_in_language),
}


def format_of(path):
    """The name of the format of a file, by its ending, before `.gz` if it is packed; None for another ending."""
    ending = Path(str(path).removesuffix(".gz")).suffix.lower()
    return next((name for name, format in FORMATS.items() if ending in format.endings), None)


def check_format(format, target_lang=None):
    """Checks a format, and the language that a document shall declare.

    Args:
        format: name, of `FORMATS`.
        target_lang: code of a language; None for none.

    Raises:
        UserError: for a format that does not exist, or that needs a package that is not installed; and for a code that
            is none.
    """
    if format not in FORMATS:
        raise UserError(f"`format` must be one of {', '.join(FORMATS)}. Received: {format!r}")
    if format == "markdown":
        markdown.load_parser()
    if target_lang and not (isinstance(target_lang, str) and declared.LANGUAGE.fullmatch(target_lang)):
        raise UserError(f"`target_lang` must be the code of a language, such as de or pt-BR. Received: {target_lang!r}")


def translate_bytes(
    translator,
    data,
    format,
    path="the document",
    on_progress=None,
    *,
    on_left=None,
    source_lang=None,
    target_lang=None,
):
    """Translates a document that is in memory.

    Args:
        translator: object with the methods `translate` and `explain` of `TextTranslator`.
        data: bytes. In a format that is text: in the charset that the document declares, or in UTF-8.
        format: name, of `FORMATS`.
        path: name of the document, for errors.
        on_progress: called with the number of texts done since its last call.
        on_left: called with each text that stays untranslated, because its translation lost or moved a variable.
        source_lang, target_lang: codes of the languages, which a translator of many languages needs. The document then
            declares `target_lang`; None: the one of the translator, if it is known.

    Returns:
        bytes, of the same format. In the charset of the document, or in UTF-8 if that lacks a character.

    Raises:
        UserError: for an unknown format, a document that cannot be read, a translator that does not explain, and a
            language that the translator does not have.
    """
    check_format(format, target_lang)
    if hasattr(translator, "between"):
        translator = translator.between(source_lang, target_lang)
    translate = FragmentTranslator(translator, on_progress)
    if format == "lines":
        check_text(data[:FIRST_BYTES], path)
    language = declared.language_of(translator, target_lang)
    if not FORMATS[format].finders:
        return word.translate_archive(data, path, translate, language)
    text, charset = declared.read_text(data, format, path)
    mark, text = text[: text.startswith("\ufeff")], text.removeprefix("\ufeff")  # of byte order, no part of the text
    (text,) = _translated([text], format, path, language, translate, on_left)
    return declared.write_text(mark + text, charset, format)


def translate_pages(translator, pages, target_lang=None):
    """Translates texts in HTML together, so that few requests go to the translator. No charset counts: a text is a str.

    Args:
        translator: see `translate_bytes`.
        pages: list of str, pages or parts of them.
        target_lang: code of the language that an element `html` declares; None: the declaration stays.

    Returns:
        list of str.
    """
    return _translated(pages, "html", "the text", target_lang, FragmentTranslator(translator))


def _translated(texts, format, path, language, translate, on_left=None):
    """Translates documents of a format that is text: list of str. Of several, the format must be HTML."""
    sources = texts
    if in_language := FORMATS[format].in_language:
        texts = [in_language(text, path, language) for text in texts]
    for find in FORMATS[format].finders:
        units = [find(text, path) for text in texts]
        translated = iter(translate_units(list(itertools.chain.from_iterable(units)), translate, on_left))
        texts = [
            replaced(text, found, [next(translated) for _ in found]) for text, found in zip(texts, units, strict=True)
        ]
    return [_with_ends_of(source, text) for source, text in zip(sources, texts, strict=True)]


def _with_ends_of(source, text):
    """A translation whose lines all end with CRLF, if all those of its source do. Formats write lines with LF."""
    return LF.sub("\r\n", text) if LF.search(source) is None and "\r\n" in source else text


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


def translate_document(
    translator: "TextTranslator",
    path: str | os.PathLike,
    output: str | os.PathLike,
    format: str | None = None,
    on_progress: Callable[[int], Any] | None = None,
    target_lang: str | None = None,
    source_lang: str | None = None,
) -> list[str]:
    """Translates a document: a page, a text, subtitles, a catalogue of messages, texts of an app or a Word file.

    Only text changes. Tags stay around the words that they belong to, by the alignment that `explain` gives. Code,
    URLs, times, identifiers and everything with `translate="no"` stay. `output` appears when it is complete.

    Args:
        translator: a `Translator` or a `SavedModelTranslator`.
        path: of the document, with an ending of `FORMATS`, such as .html or .docx. With .gz behind it, it is packed.
        output: path of its translation, of the same format. With .gz at its end, the translation is packed.
        format: name, of `FORMATS`, such as "html"; None: by the ending of `path`.
        on_progress: called with the number of texts done since its last call.
        target_lang, source_lang: codes of the languages, see `translate_bytes`.

    Returns:
        list of str, the texts that stay untranslated, because their translations lost or moved a variable.

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
    if os.path.exists(path) and os.path.exists(output) and os.path.samefile(path, output):
        raise UserError(f"the translation would take the place of its source. Received: {path} for both")
    left = []
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    data = read_document(path)
    translated = translate_bytes(translator, data, format, path, on_progress, on_left=left.append, **languages)
    write_document(output, translated)
    return left
