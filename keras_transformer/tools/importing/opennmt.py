"""Run directories of OpenNMT-tf 2: a checkpoint, `model_description.py`, and what the user has copied beside them.

The variables of the checkpoint tell most settings. The description tells the others, such as the number of heads. A
configuration names the vocabularies and the SentencePiece models.
"""

import re
from pathlib import Path

import numpy as np

from keras_transformer.config import Config
from keras_transformer.tools.importing.foreign import ForeignModel
from keras_transformer.tools.importing.model_description import Code, read_description
from keras_transformer.tools.importing.opennmt_data import SIDES, Files, read_vocabulary, vocabularies
from keras_transformer.tools.importing.pieces import UNUSED, own_pieces, read_pieces, with_our_ids
from keras_transformer.tools.importing.tensors import ImportedModelError, read_checkpoint

DESCRIPTION = "model_description.py"
LAYERS = {"self_attention": "self_attention", "cross_attention": "attention/0", "feed_forward": "ffn"}
LINEAR = {"query": "linear_queries", "key": "linear_keys", "value": "linear_values", "output": "linear_output"}
LINEAR |= {"inner": "inner", "outer": "outer"}
TABLES = {"distance_keys": "relative_position_keys", "distance_values": "relative_position_values"}
NORMS = ("input_layer_norm", "output_layer_norm")  # before a part of a layer, or after it
SOURCE_MATRIX, TARGET_MATRIX, OUTPUT_MATRIX, OUTPUT_BIAS = (
    "examples_inputter/features_inputter/embedding",
    "examples_inputter/labels_inputter/embedding",
    "decoder/output_layer/kernel",
    "decoder/output_layer/bias",
)
POSITION_TABLE = "{}/position_encoder/position_embedding"
LEAST_POSITIONS = Config().num_positions
VECTORS = ("bias", "gamma", "beta")
KNOWN = re.compile(
    rf"(en|de)coder/layers/\d+/({'|'.join(LAYERS.values())})/"
    rf"(layer/({'|'.join(LINEAR.values())})/(kernel|bias)|layer/({'|'.join(TABLES.values())})"
    rf"|({'|'.join(NORMS)})/(gamma|beta))"
    r"|(en|de)coder/(layer_norm/(gamma|beta)|position_encoder/position_embedding)"
    rf"|{SOURCE_MATRIX}|{TARGET_MATRIX}|{OUTPUT_MATRIX}|{OUTPUT_BIAS}"
)
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
SINUSOIDS, TABLE = "SinusoidalPositionEncoder", "PositionEmbedder"


def read_directory(directory, source_lang=None, target_lang=None, languages=None):
    """As `hugging_face.read_directory`, for a run directory of OpenNMT-tf, or for its average."""
    if languages is not None:
        raise ImportedModelError("a model of OpenNMT-tf has one direction: leave out `languages`")
    files = Files(Path(directory), DESCRIPTION)
    if not any((place / DESCRIPTION).is_file() for place in files.places):
        raise ImportedModelError(
            f"{directory} has no {DESCRIPTION}, which tells num_heads: copy it from the run directory, or write "
            '`import opennmt` and `model = lambda: opennmt.models.get_model_from_catalog("TransformerBase")` into it'
        )
    told = read_description(files.find(DESCRIPTION))
    weights = Weights(latest_checkpoint(Path(directory)))
    model = settings_of(told, weights)
    paths = files.vocabularies()
    tables = [read_vocabulary(path) for path in paths]
    if model["share_vocabulary"] and tables[0] != tables[1]:
        names = ", ".join(path.name for path in paths)
        raise ImportedModelError(f"a model with share_embeddings must have equal vocabularies. Received: {names}")
    models = [files.tokenizer(*each) for each in zip(SIDES, paths, strict=True)]
    pieces = [read_pieces(path) for path in models]
    source, target = vocabularies(tables, [own_pieces(each) for each in pieces], model["share_vocabulary"])
    weights.vocabularies = [(path.name, len(table) + 1) for path, table in zip(paths, tables, strict=True)]
    tokenizers = [with_our_ids(*each, UNUSED) for each in zip(pieces, (source, target), strict=True)]
    has_one = model["share_vocabulary"] and models[0] == models[1]
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    settings = {
        **model,
        "share_tokenizer": has_one,
        "logits_bias": model["logits_bias"] or len(target.hidden) > 0,
        "frame": files.frame(told.get("source_sequence_controls", {})),
        **{name: language for name, language in languages.items() if language},
    }
    return ForeignModel(settings, tokenizers[:1] if has_one else tokenizers, source, target, weights.read)


