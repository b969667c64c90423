"""BPE-dropout: every epoch divides the text into other pieces, so a model does not learn a small corpus by heart."""

import itertools

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.data.encoded import Sentences
from keras_transformer.errors import ConfigError

NEVER = 1 << 31  # rank of two neighbours that are not merged: larger than all ranks


class SubwordDropout:
    """Divides text into pieces as BPE does, but skips merges at random: BPE-dropout.

    BPE starts from characters and merges the best-ranked pair of neighbours again and again. BPE-dropout skips each
    pair of neighbours with probability `rate`. The draw is made once, when the two become neighbours. So rate 0 is BPE,
    and at rate 1 every piece is a character. With 0.05, sentences become a fifth longer, with 0.1 two fifths.

    *Relative to the paper* (Provilkov et al. 2020, arXiv:1910.13267, algorithm 1): the paper draws all pairs of a word
    anew for every merge. This class draws as SentencePiece does. The draws of SentencePiece do not depend on words, so
    they serve scripts without spaces as well.

    Args:
        model: a SentencePiece BPE model, bytes.
        rate: probability, in [0, 1).

    Raises:
        ConfigError: for a model of another kind.
    """

    def __init__(self, model, rate):
        check_bpe(model)
        self.rate = rate
        pieces = ModelProto.FromString(model).pieces
        self._size = len(pieces)
        normal = {piece.piece: number for number, piece in enumerate(pieces) if piece.type == piece.NORMAL}
        self._spelled = Sentences.of_lists([_spelling(piece.piece, n, normal) for n, piece in enumerate(pieces)])
        spellings = self._spelled.lists()
        self._meetings = np.unique([self._pair(*two) for ids in spellings for two in itertools.pairwise(ids)])
        merges = {
            self._pair(normal[text[:cut]], normal[text[cut:]]): merged
            for text, merged in normal.items()
            for cut in range(1, len(text))
            if text[:cut] in normal and text[cut:] in normal
        }
        merges[self._size**2] = 0  # It comes after all pairs, so that a search in the pairs always finds a place.
        self._pairs, self._merged = np.array(sorted(merges.items()), np.int64).T
        _, ranks = np.unique([-piece.score for piece in pieces], return_inverse=True)
        self._ranks = ranks[self._merged]

    def _pair(self, left, right):
        return left * self._size + right

    def __call__(self, sentences, rng):
        """Returns the `Sentences` of the same text in pieces that are drawn from `rng`, a NumPy generator."""
        spelled = self._spelled.of(np.asarray(sentences.ids, np.int64))
        ids, starts = spelled.ids, spelled.starts[sentences.starts]
        words = self._words(ids, starts)
        places, skipped = np.arange(len(ids)), rng.random(len(ids)) < self.rate
        finished = [(places[:0], ids[:0])]
        while len(ids):  # each word does its next merge, or is finished
            where, merged, goes_on = self._best_merges(ids, words, skipped)
            finished.append((places[~goes_on], ids[~goes_on]))
            ids[where] = merged
            for changed in (where, where - 1):  # the new piece and its left neighbour have a new right neighbour
                skipped[changed] = rng.random(len(changed)) < self.rate
            goes_on[where + 1] = False
            ids, words, places, skipped = (each[goes_on] for each in (ids, words, places, skipped))
        places, ids = map(np.concatenate, zip(*finished, strict=True))
        order = np.argsort(places)
        return Sentences(ids[order], np.searchsorted(places[order], starts))

    def _words(self, ids, starts):
        """The number of every character's word (N,). No piece joins two words, so each is divided by itself."""
        is_first = np.ones(len(ids) + 1, bool)
        is_first[1:-1] = ~np.isin(self._pair(ids[:-1], ids[1:]), self._meetings)
        is_first[starts] = True
        return np.cumsum(is_first[:-1])

    def _best_merges(self, ids, words, skipped):
        """Finds the best merge of every word that has one.

        Returns:
            The places of the left parts, the ids of the merged pieces, and bool (N,): the parts of words with a merge.
        """
        count, pairs = len(ids), self._pair(ids[:-1], ids[1:])
        found = np.searchsorted(self._pairs, pairs)
        is_merge = (self._pairs[found] == pairs) & (words[1:] == words[:-1]) & ~skipped[:-1]
        ranks = np.append(np.where(is_merge, self._ranks[found], NEVER), NEVER)
        first = np.flatnonzero(np.diff(words, prepend=0))
        best = np.minimum.reduceat(ranks * count + np.arange(count), first)  # the leftmost of equal ranks
        has_merge = best < NEVER * count
        where = best[has_merge] % count
        return where, self._merged[found[where]], np.repeat(has_merge, np.diff(first, append=count))


def check_bpe(*models):
    """Raises ConfigError unless all SentencePiece models, bytes, are of BPE: only BPE has merges to skip."""
    for model in models:
        kind = ModelProto.FromString(model).trainer_spec.model_type
        if kind != TrainerSpec.BPE:
            name = TrainerSpec.ModelType.Name(kind).lower()
            raise ConfigError(f"`subword_dropout_rate` needs a tokenizer of BPE: set it to 0. Received: one of {name}")


def _spelling(text, number, normal):
    """The ids of the characters of a piece; the piece itself if BPE did not make it from characters."""
    characters = [normal.get(character) for character in text]
    return [number] if text not in normal or None in characters else characters
