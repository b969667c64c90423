"""From pieces to words: a translation, and how much each of its words comes from each word of the source."""

import difflib
import itertools
import re
import unicodedata
from typing import NamedTuple

import numpy as np
import regex

from keras_transformer.normalization import INVISIBLE, SIMILAR, ZERO_WIDTH_SPACE
from keras_transformer.protection import PLACEHOLDERS, Protection
from keras_transformer.tools.words import has_words, tokens_of

WORD_OR_STOP = regex.compile(r"[\p{L}\p{N}\p{P}]")
UNREAD = regex.compile(r"[^\s\p{C}\p{M}]")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
END, SPACE = "</s>", "▁"
# Where attention is unsure, the neighbours of a word decide, and its place in the sentence a little: benchmarks/tags.py
# and benchmarks/markup.py measure this.
NEIGHBOURS, DIAGONAL, STEEPNESS, LEAST_SHARE = 0.3, 0.01, 10.0, 0.35


class Aligned(NamedTuple):
    """A translation with its alignment.

    Args:
        text: str.
        weights: float (T, S), how much each of its T tokens comes from each of the S tokens of the source; the tokens
            are those of `tokens_of`.
    """

    text: str
    weights: np.ndarray


def align_words(translator, texts, on_progress=None):
    """Translates texts, with alignments. Long text is explained part by part.

    A word that the translator hides comes from its source form, wherever attention looks.

    Args:
        translator: object with the method `explain` of `TextTranslator`, and with its `protection` if it hides words.
        texts: list of str.
        on_progress: called with the number of texts done since the last call.

    Returns:
        list of `Aligned`.
    """
    protection = getattr(translator, "protection", None) or Protection(patterns=False)
    found, changed = [[] for _ in texts], set()
    waiting = [(i, 0, len(text), True) for i, text in enumerate(texts) if text.strip()]
    while waiting:
        explanations = translator.explain([texts[i][begin:stop] for i, begin, stop, _ in waiting], on_progress)
        going_on = []
        for (i, begin, stop, is_whole), explanation in zip(waiting, explanations, strict=True):
            part, end, is_verbatim = _read(texts[i][begin:stop], explanation, protection)
            if not is_verbatim:
                changed.add(i)
            elif is_whole and (gaps := _gaps(texts[i][begin : begin + end], part[2])):
                edges = [begin, *(begin + edge for gap in gaps for edge in gap), stop]
                pieces = zip(edges[::2], edges[1::2], strict=True)
                going_on += [(i, *piece, False) for piece in pieces if has_words(texts[i][slice(*piece)])]
                continue
            found[i].append((begin, *part))
            if end and has_words(texts[i][begin + end : stop]):
                going_on.append((i, begin + end, stop, is_whole))
        waiting, on_progress = going_on, None
    parts = [sorted(parts, key=lambda part: part[0]) for parts in found]
    return [
        _joined(text, own, number not in changed) for number, (text, own) in enumerate(zip(texts, parts, strict=True))
    ]


def _gaps(text, source_spans):
    """The runs of characters inside a text that the model has not read: list of (start, end)."""
    spans = sorted(span for span in source_spans if span[1])
    between = [(end, start) for (_, end), (start, _) in itertools.pairwise(spans) if end < start]
    return [(start, end) for start, end in between if UNREAD.search(text[start:end])]


def _is_verbatim(source, text):
    """Whether a model has read a text as it stands, perhaps without some signs."""
    characters = iter(_characters(text)[0])
    return all(c in characters for c in _characters(source)[0])


