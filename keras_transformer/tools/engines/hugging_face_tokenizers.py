"""SentencePiece models as tokenizers of transformers: the fast one of tokenizer.json, or the files of Marian."""

import json
from dataclasses import dataclass

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.tags import direction_of
from keras_transformer.tools.engines.greedy import vocabulary

NEVER = -50.0  # the bias of the logit of a piece that is never predicted lies below it
UNLIKELY = -1e4  # the score of a piece that no text is divided into
PAD, UNK, EOS = "<pad>", "<unk>", "</s>"
KINDS = ("NORMAL", "USER_DEFINED", "CONTROL", "UNUSED")
NORMAL, USER_DEFINED, CONTROL, UNUSED = (ModelProto.SentencePiece.Type.Value(kind) for kind in KINDS)


@dataclass(frozen=True)
class IdTable:
    """A vocabulary as the exported model has it.

    Attributes:
        rows: int (V,): for each id there, ours.
        pieces: list of str, our pieces by the ids there.
        bias: float (V,), of the logits; zeros if there is none.
        pad_id: int, the id of padding there.
    """

    rows: np.ndarray
    pieces: list
    bias: np.ndarray
    pad_id: int

    @classmethod
    def ours(cls, tokenizer, matrices, bias, pad_id):
        """Our order, but padding has the id `pad_id`, by which some classes number positions."""
        rows = np.arange(tokenizer.vocabulary_size)
        rows[[PAD_ID, pad_id]] = pad_id, PAD_ID
        return cls._of(rows, tokenizer, bias, pad_id)

    @classmethod
    def marian(cls, tokenizer, matrices, bias, pad_id):
        """Marian's order: eos, unk, the other pieces, and at the end padding, from which translations start.

        A piece with the vector of unk that is never predicted is left out: it had no id where the model comes from.
        """
        never = np.ones(tokenizer.vocabulary_size, bool) if bias is None else bias < NEVER
        is_unknown = [np.all(matrix == matrix[UNK_ID], axis=1) for matrix in matrices]
        left_out = np.flatnonzero(np.all([never, *is_unknown], axis=0))
        others = np.setdiff1d(np.arange(tokenizer.vocabulary_size), [PAD_ID, UNK_ID, BOS_ID, EOS_ID, *left_out])
        rows = np.array([EOS_ID, UNK_ID, *others, BOS_ID])
        return cls._of(rows, tokenizer, bias, len(rows) - 1)

    @classmethod
    def _of(cls, rows, tokenizer, bias, pad_id):
        pieces = vocabulary(tokenizer)
        bias = np.zeros(len(pieces), "float32") if bias is None else bias
        return cls(rows, [pieces[row] for row in rows], bias[rows], pad_id)

    def id_of(self, id):
        """The id there of an id of ours."""
        return int(np.flatnonzero(self.rows == id)[0])


def save_marian(directory, translator, tables):
    """Writes the files of a MarianTokenizer: source.spm, target.spm and the ids of their pieces.

    Args:
        directory: pathlib.Path.
        translator: `Translator` of the run.
        tables: `IdTable` of the source and of the target, in Marian's order.
    """
    is_separate = tables[0] is not tables[1]
    named = {"vocab.json": tables[0], **({"target_vocab.json": tables[1]} if is_separate else {})}
    pieces = {name: [*table.pieces[:-1], PAD] for name, table in named.items()}
    save_pieces(directory, [translator.source_tokenizer, translator.target_tokenizer], pieces)
    languages = dict(zip(("source_lang", "target_lang"), direction_of(translator), strict=True))
    told = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": is_separate,
        **{name: language for name, language in languages.items() if language},
        **{"eos_token": EOS, "unk_token": UNK, "pad_token": PAD},
    }
    save_settings(directory, told, translator.settings["max_length"])


def save_pieces(directory, tokenizers, named):
    """Writes source.spm and target.spm, and files of {piece: id}.

    Args:
        directory: pathlib.Path.
        tokenizers: the two `Tokenizer`.
        named: dict from the name of a file to a list of str, the pieces by their ids.
    """
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        (directory / f"{side}.spm").write_bytes(without_foreign(tokenizer.model))
    for name, pieces in named.items():
        text = json.dumps({piece: id for id, piece in enumerate(pieces)}, ensure_ascii=False, indent=1)
        (directory / name).write_text(text, encoding="utf-8")


