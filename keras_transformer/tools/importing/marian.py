"""Marian's own files, as releases of OPUS-MT: `model.npz`, `decoder.yml`, and vocabularies.

A vocabulary is a SentencePiece model, which has the ids of the pieces, or YAML with ids beside source.spm, target.spm.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import EOS_ID
from keras_transformer.tools.importing.foreign import ForeignModel
from keras_transformer.tools.importing.marian_mt import before_source, id_of, tags_of
from keras_transformer.tools.importing.pieces import (
    CONTROL,
    UNUSED,
    Vocabulary,
    own_pieces,
    read_pieces,
    with_our_ids,
    without_id,
)
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_npz

LAYERS = {
    "self_attention": "self",
    "cross_attention": "context",
    "feed_forward": "ffn",
}
LINEAR = {"query": "q", "key": "k", "value": "v", "output": "o", "inner": "1", "outer": "2"}
LINEAR |= {"candidate": "", "gate": "f"}  # of an SSRU
PARTS = {"kernel": "W", "bias": "b", "gamma": "scale", "beta": "bias"}
MATRICES = {
    "embedding/matrix": ("Wemb",),
    "source_embedding/matrix": ("encoder_Wemb", "Wemb"),
    "target_embedding/matrix": ("decoder_Wemb", "Wemb"),
}
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
EXACT_GELU = (1, 12, 3)  # the first Marian with x Phi(x); before, its gelu is x sigmoid(1.702 x)
# Settings in special:model.yml that a model here must have; other values are refused.
NEEDED = {
    "type": "transformer",
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-no-projection": False,
    "transformer-train-position-embeddings": False,
    "transformer-disable-position-embeddings": False,
    "transformer-attention-mask": "default",
    "transformer-no-affine": False,
    "transformer-no-bias": False,
    "right-left": False,
    "transformer-tied-layers": [],
    "transformer-pool": False,
    "lemma-dim-emb": 0,
    "output-omit-bias": False,
    "input-types": [],
    "ulr": False,
}
KNOWN = re.compile(
    r"(en|de)coder_l\d+_((self|context)_([Wb][qkvo]|Wo_ln_(scale|bias)(_pre)?)|ffn_([Wb][12]|ffn_ln_(scale|bias)(_pre)?))"
    r"|decoder_l\d+_rnn_(Wf?|bf|(ffn_)?ln_(scale|bias)(_pre)?)"
    r"|(en|de)coder_(top|emb)_ln_(scale|bias)(_pre)?|((en|de)coder_)?Wemb|decoder_ff_logit_out_[Wb]|special:model.yml"
)
# What is done around the parts of a layer, and behind the stack: n normalises, a adds, d (left out) drops out.
ORDERS = {("", "an", ""): False, ("n", "a", "n"): True}  # whether it is pre-norm
NORMALISES_KEYS = (1, 11, 0)  # the first Marian whose pre-norm self-attention normalises keys and values
DECODERS = ("decoder.yml", "model.npz.decoder.yml")


@dataclass(frozen=True)
class Side:
    """The vocabulary of one side.

    Attributes:
        name: of its file.
        pieces: `ModelProto` that divides the text.
        table: list of str, the pieces by their ids.
        unk, eos: the pieces for unknown text and for the end.
    """

    name: str
    pieces: ModelProto
    table: list
    unk: str = "<unk>"
    eos: str = "</s>"

    def vocabulary(self, own):
        """The `Vocabulary` of the side; `own` are the pieces that text is divided into."""
        unk, eos = (id_of(self.table, piece, self.name) for piece in (self.unk, self.eos))
        return Vocabulary.of(self.table, None, unk, None, eos, without_id(own, self.table))


def read_directory(directory, source_lang=None, target_lang=None, languages=None):
    """As `hugging_face.read_directory`, for Marian's own files."""
    decoder = next(name for name in DECODERS if (directory / name).exists())
    told = read_yaml(file_in(directory, decoder))
    models = [Path(str(name)).name for name in told.get("models") or []]
    names = [Path(str(name)).name for name in told.get("vocabs") or []]
    if len(models) != 1 or len(names) != 2:
        raise ImportedModelError(f"{decoder} must name one model and two vocabularies. Received: {models}, {names}")
    tensors = read_npz(file_in(directory, models[0]))
    model = model_settings(tensors, models[0])
    unknown = [name for name in tensors if not KNOWN.fullmatch(name)]
    if unknown:
        raise ImportedModelError(f"{models[0]} has weights that no model here has, such as {unknown[0]}")
    is_shared = bool(model.get("tied-embeddings-all") or model.get("tied-embeddings-src"))
    sides = [read_side(directory, *each) for each in zip(names, ("source.spm", "target.spm"), strict=True)]
    tokenizers, source, target = vocabularies_of(sides, is_shared)
    tags = tags_before(sides[0], tokenizers[0], source)
    before, many = before_source(tags, directory, source_lang, target_lang, languages)
    given = {"source_lang": source_lang, "target_lang": target_lang}
    settings = {
        **settings_of(model),
        "share_vocabulary": is_shared,
        "share_tokenizer": len(tokenizers) == 1,
        "frame": f"{','.join(map(str, before))}/{EOS_ID}/",
        **{name: language for name, language in given.items() if language},
    }
    return ForeignModel(settings, tokenizers, source, target, Weights(tensors, models[0]).read, many)


