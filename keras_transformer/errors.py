"""The mistakes of users, as opposed to bugs: each message is one line with the remedy. Numbers and types in words."""

from typing import Literal, get_args, get_origin

WORDS_OF_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "not given"}
WORDS_OF_TYPES |= {tuple[str, ...]: "several texts"}


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


class ToolError(UserError):
    """A tool, or a package that a tool needs, that is not installed."""


def check_positive(**sizes):
    """Raises UserError, with its name, for a size that is no whole number, or less than 1."""
    for name, value in sizes.items():
        if not hasattr(value, "__index__") or value < 1:
            raise UserError(f"`{name}` must be a whole number of at least 1. Received: {name}={value!r}")


def listed(name, values):
    """A list of values. Raises UserError for what has none, or others: None, one str, a dict, a table of columns."""
    if isinstance(values, (str, bytes, dict)) or hasattr(values, "columns") or not hasattr(values, "__iter__"):
        raise UserError(f"`{name}` must be a list, with one for each text. Received: {values!r:.60}")
    return list(values)


def counted(number, noun, plural=None):
    """A number with its noun: "1 pair", "1,200 pairs".

    Args:
        number: int.
        noun: str, of one.
        plural: str, of several; the noun with an "s" by default.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def describe_type(kind):
    """A type in words, such as "a number or not given"."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return " or ".join(WORDS_OF_TYPES[choice] for choice in get_args(kind) or (kind,))