def without_foreign(model):
    """A SentencePiece model without the pieces that it never divides a text into: bytes -> bytes.

    An imported model lists the pieces of the other language, too. transformers writes a translation with the model of
    the source, which would hide them.
    """
    proto = ModelProto.FromString(model)
    kept = [
        piece
        for id, piece in enumerate(proto.pieces)
        if id in (PAD_ID, UNK_ID, BOS_ID, EOS_ID) or piece.type not in (CONTROL, UNUSED)
    ]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    proto.trainer_spec.vocab_size = len(kept)
    return proto.SerializeToString(deterministic=True)


def save_fast(directory, tokenizer, table, tokens, max_length):
    """Writes tokenizer.json and its settings.

    Args:
        directory: pathlib.Path.
        tokenizer: `Tokenizer` of source and target.
        table: its `IdTable`.
        tokens: `Tokens`, which the file puts around each text.
        max_length: int, most pieces of a text.
    """
    proto = ModelProto.FromString(tokenizer.model)
    made = fast_tokenizer(proto, table)
    single = [*tokens.before, "$A", *tokens.after]
    ids = {piece: table.pieces.index(piece) for piece in (*tokens.before, *tokens.after)}
    if ids:
        made.post_processor = processors.TemplateProcessing(single=single, special_tokens=[*ids.items()])
    names = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), control_pieces(proto), strict=True))
    others = sorted({*tokens.before, *tokens.after, *tokens.prefix} - {*names.values()})
    made.add_special_tokens([*names.values(), *others])
    made.save(str(directory / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        **({"additional_special_tokens": others} if others else {}),
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    save_settings(directory, told, max_length)


def save_settings(directory, told, max_length):
    """Writes tokenizer_config.json: a dict of settings of one kind of tokenizer, and those of all kinds."""
    every = {"model_max_length": max_length, "split_special_tokens": True}  # a text with "</s>" is text
    text = json.dumps(told | every, ensure_ascii=False, indent=1)
    (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def control_pieces(proto):
    """The pieces of pad, unk, bos and eos, a list of str."""
    return [proto.pieces[id].piece for id in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)]


def fast_tokenizer(proto, table):
    """The `tokenizers.Tokenizer` that divides and joins text as a SentencePiece model does.

    Args:
        proto: `ModelProto`.
        table: `IdTable`, with the ids of the pieces.
    """
    pieces = [proto.pieces[row] for row in table.rows]
    spec, has_bytes = proto.normalizer_spec, proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == TrainerSpec.BPE:
        ids = {piece.piece: id for id, piece in enumerate(pieces)}
        unk = proto.pieces[UNK_ID].piece
        model = models.BPE(ids, merges_of(pieces), unk_token=unk, fuse_unk=True, byte_fallback=has_bytes)
    else:
        scores = [(each.piece, each.score if each.type == NORMAL else UNLIKELY) for each in pieces]
        model = models.Unigram(scores, int(np.flatnonzero(table.rows == UNK_ID)[0]), byte_fallback=has_bytes)
    made = Tokenizer(model)
    if proto.trainer_spec.model_type != TrainerSpec.BPE and (begins := beginnings_of_names(pieces)):
        made.pre_tokenizer = pre_tokenizers.Split(Regex(begins), "isolated")
    steps = []
    if spec.precompiled_charsmap:
        # Their table of characters reads at most five bytes at once. Longer sequences are composed before it.
        steps += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    prefix = [normalizers.Prepend("▁")] if spec.add_dummy_prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁"), *prefix])
    written = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*written, *([decoders.Strip(" ", 1, 0)] if spec.add_dummy_prefix else [])])
    return made


def beginnings_of_names(pieces):
    """A regular expression for the first characters of the names of control pieces, such as that of "</s>": str.

    A text that has such a name is divided there. Else a unigram model would read the end, because it is likelier than
    four unknown characters. A character that a piece of text has needs no division.
    """
    known = {char for each in pieces if each.type in (NORMAL, USER_DEFINED) for char in each.piece}
    names = [each.piece for each in pieces if each.type not in (NORMAL, USER_DEFINED) and each.piece[0] not in known]
    literal = (["".join(f"\\x{{{ord(char):x}}}" for char in part) for part in (name[0], name[1:])] for name in names)
    return "|".join(f"{first}(?={rest})" for first, rest in literal)


def merges_of(pieces):
    """The pairs of pieces that byte pair encoding joins, the first ones first: a list of (str, str).

    SentencePiece joins the neighbours whose union has the best score.
    """
    scores = {each.piece: each.score for each in pieces if each.type == NORMAL}
    pairs = []
    for piece, score in scores.items():
        for place in range(1, len(piece)):
            left, right = piece[:place], piece[place:]
            if left in scores and right in scores:
                pairs.append((-score, place, left, right))
    return [(left, right) for *_, left, right in sorted(pairs)]
