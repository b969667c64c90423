"""The proof of the exports whose engine has a search of its own: greedy search, piece by piece.

It compares pieces, because detokenizers write some of them differently. It compares greedy search, because engines rank
hypotheses by another length penalty, n^alpha.
"""

import abc
import itertools
import logging
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.translation.directions import default_tags
from keras_transformer.translation.segments import at_once, divide_into_parts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokens:
    """The pieces that stand around a text and before a translation.

    Attributes:
        before, after: lists of str, around the pieces of a text. The engine adds no more than eos behind them.
        start: str, before a translation. The engine adds it.
        prefix: list of str, behind `start`.
    """

    before: list
    after: list
    start: str
    prefix: list

    @classmethod
    def of(cls, translator):
        """The `Tokens` of the default direction of a translator, with all that stands behind a text."""
        model, tags = translator.model, translator.tags
        tag, first = tags.ids(*tags.default) if tags else (None, BOS_ID)
        before = [*model.source_frame.before, *([] if tag is None else [tag])]
        around = (pieces_at(translator.source_tokenizer, ids) for ids in (before, model.source_frame.after))
        start, *prefix = pieces_at(translator.target_tokenizer, [*model.target_frame.before, first])
        return cls(*around, start, prefix)

    def described(self):
        """What a user gives to the engine, for the manifest: a dict."""
        given = {"source_tag": self.before, "source_end": self.after, "target_prefix": self.prefix}
        return {name: " ".join(pieces) for name, pieces in given.items() if pieces}


class Greedy(abc.ABC):
    """Greedy search by an engine. A right export finds the pieces that the run finds.

    The ops of the graph divide texts. Tokenizer, search and detokenizer of the engine do the rest.

    Args:
        reference: `Translator` of the run, with greedy search.
        tokens: `Tokens`.
    """

    name = "the engine"

    def __init__(self, reference, tokens):
        self.reference, self.tokens = reference, tokens

    @abc.abstractmethod
    def source_pieces(self, ids):
        """The pieces of a part for the engine: list of int -> list of str."""

    @abc.abstractmethod
    def search(self, sources, most):
        """Translates parts of equal length.

        Args:
            sources: list of lists of str, with the tokens around them.
            most: int, most pieces of a translation, those of `tokens.prefix` included.

        Returns:
            list of lists of str, the pieces of the translations, without the prefix; list of float scores; list of str,
            the translations by the detokenizer of the engine.
        """

    def translate_batch(self, texts):
        """As `pieces_of_translations`. It logs the translations that the two detokenizers write differently."""
        run = self.reference
        text = tf.constant(texts, tf.string, shape=[len(texts)])
        segments = divide_into_parts(text, run.source_tokenizer, run.settings["max_length"], run.signatures.division)
        parts, scores, written = self._translate_parts([self.source_pieces(ids) for ids in segments.ids.to_list()])
        self._compare_detokenizers(parts, written)
        rows = segments.rows.numpy()
        scores = np.bincount(rows, scores, minlength=len(texts)).tolist()
        return joined_parts(parts, rows, len(texts)), scores

    def _translate_parts(self, sources):
        """Translates parts of equal length together: an engine takes one limit for all parts of a call."""
        found = [((), 0.0, "")] * len(sources)
        by_length = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        extra = len(self.tokens.prefix) + self.reference.signatures.extra_length
        for length, rows in itertools.groupby(by_length, key=lambda row: len(sources[row])):
            rows = list(rows)
            around = [self.tokens.before + sources[row] + self.tokens.after for row in rows]
            for row, each in zip(rows, zip(*self.search(around, length + extra), strict=True), strict=True):
                found[row] = each
        return zip(*found, strict=True) if found else ([], [], [])

    def _compare_detokenizers(self, parts, written):
        """Detokenizers write a few pieces differently, such as a lone "▁"."""
        tokenizer = self.reference.target_tokenizer
        ids = {piece: id for id, piece in enumerate(vocabulary(tokenizer))}
        rows = tf.ragged.constant([[ids[piece] for piece in part] for part in parts], tf.int32, ragged_rank=1)
        texts = (text.decode("utf-8") for text in tokenizer.decode(rows.to_tensor(PAD_ID)).numpy())
        pairs = [*zip(written, texts, strict=True)]
        different = [pair for pair in pairs if pair[0] != pair[1]]
        if different:
            log.info(
                "detokenizer %s writes %d of %d translations differently, such as %r for %r: the pieces are the same",
                self.name,
                len(different),
                len(pairs),
                *different[0],
            )


def pieces_of_translations(translator, texts):
    """The pieces that a run finds, which do not depend on how a detokenizer writes them.

    Args:
        translator: `Translator`.
        texts: list of str.

    Returns:
        list of str, the pieces of each translation, separated by spaces; list of float scores.
    """
    _, scores = translator.translate_batch(texts)
    tokenizer, max_length = translator.source_tokenizer, translator.settings["max_length"]
    text = tf.constant(texts, tf.string, shape=[len(texts)])
    segments = divide_into_parts(text, tokenizer, max_length, translator.signatures.division)
    tags = default_tags(translator.tags, tf.size(segments.places))
    labels = translator.signatures.find_labels(segments.ids, at_once(segments.places), tags)
    found = labels.with_values(translator.target_tokenizer.pieces(labels.values)).to_list()
    end = translator.target_tokenizer.pieces(tf.constant([EOS_ID])).numpy()[0]
    parts = [[piece.decode("utf-8") for piece in pieces if piece != end] for pieces in found]
    return joined_parts(parts, segments.rows.numpy(), len(texts)), scores


def joined_parts(parts, rows, number):
    """Joins the pieces of the parts of each of `number` texts; `rows` are the texts of the parts. A list of str."""
    texts = [[] for _ in range(number)]
    for row, pieces in zip(rows, parts, strict=True):
        texts[row] += pieces
    return [" ".join(pieces) for pieces in texts]


def vocabulary(tokenizer):
    """All pieces by their ids, a list of str."""
    return pieces_at(tokenizer, range(tokenizer.vocabulary_size))


def pieces_at(tokenizer, ids):
    """The pieces with these ids, a list of str."""
    return [piece.decode("utf-8") for piece in tokenizer.pieces(np.array(ids, "int32")).numpy()]