def _read(text, explanation, protection):
    """Reads the explanation of a text, and finds where the explained source ends.

    Returns:
        ((translation, its piece spans, spans of the source pieces in `text`, alignment, `_pairs`), int, bool). The
        last one is that of `_is_verbatim`.
    """
    hidden = protection.hide(text)  # as `explain` did
    placeholders = [i for i, piece in enumerate(explanation.source_pieces) if piece in PLACEHOLDERS]
    words = dict(zip(placeholders, hidden.words, strict=False))  # the source may end before the text
    forms = {
        i: "" if is_kept else text[slice(*span)]
        for i, span, is_kept in zip(placeholders, hidden.spans, hidden.is_kept, strict=False)
    }
    pairs = _pairs(explanation.pieces, explanation.source_pieces)
    target, spans = built(explanation.pieces, {place: words[other] for place, other in pairs})
    source, source_spans = built(explanation.source_pieces, forms)
    places = _places(source, text)
    source_spans = [(places[start][0], places[end - 1][1]) if end > start else (0, 0) for start, end in source_spans]
    for i, span in zip(placeholders, hidden.spans, strict=False):
        source_spans[i] = span
    end = max((end for _, end in source_spans), default=0)
    part = target, spans, source_spans, np.asarray(explanation.alignment), pairs
    return part, end, _is_verbatim(source, text)


def _pairs(pieces, source_pieces):
    """The placeholders of a translation that its source has: list of (place in `pieces`, place in `source_pieces`)."""
    left = {name: [i for i, piece in enumerate(source_pieces) if piece == name] for name in PLACEHOLDERS}
    return [(place, left[piece].pop(0)) for place, piece in enumerate(pieces) if left.get(piece)]


def built(pieces, words=None):
    """The text of pieces, and the characters of each piece: list of (start, end).

    Args:
        pieces: list of str.
        words: dict, place in `pieces` -> the word in place of the piece; None for none.
    """
    text, spans, waiting, words = "", [], b"", words or {}
    for place, piece in enumerate([*pieces, END]):
        byte = BYTE.fullmatch(piece)
        if byte:
            waiting += bytes([int(byte[1], 16)])
        elif waiting:
            text, waiting = text + waiting.decode("utf-8", "replace"), b""
        has_space = text and not text.endswith(" ")
        if piece.startswith(SPACE) and has_space or piece == END and has_space:
            text += " "
        start = len(text)
        text += words.get(place, "" if byte or piece == END else piece.replace(SPACE, " ").strip(" "))
        spans.append((start, len(text) + bool(byte)))
    length = len(text.rstrip(" "))
    return text[:length], [(min(start, length), min(end, length)) for start, end in spans[:-1]]


def _places(built_text, text):
    """For each character of the built text, the place in `text` that it comes from: list of (start, end).

    An accent may be a character of its own in one of the two.
    """
    (wanted, owners), (known, found) = _characters(built_text), _characters(text)
    if wanted != known[: len(wanted)]:
        found = _matched(wanted, known, found)
    places, pairs = [], [*zip(owners, found, strict=False)]
    first, last = dict(reversed(pairs)), dict(pairs)
    for i in range(len(built_text)):
        places.append((first[i], last[i] + 1) if i in first else places[-1] if places else (0, 1))
    return places


def _characters(text):
    """The characters of a text in their plain forms, and the place of each, without those that tokenizers leave out.

    A model may read quotes and dashes as those of ASCII.
    """
    seen = [(c, i) for i, c in enumerate(text) if c != ZERO_WIDTH_SPACE and not INVISIBLE.match(c)]
    plain = [(SIMILAR.get(c, c), i) for char, i in seen for c in unicodedata.normalize("NFKD", char) if c.strip()]
    return [c for c, _ in plain], [i for _, i in plain]


def _matched(wanted, known, places):
    """As `_places`, for text that the tokenizer has normalised in its own way: by the longest equal parts."""
    found = [None] * len(wanted)
    for start, other, length in difflib.SequenceMatcher(None, wanted, known, autojunk=False).get_matching_blocks():
        found[start : start + length] = places[other : other + length]
    last = 0
    for i, place in enumerate(found):
        found[i] = last = last if place is None else place
    return found


