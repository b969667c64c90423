"""Files and directories that appear when they are complete, and the checks of paths before long work."""

import contextlib
import errno
import glob
import os
import shutil
import uuid
from pathlib import Path

import psutil

from keras_transformer.errors import FileError

# Causes of an OSError that the user can mend. Any other cause is a bug, and keeps its traceback.
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR}
FORBIDDEN |= {errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG}

_unfinished = set()  # the directories that this process is filling


def write_whole(path, write, previous=None):
    """Calls `write` with a temporary path beside `path`, of the same suffix, and renames the result into place.

    An interruption leaves the old file or the new one. The directory is made if it does not exist. The new file has the
    permissions of the old one.

    Args:
        path: of the file.
        write: function of a path.
        previous: path to which the old file is renamed; None removes the old file.

    Raises:
        FileError: if the file cannot be written; the old file is then as it was.
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        if path.exists():
            shutil.copymode(path, temporary)
        _flush_to_disk(temporary)
        if previous and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        _flush_to_disk(path.parent)
    except OSError as error:
        raise FileError.of("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):  # it does not exist if all went well
            temporary.unlink()


@contextlib.contextmanager
def reading(path, remedy="put a copy of it back"):
    """A context in which a file that this project wrote is read and parsed.

    Args:
        path: of the file.
        remedy: str, for a message.

    Raises:
        FileError: if the file cannot be read, or lacks something.
    """
    try:
        yield
    except OSError as error:
        raise FileError.of("read", path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path} is damaged: {remedy}") from error


def _flush_to_disk(path):
    """Without fsync, a power failure can leave a file that exists but is empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_directory(path):
    """A context that fills a directory under a temporary name, and renames it into place at its end.

    Args:
        path: of the directory. At the end of the context, it must be empty or not exist.

    Yields:
        Path of an empty directory beside `path`. An error in the context removes it, and its parent if that is new.

    Raises:
        FileError: if the disk is full, or if something else forbids writing.
    """
    path = Path(os.path.realpath(path))
    for left_over in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*.partial"):
        process = int(left_over.name.split(".")[-3])
        if left_over not in _unfinished and (process == os.getpid() or not psutil.pid_exists(process)):
            shutil.rmtree(left_over, ignore_errors=True)  # a killed process has left it
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial")
    _unfinished.add(temporary)
    is_new = not path.parent.exists()
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.rename(path)
    except OSError as error:
        if error.errno not in FORBIDDEN and temporary.exists():  # else it could not be made
            raise
        raise FileError.of("write", path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _unfinished.remove(temporary)
        if is_new:
            with contextlib.suppress(OSError):  # it is empty after an error alone
                path.parent.rmdir()


def versions_in(export_dir):
    """The versions in a directory, as TensorFlow Serving knows them: names of ASCII digits, of a number below 2^63.

    Args:
        export_dir: the directory of all versions; it need not exist.

    Returns:
        dict from int to Path.
    """
    found = [path for path in Path(export_dir).glob("[0-9]*") if path.name.isascii() and path.name.isdecimal()]
    return {int(path.name): path for path in found if int(path.name) < 2**63 and path.is_dir()}


def remove_partial_files(directory):
    """Removes partial files of killed processes in a directory and below it. No other process may write there."""
    for partial in [*directory.rglob(".*.partial"), *directory.rglob(".*.partial.*")]:
        shutil.rmtree(partial, ignore_errors=True) if partial.is_dir() else partial.unlink(missing_ok=True)
