"""Other ways to spell the words of a sentence, so that a small corpus is not learned by heart."""

import itertools

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.data.encoded import Sentences


class SubwordDropout:
    """Undoes merges of BPE at random: each piece is divided with the probability `rate` into the two that its last
    merge has joined, these again, and so on.

    *Relative to BPE-dropout* (Provilkov et al. 2020, arXiv:1910.13267): that skips merges while it puts pieces
    together, from text, and may so find pieces that are no part of the usual ones. This needs token ids only and, at
    the same rate, divides fewer: with 0.1, sentences become about a tenth longer rather than a third.

    Args:
        model: a SentencePiece BPE model, bytes.
        rate: probability, in [0, 1).
    """

    def __init__(self, model, rate):
        self.halves = find_halves(model)
        self.rate = rate

    def __call__(self, sentences, rng):
        """The same `Sentences`, divided with the randomness of a NumPy generator."""
        ids = np.asarray(sentences.ids, np.int64)
        owners = np.repeat(np.arange(len(sentences.lengths)), sentences.lengths)
        is_new = np.ones(len(ids), bool)
        while True:
            divided = is_new & (self.halves[ids, 0] > 0) & (rng.random(len(ids)) < self.rate)
            if not divided.any():
                break
            origin = np.repeat(np.arange(len(ids)), 1 + divided)
            is_second = np.diff(origin, prepend=-1) == 0
            is_new = divided[origin]
            ids = np.where(is_new, self.halves[ids[origin], is_second.astype(int)], ids[origin])
            owners = owners[origin]
        starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(sentences.lengths)))])
        return Sentences(ids, starts)


def find_halves(model):
    """The two pieces that the last merge of every piece joins, as ids (V, 2); 0, 0 where no merge has made a piece.

    Args:
        model: a SentencePiece BPE model, bytes.
    """
    pieces = ModelProto.FromString(model).pieces
    ranks = {piece.piece: piece.score for piece in pieces if piece.type == piece.NORMAL}
    ids = {piece.piece: number for number, piece in enumerate(pieces)}
    halves = np.zeros((len(pieces), 2), np.int64)
    for piece in ranks:
        if len(piece) > 1:
            halves[ids[piece]] = [ids.get(half, 0) for half in _last_merge(piece, ranks)]
    halves[(halves == 0).any(axis=1)] = 0
    return halves


def _last_merge(piece, ranks):
    """Joins the characters of a piece, the best-ranked pair first (BPE), until two parts are left."""
    parts = list(piece)
    while len(parts) > 2:
        joined = [ranks.get(a + b, -np.inf) for a, b in itertools.pairwise(parts)]
        best = int(np.argmax(joined))
        parts[best : best + 2] = ["".join(parts[best : best + 2])]
    return parts
