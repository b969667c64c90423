"""What old versions of CTranslate2 wrote into model.bin, in the names of today. Many models are only there so.

Versions 2 to 5 of the file are those of 2019 to 2022, when there was no config.json.
"""

import numpy as np

OLDEST, FIRST_WITH_ALIASES, FIRST_WITH_DTYPES, FIRST_WITH_CONFIG, NEWEST = 2, 3, 4, 6, 6
DTYPES_BY_SIZE = {1: np.int8, 2: np.int16, 4: np.float32}  # before a file had numbers of dtypes
HEADS = {"TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}  # by the kind, where no number tells
DEFAULTS = {"pre_norm": 1, "activation": 0, "scale_embeddings": 1}  # what the engine takes if a file lacks a number
NEEDLESS = ("alignment_layer", "alignment_heads", "embeddings_merge", "layernorm_embedding", "with_relative_position")
TOKENS = ("unk_token", "bos_token", "eos_token")  # arrays of characters
INT16_SCALE = 1000.0  # of files without scales


def with_names_of_today(kind, numbers, tensors, same):
    """The numbers and arrays of a file of any version, as the newest would have them. `same` gets the new aliases.

    Args:
        kind: str, a key of `HEADS`.
        numbers: dict from names to numbers.
        tensors: dict from names to functions that give the arrays.
        same: dict from names to the names whose array they share.

    Returns:
        The numbers; the arrays; what config.json would say, a dict, {} if the file says nothing of it.
    """
    numbers, tensors = dict(numbers), dict(tensors)
    for side, embeddings in (("encoder", "encoder/embeddings"), ("decoder", "decoder/embeddings")):
        defaults = {**DEFAULTS, "num_heads": HEADS[kind]}
        if f"{embeddings}/multiply_by_sqrt_depth" in numbers:
            defaults["scale_embeddings"] = numbers.pop(f"{embeddings}/multiply_by_sqrt_depth")
        for name, value in defaults.items():
            numbers.setdefault(f"{side}/{name}", numbers.get(name, value))
    for part in ("weight", "weight_scale"):
        if f"encoder/embeddings/{part}" in (*tensors, *numbers, *same):
            same[f"encoder/embeddings_0/{part}"] = same.get(f"encoder/embeddings/{part}", f"encoder/embeddings/{part}")
    config = {name: tensors.pop(name)().tobytes().decode("utf-8") for name in TOKENS if name in tensors}
    for flag, name in (("with_source_bos", "add_source_bos"), ("with_source_eos", "add_source_eos")):
        config[name] = bool(numbers.pop(flag, 0))
    starts_with_bos = numbers.pop("with_target_bos", 1)
    if numbers.pop("user_decoder_start_tokens", 0):
        config["decoder_start_token"] = None
    elif not starts_with_bos:
        config["decoder_start_token"] = config.get("eos_token", "</s>")
    for name in ("num_heads", *DEFAULTS, *NEEDLESS):
        numbers.pop(name, None)
    return numbers, tensors, config
