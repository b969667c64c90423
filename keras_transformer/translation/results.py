"""What a translator finds for one text."""

from typing import NamedTuple

import numpy as np


class Translation(NamedTuple):
    """The translation of one text.

    Args:
        text: str.
        score: float, its log-probability over its length penalty; 0 for blank text.
    """

    text: str
    score: float


class Score(NamedTuple):
    """How likely a given translation of one text is.

    Args:
        score: float, as in `Translation`.
        pieces: list of T str, its pieces, "</s>" at the end of each part.
        token_scores: float32 (T,), the log-probability of each piece.
    """

    score: float
    pieces: list
    token_scores: np.ndarray


class Explanation(NamedTuple):
    """The source pieces that each piece of a translation comes from.

    Args:
        source_pieces: list of S str.
        pieces: list of T str, as in `Score`.
        token_scores: float32 (T,), as in `Score`.
        alignment: float32 (T, S), see `Signatures.explain`.
    """

    source_pieces: list
    pieces: list
    token_scores: np.ndarray
    alignment: np.ndarray


def translation_of(row):
    """The `Translation` in a row of a signature."""
    return Translation(row["translation"].decode("utf-8"), float(row["score"]))


def alternatives_of(row):
    """The `Translation`s in a row of the signature `alternatives`, a list, best first."""
    rows = zip(row["translations"], row["scores"], strict=True)
    return [Translation(text.decode("utf-8"), float(score)) for text, score in rows]


def score_of(row):
    """The `Score` in a row of the signature `score`."""
    pieces = _unpadded(row["pieces"])
    return Score(float(row["score"]), pieces, row["token_scores"][: len(pieces)])


def explanation_of(row):
    """The `Explanation` in a row of the signature `explain`."""
    source_pieces, pieces = _unpadded(row["source_pieces"]), _unpadded(row["pieces"])
    alignment = row["alignment"][: len(pieces), : len(source_pieces)]
    return Explanation(source_pieces, pieces, row["token_scores"][: len(pieces)], alignment)


def _unpadded(pieces):
    return [piece.decode("utf-8") for piece in pieces if piece]
