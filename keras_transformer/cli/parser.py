"""The command line of a program: how a word becomes a value, and one line for a mistake in it."""

import argparse
import contextlib
import difflib
import itertools
import re
import sys
from types import UnionType
from typing import Literal, get_args, get_origin

from keras_transformer.errors import describe_type

WORDS = {bool: {"true": True, "True": True, "false": False, "False": False}, type(None): {"None": None}}

SIMILAR = 0.7  # of two flags, by difflib: one may be meant with the other


class Parser(argparse.ArgumentParser):
    """The flags of a program.

    A flag is written in full, and `--batch-size` is read as `--batch_size`. A mistake is one line and exit status 2.
    A help text names another flag as the library does: its name in backquotes.
    """

    def __init__(self, description, **settings):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, formatter_class=formatter, allow_abbrev=False, **settings)
        for kind in (int, float, bool):
            self.register("type", kind, reader(kind))

    @property
    def flags(self):
        """The names of the flags, without dashes: set of str."""
        return {flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")}

    def parse_args(self, args=None, namespace=None):
        """Parses the command line. It ends the program for a word that is no flag of it."""
        arguments, others = self.parse_known_args(args, namespace)
        if others:
            self.refuse(others)
        return arguments

    def parse_known_args(self, args=None, namespace=None):
        """Parses the command line: (arguments, the words that are no flags of the program)."""
        words = sys.argv[1:] if args is None else args
        words = [self._with_underscores(word) for word in words]
        for flag, value in itertools.pairwise([*words, "-"]):
            name, equals, given = flag.partition("=")
            action = self._option_string_actions.get(name)
            if action and action.default != "" and (not given if equals else not value and action.nargs != 0):
                self.error(f"{name} must not be empty: leave it out, or give it a value")
        return super().parse_known_args(words, namespace)

    def _with_underscores(self, word):
        name, equals, value = word.partition("=")
        flag = f"--{name[2:].replace('-', '_')}"
        return f"{flag}{equals}{value}" if name[:2] == "--" and flag in self._option_string_actions else word

    def refuse(self, words):
        """Ends the program for words that are no flags of it, and names the flag that the user may have meant."""
        near = difflib.get_close_matches(words[0].partition("=")[0], self._option_string_actions, 1, SIMILAR)
        hint = f"did you mean {near[0]}?" if near and words[0][0] == "-" else "--help lists all flags"
        self.error(f"unrecognized arguments: {' '.join(words)}; {hint}")

    def error(self, message):
        """Ends the program with one line and exit status 2."""
        message = re.sub(r"^argument (--\w+): must", r"\1 must", message)
        self.exit(2, f"error: {message}\n")

    def format_help(self):
        """The text of `--help`."""
        return with_dashes(super().format_help(), self.flags)


def with_dashes(text, flags):
    """A text in which the arguments that are flags have dashes: `beam_size` in backquotes becomes --beam_size.

    Args:
        text: str, in which the library names its arguments in backquotes.
        flags: names of the flags of the program, without dashes. Other words keep their backquotes.
    """
    return re.sub(r"`(\w+)`", lambda found: f"--{found[1]}" if found[1] in flags else found[0], text)


def reader(kind):
    """The function that reads a value from a word of the command line, for argparse.

    Args:
        kind: type of the value: int, float, str, bool, a `Literal` of strings, or one of them or None.
    """
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)

    def read(word):
        for each in reversed(kinds):  # None is the last of them, and tried first: as text, "None" would be a name
            with contextlib.suppress(KeyError, ValueError):
                return _read(word, each)
        raise argparse.ArgumentTypeError(f"must be {describe_type(kind)}. Received: {word}")

    return read


def _read(word, kind):
    if get_origin(kind) is Literal:
        return {choice: choice for choice in get_args(kind)}[word]
    return WORDS[kind][word] if kind in WORDS else kind(word)
