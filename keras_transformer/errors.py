"""The mistakes of users, as opposed to bugs: the message of each error is one line with the remedy."""

import os
from pathlib import Path


class UserError(ValueError):
    """A mistake that the user can mend. The programs print its message as one line, without a traceback."""


class FileError(UserError):
    """A file that cannot be read or written."""

    @classmethod
    def of(cls, action, path, error):
        """The error of an OSError: "cannot write out.txt: No space left on device".

        Args:
            action: "read" or "write".
            path: of the file.
            error: OSError.
        """
        return cls(f"cannot {action} {path}: {error.strerror or error}")


class ConfigError(UserError):
    """A setting, or a combination of settings, that is not possible."""


class CorpusError(UserError):
    """A corpus that is named wrongly, cannot be read or holds nothing to learn from."""


class TokenizerError(UserError):
    """A tokenizer that cannot be trained or read."""


class CheckpointError(UserError):
    """A checkpoint or a run directory that cannot be used."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint whose file cannot be read."""


class DivergenceError(UserError):
    """A training whose loss explodes again and again."""


class ExportError(UserError):
    """An export that cannot be made, or that does not translate as its model does."""


def check_positive(**sizes):
    """Raises UserError, with its name, for a size that is less than 1."""
    for name, value in sizes.items():
        if value < 1:
            raise UserError(f"`{name}` must be at least 1. Received: {name}={value}")


def check_new_directory(path):
    """Raises FileError if a directory has something in it, or if it cannot be made."""
    path = Path(path)
    place = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileError(f"cannot write {path}: it exists already")
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise FileError(f"cannot write {path}: you may not write to {place}")
