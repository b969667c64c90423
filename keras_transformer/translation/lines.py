"""Many lines of text: read in chunks, and run in batches of similar length, two at a time."""

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor

from keras_transformer.errors import FileError, UserError, check_positive

CHUNK = 1024  # lines sorted by length and translated together, and kept together
BATCHES_AT_ONCE = 2  # on few cores two batches side by side are faster than two threads for one
BOM = b"\xef\xbb\xbf"
FIRST_BYTES = 1 << 13  # of a file, which tell whether it is text
MOST_DAMAGED = 3  # lines that are not UTF-8, in a file that may be UTF-8
NO_TEXT = {b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "gzip", b"%PDF-": "a PDF", b"{\\rtf": "RTF"}  # by first bytes


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


def of_one_or_many(method):
    """Lets a method of a translator, or a function of one, that takes a list of texts also take one str.

    For one str, it returns one result. It raises UserError for a text that is no str.
    """

    @functools.wraps(method)
    def either(translator, texts, *arguments, **keywords):
        if isinstance(texts, (str, bytes)):
            return method(translator, [texts], *arguments, **keywords)[0]
        texts = list(texts)
        for i, text in enumerate(texts):
            if not isinstance(text, (str, bytes)):
                raise UserError(f"every text must be a str. Received: {text!r} as text {i + 1} of {len(texts)}")
        return method(translator, texts, *arguments, **keywords)

    return either


def run_sorted(run_batch, rows, batch_size, on_progress=None, size=len):
    """Runs a function over batches of rows sorted by size, largest first, and restores their order.

    Args:
        run_batch: function from a list of rows to a list of as many results; it is called from two threads.
        rows: list.
        batch_size: most rows of a batch.
        on_progress: called with the number of rows done since its last call.
        size: function from a row to its size.

    Returns:
        list of results, in the order of `rows`.

    Raises:
        UserError: for a batch size that is not positive.
    """
    check_positive(batch_size=batch_size)
    order = sorted(range(len(rows)), key=lambda i: -size(rows[i]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    results = [None] * len(rows)
    threads = ThreadPoolExecutor(BATCHES_AT_ONCE)
    try:
        of_batches = threads.map(lambda batch: run_batch([rows[i] for i in batch]), batches)
        for batch, of_batch in zip(batches, of_batches, strict=True):
            for i, result in zip(batch, of_batch, strict=True):
                results[i] = result
            if on_progress:
                on_progress(len(batch))
    finally:
        threads.shutdown(cancel_futures=True)  # Ctrl-C waits for two batches, not for all
    return results
