"""Vocabularies of other programs, with our ids: pad 0, unk 1, bos 2, eos 3, then theirs in their order."""

from dataclasses import dataclass

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.tools.importing.tensors import ImportedModelError

CONTROLS = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<s>", EOS_ID: "</s>"}
NO_ROW = -1  # in `Vocabulary.rows`: an id of ours that they do not have
UNKNOWN_PENALTY = 10.0  # of SentencePiece, for a character that is no piece, below the least likely piece
NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE, USER_DEFINED = (
    ModelProto.SentencePiece.Type.Value(name)
    for name in ("NORMAL", "UNKNOWN", "CONTROL", "UNUSED", "BYTE", "USER_DEFINED")
)


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of ours, and the rows of their matrices that belong to its ids.

    Attributes:
        rows: int (V,): for each of our ids, their row, or `NO_ROW`.
        names: list of str, for each of our ids their piece.
        copies: the number of last ids that are pieces without an id there: their rows are those of unk.
    """

    rows: np.ndarray
    names: list
    copies: int = 0

    @classmethod
    def of(cls, names, pad, unk, bos, eos, without_id=()):
        """The vocabulary of their pieces.

        Args:
            names: list of str, their pieces by their ids.
            pad, unk, bos, eos: their ids that ours stand for; None for one that they do not have.
            without_id: pieces that a tokenizer knows, and that have no id: they get ids at the end.
        """
        controls = [NO_ROW if id is None else id for id in (pad, unk, bos, eos)]
        rows = [*controls, *(row for row in range(len(names)) if row not in controls)]
        ours = [*CONTROLS.values(), *(names[row] for row in rows[len(CONTROLS) :])]
        copies = [unk] * len(without_id)
        return cls(np.array(rows + copies), [*ours, *without_id], len(copies))

    def id_of(self, row):
        """Our id of their id `row`."""
        return int(np.flatnonzero(self.rows == row)[0])

    @property
    def hidden(self):
        """Our ids that they never predict: int (N,)."""
        copies = np.arange(len(self.rows) - self.copies, len(self.rows))
        return np.concatenate([np.flatnonzero(self.rows == NO_ROW), copies])


def read_pieces(path):
    """The `ModelProto` of a SentencePiece file. Raises ImportedModelError."""
    try:
        model = ModelProto.FromString(path.read_bytes())
    except Exception:  # of protobuf, which has several
        model = ModelProto()
    if not model.pieces:
        raise ImportedModelError(f"{path} is not a SentencePiece model, or is damaged")
    return model


def own_pieces(model):
    """The pieces of a `ModelProto` that text is divided into: dict from str to `ModelProto.SentencePiece`."""
    return {each.piece: each for each in model.pieces if each.type not in (UNKNOWN, CONTROL, UNUSED)}


def without_id(pieces, table):
    """The pieces that a table of ids does not have: list of str."""
    known = set(table)
    return [piece for piece in pieces if piece not in known]


def with_our_ids(model, vocabulary, others):
    """A SentencePiece model that divides text as `model` does, into the ids of a vocabulary.

    A character that is no piece of the model, but has an id, gets this id: Marian looks up the text of unknown pieces.

    Args:
        model: `ModelProto`.
        vocabulary: `Vocabulary`, with all `own_pieces` of the model.
        others: type of the pieces that the model does not know: `UNUSED` are decoded as text, `CONTROL` as nothing.

    Returns:
        The model, bytes.
    """
    own, new = own_pieces(model), ModelProto()
    new.CopyFrom(model)
    del new.pieces[:]
    unlikely = min(each.score for each in own.values()) - UNKNOWN_PENALTY
    taken = set(CONTROLS.values())
    for id, name in enumerate(vocabulary.names):
        piece = ModelProto.SentencePiece(piece=name, score=0.0, type=others)
        if id in CONTROLS:
            piece.type = UNKNOWN if id == UNK_ID else CONTROL
        elif not name or name in taken:
            piece.piece, piece.type = f"<{id}>", CONTROL
        elif name in own:
            piece = own[name]
        elif len(name) == 1 and not model.trainer_spec.byte_fallback:
            piece.score, piece.type = unlikely, NORMAL
        new.pieces.append(piece)
        taken.add(piece.piece)
    spec = new.trainer_spec
    spec.vocab_size, spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = len(new.pieces), *CONTROLS
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = CONTROLS.values()
    return new.SerializeToString(deterministic=True)
