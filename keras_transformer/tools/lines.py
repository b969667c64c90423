"""Files of lines, for programs and tools: whether a file is text, its lines in chunks, and their translations."""

import contextlib
import gzip
import itertools
from pathlib import Path

from keras_transformer.errors import FileError, UserError

CHUNK = 1024  # lines sorted by length and translated together, and kept together
BOM = b"\xef\xbb\xbf"
FIRST_BYTES = 1 << 13  # of a file, which tell whether it is text
MOST_DAMAGED = 3  # lines that are not UTF-8, in a file that may be UTF-8
NO_TEXT = {b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "gzip", b"%PDF-": "a PDF", b"{\\rtf": "RTF"}  # by first bytes


def refuse_pipe(path):
    """Raises FileError for a pipe, which a program that reads a text twice would find empty. None is no pipe."""
    if path and Path(path).is_fifo():
        raise FileError(f"{path} is a pipe, which can be read only once: write it into a file")


def check_text(start, name):
    """Checks that a file can be translated line by line.

    Args:
        start: bytes, the first `FIRST_BYTES` of the file.
        name: of the file, for the error.

    Raises:
        UserError: for an archive, a picture, UTF-16 and all else that is no text.
    """
    kind = next((kind for first, kind in NO_TEXT.items() if start.startswith(first)), None)
    nulls = start.count(b"\0")
    if kind is None and nulls and (20 * nulls > len(start) or _is_in_another_charset(start.replace(b"\0", b""))):
        line = start[: start.index(b"\0")].count(b"\n") + 1
        kind = f"bytes of another kind, such as a picture or UTF-16, with a byte 0 in line {line}"
    if kind is None and _is_in_another_charset(start):
        kind = "bytes of another charset"
    if kind:
        raise UserError(f"{name} is no text: it is {kind}. Only text in UTF-8 is translated line by line")


def _is_in_another_charset(start):
    """Whether most lines are not UTF-8, which one damaged line may be."""
    lines = [line for line in start.split(b"\n") if line.strip()]
    lines = lines[:-1] if len(start) >= FIRST_BYTES else lines  # the last one may be cut
    foreign = sum("\ufffd" in line.decode("utf-8", "replace") for line in lines)
    return foreign >= MOST_DAMAGED and 2 * foreign > len(lines)


def translate_lines(answer, chunks, target):
    """Translates every line, a chunk at a time; invalid UTF-8 becomes U+FFFD.

    Args:
        answer: function from list of str to as many lists of str, the output lines of each.
        chunks: iterable of lists of bytes, lines without "\n".
        target: binary stream.

    Raises:
        FileError: if the target cannot be written. A closed pipe raises BrokenPipeError.
    """
    for chunk in chunks:
        texts = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in chunk]
        lines = itertools.chain.from_iterable(answer(texts))
        try:
            target.write(b"".join(line.encode("utf-8") + b"\n" for line in lines))
            target.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FileError.of("write", target.name, error) from error


def chunks_of(file, first=0):
    """Yields the lines of a file, without "\n" and byte order mark, in lists of at most `CHUNK`.

    Args:
        file: binary file, at its start.
        first: number of lines to leave out.
    """
    lines = (line.removeprefix(BOM) if number == 0 else line for number, line in enumerate(file))
    lines = (line.removesuffix(b"\n") for line in itertools.islice(lines, first, None))
    while chunk := list(itertools.islice(lines, CHUNK)):
        yield chunk


def packed(file, path):
    """A context of a file to write into, which packs it if `path` is called gzip; equal contents give equal bytes.

    Args:
        file: binary file.
        path: str or Path, the name that the file will have.
    """
    if not str(path).endswith(".gz"):
        return contextlib.nullcontext(file)
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
