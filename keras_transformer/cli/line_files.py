"""Files and streams of lines. An interrupted translation is resumed after its last complete line."""

import contextlib
import fcntl
import gzip
import hashlib
import json
import logging
import os
import select
import shutil
import zlib
from pathlib import Path

import filelock
from tqdm import tqdm

from keras_transformer.errors import FileError, UserError, counted
from keras_transformer.files import reading, write_whole
from keras_transformer.tools.lines import (
    BOM,
    CHUNK,
    FIRST_BYTES,
    check_text,
    chunks_of,
    packed,
    refuse_pipe,
    translate_lines,
)

log = logging.getLogger(__name__)
PAUSE = 0.1  # seconds: if no new line of a stream comes for so long, the lines so far are translated
BLOCK_BYTES = 1 << 16


def open_input(path):
    """Opens a text for its bytes; a file `.gz` is unpacked.

    Raises:
        FileError: if it cannot be read, or is damaged.
        UserError: if it is no text.
    """
    try:
        file = gzip.open(path) if str(path).endswith(".gz") else open(path, "rb")
        start = file.peek(FIRST_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # what gzip says of a file that is damaged
        raise FileError(f"cannot read {path}: {error}") from error
    except OSError as error:
        raise FileError.of("read", path, error) from error
    check_text(start, path)
    return file


def checked(chunks, name):
    """Yields chunks of lines. Raises UserError if the first one is no text."""
    for number, chunk in enumerate(chunks):
        if number == 0:
            check_text(b"\n".join(chunk)[:FIRST_BYTES], name)
        yield chunk


def chunks_in(path):
    """Yields the `chunks_of` a file, plain or `.gz`. Raises FileError if it cannot be read, or is damaged."""
    try:
        with open_input(path) as file:
            yield from chunks_of(file)
    except (OSError, EOFError, zlib.error) as error:  # what gzip says of a file that is damaged
        raise FileError(f"cannot read {path}: {error}") from error


def translate_file(answer, source, target, asked, lines_each=1):
    """Translates a file into another, which appears when it is complete.

    A target that ends in `.gz` is packed. Until it is complete, the translation is in `partial_path`. The lines that
    are complete there are kept, so that the same call goes on after them. Ctrl-C writes a line that says so.

    Args:
        answer: function (list of str, `on_progress`) -> as many lists of str, `lines_each` lines of each.
        source: path.
        target: path.
        asked: everything that the translation depends on besides `source`, as JSON can hold it.
        lines_each: number of lines of `target` for each line of `source`.

    Raises:
        FileError: if a file cannot be read or written.
        UserError: while another process translates the same file.
    """
    partial = partial_path(source, target, asked)
    with open_input(source) as lines, contextlib.ExitStack() as stack:
        total = _count_lines(lines, source)
        lines.seek(0)
        file = stack.enter_context(open(partial, "a+b"))
        _lock(file, partial)
        if done := keep_complete(file, lines_each):
            log.info("%s: goes on after %d of %s", target, done, counted(total, "line"))
        with tqdm(total=total, initial=done, unit=" sentences", disable=None) as progress, _told_to_go_on(partial):
            translate_lines(lambda texts: answer(texts, progress.update), chunks_of(lines, done), file)
        if str(target).endswith(".gz"):
            file.seek(0)
            write_whole(target, lambda temporary: _pack(file, temporary))
            os.unlink(partial)
        else:
            os.replace(partial, os.path.realpath(target))


@contextlib.contextmanager
def _told_to_go_on(partial):
    """Says after Ctrl-C how to go on. A text that is refused at its beginning leaves no `partial`."""
    try:
        yield
    except KeyboardInterrupt:
        log.info("the same command goes on from here")
        raise
    except UserError:
        if not os.path.getsize(partial):
            os.unlink(partial)
        raise


def _pack(file, path):
    with open(path, "wb") as new, packed(new, path) as target:
        shutil.copyfileobj(file, target)


def _count_lines(file, path):
    try:
        return sum(1 for _ in file)
    except (OSError, EOFError, zlib.error) as error:  # what gzip says of a file that is damaged
        raise FileError(f"cannot read {path}: {error}") from error


def partial_path(source, target, asked):
    """The file of an unfinished translation: beside `target`, with a name that depends on the text and the options.

    So another text or other options never resume it.
    """
    origin = hashlib.sha256(json.dumps([file_state(source), asked], sort_keys=True).encode()).hexdigest()
    target = Path(os.path.realpath(target))
    return target.with_name(f"{target.name}.{origin[:12]}.partial")


class LateFile(contextlib.ExitStack):
    """A file that is opened, and so emptied, for its first line: a text that is refused leaves an old one as it was.

    Args:
        path: of the file, which is packed if it is called gzip.
    """

    def __init__(self, path):
        super().__init__()
        self.name, self._file = path, None

    def write(self, data):
        if self._file is None:
            file = self.enter_context(open(self.name, "wb"))
            self._file = self.enter_context(packed(file, self.name))
        self._file.write(data)

    def flush(self):
        self._file.flush()


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
        FileError: if `source` cannot be read, or `target` not be written.
        UserError: if they are the same.
    """
    if source:
        if os.path.isdir(source):
            raise FileError(f"cannot read {source}: it is a directory")
        if not os.access(source, os.R_OK):
            _raise_unreadable(source)
    if not target:
        return
    place = os.path.dirname(os.path.realpath(target))
    if os.path.isdir(target):
        raise FileError(f"cannot write {target}: it is a directory")
    if not os.path.exists(place):
        raise FileError(f"cannot write {target}: there is no directory {place}")
    is_new = not os.path.exists(target)
    is_replaced = bool(source) and are_regular(source, target)  # by a new file; from a pipe, it is written itself
    for needed in [place] * (is_new or is_replaced) + [target] * (not is_new):
        if not os.access(needed, os.W_OK):
            raise FileError(f"cannot write {target}: you may not write to {needed}")
    if source and os.path.exists(target) and os.path.samefile(source, target):
        raise UserError(f"the translation would take the place of its source. Received: {source} for both")


def check_has_text(path):
    """Raises UserError for a file of blank lines, and FileError for one that cannot be read."""
    refuse_pipe(path)
    if not any(line.strip() for chunk in chunks_in(path) for line in chunk):
        raise UserError(f"{path} has no text to translate")


def _raise_unreadable(path):
    try:
        open(path, "rb").close()
    except OSError as error:
        raise FileError.of("read", path, error) from error


def _lock(file, path):
    """Locks the file as long as it is open."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"another process writes {path}: wait for its end, or choose another output") from None


def chunks_of_stream(stream):
    """As `chunks_of`, for a stream whose lines may come at any time, such as `tail -f`.

    If no line comes for `PAUSE`, the lines so far are a chunk.
    """
    for number, (line, *lines) in enumerate(_as_they_come(stream)):
        yield [line if number else line.removeprefix(BOM), *lines]


def _as_they_come(stream):
    """The chunks of a stream, with its byte order mark."""
    descriptor, lines, rest = stream.fileno(), [], b""
    while True:
        if lines and not select.select([descriptor], [], [], PAUSE)[0]:
            yield lines
            lines = []
        block = os.read(descriptor, BLOCK_BYTES)
        *complete, rest = (rest + block).split(b"\n")
        lines += complete
        if not block:
            break
        while len(lines) >= CHUNK:
            yield lines[:CHUNK]
            lines = lines[CHUNK:]
    lines += [rest] if rest else []
    if lines:
        yield lines


def keep_record(path, record, files):
    """Writes the origin of files beside them, before they are written.

    Args:
        path: Path of the record.
        record: dict that JSON can hold.
        files: iterable of Path, the files that will be written, and others that must not be there.

    Raises:
        UserError: if one of the files is there without a record, or has another origin.
        FileError: if the record cannot be read or written.
    """
    if path.exists():
        with reading(path, "remove it"):
            before = json.loads(path.read_text(encoding="utf-8"))
            different = [name for name in record if before.get(name) != record[name]]
        if different:
            raise UserError(
                f"{path.parent} has pairs of another {', '.join(different)}: remove it, or choose another `output`"
            )
    elif there := [file for file in files if file.exists()]:
        raise UserError(f"{there[0]} exists: choose another `output`")
    else:
        text = json.dumps(record, indent=1)
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_lines(path, texts):
    """Writes a file of lines, UTF-8. A line break in a text becomes a space. See `write_whole`.

    Args:
        path: of the file; of `.gz`, it is packed. A pipe or a device is written as it is.
        texts: iterable of str.

    Raises:
        FileError: if the file cannot be written.
    """

    def write(place):
        with open(place, "wb") as file, packed(file, path) as target:
            target.writelines(text.replace("\n", " ").encode("utf-8") + b"\n" for text in texts)

    if os.path.isfile(path) or not os.path.exists(path):
        return write_whole(path, write)
    try:
        write(path)
    except OSError as error:
        raise FileError.of("write", path, error) from error


@contextlib.contextmanager
def reserved(directory, user):
    """A context in which a directory, which is made if it does not exist, is reserved for this process.

    Args:
        directory: pathlib.Path.
        user: str, what uses it, such as "sweep".

    Raises:
        FileError: if another process has reserved it, or if it cannot be made.
    """
    lock = filelock.FileLock(directory / ".lock")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        message = f"{directory} is in use by another {user}: wait for its end, or choose another `output`"
        raise FileError(message) from None
    except OSError as error:
        raise FileError.of("write", directory, error) from error
    try:
        yield
    finally:
        lock.release()
