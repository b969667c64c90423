import dataclasses
import re
from typing import get_args

import pytest

from keras_transformer.config import MODEL_ARGUMENTS, PRESETS, Config, ConfigError, preset, read_settings

# Every field, none with its default; `no` is Norwegian, and a bare YAML `no` is not.
OTHER = {
    "preset": "small",
    "model_dir": "runs/größer: 1",
    "dataset": "tfds:ted_hrlr_translate/pt_to_en",
    "source_lang": "no",
    "target_lang": "null",
    "vocabulary_size": 503,
    "max_length": 61,
    "init_from": "runs/another",
    "d_model": 22,
    "d_ff": 53,
    "num_heads": 11,
    "num_layers": 5,
    "dropout_rate": 0.37,
    "attention_dropout_rate": 0.41,
    "feed_forward_dropout_rate": 0.43,
    "subword_dropout_rate": 0.47,
    "pre_norm": True,
    "epochs": 7,
    "max_steps": 1009,
    "batch_tokens": 2003,
    "accumulate_steps": 29,
    "peak_learning_rate": 1e-05,
    "warmup_steps": 17,
    "label_smoothing": 0.0,
    "patience": 41,
    "average_epochs": 3,
    "ema_decay": 0.5,
    "best_by": "loss",
    "tokenize": "none",
    "validation_sentences": 19,
    "save_minutes": 0.5,
    "seed": 23,
    "strategy": "mirrored",
    "precision": "bfloat16",
    "profile": "11,13",
    "beam_size": 13,
    "length_penalty": 1.3,
}


def test_the_other_values_are_other():
    assert [field.name for field in dataclasses.fields(Config)] == list(OTHER)
    assert not [name for name, value in OTHER.items() if getattr(Config(), name) == value]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_know_their_name(name):
    config = preset(name)
    assert config.preset == name
    assert config.model_dir == f"runs/{name}"


def test_presets_are_those_that_the_flag_offers():
    field = next(field for field in dataclasses.fields(Config) if field.name == "preset")
    assert get_args(field.type) == tuple(PRESETS)


@pytest.mark.parametrize("name", ["nonsense", "", None, ["tiny"]])
def test_an_unknown_preset_is_an_error_that_lists_those_there_are(name):
    with pytest.raises(ConfigError, match="unknown preset .*: it must be one of quickstart, tiny, small, base, big"):
        preset(name)


@pytest.mark.parametrize(
    ("name", "d_model", "d_ff", "num_heads", "dropout_rate"),
    [("base", 512, 2048, 8, 0.1), ("big", 1024, 4096, 16, 0.3)],
)
def test_base_and_big_are_those_of_table_3(name, d_model, d_ff, num_heads, dropout_rate):
    config = preset(name)
    assert (config.num_layers, config.d_model, config.d_ff, config.num_heads) == (6, d_model, d_ff, num_heads)
    assert (config.dropout_rate, config.label_smoothing, config.warmup_steps) == (dropout_rate, 0.1, 4000)
    assert (config.attention_dropout_rate, config.feed_forward_dropout_rate, config.pre_norm) == (0, 0, False)
    assert config.peak_learning_rate is None  # equation (3)
    assert (config.batch_tokens, config.vocabulary_size) == (25000, 37000)  # 5.1
    assert (config.beam_size, config.length_penalty) == (4, 0.6)  # 6.1


def test_the_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().epochs = 7


@pytest.mark.parametrize("config", [*map(preset, PRESETS), Config(**OTHER)], ids=[*PRESETS, "all other"])
def test_what_is_saved_loads_as_the_same(config, tmp_path):
    config.save(tmp_path / "config.yaml")
    loaded = Config.load(tmp_path / "config.yaml")
    assert loaded == config
    assert [type(x) for x in dataclasses.astuple(loaded)] == [type(x) for x in dataclasses.astuple(config)]


