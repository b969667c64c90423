import dataclasses
import re
from typing import Literal, get_args

import pytest
import yaml

from keras_transformer.cli.train import parse_config
from keras_transformer.config import SUITED, Config, check_effect, is_a, read_settings
from keras_transformer.errors import ConfigError, describe_type
from keras_transformer.layers import embedding, stacks
from keras_transformer.models import MODELS
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer
from keras_transformer.presets import ACTIVATIONS, OPTIMIZERS, POSITIONS, PRESETS, SINUSOIDAL, split_frame_setting
from keras_transformer.settings import SETTINGS

# Every field, none with its default. `no` is Norwegian; in YAML, a bare `no` is false.
OTHER = {
    "preset": "small",
    "model_dir": "runs/größer: 1",
    "dataset": "tfds:ted_hrlr_translate/pt_to_en",
    "tags": "both",
    "sampling_temperature": 1.0,  # there is no other one beside `replay`
    "source_lang": "no",
    "target_lang": "null",
    "skip_bad_lines": True,
    "vocabulary_size": 503,
    "character_coverage": 0.983,
    "nfkc": True,
    "share_vocabulary": False,
    "share_tokenizer": False,
    "tokenizer": None,  # there is none beside `init_from`
    "protect": 0.07,
    "upper_case": 0.11,
    "title_case": 0.13,
    "typos": 0.17,
    "noise": 0.19,
    "max_length": 61,
    "init_from": "runs/another",
    "replay": 0.25,
    "extend_vocabulary": 47,
    "d_model": 22,
    "d_ff": 53,
    "num_heads": 11,
    "num_layers": 5,
    "num_decoder_layers": 3,
    "d_key": 7,
    "d_value": 3,
    "num_key_value_heads": 1,
    "heads": None,  # nor beside `num_key_value_heads`
    "positions": "relative",
    "first_position": 2,
    "tie_positions": False,
    "relative_clip": 37,
    "dropout_rate": 0.37,
    "attention_dropout_rate": 0.41,
    "feed_forward_dropout_rate": 0.43,
    "subword_dropout_rate": 0.47,
    "pre_norm": True,
    "frame": "17,5/3/3",
    "attention_bias": True,
    "activation": "gelu",
    "layer_norm_epsilon": 1e-05,
    "scale_embeddings": False,
    "embedding_norm": True,
    "logits_bias": True,
    "tie_embeddings": False,
    "architecture": "lstm",
    "bidirectional": False,
    "attention": "general",
    "attention_span": "local_p",
    "attention_window": 3,
    "hard_attention": True,
    "context": "mean",
    "input_feeding": True,
    "epochs": 7,
    "max_steps": 1009,
    "batch_tokens": 2003,
    "accumulate_steps": 29,
    "optimizer": "lion",
    "weight_decay": 0.25,
    "clip_norm": 0.75,
    "peak_learning_rate": 1e-05,
    "warmup_steps": 17,
    "schedule": "cosine",
    "label_smoothing": 0.0,
    "consistency": "simcut",
    "consistency_weight": 2.5,
    "cut_rate": 0.15,
    "scheduled_sampling_rate": 0.125,
    "patience": 41,
    "average_epochs": 3,
    "ema_decay": 0.5,
    "validate_every": 31,
    "best_by": "loss",
    "tokenize": "none",
    "validation_sentences": 19,
    "save_minutes": 0.5,
    "seed": 23,
    "strategy": "multi_worker",
    "workers": "train-{0..2}:2222",
    "precision": "bfloat16",
    "beam_size": 13,
    "length_penalty": 1.3,
    "split_sentences": False,
}


