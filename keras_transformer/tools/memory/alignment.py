"""Where the words of a translation from the memory come from, told by the translation of the model.

A document needs this to put tags around the right words. A word that both translations have comes from the words that
the model says. Of all other words, only the place in the sentence is known.
"""

import difflib

import numpy as np

from keras_transformer.tools.words import tokens_of
from keras_transformer.translation.results import Explanation

END, SPACE = "</s>", "▁"
LEAST_FREE = 1e-3
STEEPNESS = 10.0  # as for words of a document of which attention is unsure


def explained(text: str, translation: str, of_model: Explanation, spans=()) -> Explanation:
    """Explains a translation that the model has not made.

    Args:
        text: str.
        translation: str.
        of_model: `Explanation` of the model's translation of the text, or of the first part of it.
        spans: list of (S tokens, T tokens), lists of int. The words of each part of the translation come from the words
            of its part of the text, and all others come from others. The first of two that do not fit together counts.

    Returns:
        `Explanation`, whose pieces are the T and S tokens of `tokens_of`. Each row of its alignment, float64 (T, S),
        has the sum 1. All its scores are 0.
    """
    source_pieces, pieces = _pieces(text), _pieces(translation)
    alignment = _owners(translation, of_model.pieces) @ of_model.alignment @ _owners(text, of_model.source_pieces).T
    known = np.ones(alignment.shape, bool)
    for of_source, of_target in spans:
        is_inside = np.isin(range(len(pieces)), of_target)[:, None] == np.isin(range(len(source_pieces)), of_source)
        known = np.where((known & is_inside).any(axis=1, keepdims=True), known & is_inside, known)
    alignment = alignment * known
    rows, columns = ((np.arange(length) + 0.5) / length for length in alignment.shape)
    free = np.maximum(1 - alignment.sum(axis=0), LEAST_FREE)  # words of the source to which no other word has come
    near = np.exp(-STEEPNESS * np.abs(rows[:, None] - columns)) * free * known  # the same place in both
    alignment = np.where(alignment.any(axis=1, keepdims=True), alignment, near)
    alignment /= alignment.sum(axis=1, keepdims=True)
    return Explanation(source_pieces, pieces, np.zeros(len(pieces), "float32"), alignment)


def _pieces(text):
    """The tokens of a text, as pieces of a tokenizer: a space is part of the token behind it."""
    return [
        f"{'' if start and not text[start - 1].isspace() else SPACE}{text[start:end]}" for start, end in tokens_of(text)
    ]


def _owners(text, pieces):
    """float (tokens, pieces): 1 where a piece is in a token of the text. The pieces may be those of another text."""
    written = ["" if piece == END else piece.replace(SPACE, " ") for piece in pieces]
    ends = np.cumsum([len(piece) for piece in written], dtype=int)
    starts = ends - [len(piece) for piece in written]
    other_text = "".join(written)
    others, words = tokens_of(other_text), _words(text)
    owners = np.zeros((len(words), len(pieces)))
    for place, other, length in difflib.SequenceMatcher(None, words, _words(other_text), False).get_matching_blocks():
        for row, (start, end) in zip(owners[place : place + length], others[other : other + length], strict=True):
            row[(starts < end) & (ends > start)] = 1
    return owners


def _words(text):
    """The tokens of a text without their case: list of str."""
    return [text[start:end].casefold() for start, end in tokens_of(text)]
