"""The files of a bulk translation: finds the existing and the missing ones, and makes each appear at once, complete.

Beside the translations, the output directory has `.translation/`. It has, for every file,

* `.translation/FINGERPRINT/FIRST`, the translation of the lines from number FIRST on, while work on the file goes on,
* `.translation/FINGERPRINT/FIRST.jsonl`, the lines of this part that could not be translated, and
* `.translation/FINGERPRINT.json`, its record, from the moment when the translation is complete.

The fingerprint depends on the text, the model and the request. So another text, model or request never uses these
parts.
"""

import contextlib
import glob
import gzip
import hashlib
import json
import re
import uuid
import zlib
from os.path import abspath, isdir
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.lines import FIRST_BYTES, check_text

WORK = ".translation"
ABOUT = """A bulk translation records here its finished files, and keeps the finished parts of its unfinished files.
Without this directory, the same command translates all files again.
"""
PART_NAME = "[0-9]" * 12
RAW = {"compression_type": CompressionTypes.UNCOMPRESSED}  # Python unpacks gzip: Beam accepts a truncated file


class BulkFile(NamedTuple):
    """A text file and its translation.

    Args:
        source: path of the text.
        target: path of the translation. If it ends in .gz, source and translation are gzip.
        errors: path of the records of lines that could not be translated.
        work: path of the directory of finished parts.
    """

    source: str
    target: str
    errors: str
    work: str

    @property
    def record(self):
        """The path of the record, a file that exists when the translation is complete."""
        return f"{self.work}.json"

    def part(self, first):
        """The path of the translation of the lines from number `first` (int, from 0) on."""
        return FileSystems.join(self.work, f"{first:012}")

    def part_errors(self, first):
        """The path of the records of the lines of a part that could not be translated."""
        return f"{self.part(first)}.jsonl"

    def read_record(self):
        """The record, dict of `lines`, `errors` (whether there are some) and `bytes`; None if there is none."""
        if not FileSystems.exists(self.record):
            return None
        with FileSystems.open(self.record, **RAW) as file:
            return json.load(file)

    def size(self):
        """The size of the translation in bytes; None if it is not there."""
        found = FileSystems.match([self.target])[0].metadata_list
        return found[0].size_in_bytes if found else None

    def is_finished(self):
        """Whether the translation and the records of its errors exist as the record describes them."""
        record = self.read_record()
        if record is None or record["bytes"] != self.size():
            return False
        return not record["errors"] or FileSystems.exists(self.errors)


def find_files(pattern, output, asked):
    """The files that a pattern matches, with the places of their translations.

    The translation of `a/b/c.txt` is `OUTPUT/c.txt` if the pattern is `a/b/*.txt`, and `OUTPUT/b/c.txt` if it is
    `a/*/*.txt`.

    A pattern may match the output directory, too, as `a/**` matches `a/out`. Files in the output directory are no
    input.

    Args:
        pattern: path, in which "*" stands for any part of a name, "**" for any part of a path and "?" for a letter.
        output: path of the directory of the translations.
        asked: everything that the translations depend on besides the texts, in a form for JSON.

    Returns:
        list of `BulkFile`, in the order of their names.

    Raises:
        FileError: if the files cannot be listed.
        UserError: if no file matches, if the pattern is a directory, or if a translation would replace its source.
    """
    pattern, output = _absolute(pattern), _absolute(output)
    if isdir(pattern):
        raise UserError(f"{pattern} is a directory: name the files in it, such as '{pattern}/*.txt'")
    found = _match(pattern)
    root = re.match(r"[^*?\[]*/", pattern)[0]
    files = []
    for metadata in sorted(found, key=lambda metadata: metadata.path):
        target = FileSystems.join(output, metadata.path.removeprefix(root))
        if target == metadata.path:
            raise UserError(f"the translation would take the place of its source. Received: {target} for both")
        if not (output.startswith(root) and metadata.path.startswith(f"{output}/")):
            files.append(_bulk_file(metadata, target, output, asked))
    if not files:
        raise UserError(f"no file matches {pattern}")
    return files