def read_side(directory, name, beside):
    """The `Side` whose vocabulary is the file `name`. A vocabulary in YAML has its SentencePiece model `beside` it."""
    path = file_in(directory, name)
    if path.suffix != ".spm":
        return Side(name, read_pieces(file_in(directory, beside)), read_vocabulary(path))
    pieces = read_pieces(path)
    spec = pieces.trainer_spec
    return Side(name, pieces, [each.piece for each in pieces.pieces], spec.unk_piece, spec.eos_piece)


def vocabularies_of(sides, is_shared):
    """The tokenizers of two `Side`s, a list of bytes, and their vocabularies; one tokenizer if both are the same."""
    if is_shared and sides[0].table != sides[1].table:
        names = ", ".join(side.name for side in sides)
        raise ImportedModelError(f"a model with one matrix must have equal vocabularies. Received: {names}")
    known = [own_pieces(side.pieces) for side in sides]
    if is_shared:
        source = target = sides[0].vocabulary({**known[0], **known[1]})
    else:
        source, target = (side.vocabulary(own) for side, own in zip(sides, known, strict=True))
    if is_shared and sides[0].pieces == sides[1].pieces:
        return [with_our_ids(sides[0].pieces, source, CONTROL)], source, target
    others = ((source, CONTROL), (target, UNUSED))
    tokenizers = [with_our_ids(side.pieces, *other) for side, other in zip(sides, others, strict=True)]
    return tokenizers, source, target


def tags_before(side, tokenizer, vocabulary):
    """As `marian_mt.tags_of`, for the `Side` of the source. Text that Marian divides itself has the tag as text."""
    tags = tags_of(side.table, vocabulary)
    if not tags or not side.name.endswith(".spm"):
        return tags
    processor = SentencePieceProcessor(model_proto=tokenizer)
    return {code: processor.encode(f">>{code}<<") for code in tags}


def model_settings(tensors, name):
    """The settings in special:model.yml of a model.npz, a dict. Raises ImportedModelError for one that has no equal."""
    if "special:model.yml" not in tensors:
        raise ImportedModelError(f"{name} has no special:model.yml")
    text = np.asarray(tensors["special:model.yml"]).tobytes().rstrip(b"\0").decode("utf-8", "replace")
    try:
        model = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ImportedModelError(f"special:model.yml of {name} is damaged: {' '.join(str(error).split())}") from None
    for setting, needed in NEEDED.items():
        if isinstance(model, dict) and model.get(setting, needed) not in (needed, None):
            raise ImportedModelError(f"the model must have {setting} {needed}. Received: {setting}: {model[setting]}")
    return model


def settings_of(model):
    """The settings of `Config` for those of Marian, a dict. Raises ImportedModelError."""
    activation = model.get("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"transformer-ffn-activation must be one of {known}. Received: {activation}")
    is_old_gelu = activation == "gelu" and version_of(model) < EXACT_GELU
    width = model["transformer-dim-ffn"]
    if (model.get("transformer-decoder-dim-ffn") or width) != width:
        raise ImportedModelError(f"transformer-decoder-dim-ffn must be that of the encoder, {width}")
    return {
        "d_model": model["dim-emb"],
        "d_ff": width,
        "num_heads": model["transformer-heads"],
        "num_layers": model["enc-depth"],
        "num_decoder_layers": model["dec-depth"],
        "activation": "gelu_sigmoid" if is_old_gelu else ACTIVATIONS[activation],
        "positions": "sinusoidal_tensor2tensor",
        "decoder": decoder_of(model),
        **norms_of(model),
        "attention_bias": True,
        "logits_bias": True,
        "layer_norm_epsilon": 1e-6,
        "tie_embeddings": bool(model.get("tied-embeddings-all") or model.get("tied-embeddings")),
    }


def decoder_of(model):
    """What a decoder of Marian has for its self-attention: "attention" or "ssru". Raises ImportedModelError."""
    kind = model.get("transformer-decoder-autoreg", "self-attention")
    if kind == "self-attention":
        return "attention"
    needed = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "layer-normalization": False}
    needed |= {"transformer-rnn-projection": False}
    for setting, value in needed.items():
        if model.get(setting) not in (value, None):
            raise ImportedModelError(
                f"the decoder must have self-attention, or be of SSRU without more: {setting} {value}. "
                f"Received: {setting}: {model[setting]}"
            )
    return "ssru"


