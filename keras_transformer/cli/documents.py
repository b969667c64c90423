"""translate.py with a document: its format, the flags that go with it, and its way from file to file."""

import contextlib
import gzip
import json
import os
import re
import sys
import zlib

from tqdm import tqdm

from keras_transformer.cli.request import MODES
from keras_transformer.errors import UserError, counted
from keras_transformer.process import find_tool
from keras_transformer.tools.lines import FIRST_BYTES

SHOWN = 60  # characters of a text in a message
# Files of apps, data and typesetting, whose texts stand between keys, tags and commands.
STRUCTURED = (
    ".xml .json .json5 .jsonl .yaml .yml .properties .arb .resx .resw .strings .stringsdict .plist .ts .csv .rst "
    ".tex .svg .ipynb .toml .ini .adoc"
).split()
_MARKUP, _JSON = rb"<\?xml|<!doctype|<[a-z][^<>]*>[ \t]*\r?\n", rb'[\[\s]*\{\s*"[^"\n]*"\s*:|\[\s*"[^"\n]*"\s*[,\]]'
STRUCTURE = re.compile(rb"(?i)(?:\xef\xbb\xbf)?\s*(?:" + _MARKUP + rb"|" + _JSON + rb")")


def add_format_argument(parser):
    """Adds to an argparse parser the flag of documents."""
    parser.add_argument(
        "--format",
        help="format of input and output: lines, html, markdown, xliff, po, srt, vtt, ass, docx, android, apple, "
        "stringsdict, json, arb, yaml, properties, resx or qt. In a document, tags stay around their words (default: "
        "by the name of --input, else lines)",
    )


def _format_of(path):
    """The format of a file, by its ending; None for an unknown ending, and for every ending if the tool is missing."""
    with contextlib.suppress(UserError):
        return find_tool("documents.files", "--format").format_of(path or "")


def check_document(arguments, request):
    """Sets `arguments.format`, and checks the flags that go with it.

    Args:
        arguments: parsed flags.
        request: `Request`.

    Raises:
        UserError: for flags that do not go together, and for a format that needs a package that is not installed.
    """
    is_given, is_beam = arguments.format is not None, arguments.engine != "local"
    if is_beam and arguments.format not in (None, "lines"):
        raise UserError(f"--engine beam translates lines. Received: --format {arguments.format}")
    if not is_beam:
        arguments.format = arguments.format or _format_of(arguments.input) or "lines"
    if not is_given and arguments.format == "lines" and arguments.input:
        _refuse_structure(arguments.input)
    if is_beam or arguments.format == "lines":
        return
    tool = find_tool("documents.files", f"--format {arguments.format}")
    tool.check_format(arguments.format, arguments.target_lang)
    others = (*MODES, "json", "shortlist")
    refused = [*(name for name in others if getattr(arguments, name)), *request.options]
    if refused:
        raise UserError(
            f"--{refused[0]} needs lines, not a document: leave it out, or give --format lines. Received: a document "
            f"({arguments.format})"
        )
    if arguments.input and not arguments.output and not (is_given and arguments.format != "docx"):
        raise UserError(f"name the file for the translation of {arguments.input}: --output. Received: no --output")
    other = _format_of(arguments.output)
    if other not in (None, arguments.format):
        raise UserError(
            f"the translation is {arguments.format}, as the source is. Received: --output {arguments.output}"
        )


def _refuse_structure(path):
    """Raises UserError for a file whose keys and tags would be translated line by line."""
    name = path.removesuffix(".gz").lower()
    kind = next((ending for ending in STRUCTURED if name.endswith(ending)), None)
    if kind is None and os.path.isfile(path):  # a pipe can be read once
        with (
            contextlib.suppress(OSError, EOFError, zlib.error),
            (gzip.open if path.endswith(".gz") else open)(path, "rb") as file,
        ):
            kind = "a file that begins as markup or JSON" if STRUCTURE.match(file.read(FIRST_BYTES)) else None
    if kind:
        raise UserError(
            f"{path} has keys or tags, which would be translated, too: translate its texts, one a line, or insist on "
            f"all lines with --format lines. Received: {kind}"
        )


def refuse_documents(paths, format):
    """Raises UserError if a file that Beam translates line by line is no file of lines, unless `format` is "lines"."""
    for path in paths if format is None else ():
        name = _format_of(path)
        if name not in (None, "lines"):
            raise UserError(
                "--engine beam translates lines, no documents: leave it out, or give --format lines. Received: "
                f"{path} ({name})"
            )
        _refuse_structure(path)


def translate_whole(translator, format, source, target, languages):
    """Translates a document with a progress bar. The output appears when it is complete.

    One line tells which texts stay untranslated, because their translations lost or moved a variable.

    Args:
        translator: `TextTranslator`.
        format: name, of `FORMATS`.
        source: path; None for standard input.
        target: path; None for standard output.
        languages: dict, `source_lang` and `target_lang` of `translate_bytes`.

    Raises:
        UserError: for a document that cannot be read, or not be translated by this translator.
        FileError: for a file that cannot be read or written.
    """
    files = find_tool("documents.files", f"--format {format}")
    data = files.read_document(source) if source else sys.stdin.buffer.read()
    left = []
    with tqdm(unit=" texts", disable=None) as progress:
        translated = files.translate_bytes(
            translator,
            data,
            format,
            source or "standard input",
            progress.update,
            on_left=left.append,
            **languages,
        )
    if target:
        files.write_document(target, translated)
    else:
        sys.stdout.buffer.write(translated)
        sys.stdout.buffer.flush()
    if left:
        named = ", ".join(json.dumps(text[:SHOWN], ensure_ascii=False) for text in left)
        what = f"{counted(len(left), 'text')} of {source or 'standard input'} {'stays' if len(left) == 1 else 'stay'}"
        print(f"warning: {what} untranslated, because a variable was lost or moved: {named}", file=sys.stderr)