def find_file(source, target, asked):
    """The text file at a path, a `BulkFile`, with the path of its translation. `asked` as in `find_files`.

    Raises:
        FileError: if there is no such file.
    """
    found = _match(glob.escape(_absolute(source)))
    if not found:
        raise FileError(f"cannot read {source}: no such file")
    target = _absolute(target)
    return _bulk_file(found[0], target, target.rpartition("/")[0], asked)


def check_texts(files):
    """Raises UserError if a file (list of `BulkFile`) is no text, and FileError if it cannot be read."""
    for file in files:
        with open_text(file.source) as text:
            check_text(text.read(FIRST_BYTES), file.source)


def _match(pattern):
    try:
        return FileSystems.match([pattern])[0].metadata_list
    except (BeamIOError, OSError, ValueError) as error:  # ValueError: a file system that is not installed
        raise FileError(f"cannot list {pattern}: {error}") from error


def _bulk_file(metadata, target, output, asked):
    state = [metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds, asked]
    fingerprint = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]
    directory, slash, name = target.rpartition("/")
    work = FileSystems.join(output, WORK, fingerprint)
    return BulkFile(metadata.path, target, f"{directory}{slash}errors-{name}.jsonl", work)


def prepare_output(output):
    """Makes the output directory, before the long work.

    Args:
        output: path.

    Raises:
        FileError: if it cannot be written.
    """
    work = FileSystems.join(_absolute(output), WORK)
    try:
        with new_file(FileSystems.join(work, "about.txt"), work) as file:
            file.write(ABOUT.encode("utf-8"))
    except FileError as error:
        reason = getattr(error.__cause__, "strerror", None) or error.__cause__
        raise FileError(f"cannot write into {output}: {reason}") from error


def _absolute(path):
    return path if "://" in path else abspath(path)


@contextlib.contextmanager
def open_text(path):
    """A context of the bytes of a text file, unpacked if it is gzip.

    Raises:
        FileError: if it cannot be read, or is damaged.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(FileSystems.open(path, **RAW))
            yield stack.enter_context(gzip.GzipFile(fileobj=file)) if path.endswith(".gz") else file
    except (BeamIOError, OSError, EOFError, zlib.error) as error:  # the last two: gzip, of a damaged file
        raise FileError(f"cannot read {path}: {error}") from error


@contextlib.contextmanager
def new_file(path, work):
    """A context of a binary file, which gets its name when it is complete.

    Until then, and after an error, the file has a unique name in `work`: another process may write the same file.

    Args:
        path: of the file.
        work: path of a directory on the same file system.

    Raises:
        FileError: if it cannot be written.
    """
    temporary = FileSystems.join(work, f"{uuid.uuid4().hex}.partial")
    try:
        with FileSystems.create(temporary, **RAW) as file:
            yield file
        _rename(temporary, path)
    except (BeamIOError, OSError) as error:
        raise FileError(f"cannot write {path}: {error}") from error


def _rename(temporary, path):
    directory = path.rpartition("/")[0]
    if not FileSystems.exists(directory):
        with contextlib.suppress(OSError):  # another process has just made it
            FileSystems.mkdirs(directory)
    try:
        FileSystems.rename([temporary], [path])
    except BeamIOError:
        if not FileSystems.exists(path):
            raise
        FileSystems.delete([path])  # some file systems replace no file
        FileSystems.rename([temporary], [path])


def count_parts(files):
    """The number of finished parts of unfinished files.

    Args:
        files: list of `BulkFile` of one output directory.
    """
    pattern = FileSystems.join(files[0].work.rpartition("/")[0], "*", PART_NAME)
    return len(FileSystems.match([pattern])[0].metadata_list)


def remove_directory(path):
    """Removes a directory with its files, if it exists. An error does no harm: nobody reads the files again."""
    with contextlib.suppress(BeamIOError, OSError):
        if files := FileSystems.match([FileSystems.join(path, "*")])[0].metadata_list:
            FileSystems.delete([metadata.path for metadata in files])
        if FileSystems.exists(path):  # there are no directories in an object store
            FileSystems.delete([path])
