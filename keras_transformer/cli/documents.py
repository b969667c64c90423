"""translate.py with a document: its format, the flags that go with it, and its way from file to file."""

import sys
from pathlib import Path

from tqdm import tqdm

from keras_transformer.documents.files import FORMATS, check_format, format_of, translate_bytes, write_whole
from keras_transformer.errors import FileError, UserError


def add_format_argument(parser):
    """Adds to an argparse parser the flag of the format."""
    endings = ", ".join(f"{name} ({' '.join(format.endings)})" for name, format in FORMATS.items())
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help=f"format of input and output; tags stay around their words, by alignments: {endings} "
        "(default: by the ending of --input, else lines)",
    )


def check_document(arguments, request):
    """Sets `arguments.format`, and checks the flags that go with it.

    Args:
        arguments: parsed flags.
        request: `Request`.

    Raises:
        UserError: for flags that do not go together, and for a format that needs a package that is not installed.
    """
    if arguments.engine != "local":
        if arguments.format not in (None, "lines"):
            raise UserError(f"--engine beam translates lines. Received: --format {arguments.format}")
        return
    is_given = arguments.format is not None
    arguments.format = arguments.format or format_of(arguments.input or "") or "lines"
    if arguments.format == "lines":
        return
    others = ("sample", "n_best", "explain", "score", "json", "shortlist")
    refused = [*(name for name in others if getattr(arguments, name)), *request.options]
    if refused:
        raise UserError(
            f"--{refused[0]} is for lines: leave it out, or give --format lines. Received: a document "
            f"({arguments.format})"
        )
    if arguments.input and not arguments.output and not (is_given and arguments.format != "docx"):
        raise UserError(f"name the file for the translation of {arguments.input}: --output. Received: no --output")
    other = format_of(arguments.output or "")
    if other not in (None, arguments.format):
        raise UserError(
            f"the translation is {arguments.format}, as the source is. Received: --output {arguments.output}"
        )
    check_format(arguments.format)


def translate_whole(translator, format, source, target):
    """Translates a document with a progress bar. The output appears when it is complete.

    Args:
        translator: `TextTranslator`.
        format: name, of `FORMATS`.
        source: path; None for standard input.
        target: path; None for standard output.

    Raises:
        UserError: for a document that cannot be read, or not be translated by this translator.
        FileError: for a file that cannot be read or written.
    """
    try:
        data = Path(source).read_bytes() if source else sys.stdin.buffer.read()
    except OSError as error:
        raise FileError.of("read", source, error) from error
    with tqdm(unit=" texts", disable=None) as progress:
        translated = translate_bytes(translator, data, format, source or "standard input", progress.update)
    if target:
        write_whole(target, translated)
    else:
        sys.stdout.buffer.write(translated)
        sys.stdout.buffer.flush()
