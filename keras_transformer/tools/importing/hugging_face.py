"""Directories of Hugging Face: `config.json`, weights, and the files of a tokenizer."""

import re
from pathlib import Path

import numpy as np

from keras_transformer.tools.importing import fairseq, marian_mt
from keras_transformer.tools.importing.foreign import ForeignModel
from keras_transformer.tools.importing.tensors import ImportedModelError, open_tensors, read_json

# Names of our layers and theirs, which all of their translation models have from BART.
LAYERS = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/output": "self_attn.out_proj",
    "self_attention_residual/norm": "self_attn_layer_norm",
    "cross_attention/query": "encoder_attn.q_proj",
    "cross_attention/key": "encoder_attn.k_proj",
    "cross_attention/value": "encoder_attn.v_proj",
    "cross_attention/output": "encoder_attn.out_proj",
    "cross_attention_residual/norm": "encoder_attn_layer_norm",
    "feed_forward/inner": "fc1",
    "feed_forward/outer": "fc2",
    "feed_forward_residual/norm": "final_layer_norm",
}
PARTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
MATRICES = {  # in the order of preference: files leave out copies
    "embedding/matrix": ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"),
    "source_embedding/matrix": ("model.encoder.embed_tokens", "model.shared"),
    "target_embedding/matrix": ("model.decoder.embed_tokens", "model.shared", "lm_head"),
    "logits/output_matrix/matrix": ("lm_head",),
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
ACTIVATIONS |= {"gelu_new": "gelu_tanh", "quick_gelu": "gelu_sigmoid"}
FAMILIES = {
    "MarianMTModel": marian_mt,
    "M2M100ForConditionalGeneration": fairseq,
    "MBartForConditionalGeneration": fairseq,
}
RATES = ("dropout", "attention_dropout", "activation_dropout")
FLAGS = ("scale_embedding", "tie_word_embeddings", "share_encoder_decoder_embeddings")
START_ID = "decoder_start_token_id"
SIZES = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads", "decoder_attention_heads")
NUMBERS = re.compile(  # in a config.json
    rf"{'|'.join(SIZES)}|(decoder_)?vocab_size|max_position_embeddings|(en|de)coder_layers|(pad|eos|decoder_start)_token_id"
)
POSITIONS = re.compile(r"model\.(en|de)coder\.embed_positions\.weights?")  # learned, or sinusoids in some files
FIRST_ROW = 2  # of the table of learned positions


def read_directory(directory, source_lang=None, target_lang=None, languages=None):
    """The model in a directory of Hugging Face.

    Args:
        directory: path.
        source_lang, target_lang: codes of languages; a model of several languages needs them.
        languages: list of codes of several languages; see `languages.language_tags`. None for one direction.

    Returns:
        `ForeignModel`.

    Raises:
        ImportedModelError: if a file is missing or damaged, or the model has no equal here; it names the setting.
    """
    config = read_json(directory, "config.json")
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else None
    if name not in FAMILIES:
        raise ImportedModelError(
            f"{directory} must hold one of {', '.join(FAMILIES)}. Received: architectures={architectures}"
        )
    check_own_code(directory)
    tensors = open_tensors(directory)
    check_numbers(config, tensors, directory)
    family = FAMILIES[name]
    is_like_marian = (directory / "source.spm").exists()  # our exports of all classes have its files
    tokenizers, source, target, settings, tags = (marian_mt if is_like_marian else family).read_vocabularies(
        directory, config, source_lang, target_lang, languages
    )
    settings = {**settings_of(config, directory), **family.settings_of(config), **settings}
    scale = settings["d_model"] ** 0.5 if settings["scale_embeddings"] else 1.0
    weights = Weights(tensors, directory, scale)
    has_bias = np.any(weights.tensors.get("final_logits_bias", 0))
    settings["logits_bias"] = bool(has_bias) or len(target.hidden) > 0
    weights.check_all_known()
    return ForeignModel(settings, tokenizers, source, target, weights.read, tags)


def check_own_code(directory):
    """Refuses a tokenizer with code of its own, as SMALL-100: no code is run, and its tags stand elsewhere."""
    path = Path(directory, "tokenizer_config.json")
    own = (read_json(directory, path.name) if path.exists() else {}).get("auto_map")
    code = sorted(path.name for path in Path(directory).glob("tokenization_*.py"))
    if own or code:
        raise ImportedModelError(
            f"{directory} has a tokenizer with code of its own, which is not run, so it is not known where its tags "
            f"stand: import a model with a tokenizer of transformers. Received: {', '.join(code) or f'auto_map={own}'}"
        )


def check_numbers(config, tensors, directory):
    """Checks all numbers of a config.json before somebody takes memory by them.

    Args:
        config: dict.
        tensors: those of `open_tensors`.
        directory: path, for messages.

    Raises:
        ImportedModelError: for a value that is no whole number, or larger than the weights are.
    """
    numbers = {name: value for name, value in config.items() if NUMBERS.fullmatch(name)}
    if config.get("model_type") == "mbart" and numbers.get(START_ID) is None:
        numbers.pop(START_ID, None)  # the tag of the target language is in its place
    for name, value in numbers.items():
        if type(value) is not int or value < (0 if name.endswith("_id") else 1):
            raise ImportedModelError(f"{directory}/config.json: {name} must be a whole number. Received: {value!r}")
    for name in RATES:
        if type(config.get(name, 0)) not in (int, float) or not 0 <= config.get(name, 0) < 1:
            raise ImportedModelError(
                f"{directory}/config.json: {name} must be at least 0 and less than 1. Received: {config[name]!r}"
            )
    for name in FLAGS:
        if not isinstance(config.get(name, True), bool):
            raise ImportedModelError(
                f"{directory}/config.json: {name} must be true or false. Received: {config[name]!r}"
            )
    names = [f"{name}.weight" for names in MATRICES.values() for name in names]
    rows = max((tensors[name].shape[0] for name in names if name in tensors), default=0)
    largest = max((max(tensors[name].shape, default=0) for name in tensors), default=0)
    for name, value in numbers.items():
        if name.endswith("vocab_size") and value > rows:
            raise ImportedModelError(f"a matrix has {rows} rows for {value} pieces")
        if name in SIZES and value > largest:
            raise ImportedModelError(f"{directory}/config.json: no weight is as large as {name}. Received: {value}")
    for side in ("encoder", "decoder"):
        last = f"model.{side}.layers.{numbers[f'{side}_layers'] - 1}.fc1.weight"
        if last not in tensors:
            raise ImportedModelError(f"{directory} has no weight {last}")


def settings_of(config, directory):
    """The settings that all of their models have, for `Config`: a dict.

    Args:
        config: dict, their config.json.
        directory: path, for messages.
    """
    different = [
        f"encoder_{name}={config[f'encoder_{name}']}, decoder_{name}={config[f'decoder_{name}']}"
        for name in ("attention_heads", "ffn_dim")
        if config[f"encoder_{name}"] != config[f"decoder_{name}"]
    ]
    if different:
        raise ImportedModelError(f"encoder and decoder must have equal sizes. Received: {', '.join(different)}")
    activation = str(config.get("activation_function", "gelu"))
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"{directory} must have one of {known}. Received: activation_function={activation}")
    return {
        "d_model": config["d_model"],
        "d_ff": config["encoder_ffn_dim"],
        "num_heads": config["encoder_attention_heads"],
        "num_layers": config["encoder_layers"],
        "num_decoder_layers": config["decoder_layers"],
        "activation": ACTIVATIONS[activation],
        "attention_bias": True,
        "layer_norm_epsilon": 1e-5,  # that of PyTorch
        "scale_embeddings": bool(config.get("scale_embedding", False)),
        "dropout_rate": float(config.get("dropout", 0.1)),
        "attention_dropout_rate": float(config.get("attention_dropout", 0.0)),
        "feed_forward_dropout_rate": float(config.get("activation_dropout", 0.0)),
    }


