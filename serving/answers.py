"""The client's answers: a row of a signature's outputs as Python values, without padding."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Translation:
    """A translation and its score: the log-probability divided by the length penalty."""

    text: str
    score: float

    @classmethod
    def of(cls, row):
        """Makes a translation from a row of `translate`, `translate_with_options` or `sample`."""
        return cls(_text(row["translation"]), row["score"])

    @classmethod
    def several(cls, row):
        """Makes a list of translations from a row of `alternatives`."""
        return [cls(_text(text), score) for text, score in zip(row["translations"], row["scores"], strict=True)]


@dataclass(frozen=True)
class Score:
    """The score of a given translation. `token_scores` are the log-probabilities of its T `pieces`."""

    score: float
    pieces: list
    token_scores: list

    @classmethod
    def of(cls, row):
        """Makes a score from a row of `score`."""
        pieces = _without_padding(row["pieces"])
        return cls(row["score"], pieces, row["token_scores"][: len(pieces)])


@dataclass(frozen=True)
class Explanation:
    """A translation in T pieces, with the log-probability of each piece and its attention to the S source pieces.

    `alignment` is a list of T lists of S weights.
    """

    source_pieces: list
    pieces: list
    token_scores: list
    alignment: list

    @classmethod
    def of(cls, row):
        """Makes an explanation from a row of `explain`."""
        source_pieces, pieces = _without_padding(row["source_pieces"]), _without_padding(row["pieces"])
        alignment = [weights[: len(source_pieces)] for weights in row["alignment"][: len(pieces)]]
        return cls(source_pieces, pieces, row["token_scores"][: len(pieces)], alignment)


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _without_padding(pieces):
    """Drops the padding: everything from the first "" on."""
    texts = [_text(piece) for piece in pieces]
    return texts[: texts.index("")] if "" in texts else texts