def _joined(text, parts, is_verbatim):
    """The `Aligned` of a text that was explained in parts."""
    before, after = _unread(text, parts, is_verbatim)
    gaps = [_between(text, *each) if is_verbatim else (0, 0) for each in itertools.pairwise(parts)]
    gaps.append((len(text), len(text)))
    joints = [*(text[slice(*gap)] or " " for gap in gaps[:-1]), after]
    target = before + "".join(part[1] + joint for part, joint in zip(parts, joints, strict=False))
    tokens, source_tokens = tokens_of(target), tokens_of(text)
    weights, offset = np.zeros((len(tokens), len(source_tokens))), len(before)
    known = np.zeros_like(weights)  # the rows of hidden words, and of signs that the model does not read
    known[np.diag_indices(len(tokens_of(before)))] = 1
    for place in range(1, len(tokens_of(after)) + 1):
        known[-place, -place] = 1
    for part, (start, end), joint in zip(parts, gaps, joints, strict=False):
        begin, translation, spans, source_spans, alignment, pairs = part
        rows = _shares(tokens, [(start + offset, end + offset) for start, end in spans])
        columns = _shares(source_tokens, [(start + begin, end + begin) for start, end in source_spans])
        weights += rows @ alignment @ columns.T
        for place, other in pairs:
            of_word, of_source = np.flatnonzero(rows[:, place]), np.flatnonzero(columns[:, other])
            is_one_to_one = len(of_word) == len(of_source)
            known[np.ix_(of_word, of_source)] = np.eye(len(of_word)) if is_one_to_one else 1 / max(1, len(of_source))
        offset += len(translation)
        kept = _inside(tokens, offset, offset + len(joint)), _inside(source_tokens, start, end)
        for place, other in zip(*kept, strict=False):
            known[place, other] = 1
        offset += len(joint)
    is_known = known.any(axis=1, keepdims=True)
    return Aligned(target, np.where(is_known, known, _sharpened(np.where(is_known, known, weights))))


def _inside(tokens, start, end):
    return [i for i, (first, last) in enumerate(tokens) if start <= first and last <= end]


def _between(text, one, other):
    """Where the characters between two parts are that the model has not read: (start, end), (0, 0) without any."""
    end = one[0] + max((end for _, end in one[3]), default=0)
    start = other[0] + min((start for start, end in other[3] if end), default=0)
    return (end, start) if UNREAD.search(text[end:start]) else (0, 0)


def _unread(text, parts, is_verbatim):
    """The signs around a text, which the model does not read: they stand in the translation, too."""
    spans = [(begin + start, begin + end) for begin, _, _, of_source, *_ in parts for start, end in of_source if end]
    first, last = (min(start for start, _ in spans), max(end for _, end in spans)) if spans else (0, len(text))
    return tuple(
        edge if UNREAD.search(edge) and (is_verbatim or not WORD_OR_STOP.search(edge)) else ""
        for edge in (text[:first], text[last:])
    )


def _sharpened(weights):
    """The weights (T, S), raised where the neighbours look, near the diagonal, and where both sides choose each other.

    A row says where a target token comes from, and a column where a source token goes to. So a source token that all
    target tokens look at, such as the full stop, counts little for each of them. Of a row without a clear choice, the
    token before a token may come from the token before its source, and the next one from the next one.
    """
    rows, columns = ((np.arange(length) + 0.5) / max(1, length) for length in weights.shape)
    diagonal = np.exp(-STEEPNESS * np.abs(rows[:, None] - columns))
    beside = np.zeros_like(weights)
    beside[1:, 1:] += weights[:-1, :-1]
    beside[:-1, :-1] += weights[1:, 1:]
    beside *= 1 - _rows(weights).max(axis=1, keepdims=True, initial=0)  # less, the surer the row
    weights = weights + (DIAGONAL * diagonal + NEIGHBOURS * beside) * weights.any(axis=1, keepdims=True)
    weights = _rows(_rows(weights) * _rows(weights.T).T)
    return weights / np.maximum(weights.sum(axis=0), LEAST_SHARE)


def _rows(weights):
    """The weights, their rows with the sum 1, or 0 if all are 0."""
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)


def _shares(tokens, spans):
    """float (tokens, spans): the share of the characters of each span that are in each token."""
    starts, ends = np.array(tokens).reshape(-1, 2).T[:, :, None]
    others, other_ends = np.array(spans).reshape(-1, 2).T[:, None, :]
    common = np.minimum(ends, other_ends) - np.maximum(starts, others)
    return np.maximum(common, 0) / np.maximum(other_ends - others, 1)