def latest_checkpoint(directory):
    """The path of the last checkpoint, ckpt-N, of a directory, or of its `avg`. Raises ImportedModelError."""
    for place in (directory, directory / "avg"):
        found = [re.fullmatch(r"ckpt-(\d+)\.index", path.name) for path in place.glob("ckpt-*.index")]
        steps = [int(match[1]) for match in found if match]
        if steps:
            return place / f"ckpt-{max(steps)}"
    is_old = any(directory.glob("model.ckpt-*"))
    old = ". OpenNMT-tf 1 wrote its checkpoint: load it once in OpenNMT-tf 2, which converts it" if is_old else ""
    raise ImportedModelError(f"{directory} has no ckpt-N.index, a checkpoint of OpenNMT-tf 2{old}")


def settings_of(told, weights):
    """The settings of `Config` for those of a model, a dict.

    Args:
        told: dict of `read_description`.
        weights: `Weights`.

    Raises:
        ImportedModelError: for a setting that has no equal here, and if description and checkpoint do not fit.
    """
    for name in ("source_inputter", "target_inputter"):
        if isinstance(told[name], Code) and told[name].function != "WordEmbedder":
            raise ImportedModelError(f"{name} must be one WordEmbedder. Received: {name}={told[name]}")
    weights.check_all_known()
    found = weights.settings()
    for name, value in found.items():
        said = (told[name],) * 2 if name == "num_layers" and isinstance(told[name], int) else told[name]
        if not isinstance(said, Code) and (tuple(said) if isinstance(said, list) else said) != value:
            raise ImportedModelError(
                f"{DESCRIPTION} and the checkpoint must belong together. Received: {name}={said} and {value}"
            )
    if type(told["num_heads"]) is not int:
        raise ImportedModelError(f"{DESCRIPTION} must have num_heads as a number. Received: {told['num_heads']}")
    rates = {"dropout": "dropout_rate", "attention_dropout": "attention_dropout_rate"}
    rates |= {"ffn_dropout": "feed_forward_dropout_rate"}
    return {
        "d_model": found["num_units"],
        "d_ff": found["ffn_inner_dim"],
        "num_heads": told["num_heads"],
        "num_layers": found["num_layers"][0],
        "num_decoder_layers": found["num_layers"][1],
        "activation": activation_of(told["ffn_activation"]),
        "pre_norm": found["pre_norm"],
        "attention_bias": found["mha_bias"],
        "logits_bias": found["output_layer_bias"],
        "layer_norm_epsilon": 1e-3,  # that of Keras
        "share_vocabulary": TARGET_MATRIX not in weights.tensors,
        "tie_embeddings": OUTPUT_MATRIX not in weights.tensors,
        **positions_of(told, found["maximum_relative_position"], weights),
        **{ours: float(told[theirs]) for theirs, ours in rates.items() if isinstance(told[theirs], int | float)},
    }


def activation_of(given):
    """The setting `activation` for theirs: the name of a Keras activation, or `Code`. Raises ImportedModelError."""
    name = given.function if isinstance(given, Code) else given
    if name not in ACTIVATIONS or (isinstance(given, Code) and re.search("[^A-Za-z0-9_.]", given)):
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"ffn_activation must be one of {known}. Received: ffn_activation={given}")
    is_theirs = name == "gelu" and isinstance(given, Code) and given.startswith("opennmt")
    return "gelu_tanh" if is_theirs else ACTIVATIONS[name]  # tf.nn.gelu is the exact one


def positions_of(told, clip, weights):
    """The settings of the positions, a dict. Raises ImportedModelError.

    Args:
        told, weights: those of `settings_of`.
        clip: maximum_relative_position, or None.
    """
    given = told["position_encoder_class"]
    kind = Code(given).function if given is not None else None
    has_table = POSITION_TABLE.format("encoder") in weights.tensors
    is_known = kind in (None, SINUSOIDS, TABLE) and "reducer" not in str(given) and not (kind and clip is not None)
    if not is_known or has_table != (kind == TABLE):
        raise ImportedModelError(
            f"position_encoder_class must be None, {SINUSOIDS} or {TABLE}, without a reducer and without "
            f"maximum_relative_position. Received: position_encoder_class={given}, maximum_relative_position={clip}"
        )
    if kind == TABLE:
        return {"positions": "learned", "tie_positions": False, "max_length": len(weights.table("encoder")) - 1}
    if kind == SINUSOIDS:
        return {"positions": "sinusoidal_tensor2tensor", "first_position": 1}
    return {"positions": "none"} if clip is None else {"positions": "relative", "relative_clip": clip}


