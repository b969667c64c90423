"""What a client gets: a row of a signature's outputs as Python values, without what other rows have padded it with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Translation:
    """A translation and its score: log-probability over length penalty."""

    text: str
    score: float

    @classmethod
    def of(cls, row):
        """From a row of `translate`, `translate_with_options` or `sample`."""
        return cls(_text(row["translation"]), row["score"])

    @classmethod
    def several(cls, row):
        """A list, from a row of `alternatives`."""
        return [cls(_text(text), score) for text, score in zip(row["translations"], row["scores"], strict=True)]


@dataclass(frozen=True)
class Score:
    """How likely a given translation is; `token_scores` are the log-probabilities of its T `pieces`."""

    score: float
    pieces: list
    token_scores: list

    @classmethod
    def of(cls, row):
        """From a row of `score`."""
        pieces = _without_padding(row["pieces"])
        return cls(row["score"], pieces, row["token_scores"][: len(pieces)])


@dataclass(frozen=True)
class Explanation:
    """A translation in T pieces, with their log-probabilities, and what in the S source pieces each comes from.

    `alignment` is a list of T lists of S weights.
    """

    source_pieces: list
    pieces: list
    token_scores: list
    alignment: list

    @classmethod
    def of(cls, row):
        """From a row of `explain`."""
        source_pieces, pieces = _without_padding(row["source_pieces"]), _without_padding(row["pieces"])
        alignment = [weights[: len(source_pieces)] for weights in row["alignment"][: len(pieces)]]
        return cls(source_pieces, pieces, row["token_scores"][: len(pieces)], alignment)


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _without_padding(pieces):
    """Up to the first that is "": a piece never is."""
    texts = [_text(piece) for piece in pieces]
    return texts[: texts.index("")] if "" in texts else texts
