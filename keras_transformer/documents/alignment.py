"""From the pieces of an explanation to words: a translation, and how much its words come from those of the source."""

import difflib
import re
import unicodedata
from typing import NamedTuple

import numpy as np

from keras_transformer.documents.fragment import tokens_of

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
END, SPACE = "</s>", "▁"
# Attention is often unsure. What it leaves open, the place in the sentence decides; benchmarks/markup.py measures this.
DIAGONAL, STEEPNESS, LEAST_SHARE = 0.15, 10.0, 0.35


class Aligned(NamedTuple):
    """A translation with its alignment.

    Args:
        text: str.
        weights: float (T, S), how much each of its T tokens comes from each of the S tokens of the source; the tokens
            are those of `tokens_of`.
    """

    text: str
    weights: np.ndarray


def align(translator, texts, on_progress=None):
    """Translates texts, with alignments. Long text is explained part by part.

    Args:
        translator: object with the method `explain` of `TextTranslator`.
        texts: list of str.
        on_progress: called with the number of texts done since the last call.

    Returns:
        list of `Aligned`.
    """
    found = [[] for _ in texts]
    begins = [0] * len(texts)
    waiting = [i for i, text in enumerate(texts) if text.strip()]
    while waiting:
        explanations = translator.explain([texts[i][begins[i] :] for i in waiting], on_progress)
        going_on = []
        for i, explanation in zip(waiting, explanations, strict=True):
            part, end = _read(texts[i][begins[i] :], explanation)
            found[i].append((begins[i], *part))
            begins[i] += end
            if end and re.search(r"\w", texts[i][begins[i] :]):
                going_on.append(i)
        waiting, on_progress = going_on, None
    return [_joined(text, parts) for text, parts in zip(texts, found, strict=True)]


def _read(text, explanation):
    """((translation, its piece spans, spans of the source pieces in `text`, alignment), where the source ends)."""
    target, spans = built(explanation.pieces)
    source, source_spans = built(explanation.source_pieces)
    places = _places(source, text)
    source_spans = [(places[start], places[end - 1] + 1) if end > start else (0, 0) for start, end in source_spans]
    end = max((end for _, end in source_spans), default=0)
    return (target, spans, source_spans, np.asarray(explanation.alignment)), end


def built(pieces):
    """The text of pieces, and the characters of each piece: list of (start, end)."""
    text, spans, waiting = "", [], b""
    for piece in [*pieces, END]:
        byte = BYTE.fullmatch(piece)
        if byte:
            waiting += bytes([int(byte[1], 16)])
        elif waiting:
            text, waiting = text + waiting.decode("utf-8", "replace"), b""
        has_space = text and not text.endswith(" ")
        if piece.startswith(SPACE) and has_space or piece == END and has_space:
            text += " "
        start = len(text)
        text += "" if byte or piece == END else piece.replace(SPACE, " ").strip(" ")
        spans.append((start, len(text) + bool(byte)))
    length = len(text.rstrip(" "))
    return text[:length], [(min(start, length), min(end, length)) for start, end in spans[:-1]]


def _places(built_text, text):
    """For each character of the built text, the place in `text` that it comes from: list of int."""
    characters = [(c, i) for i, char in enumerate(text) for c in unicodedata.normalize("NFKC", char) if c.strip()]
    wanted = [c for c in built_text if c.strip()]
    known = [c for c, _ in characters]
    if wanted == known[: len(wanted)]:
        found = [i for _, i in characters[: len(wanted)]]
    else:
        found = _matched(wanted, known, [i for _, i in characters])
    places, of_wanted = [], iter(found)
    for c in built_text:
        places.append(next(of_wanted) if c.strip() else places[-1] if places else 0)
    return places


def _matched(wanted, known, places):
    """As `_places`, for text that the tokenizer has normalised in its own way: by the longest equal parts."""
    found = [None] * len(wanted)
    for start, other, length in difflib.SequenceMatcher(None, wanted, known, autojunk=False).get_matching_blocks():
        found[start : start + length] = places[other : other + length]
    last = 0
    for i, place in enumerate(found):
        found[i] = last = last if place is None else place
    return found


def _joined(text, parts):
    """The `Aligned` of a text that was explained in parts."""
    target = " ".join(translation for _, translation, *_ in parts)
    tokens, source_tokens = tokens_of(target), tokens_of(text)
    weights, offset = np.zeros((len(tokens), len(source_tokens))), 0
    for begin, translation, spans, source_spans, alignment in parts:
        rows = _shares(tokens, [(start + offset, end + offset) for start, end in spans])
        columns = _shares(source_tokens, [(start + begin, end + begin) for start, end in source_spans])
        weights += rows @ alignment @ columns.T
        offset += len(translation) + 1
    return Aligned(target, _sharpened(weights))


def _sharpened(weights):
    """The weights (T, S) with a preference for the diagonal, each source token's share of them made equal."""
    rows, columns = ((np.arange(length) + 0.5) / max(1, length) for length in weights.shape)
    diagonal = np.exp(-STEEPNESS * np.abs(rows[:, None] - columns))
    is_aligned = weights.any(axis=1, keepdims=True)
    weights = weights + DIAGONAL * diagonal * is_aligned
    return weights / np.maximum(weights.sum(axis=0), LEAST_SHARE)


def _shares(tokens, spans):
    """float (tokens, spans): the share of each span's characters that is in each token."""
    starts, ends = np.array(tokens).reshape(-1, 2).T[:, :, None]
    others, other_ends = np.array(spans).reshape(-1, 2).T[:, None, :]
    common = np.minimum(ends, other_ends) - np.maximum(starts, others)
    return np.maximum(common, 0) / np.maximum(other_ends - others, 1)
