"""Which settings of a `Config` are possible, alone and beside the others."""

import dataclasses
import functools
import math
import re

from keras_transformer.errors import ConfigError, check_setting, describe_type, is_a
from keras_transformer.presets import (
    EFFECTS,
    LENGTH_PENALTIES,
    MOST_HYPOTHESES,
    SINUSOIDAL,
    TYPED,
    split_frame_setting,
    split_heads_setting,
)

WORKERS = "train-{0..3}.train:2222"


def check_values(config):
    """Raises ConfigError for a setting of a `Config` that is not possible, alone or beside the others."""
    check = functools.partial(check_setting, config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        check(field.name, is_a(value, field.type), f"must be {describe_type(field.type)}")
        if isinstance(value, float):
            check(field.name, math.isfinite(value), "must be finite")
        if field.type in (int, int | None) and field.name not in ("seed", "first_position"):
            check(field.name, value is None or value >= 1, "must be at least 1")
    rates = [name for name in vars(config) if name.endswith("dropout_rate")]
    for name in (*rates, "label_smoothing", "cut_rate", "scheduled_sampling_rate", "replay", "protect", *TYPED):
        check(name, 0 <= getattr(config, name) < 1, "must be in [0, 1)")
    decay = config.ema_decay
    check("ema_decay", decay is None or 0 < decay < 1, "must be between 0 and 1")
    for name in ("save_minutes", "weight_decay", "consistency_weight"):
        check(name, (getattr(config, name) or 0) >= 0, "must not be negative")
    for name in ("peak_learning_rate", "clip_norm", "layer_norm_epsilon"):
        check(name, getattr(config, name) is None or getattr(config, name) > 0, "must be positive")
    is_new = config.tokenizer is None
    check("share_vocabulary", is_new or config.share_vocabulary, "must be true with `tokenizer`")
    check("share_tokenizer", is_new or config.has_one_tokenizer, "must not be false with `tokenizer`")
    has_vocabulary = config.share_vocabulary or not config.has_one_tokenizer
    check("share_tokenizer", has_vocabulary, "must not be true with `share_vocabulary` false")
    grows = config.extend_vocabulary is None or config.share_vocabulary == config.has_one_tokenizer
    check("extend_vocabulary", grows, "cannot extend one vocabulary of two tokenizers")
    check("init_from", is_new or config.init_from is None, "brings its own tokenizer: leave out `tokenizer`")
    for name in ("replay", "extend_vocabulary"):
        check(name, config.init_from is not None or not getattr(config, name), "needs `init_from`")
    check("sampling_temperature", config.sampling_temperature >= 1, "must be at least 1")
    if config.sampling_temperature > 1:
        check(
            "sampling_temperature", not config.replay, "does not go with `replay`, which fixes the share of old pairs"
        )
        check("sampling_temperature", len(config.corpora) > 1, "needs several corpora in `dataset`")
    check("workers", config.workers is None or worker_addresses(config.workers), f"must be such as {WORKERS}")
    check("profile", config.profile is None or _is_range(config.profile), "must be START,STOP with START < STOP")
    _check_shape(config)
    check("character_coverage", 0.98 <= config.character_coverage <= 1, "must be between 0.98 and 1")
    check("seed", 0 <= config.seed < 2**31, "must be at least 0 and below 2^31")
    check("model_dir", bool(config.model_dir), "must name a directory; leave it out for runs/PRESET")
    for name, least, most in (("beam_size", 1, MOST_HYPOTHESES), ("length_penalty", *LENGTH_PENALTIES)):
        check(name, least <= getattr(config, name) <= most, f"must be between {least:g} and {most:g}")


def worker_addresses(pattern):
    """The addresses that a pattern stands for: train-{0..1}:2222 is train-0:2222 and train-1:2222.

    Args:
        pattern: str. It has the numbers in braces once, and ends with a port.

    Returns:
        list of str; empty for any other text.
    """
    found = re.fullmatch(r"([^{}]*)\{(\d{1,5})\.\.(\d{1,5})\}([^{}]*)", pattern)
    if not found:
        return []
    before, first, last, after = found.groups()
    addresses = [f"{before}{number}{after}" for number in range(int(first), int(last) + 1)]
    return addresses if all(map(is_address, addresses)) else []


def is_address(text):
    """Whether a str is the address of a program, "host:port"."""
    host, _, port = text.rpartition(":")
    return bool(re.fullmatch(r"\S+", host)) and bool(re.fullmatch(r"[0-9]{1,5}", port)) and 0 < int(port) < 1 << 16


def _check_shape(config):
    check = functools.partial(check_setting, config)
    if config.architecture != "transformer":
        check("d_model", config.d_model % 2 == 0 or not config.bidirectional, "must be even")
        return
    divides = config.d_key is not None or config.d_model % config.num_heads == 0
    check("num_heads", divides, f"must divide `d_model`, {config.d_model}")
    groups = config.num_key_value_heads or config.num_heads
    check("num_key_value_heads", config.num_heads % groups == 0, f"must divide `num_heads`, {config.num_heads}")
    if config.heads is not None:
        counts, depth = split_heads_setting(config.heads), config.num_decoder_layers or config.num_layers
        fits = [*map(len, counts)] == [config.num_layers, depth, depth] and counts[2][-1] > 0
        check("heads", fits, f"must have {config.num_layers}/{depth}/{depth} numbers, the last one not 0")
        goes = config.d_key is not None and config.num_key_value_heads is None
        check("heads", goes, "needs `d_key`, and does not go with `num_key_value_heads`")
    if config.frame is not None:
        rule = "must be ids before the source/after it/before bos, such as /3/, and no padding"
        check("frame", bool(split_frame_setting(config.frame)), rule)
    check("first_position", config.first_position >= 0, "must not be negative")
    check("d_model", config.d_model % 2 == 0 or config.positions not in SINUSOIDAL, "must be even")
    has_period = config.d_model >= 4 or config.positions != "sinusoidal_tensor2tensor"
    check("d_model", has_period, "must be at least 4 with `positions` sinusoidal_tensor2tensor")
    has_tables = not (config.embedding_norm and config.tie_positions and config.positions == "learned")
    check("tie_positions", has_tables, "must be false with `embedding_norm` and learned positions")
    is_even = (config.d_key or config.d_model // config.num_heads) % 2 == 0 or config.positions != "rotary"
    rule = "must be even with rotary positions, and is `d_model` / `num_heads` by default. Or choose other `positions`"
    check("d_key", is_even, rule)


def check_effect(config, given):
    """Refuses a setting that another setting makes useless.

    Args:
        config: `Config`.
        given: names of the settings that the user gave, as opposed to those of a preset or a file.

    Raises:
        ConfigError: that names both settings.
    """
    check = functools.partial(check_setting, config)
    if config.ema_decay is not None and "average_epochs" in given:
        raise ConfigError(
            "with `ema_decay`, the final model is the exponential average, so `average_epochs` has no effect: give one "
            f"of the two. Received: ema_decay={config.ema_decay}, average_epochs={config.average_epochs}"
        )
    for name, need in EFFECTS.items():
        for setting, values in need.items():
            has_effect = name not in given or getattr(config, setting) in values
            rule = f"has no effect with {setting}={getattr(config, setting)}, only with {' or '.join(values)}"
            check(name, has_effect, f"{rule}: leave it out")
    for name in ("vocabulary_size", "character_coverage", "nfkc"):
        for origin in ("tokenizer", "init_from"):
            has_effect = name not in given or getattr(config, origin) is None
            check(name, has_effect, f"has no effect with `{origin}`, which brings a tokenizer: leave it out")


def _is_range(text):
    return re.fullmatch("[0-9]+,[0-9]+", text) and int(text.split(",")[0]) < int(text.split(",")[1])
