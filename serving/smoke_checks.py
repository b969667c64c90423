"""The common parts of the smoke tests: texts, and functions that report a failure."""

from dataclasses import dataclass

import numpy as np

TEXTS = ["A man is riding a bicycle.", "Two dogs play in the snow.", "12 March 2026"]
ODD_TEXTS = {
    "an empty text": b"",
    "white space": b" \t ",
    "a long text": b"a man rides a horse " * 100,
    "control characters": b"\x00\x01\x1b[31m\x7f",
    "invalid UTF-8": b"\xff\xfe\x80 one",
    "emoji, right to left": "😀👩‍👩‍👧 שלום".encode(),
}
NOBODY, NO_VERSION = "no-such-thing", 999_999_999
TOLERANCE = 1e-3  # A batch of another shape rounds scores differently.


class Shortfall(Exception):
    """A failed check. The message describes the finding."""


@dataclass(frozen=True)
class Check:
    """One line of the table. `run` returns its finding, str, or raises `Shortfall`."""

    api: str
    promise: str
    run: object


def expect(condition, found):
    """Raises Shortfall with the finding unless the condition holds."""
    if not condition:
        raise Shortfall(f"found {str(found)[:200]}")


def expect_same(found, expected):
    """Raises Shortfall unless two lists of (translation, score) are equal."""
    expect([text for text, _ in found] == [text for text, _ in expected], f"{found}, not {expected}")
    scores, wanted = ([score for _, score in rows] for rows in (found, expected))
    expect(np.allclose(scores, wanted, TOLERANCE, TOLERANCE), f"scores {scores}, not {wanted}")