def test_the_other_values_are_other():
    assert [field.name for field in dataclasses.fields(Config)] == list(OTHER)
    same = [field.name for field in dataclasses.fields(Config) if OTHER[field.name] == field.default]
    assert same == ["sampling_temperature", "tokenizer", "heads"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_every_default_that_it_names_and_settings_go_before(name):
    config = Config(preset=name)
    assert (config.preset, config.model_dir) == (name, f"runs/{name}")
    found = {setting: getattr(config, setting) for setting in PRESETS[name]}
    for setting in found.keys() & SUITED:  # of which a corpus may need less
        assert found[setting] is None
        found[setting] = config.of_preset(setting)
    assert found == PRESETS[name]
    others = {field.name: field.default for field in dataclasses.fields(Config)}.items()
    left = {setting: default for setting, default in others if setting not in {"preset", "model_dir", *PRESETS[name]}}
    assert {setting: getattr(config, setting) for setting in left} == left
    assert vars(Config(**{**OTHER, "preset": name})) == {**OTHER, "preset": name}


def test_without_a_preset_quickstart_gives_the_defaults():
    assert Config() == Config(preset="quickstart")


def test_presets_and_optimizers_are_those_that_the_flags_offer():
    types = {field.name: field.type for field in dataclasses.fields(Config)}
    assert get_args(types["preset"]) == tuple(PRESETS)
    assert get_args(types["optimizer"]) == tuple(OPTIMIZERS)


@pytest.mark.parametrize("name", ["nonsense", "", None, ["tiny"]])
def test_an_unknown_preset_is_an_error_that_lists_those_there_are(name):
    with pytest.raises(ConfigError, match="unknown preset .*: it must be one of quickstart, tiny, tiny_6_2, "):
        Config(preset=name)


def test_an_unknown_setting_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="^unknown settings: d_model_, dropout; there are preset, model_dir, "):
        Config(d_model_=26, d_ff=53, dropout=0.1)


def from_python(directory, **settings):
    return Config(**settings)


def from_yaml(directory, **settings):
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return Config.load(path)


def from_flags(directory, **settings):
    return parse_config([part for name, value in settings.items() for part in (f"--{name}", str(value))], "train")


def from_yaml_under_flags(directory, preset, **settings):
    (directory / "config.yaml").write_text("preset: tiny\n", encoding="utf-8")
    return from_flags(directory, config=directory / "config.yaml", preset=preset, **settings)


SOURCES = pytest.mark.parametrize("made", [from_python, from_yaml, from_flags, from_yaml_under_flags])


@SOURCES
@pytest.mark.parametrize(
    ("name", "d_model", "d_ff", "num_heads", "dropout_rate"),
    [("base", 512, 2048, 8, 0.1), ("big", 1024, 4096, 16, 0.3)],
)
def test_base_and_big_are_those_of_table_3(tmp_path, made, name, d_model, d_ff, num_heads, dropout_rate):
    config = made(tmp_path, preset=name)
    assert (config.num_layers, config.d_model, config.d_ff, config.num_heads) == (6, d_model, d_ff, num_heads)
    assert (config.dropout_rate, config.label_smoothing, config.of_preset("warmup_steps")) == (dropout_rate, 0.1, 4000)
    assert (config.attention_dropout_rate, config.feed_forward_dropout_rate, config.pre_norm) == (0, 0, False)
    assert (config.positions, config.first_position, config.activation) == ("sinusoidal", 0, "relu")  # 3.5 and 3.3
    assert (config.attention_bias, config.logits_bias) == (False, False)  # equation (1) and 3.4
    assert (config.scale_embeddings, config.embedding_norm, config.layer_norm_epsilon) == (True, False, 1e-6)  # 3.4
    assert (config.share_vocabulary, config.tie_embeddings) == (True, True)  # 5.1 and 3.4
    assert (config.optimizer, config.clip_norm, config.peak_learning_rate) == ("adam", None, None)  # equation (3)
    assert (config.of_preset("batch_tokens"), config.vocabulary_size) == (25000, 37000)  # 5.1
    assert (config.beam_size, config.length_penalty) == (4, 0.6)  # 6.1
    assert config == Config(preset=name)


@SOURCES
def test_a_setting_goes_before_the_preset_wherever_it_is_given(tmp_path, made):
    config = made(tmp_path, preset="big", num_layers=5, epochs=7, optimizer="lion")
    assert (config.d_model, config.num_layers, config.epochs, config.optimizer) == (1024, 5, 7, "lion")


def test_the_optimizer_of_the_paper_has_its_arguments():
    assert OPTIMIZERS["adam"] == {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}  # 5.3


def arguments_beside_sizes(model_class):
    """Those that are settings; the sizes of vocabularies and of tables follow from the corpus and others."""
    names = {field.name for field in dataclasses.fields(model_class.shape_class)}
    return names - {"vocabulary_size", "target_vocabulary_size", "num_positions"}


def test_every_argument_of_a_model_but_the_sizes_of_its_tables_is_a_setting():
    arguments = arguments_beside_sizes(Transformer)
    assert {"d_model", "num_layers", "pre_norm", "tie_embeddings"} <= arguments <= OTHER.keys()
    assert arguments_beside_sizes(RecurrentNetwork) - {"cell"} <= OTHER.keys()


