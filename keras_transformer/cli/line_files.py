"""Line by line from one file or stream to another. An interrupted file is resumed after its last complete line."""

import errno
import fcntl
import hashlib
import itertools
import json
import os
from pathlib import Path

from tqdm import tqdm

from keras_transformer.errors import UserError

CHUNK = 1024  # lines sorted by length and translated together, and kept together


def translate_lines(answer, source, target):
    """Translates every line of a binary stream, a chunk at a time; invalid UTF-8 becomes U+FFFD.

    Args:
        answer: function from list of str to as many lists of str, the output lines of each.
        source: iterable of bytes, lines with their ends.
        target: binary stream.
    """
    texts = (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in source)
    while chunk := list(itertools.islice(texts, CHUNK)):
        lines = itertools.chain.from_iterable(answer(chunk))
        target.write(b"".join(line.encode("utf-8") + b"\n" for line in lines))
        target.flush()


def translate_file(answer, source, target, asked, lines_each=1):
    """Translates a file into another, which appears when it is complete.

    Until then the translation is in `partial_path`. The lines that are complete there are kept, so that the same call
    goes on after them.

    Args:
        answer: function (list of str, `on_progress`) -> as many lists of str, `lines_each` lines of each.
        source: path.
        target: path.
        asked: everything that the translation depends on besides `source`, as JSON can hold it.
        lines_each: number of lines of `target` for each line of `source`.

    Raises:
        UserError: while another process translates the same file.
    """
    partial = partial_path(source, target, asked)
    with open(source, "rb") as lines, open(partial, "a+b") as file:
        _lock(file, partial)
        total = sum(1 for _ in lines)
        lines.seek(0)
        if done := keep_complete(file, lines_each):
            print(f"{target}: goes on after {done} of {total} lines", flush=True)
        with tqdm(total=total, initial=done, unit=" sentences", disable=None) as progress:
            rest = itertools.islice(lines, done, None)
            translate_lines(lambda texts: answer(texts, progress.update), rest, file)
        os.replace(partial, os.path.realpath(target))


def partial_path(source, target, asked):
    """The file of an unfinished translation: beside `target`, with a name that depends on the text and the options.

    So another text or other options never resume it.
    """
    origin = hashlib.sha256(json.dumps([file_state(source), asked], sort_keys=True).encode()).hexdigest()
    target = Path(os.path.realpath(target))
    return target.with_name(f"{target.name}.{origin[:12]}.partial")


def file_state(path):
    """[path, size, time of the last change]: if one of them differs, it is another file."""
    state = os.stat(path)
    return [os.path.realpath(path), state.st_size, state.st_mtime_ns]


def keep_complete(file, lines_each):
    """Cuts off lines that an interruption left incomplete.

    Args:
        file: binary file, open for reading and appending.
        lines_each: number of lines that belong together.

    Returns:
        int, number of complete groups of `lines_each` lines.
    """
    file.seek(0)
    done = end = length = 0
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            break
        length += len(line)
        if number % lines_each == 0:
            done, end = number // lines_each, length
    file.truncate(end)
    file.seek(end)
    return done


def are_regular(source, target):
    """Whether both are regular files, which can be read again and renamed; a pipe or a device is not."""
    return os.path.isfile(source) and (os.path.isfile(target) or not os.path.exists(target))


def check_files(source, target):
    """Checks before the long work that both files can be used; None is standard input or output.

    Raises:
        OSError: if `source` cannot be read, or `target` not be written.
        UserError: if they are the same.
    """
    if source and (os.path.isdir(source) or not os.access(source, os.R_OK)):
        open(source, "rb")  # raises OSError with the reason
    if target and os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if target and not os.path.isdir(directory := os.path.dirname(os.path.realpath(target))):
        raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
    if source and target and os.path.exists(target) and os.path.samefile(source, target):
        raise UserError(f"the translation would take the place of its source. Received: {source} for both")


def _lock(file, path):
    """Locks the file as long as it is open."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"another process writes {path}: wait for its end, or choose another output") from None