class Weights:
    """The weights of a checkpoint by our names.

    Args:
        path: of the checkpoint, without .index.

    Attributes:
        vocabularies: list of (name of a file, rows that its matrix must have), of source and target.
    """

    def __init__(self, path):
        self.path, self.tensors = path, read_checkpoint(path, "model/")
        self.vocabularies = []

    def check_all_known(self):
        """Refuses weights that no layer of ours has, such as those of an RNN. Raises ImportedModelError."""
        unknown = [name for name in self.tensors if not KNOWN.fullmatch(name)]
        if unknown:
            raise ImportedModelError(f"{self.path} has weights that no model here has, such as {unknown[0]}")

    def settings(self):
        """What the weights tell, by the names of the arguments of their Transformer: a dict."""
        layer, relative = "encoder/layers/0", "encoder/layers/0/self_attention/layer/relative_position_keys"
        depths = (
            len({name.split("/")[2] for name in self.tensors if name.startswith(f"{side}/layers/")})
            for side in ("encoder", "decoder")
        )
        return {
            "num_layers": tuple(depths),
            "num_units": len(self.first_of([f"{layer}/ffn/layer/outer/bias"])),
            "ffn_inner_dim": len(self.first_of([f"{layer}/ffn/layer/inner/bias"])),
            "mha_bias": f"{layer}/self_attention/layer/linear_queries/bias" in self.tensors,
            "maximum_relative_position": len(self.first_of([relative])) // 2 if relative in self.tensors else None,
            "pre_norm": "encoder/layer_norm/gamma" in self.tensors,
            "output_layer_bias": OUTPUT_BIAS in self.tensors,
        }

    def read(self, path):
        """Their array for one of our weights, laid out as ours."""
        if path == "logits/bias":
            return self.with_rows(OUTPUT_BIAS, self.vocabularies[1]) if OUTPUT_BIAS in self.tensors else None
        if path.endswith("matrix"):
            return self.matrix(path)
        if path.endswith("positions/table"):
            return self.table("encoder" if path.startswith("source") else "decoder")
        return self.first_of(their_names(path))

    def matrix(self, path):
        """Their array for one of our matrices, (V, D)."""
        if path == "logits/output_matrix/matrix":
            return self.with_rows(OUTPUT_MATRIX, self.vocabularies[1], axis=1).T
        if path.startswith("source"):
            return self.with_rows(SOURCE_MATRIX, self.vocabularies[0])
        return self.with_rows(TARGET_MATRIX if TARGET_MATRIX in self.tensors else SOURCE_MATRIX, self.vocabularies[1])

    def with_rows(self, name, vocabulary, axis=0):
        """One of their arrays, which has a vector or number for each token. Raises ImportedModelError."""
        array, (file, rows) = self.first_of([name]), vocabulary
        if array.shape[axis] != rows:
            raise ImportedModelError(
                f"{file} with <unk> behind it has {rows} tokens, and {name} is for {array.shape[axis]}: copy the "
                "vocabularies that the model was trained with"
            )
        return array

    def table(self, side):
        """The positions of "encoder" or "decoder" as our table (L, D).

        Their first position is 1, and we multiply by sqrt(D). All positions behind the end take the last row. So a
        short table becomes as long as the texts that a run translates at once.
        """
        table = self.first_of([POSITION_TABLE.format(side)])
        rows = table[1:].astype("float32") / table.shape[1] ** 0.5
        return np.pad(rows, [(0, max(0, LEAST_POSITIONS - len(rows))), (0, 0)], "edge")

    def first_of(self, names):
        """The first of the arrays that the checkpoint has. Raises ImportedModelError if it has none of them."""
        for name in names:
            if name in self.tensors:
                array = self.tensors[name]
                if array.ndim != (1 if name.endswith(VECTORS) else 2) or not array.size:
                    raise ImportedModelError(f"{self.path}.index is damaged: {name} has the shape {array.shape}")
                return array
        raise ImportedModelError(f"{self.path} has no weight {names[0]}")


def their_names(path):
    """Their names, of which one is that of a weight of ours: "encoder/layer_3/feed_forward/inner/kernel" and so on."""
    *place, owner, part = path.split("/")
    if not place:
        return [f"{path.split('/')[0]}/layer_norm/{part}"]
    side, layer = path.split("/")[:2]
    if owner == "norm" and len(place) == 1:
        return [f"{side}/layer_norm/{part}"]
    kind = path.split("/")[2].removesuffix("_residual")
    start = f"{side}/layers/{layer.removeprefix('layer_')}/{LAYERS[kind]}"
    if owner == "norm":
        return [f"{start}/{norm}/{part}" for norm in NORMS]
    return [f"{start}/layer/{TABLES[part] if part in TABLES else f'{LINEAR[owner]}/{part}'}"]