def test_a_setting_of_one_model_only_is_said_to_have_no_effect_on_the_other():
    transformer, recurrent = map(arguments_beside_sizes, (Transformer, RecurrentNetwork))
    needs = {name: setting.only_with for name, setting in SETTINGS.items()}
    of = {name: need["architecture"] for name, need in needs.items() if "architecture" in need}
    assert {name for name, models in of.items() if models == ("transformer",)} == transformer - recurrent
    assert {name for name, models in of.items() if models == ("rnn", "lstm", "gru")} == recurrent - transformer - {
        "cell"
    }


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"architecture": "gru", "num_heads": 2}, "`num_heads` .* architecture=gru, only with transformer:"),
        ({"attention": "dot"}, "`attention` .* architecture=transformer, only with rnn or lstm or gru:"),
        (
            {"preset": "rnn", "attention": "none", "hard_attention": True},
            "`hard_attention` .* attention=none, only",
        ),
        ({"preset": "lstm", "context": "mean"}, "`context` .* attention=additive, only with none:"),
        (
            {"preset": "gru", "attention_window": 3},
            "`attention_window` .* attention_span=global, only with local_m",
        ),
    ],
)
def test_a_setting_that_another_one_makes_useless_is_refused(given, rule):
    with pytest.raises(ConfigError, match=f"^{rule}.* leave it out. Received: "):
        check_effect(Config(**given), given)


@pytest.mark.parametrize(
    "given",
    [
        {"architecture": "gru", "attention": "none", "context": "mean"},
        {"preset": "lstm", "attention": "general", "attention_span": "local_p", "attention_window": 3},
        {"preset": "rnn", "hard_attention": True, "input_feeding": True, "bidirectional": False},
    ],
)
def test_settings_that_go_together_are_taken(given):
    check_effect(Config(**given), given)


def test_the_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().epochs = 7


@pytest.mark.parametrize("config", [*map(Config, PRESETS), Config(**OTHER)], ids=[*PRESETS, "all other"])
def test_a_saved_config_loads_as_the_same(config, tmp_path):
    config.save(tmp_path / "config.yaml")
    loaded = Config.load(tmp_path / "config.yaml")
    assert loaded == config
    assert [type(x) for x in dataclasses.astuple(loaded)] == [type(x) for x in dataclasses.astuple(config)]


def test_a_saved_config_has_every_setting_in_order(tmp_path):
    Config().save(tmp_path / "config.yaml")
    lines = (tmp_path / "config.yaml").read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in lines] == list(OTHER)