def norms_of(model):
    """Where a model of Marian normalises, a dict of settings. Raises ImportedModelError."""
    names = ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")
    order = [str(model.get(f"transformer-{name}") or "").replace("d", "") for name in names]
    if tuple(order[:3]) not in ORDERS or order[3] not in ("", "n"):
        found = ", ".join(f"transformer-{name}: {value!r}" for name, value in zip(names, order, strict=True))
        raise ImportedModelError(
            "layers must be normalised after each part (postprocess dan), or before each part and at the end "
            f"(preprocess n, postprocess da, postprocess-top n). Received: {found}"
        )
    is_pre_norm = ORDERS[tuple(order[:3])]
    if is_pre_norm and version_of(model) < NORMALISES_KEYS:
        raise ImportedModelError(
            "a model with transformer-preprocess n must be of Marian 1.11 or newer: in older ones, keys and values of "
            f"self-attention are not normalised. Received: version: {model.get('version')}"
        )
    return {"pre_norm": is_pre_norm, "embedding_norm": order[3] == "n"}


def version_of(model):
    """The version of Marian that wrote the settings, such as (1, 12, 3); (0, 0, 0) if they have no version."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", str(model.get("version")))
    return tuple(map(int, found.groups())) if found else (0, 0, 0)


def read_yaml(path):
    """The object in a YAML file, a dict of texts, as they stand there. Raises ImportedModelError."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # no piece such as yes or 1.0 becomes another value
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), loader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ImportedModelError(f"{path} is not YAML, or is damaged: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ImportedModelError(f"{path} must hold `name: value` lines, and has none")
    return found


def read_vocabulary(path):
    """The pieces of a vocabulary in YAML, which gives each its id: a list of str. Raises ImportedModelError."""
    if path.suffix not in (".yml", ".yaml", ".json"):
        raise ImportedModelError(f"{path} must be a vocabulary: .spm, or .yml beside source.spm and target.spm")
    ids = {piece: int(id) for piece, id in read_yaml(path).items() if isinstance(id, str) and id.isdecimal()}
    if sorted(ids.values()) != list(range(len(ids))):
        raise ImportedModelError(f"{path} must give each piece an id from 0 on, and no two the same")
    return sorted(ids, key=ids.get)


class Weights:
    """The weights of a model.npz by our names.

    Args:
        tensors: dict from their names to arrays.
        name: of the file, for messages.
    """

    def __init__(self, tensors, name):
        self.tensors, self.name = tensors, name

    def read(self, path):
        """Their array for one of our weights, laid out as ours."""
        if path == "logits/output_matrix/matrix":
            return self.first_of(["decoder_ff_logit_out_W"]).T
        if path == "logits/bias":
            return self.first_of(["decoder_ff_logit_out_b"]).reshape(-1)
        if path in MATRICES:
            return self.first_of(MATRICES[path])
        name = their_name(path)
        in_ssru = [name.replace("_self_Wo", part) for part in ("_rnn_ffn", "_rnn")]
        array = self.first_of([each for start in (name, *in_ssru) for each in (start, f"{start}_pre")])
        return array if path.endswith("kernel") else array.reshape(-1)

    def first_of(self, names):
        """The first of the arrays that the file has. Raises ImportedModelError if it has none of them."""
        for name in names:
            if name in self.tensors:
                return self.tensors[name]
        raise ImportedModelError(f"{self.name} has no weight {names[0]}")


def their_name(path):
    """Their name of a weight of a layer of ours: "encoder/layer_3/feed_forward/inner/kernel" and so on."""
    layer = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(self_attention|cross_attention|feed_forward)(.*)", path)
    if not layer:
        place, *_, part = path.split("/")  # encoder/norm/gamma, source_positions/norm/gamma
        side = "encoder" if place in ("encoder", "source_positions") else "decoder"
        return f"{side}_{'top' if place == side else 'emb'}_ln_{PARTS[part]}"
    rest = layer[4].split("/")
    kind = "rnn" if rest[-2] in ("candidate", "gate") else LAYERS[layer[3]]
    start = f"{layer[1]}_l{int(layer[2]) + 1}_{kind}"
    if rest[0] == "_residual":
        return f"{start}_{'ffn' if start.endswith('ffn') else 'Wo'}_ln_{PARTS[rest[-1]]}"
    return f"{start}_{PARTS[rest[-1]]}{LINEAR[rest[-2]]}"