class Weights:
    """The weights of a directory by our names.

    Args:
        tensors: dict from their names to arrays.
        directory: path, for messages.
        scale: number with which we multiply learned positions. They multiply only the vectors of the tokens.
    """

    def __init__(self, tensors, directory, scale):
        self.tensors, self.directory, self.scale = tensors, directory, scale

    def check_all_known(self):
        """Refuses weights that no layer of ours has, such as those of experts. Raises ImportedModelError."""
        layer = rf"model\.(encoder|decoder)\.layers\.\d+\.({'|'.join(map(re.escape, LAYERS.values()))})\.(weight|bias)"
        other = r"model\.(en|de)coder\.layer_?norm(_embedding)?\.(weight|bias)|final_logits_bias"
        matrices = "|".join(re.escape(name) for names in MATRICES.values() for name in names)
        known = re.compile(rf"{layer}|{other}|({matrices})\.weight|{POSITIONS.pattern}")
        unknown = [name for name in self.tensors if not known.fullmatch(name)]
        if unknown:
            raise ImportedModelError(f"{self.directory} has weights that no model here has, such as {unknown[0]}")

    def read(self, path):
        """Their array for one of our weights, laid out as ours."""
        if path in MATRICES:
            return self.first_of([f"{name}.weight" for name in MATRICES[path]])
        if path == "logits/bias":
            found = self.tensors.get("final_logits_bias")
            return None if found is None else np.reshape(found, -1)
        array = self.first_of([their_name(path)])
        if path.endswith("positions/table"):
            return array[FIRST_ROW:].astype("float32") / self.scale
        return array.T if path.endswith("kernel") else array

    def first_of(self, names):
        """The first of the arrays that the files have. Raises ImportedModelError if they have none of them."""
        for name in names:
            if name in self.tensors:
                return self.tensors[name]
        raise ImportedModelError(f"{self.directory} has no weight {names[0]}")


def their_name(path):
    """Their name of a weight of a layer of ours: "encoder/layer_3/feed_forward/inner/kernel" and so on."""
    place, _, part = path.rpartition("/")
    layer = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(.+)", place)
    if layer:
        return f"model.{layer[1]}.layers.{layer[2]}.{LAYERS[layer[3]]}.{PARTS[part]}"
    side = "encoder" if place.startswith(("encoder", "source")) else "decoder"
    if part == "table":
        return f"model.{side}.embed_positions.weight"
    return f"model.{side}.{'layer_norm' if place == f'{side}/norm' else 'layernorm_embedding'}.{PARTS[part]}"