def test_several_corpora_are_saved_and_loaded_in_their_order_and_one_remains_a_text(tmp_path):
    for given, expected in (
        ("files:a", "files:a"),
        (["files:a"], "files:a"),
        (["files:b:0.3", "files:a"], ("files:b:0.3", "files:a")),
    ):
        config = Config(dataset=given)
        config.save(tmp_path / "config.yaml")
        loaded = Config.load(tmp_path / "config.yaml")
        assert config.dataset == loaded.dataset == expected and config == loaded
        assert loaded.corpora == (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize("dataset", [[], (), ["files:a", 3], 3, None])
def test_corpora_that_are_no_texts_are_refused(dataset):
    with pytest.raises(ConfigError, match="`dataset` must be text or several texts"):
        Config(dataset=dataset)


@pytest.mark.parametrize("setting", [{"replay": 0.2}, {"extend_vocabulary": 7}], ids=str)
def test_what_is_of_another_run_needs_that_run(setting):
    with pytest.raises(ConfigError, match="needs `init_from`"):
        Config(**setting)
    Config(**setting, init_from="runs/a")


def test_settings_left_out_of_a_file_have_their_defaults(tmp_path):
    (tmp_path / "config.yaml").write_text("d_ff: 53  # F\n", encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml") == Config(d_ff=53)


def test_a_file_with_a_preset_gets_its_other_settings_from_the_preset(tmp_path):
    (tmp_path / "config.yaml").write_text("preset: big\nd_ff: 53\n", encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml") == Config(preset="big", d_ff=53)


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
AT_LEAST_ONE += ["num_decoder_layers", "d_key", "d_value", "num_key_value_heads", "relative_clip"]
AT_LEAST_ONE += ["batch_tokens", "accumulate_steps", "warmup_steps", "patience", "average_epochs"]
AT_LEAST_ONE += ["attention_window", "validation_sentences", "validate_every", "beam_size"]
RATES = [
    "dropout_rate",
    "attention_dropout_rate",
    "feed_forward_dropout_rate",
    "subword_dropout_rate",
    "label_smoothing",
    "cut_rate",
    "scheduled_sampling_rate",
    "upper_case",
    "title_case",
    "typos",
    "noise",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in AT_LEAST_ONE for value in (0, -7)],
        *[(name, value) for name in RATES for value in (-0.1, 1.0, float("nan"))],
        *[(name, value) for name in ("peak_learning_rate", "clip_norm") for value in (0.0, -0.1, float("nan"))],
        *[("layer_norm_epsilon", value) for value in (0.0, -1e-6, float("nan"))],
        ("first_position", -1),
        ("activation", "swish"),
        *[("frame", value) for value in ("", "3", "/3", "0/3/", "a/3/", "/3,/", "/3/3/3", "-1//")],
        *[("ema_decay", value) for value in (0.0, 1.0, float("nan"))],
        ("save_minutes", -1.0),
        ("consistency_weight", -1.0),
        ("consistency", "rdrop"),
        *[("weight_decay", value) for value in (-0.1, float("nan"))],
        *[("character_coverage", value) for value in (0.97, 1.1, float("nan"))],
        ("model_dir", ""),
        ("num_heads", 3),  # of d_model 128
        ("num_key_value_heads", 3),  # of 4 heads
        ("positions", "alibi"),
        ("beam_size", 257),
        *[("length_penalty", value) for value in (-10.1, 10.1, 1e9)],
        *[("length_penalty", value) for value in (float("nan"), float("inf"), -float("inf"))],
        ("strategy", "tpu"),
        ("optimizer", "adamm"),
        ("precision", "float8"),
        ("best_by", "chrf"),
        *[
            ("workers", value)
            for value in (
                "",
                "a:2",
                "a-{0..1}",
                "a-{1..0}:2",
                "{0..1}{0..1}:2",
                "a-{0..x}:2",
                "a {0..1}:2",
                "a:{65535..65536}",
            )
        ],
    ],
)
def test_an_impossible_value_is_refused_with_its_name_and_itself(name, value):
    with pytest.raises(ConfigError, match=rf"^`{name}` .* Received: {name}=\W?{re.escape(str(value))}\W?$"):
        Config(**{name: value})


@pytest.mark.parametrize(("value", "is_named"), [("20,30", True), ("null", False)])
def test_the_file_of_a_run_begun_before_may_have_a_setting_that_is_gone(tmp_path, caplog, value, is_named):
    path = tmp_path / "config.yaml"
    Config(seed=23).save(path)
    path.write_text(path.read_text(encoding="utf-8") + f"profile: {value}\n", encoding="utf-8")
    assert Config.load(path) == Config(seed=23)
    assert ("has `profile`, which is gone" in caplog.text) == is_named


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"share_vocabulary": False}, "`share_vocabulary` must be true with `tokenizer`. Received: "),
        ({"init_from": "runs/a"}, "`init_from` does not go with `tokenizer`, as it brings its own. Received: "),
    ],
)
def test_a_given_tokenizer_is_that_of_both_languages_and_of_a_new_model(other, said, tmp_path):
    with pytest.raises(ConfigError, match=f"^{said}"):
        Config(tokenizer="spm.model", **other)
    Config(tokenizer="spm.model").save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml").tokenizer == "spm.model"


@pytest.mark.parametrize(
    ("settings", "has_one"),
    [
        ({}, True),
        ({"share_vocabulary": False}, False),
        ({"share_tokenizer": False}, False),
        ({"share_vocabulary": False, "share_tokenizer": False}, False),
        ({"share_tokenizer": True}, True),
    ],
)
def test_one_vocabulary_may_have_two_tokenizers(settings, has_one):
    assert Config(**settings).has_one_tokenizer is has_one


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"share_vocabulary": False, "share_tokenizer": True}, "`share_tokenizer` must not be true with"),
        ({"tokenizer": "spm.model", "share_tokenizer": False}, "`share_tokenizer` must not be false with `tokenizer`"),
        (
            {"init_from": "runs/a", "extend_vocabulary": 7, "share_tokenizer": False},
            "`extend_vocabulary` cannot extend one vocabulary of two tokenizers",
        ),
    ],
)
def test_tokenizers_that_do_not_fit_the_vocabulary_are_refused(settings, rule):
    with pytest.raises(ConfigError, match=f"^{rule}"):
        Config(**settings)


