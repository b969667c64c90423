"""Marian's own files, as releases of OPUS-MT: `model.npz`, `decoder.yml`, vocabularies, `source.spm`, `target.spm`."""

import re
from pathlib import Path

import numpy as np
import yaml

from keras_transformer.config import EOS_ID
from keras_transformer.tools.importing.foreign import ForeignModel
from keras_transformer.tools.importing.marian_mt import id_of, tag_of
from keras_transformer.tools.importing.pieces import (
    CONTROL,
    UNUSED,
    Vocabulary,
    own_pieces,
    read_pieces,
    with_our_ids,
)
from keras_transformer.tools.importing.tensors import ImportedModelError, file_in, read_npz

LAYERS = {
    "self_attention": "self",
    "cross_attention": "context",
    "feed_forward": "ffn",
}
LINEAR = {"query": "q", "key": "k", "value": "v", "output": "o", "inner": "1", "outer": "2"}
PARTS = {"kernel": "W", "bias": "b", "gamma": "scale", "beta": "bias"}
MATRICES = {
    "embedding/matrix": ("Wemb",),
    "source_embedding/matrix": ("encoder_Wemb", "Wemb"),
    "target_embedding/matrix": ("decoder_Wemb", "Wemb"),
}
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu_sigmoid"}
# Settings in special:model.yml that a model here must have; other values are refused.
NEEDED = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
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
    r"(en|de)coder_l\d+_((self|context)_([Wb][qkvo]|Wo_ln_(scale|bias))|ffn_([Wb][12]|ffn_ln_(scale|bias)))"
    r"|((en|de)coder_)?Wemb|decoder_ff_logit_out_[Wb]|special:model.yml"
)
POST_NORM = {"preprocess": "", "postprocess": "an", "postprocess-top": "", "postprocess-emb": ""}


def read_directory(directory, source_lang=None, target_lang=None):
    """As `hugging_face.read_directory`, for Marian's own files."""
    told = read_yaml(file_in(directory, "decoder.yml"))
    models = [Path(str(name)).name for name in told.get("models") or []]
    names = [Path(str(name)).name for name in told.get("vocabs") or []]
    if len(models) != 1 or len(names) != 2:
        raise ImportedModelError(f"decoder.yml must name one model and two vocabularies. Received: {models}, {names}")
    tensors = read_npz(file_in(directory, models[0]))
    model = model_settings(tensors, models[0])
    unknown = [name for name in tensors if not KNOWN.fullmatch(name)]
    if unknown:
        raise ImportedModelError(f"{models[0]} has weights that no model here has, such as {unknown[0]}")
    pieces = [read_pieces(file_in(directory, name)) for name in ("source.spm", "target.spm")]
    tables = [read_vocabulary(file_in(directory, name)) for name in names]
    is_shared = bool(model.get("tied-embeddings-all") or model.get("tied-embeddings-src"))
    if is_shared and tables[0] != tables[1]:
        raise ImportedModelError(f"a model with one matrix must have equal vocabularies. Received: {', '.join(names)}")
    known = [own_pieces(each) for each in pieces]
    sides = [{**known[0], **known[1]}] if is_shared else known
    vocabularies = [
        Vocabulary.of(
            table,
            None,
            id_of(table, "<unk>", name),
            None,
            id_of(table, "</s>", name),
            [x for x in own if x not in table],
        )
        for table, name, own in zip(tables, names, sides, strict=False)
    ]
    source, target = vocabularies[0], vocabularies[-1]
    tag = ",".join(map(str, tag_of(tables[0], source, target_lang, directory)))
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    settings = {
        **settings_of(model),
        "share_vocabulary": is_shared,
        "share_tokenizer": False,
        "frame": f"{tag}/{EOS_ID}/",
        **{name: language for name, language in languages.items() if language},
    }
    tokenizers = [with_our_ids(pieces[0], source, CONTROL), with_our_ids(pieces[1], target, UNUSED)]
    return ForeignModel(settings, tokenizers, source, target, Weights(tensors, models[0]).read)


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
    order = {name: str(model.get(f"transformer-{name}") or "").replace("d", "") for name in POST_NORM}
    if order != POST_NORM:
        found = ", ".join(f"transformer-{name}: {value!r}" for name, value in order.items())
        raise ImportedModelError(
            f"layers must be normalised after each part (dan), and nowhere else. Received: {found}"
        )
    activation = model.get("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"transformer-ffn-activation must be one of {known}. Received: {activation}")
    width = model["transformer-dim-ffn"]
    if (model.get("transformer-decoder-dim-ffn") or width) != width:
        raise ImportedModelError(f"transformer-decoder-dim-ffn must be that of the encoder, {width}")
    return {
        "d_model": model["dim-emb"],
        "d_ff": width,
        "num_heads": model["transformer-heads"],
        "num_layers": model["enc-depth"],
        "num_decoder_layers": model["dec-depth"],
        "activation": ACTIVATIONS[activation],
        "positions": "sinusoidal_tensor2tensor",
        "pre_norm": False,
        "attention_bias": True,
        "logits_bias": True,
        "layer_norm_epsilon": 1e-6,
        "tie_embeddings": bool(model.get("tied-embeddings-all") or model.get("tied-embeddings")),
    }


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
        raise ImportedModelError(f"{path} must be a vocabulary in YAML, beside source.spm and target.spm")
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
        array = self.first_of([their_name(path)])
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
    start, rest = f"{layer[1]}_l{int(layer[2]) + 1}_{LAYERS[layer[3]]}", layer[4].split("/")
    if rest[0] == "_residual":
        return f"{start}_{'ffn' if start.endswith('ffn') else 'Wo'}_ln_{PARTS[rest[-1]]}"
    return f"{start}_{PARTS[rest[-1]]}{LINEAR[rest[-2]]}"