def test_a_saved_config_has_every_setting_in_order(tmp_path):
    Config().save(tmp_path / "config.yaml")
    lines = (tmp_path / "config.yaml").read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in lines] == list(OTHER)


def test_settings_left_out_of_a_file_have_their_defaults(tmp_path):
    (tmp_path / "config.yaml").write_text("d_ff: 53  # F\n", encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml") == Config(d_ff=53)


def test_model_arguments_are_settings():
    arguments = Config(**OTHER).model_arguments()
    assert arguments == {name: OTHER[name] for name in MODEL_ARGUMENTS}


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=f"cannot read settings from {re.escape(str(tmp_path / name))}: "):
        read_settings(tmp_path / name)


@pytest.mark.parametrize(
    "content", [b"d_ff: {\n", b"d_ff: \x00", b"\xff\xfe", b"", b"53", b"- d_ff", b"d_ff"], ids=repr
)
def test_a_file_that_is_no_mapping_is_named_in_one_line(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))) as caught:
        read_settings(path)
    assert "\n" not in str(caught.value)


def test_unknown_settings_are_named(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("d_ff: 53\nd_model_: 22\n7: 11\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown settings: d_model_, 7; there are preset, model_dir, "):
        Config.load(path)


AT_LEAST_ONE = ["vocabulary_size", "max_length", "d_model", "d_ff", "num_heads", "num_layers", "epochs", "max_steps"]
AT_LEAST_ONE += ["batch_tokens", "warmup_steps", "average_epochs", "validation_sentences", "beam_size"]
RATES = [
    "dropout_rate",
    "attention_dropout_rate",
    "feed_forward_dropout_rate",
    "subword_dropout_rate",
    "label_smoothing",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in AT_LEAST_ONE for value in (0, -7)],
        *[(name, value) for name in RATES for value in (-0.1, 1.0, float("nan"))],
        *[("peak_learning_rate", value) for value in (0.0, -0.1, float("nan"))],
        ("num_heads", 3),  # of d_model 128
        ("strategy", "nonsense"),
        ("precision", "float8"),
        ("best_by", "chrf"),
        *[("profile", value) for value in ("", "7", "7,7", "11,7", "-1,7", "7,11,13", "7,x", "7, 11", "7.5,11")],
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_was_received(name, value):
    with pytest.raises(ConfigError, match=rf"^`{name}` .* Received: {name}=\W?{re.escape(str(value))}\W?$"):
        Config(**{name: value})


def test_the_updates_to_profile_are_numbers():
    assert Config(profile="0,101").profiled_updates() == (0, 101)
    assert Config().profiled_updates() is None


def test_an_odd_width_is_refused():
    with pytest.raises(ConfigError, match="`d_model` must be even. Received: d_model=33"):
        Config(d_model=33, num_heads=11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "many"),
        ("epochs", "null"),
        ("epochs", "true"),
        ("d_model", '"128"'),
        ("d_model", "128.0"),
        ("num_heads", "[4]"),
        ("dropout_rate", "'0.1'"),
        ("peak_learning_rate", "1e-3"),  # text to YAML 1.1, which wants 1.0e-3
        ("pre_norm", "maybe"),
        ("pre_norm", "1"),
        ("source_lang", "no"),
        ("target_lang", "5"),
        ("model_dir", "null"),
        ("seed", "1.5"),
        ("preset", "[tiny]"),
        ("strategy", "{auto: 1}"),
    ],
)
def test_a_value_of_the_wrong_type_in_a_file_is_named(tmp_path, name, value):
    (tmp_path / "config.yaml").write_text(f"{name}: {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"^`{name}` .* Received: {name}="):
        Config.load(tmp_path / "config.yaml")


def test_whole_numbers_are_numbers(tmp_path):
    (tmp_path / "config.yaml").write_text("dropout_rate: 0\npeak_learning_rate: 1\n", encoding="utf-8")
    config = Config.load(tmp_path / "config.yaml")
    assert (config.dropout_rate, config.peak_learning_rate) == (0, 1)