@pytest.mark.parametrize("origin", ["tokenizer", "init_from"])
@pytest.mark.parametrize("name", ["vocabulary_size", "character_coverage"])
def test_settings_of_a_new_tokenizer_are_refused_where_none_is_trained(origin, name):
    config = Config(preset="tiny", **{origin: "runs/a"})
    check_effect(config, ["preset", origin])
    check_effect(Config(), [name])
    with pytest.raises(ConfigError, match=f"^`{name}` has no effect with `{origin}`, .* leave it out. Received: "):
        check_effect(config, [name, origin])


def test_epochs_to_average_beside_an_exponential_average_are_refused():
    config = Config(ema_decay=0.9, average_epochs=7)
    check_effect(config, ["ema_decay"])
    check_effect(Config(average_epochs=7), ["average_epochs"])
    with pytest.raises(ConfigError, match="^`average_epochs` has no effect with `ema_decay`, .* average_epochs=7$"):
        check_effect(config, ["average_epochs"])


def test_a_recurrent_network_of_one_direction_may_have_any_width():
    assert Config(architecture="gru", bidirectional=False, d_model=33).d_model == 33
    with pytest.raises(ConfigError, match="`d_model` must be even. Received: d_model=33"):
        Config(architecture="gru", d_model=33)


def test_a_clip_is_refused_where_positions_are_not_relative():
    check_effect(Config(positions="relative", relative_clip=5), ["positions", "relative_clip"])
    check_effect(Config(relative_clip=5), ["positions"])
    with pytest.raises(ConfigError, match="^`relative_clip` has no effect with positions=rotary, .* relative_clip=5$"):
        check_effect(Config(positions="rotary", relative_clip=5), ["relative_clip"])


def test_an_odd_width_is_refused_where_sines_and_cosines_come_in_pairs():
    with pytest.raises(ConfigError, match="`d_model` must be even. Received: d_model=33"):
        Config(d_model=33, num_heads=11)
    assert Config(d_model=33, num_heads=11, positions="learned").d_model == 33
    for d_key in (None, 7):
        with pytest.raises(ConfigError, match=f"`d_key` must be even with rotary .* Received: d_key={d_key}$"):
            Config(d_model=22, num_heads=2, d_key=d_key, positions="rotary")
    assert Config(d_model=33, num_heads=5, d_key=14, positions="rotary").d_key == 14


def test_a_frame_is_three_lists_of_ids():
    assert split_frame_setting("17,5/3/") == [[17, 5], [3], []] and split_frame_setting("//") == [[], [], []]
    assert Config(frame="/3/").frame == "/3/"


def test_the_choices_are_those_of_the_layers_and_models():
    """The settings lie below the layers, so that a program reads its flags without Keras."""
    assert embedding.SINUSOIDAL == SINUSOIDAL and tuple(stacks.ACTIVATIONS) == ACTIVATIONS
    assert tuple(stacks.POSITIONS) == POSITIONS
    choices = get_args(Config.__dataclass_fields__["architecture"].type)
    assert [name for model in MODELS for name in model.architectures] == [*choices]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"positions": "learned", "first_position": 2}, "`first_position` has no effect with positions=learned, "),
        ({"workers": "a:{1..2}"}, "`workers` has no effect with strategy=auto, only with multi_worker"),
        ({"tie_positions": False}, "`tie_positions` has no effect with positions=sinusoidal, only with learned"),
        ({"architecture": "gru", "logits_bias": True}, "`logits_bias` has no effect with architecture=gru, "),
    ],
)
def test_settings_of_parts_that_are_not_there_are_refused(given, rule):
    with pytest.raises(ConfigError, match=f"^{rule}.* leave it out. Received: "):
        check_effect(Config(**given), given)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"positions": "learned", "embedding_norm": True}, "`tie_positions` must be false with `embedding_norm` and l"),
        ({"positions": "sinusoidal_tensor2tensor", "d_model": 2, "num_heads": 1}, "`d_model` must be at least 4 with"),
        ({"positions": "sinusoidal_halves", "d_model": 5, "num_heads": 1}, "`d_model` must be even"),
    ],
)
def test_what_no_layer_can_do_is_refused(given, rule):
    with pytest.raises(ConfigError, match=f"^{rule}"):
        Config(**given)


def test_heads_of_a_given_width_need_not_divide_the_model():
    assert Config(d_model=22, num_heads=7, d_key=3).d_key == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "many"),
        ("epochs", "null"),
        ("epochs", "true"),
        ("d_model", '"128"'),
        ("d_model", "128.0"),
        ("num_heads", "[4]"),
        ("dropout_rate", "'a tenth'"),
        ("peak_learning_rate", "1e-3 a step"),
        ("pre_norm", "maybe"),
        ("pre_norm", "1"),
        ("source_lang", "no"),
        ("target_lang", "5"),
        ("model_dir", "null"),
        ("seed", "1.5"),
        ("strategy", "{auto: 1}"),
    ],
)
def test_a_value_of_the_wrong_type_in_a_file_is_named(tmp_path, name, value):
    (tmp_path / "config.yaml").write_text(f"{name}: {value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"^`{name}` .* Received: {name}="):
        Config.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("epochs", "a whole number"),
        ("max_steps", "a whole number or not given"),
        ("dropout_rate", "a number"),
        ("clip_norm", "a number or not given"),
        ("pre_norm", "true or false"),
        ("model_dir", "text"),
        ("source_lang", "text or not given"),
        ("best_by", "one of bleu, loss"),
    ],
)
def test_the_type_of_a_setting_is_told_in_words(name, described):
    with pytest.raises(ConfigError, match=rf"^`{name}` must be {described}\. Received: {name}=\[\]$"):
        Config(**{name: []})


@pytest.mark.parametrize("content", ["", "- d_ff"])
def test_a_file_without_settings_is_not_told_by_a_type_of_python(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    assert str(caught.value) == f"{path} must hold `name: value` lines, and has none"


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001"])
def test_a_number_may_be_written_with_an_exponent(tmp_path, text):
    (tmp_path / "config.yaml").write_text(f"peak_learning_rate: {text}\n", encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml").peak_learning_rate == 0.001


def test_whole_numbers_are_numbers(tmp_path):
    (tmp_path / "config.yaml").write_text("dropout_rate: 0\npeak_learning_rate: 1\n", encoding="utf-8")
    config = Config.load(tmp_path / "config.yaml")
    assert (config.dropout_rate, config.peak_learning_rate) == (0, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": "1,2"}, "`heads` must have 2/2/2 numbers, the last one not 0"),
        ({"heads": "1,2/1,2/1,0"}, "the last one not 0"),
        ({"heads": "1,2/1,2/1,2", "num_decoder_layers": 3}, "must have 2/3/3 numbers"),
        ({"heads": "1,2/1,2/1,2", "d_key": None}, "`heads` needs `d_key`"),
        ({"heads": "1,2/1,2/1,2", "num_key_value_heads": 1}, "does not go with `num_key_value_heads`"),
    ],
)
def test_the_heads_of_a_pruned_model_fit_its_layers(settings, message):
    assert Config(heads="4,3/4,4/0,2", d_key=7).heads == "4,3/4,4/0,2"
    with pytest.raises(ConfigError, match=message):
        Config(**{"d_key": 7, **settings})


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (int, [3], [True, 3.0, "3", None]),
        (float, [3.5, 3], [True, "3"]),
        (bool, [True], [1, "true"]),
        (int | None, [3, None], [3.5, "None"]),
        (Literal["a", "b"], ["a"], ["c", 1, None]),
        (tuple[str, ...], [("a",), ("a", "b")], [(), ("a", 3), ["a"], "a"]),
        (str | tuple[str, ...], ["a", ("a", "b")], [(), None, ("a", None)]),
    ],
    ids=str,
)
def test_a_value_is_of_a_type_or_not(kind, right, wrong):
    assert [value for value in right if not is_a(value, kind)] == []
    assert [value for value in wrong if is_a(value, kind)] == []


def test_types_have_words():
    assert describe_type(int | None) == "a whole number or not given"
    assert describe_type(str | tuple[str, ...]) == "text or several texts"
    assert describe_type(Literal["a", "b"]) == "one of a, b"


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_a_seed_that_numpy_refuses_is_refused_at_once(seed):
    with pytest.raises(ConfigError, match="`seed` must be at least 0"):
        Config(seed=seed)
