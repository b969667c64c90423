import dataclasses
import re
from typing import Literal, get_args, get_origin

import pytest
import yaml

from keras_transformer.cli.train import parse_config
from keras_transformer.config import SUITED, Config, check_effect, is_a, read_settings
from keras_transformer.errors import ConfigError
from keras_transformer.layers import embedding, stacks
from keras_transformer.models import MODELS
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer
from keras_transformer.presets import ACTIVATIONS, OPTIMIZERS, POSITIONS, PRESETS, SINUSOIDAL
from keras_transformer.settings import SETTINGS

# Of these, another value does not go with the other values of others.
SAME = ["sampling_temperature", "tokenizer", "lora_rank", "heads"]
BY_TYPE = {int: 7, float: 0.25, str: "null"}
# `no` is Norwegian; in YAML, a bare `no` is false.
OTHER = {"preset": "small", "model_dir": "runs/größer: 1", "source_lang": "no", "character_coverage": 0.983}
OTHER |= {"frame": "17,5/3/3", "layer_norm_epsilon": 1e-05, "workers": "train-{0..2}:2222"}


def another(field):
    """A value for a setting that is not its default, but for `SAME`."""
    if field.name in SAME:
        return field.default
    if get_origin(field.type) is Literal:
        return next(choice for choice in reversed(get_args(field.type)) if choice != field.default)
    kind = (get_args(field.type) or [field.type])[0]
    return field.default is False if kind is bool else BY_TYPE[kind]


OTHER = {field.name: OTHER.get(field.name, another(field)) for field in dataclasses.fields(Config)}


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
    assert Config() == Config(preset="quickstart")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.epochs = 7


def test_the_choices_are_those_of_presets_optimizers_layers_and_models():
    """The settings lie below the layers, so that a program reads its flags without Keras."""
    types = {field.name: field.type for field in dataclasses.fields(Config)}
    assert get_args(types["preset"]) == tuple(PRESETS) and get_args(types["optimizer"]) == tuple(OPTIMIZERS)
    assert embedding.SINUSOIDAL == SINUSOIDAL and tuple(stacks.ACTIVATIONS) == ACTIVATIONS
    assert tuple(stacks.POSITIONS) == POSITIONS and stacks.AUTOREGRESSIONS == get_args(types["decoder"])
    assert [name for model in MODELS for name in model.architectures] == [*get_args(types["architecture"])]


def test_base_is_the_transformer_of_the_paper():
    """The sizes of base and big: tests/test_table3.py."""
    config = Config(preset="base")
    expected = dict.fromkeys(("attention_bias", "logits_bias", "embedding_norm", "pre_norm"), False)
    expected |= dict.fromkeys(("scale_embeddings", "share_vocabulary", "tie_embeddings"), True)  # 3.4 and 5.1
    expected |= dict.fromkeys(("attention_dropout_rate", "feed_forward_dropout_rate", "first_position"), 0)
    expected |= {"positions": "sinusoidal", "activation": "relu", "layer_norm_epsilon": 1e-6}  # 3.5 and 3.3
    expected |= {"optimizer": "adam", "clip_norm": None, "peak_learning_rate": None}  # equation (3)
    expected |= {"vocabulary_size": 37000, "beam_size": 4, "length_penalty": 0.6}  # 5.1 and 6.1
    assert {name: getattr(config, name) for name in expected} == expected
    assert OPTIMIZERS["adam"] == {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}  # 5.3
    for name in ("base", "big"):
        assert Config(preset=name).of_preset("batch_tokens") == 25000  # 5.1
        assert Config(preset=name).of_preset("warmup_steps") == 4000


def arguments_beside_sizes(model_class):
    """Those that are settings; the sizes of vocabularies and of tables follow from the corpus and others."""
    renamed = {"autoregression": "decoder"}
    names = {renamed.get(field.name, field.name) for field in dataclasses.fields(model_class.shape_class)}
    return names - {"vocabulary_size", "target_vocabulary_size", "num_positions", "cell"}


def test_every_argument_of_a_model_is_a_setting_and_one_of_one_model_only_has_no_effect_on_the_other():
    transformer, recurrent = map(arguments_beside_sizes, (Transformer, RecurrentNetwork))
    assert {"d_model", "num_layers", "pre_norm", "tie_embeddings"} <= transformer | recurrent <= OTHER.keys()
    needs = {name: setting.only_with for name, setting in SETTINGS.items()}
    of = {name: need["architecture"] for name, need in needs.items() if "architecture" in need}
    of_transformer = transformer - recurrent | {"lora_rank"}
    assert {name for name, models in of.items() if models == ("transformer",)} == of_transformer
    assert {name for name, models in of.items() if models == ("rnn", "lstm", "gru")} == recurrent - transformer


# Files.


SEVERAL = Config(dataset=["files:b:0.3", "files:a"])


@pytest.mark.parametrize("config", [Config("gru"), Config(**OTHER), SEVERAL], ids=["of a preset", "all other", "two"])
def test_a_saved_config_has_every_setting_in_order_and_loads_as_the_same(config, tmp_path):
    config.save(tmp_path / "config.yaml")
    loaded = Config.load(tmp_path / "config.yaml")
    assert [field.name for field in dataclasses.fields(Config) if OTHER[field.name] == field.default] == SAME
    assert loaded == config
    assert [type(x) for x in dataclasses.astuple(loaded)] == [type(x) for x in dataclasses.astuple(config)]
    assert [*yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))] == [*OTHER]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("preset: big\nd_ff: 53  # F\n", {"preset": "big", "d_ff": 53}),
        *[(f"peak_learning_rate: {text}\n", {"peak_learning_rate": 0.001}) for text in ("1e-3", "0.001")],
        ("dropout_rate: 0\npeak_learning_rate: 1\n", {"dropout_rate": 0.0, "peak_learning_rate": 1.0}),
    ],
)
def test_a_file_has_some_settings_and_numbers_as_people_write_them(tmp_path, text, settings):
    (path := tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    assert Config.load(path) == Config(**settings)
    assert parse_config([f"--config={path}", "--preset=tiny"], "train") == Config(**{**settings, "preset": "tiny"})
    for line in ('epochs: "128"', "epochs: null", "peak_learning_rate: 1e-3 a step", "source_lang: no"):
        path.write_text(line, encoding="utf-8")
        name = line.split(":")[0]
        with pytest.raises(ConfigError, match=f"^`{name}` .* Received: {name}="):
            Config.load(path)


def test_a_file_that_is_no_mapping_or_cannot_be_read_is_named_in_one_line(tmp_path):
    path = tmp_path / "config.yaml"
    none, unread = f"^{path} must hold `name: value` lines, and has none$", f"^cannot read settings from {path}: "
    contents = {b"": none, b"- d_ff": none, b"d_ff: {\n": unread, b"d_ff: \x00": unread, b"\xff\xfe": unread}
    for content, said in contents.items():
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=said) as caught:
            read_settings(path)
        assert "\n" not in str(caught.value)
    for unreadable in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"cannot read settings from {re.escape(str(unreadable))}: "):
            read_settings(unreadable)


@pytest.mark.parametrize(("value", "is_named"), [("20,30", True), ("null", False)])
def test_the_file_of_a_run_begun_before_may_have_a_setting_that_is_gone(tmp_path, caplog, value, is_named):
    path = tmp_path / "config.yaml"
    Config(seed=23).save(path)
    path.write_text(path.read_text(encoding="utf-8") + f"profile: {value}\n", encoding="utf-8")
    assert Config.load(path) == Config(seed=23) and ("has `profile`, which is gone" in caplog.text) == is_named


# Values that are refused, each with the names of its kind.

AT_LEAST_ONE = "vocabulary_size max_length d_model d_ff num_heads num_layers num_decoder_layers d_key d_value"
AT_LEAST_ONE += " num_key_value_heads relative_clip epochs max_steps batch_tokens accumulate_steps warmup_steps"
AT_LEAST_ONE += " patience average_epochs attention_window validation_sentences validate_every beam_size"
RATES = "dropout_rate attention_dropout_rate feed_forward_dropout_rate subword_dropout_rate label_smoothing cut_rate"
RATES += " scheduled_sampling_rate upper_case title_case typos noise"
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (AT_LEAST_ONE, [0, -7]),
        (RATES, [-0.1, 1.0, NAN]),
        ("peak_learning_rate clip_norm layer_norm_epsilon", [0.0, -1e-6, NAN]),
        ("save_minutes consistency_weight weight_decay", [-1.0, NAN]),
        ("first_position", [-1]),
        ("ema_decay", [0.0, 1.0, NAN]),
        ("character_coverage", [0.97, 1.1, NAN]),
        ("length_penalty", [-10.1, 10.1, 1e9, NAN, INF, -INF]),
        ("num_heads num_key_value_heads", [3]),  # of d_model 128, and of 4 heads
        ("beam_size", [257]),
        ("seed", [-1, 2**31]),  # NumPy refuses them
        ("model_dir", [""]),
        ("activation positions strategy optimizer precision best_by consistency", ["nonsense"]),
        ("frame", ["", "3", "/3", "0/3/", "a/3/", "/3,/", "/3/3/3", "-1//"]),
        ("workers", ["", "a:2", "a-{0..1}", "a-{1..0}:2", "{0..1}{0..1}:2", "a-{0..x}:2", "a {0..1}:2"]),
        ("workers", ["a:{65535..65536}"]),
    ],
)
def test_an_impossible_value_is_refused_with_its_name_and_itself(names, values):
    for name in names.split():
        for value in values:
            with pytest.raises(ConfigError, match=rf"^`{name}` .* Received: {name}=\W?{re.escape(str(value))}\W?$"):
                Config(**{name: value})


SPM = {"tokenizer": "spm.model"}
RUN = {"init_from": "runs/a"}
HEADS = {"heads": "1,2/1,2/1,2", "d_key": 7}
HALF = {"share_vocabulary": False, "share_tokenizer": True}
TENSOR2TENSOR = {"positions": "sinusoidal_tensor2tensor", "d_model": 2, "num_heads": 1}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        *[({"preset": name}, "unknown preset .*: it must be one of q") for name in ("nonsense", "", None, ["tiny"])],
        ({"d_model_": 26, "d_ff": 53, "7": 1}, "unknown settings: d_model_, 7; there are preset, model_dir, "),
        *[({"dataset": x}, "`dataset` must be text or several texts") for x in ([], (), ["files:a", 3], 3, None)],
        ({"epochs": []}, r"`epochs` must be a whole number. Received: epochs=\[\]$"),
        ({"clip_norm": []}, "`clip_norm` must be a number or not given. "),
        ({"pre_norm": []}, "`pre_norm` must be true or false. "),
        ({"model_dir": []}, "`model_dir` must be text. "),
        ({"best_by": []}, "`best_by` must be one of bleu, loss. "),
        ({"replay": 0.2}, "`replay` needs `init_from`"),
        ({"extend_vocabulary": 7}, "`extend_vocabulary` needs `init_from`"),
        ({**SPM, "share_vocabulary": False}, "`share_vocabulary` must be true with `tokenizer`. Received: "),
        ({**SPM, **RUN}, "`init_from` does not go with `tokenizer`, as it brings its own. Received: "),
        (HALF, "`share_tokenizer` must not be true with"),
        ({**SPM, "share_tokenizer": False}, "`share_tokenizer` must not be false with `tokenizer`"),
        ({**RUN, "extend_vocabulary": 7, "share_tokenizer": False}, "`extend_vocabulary` cannot extend one vocabulary"),
        ({"architecture": "gru", "d_model": 33}, "`d_model` must be even. Received: d_model=33"),
        ({"d_model": 33, "num_heads": 11}, "`d_model` must be even. Received: d_model=33"),
        ({"d_model": 5, "num_heads": 1, "positions": "sinusoidal_halves"}, "`d_model` must be even"),
        (TENSOR2TENSOR, "`d_model` must be at least 4 with"),
        ({"d_model": 22, "num_heads": 2, "positions": "rotary"}, "`d_key` must be even with rotary .*d_key=None$"),
        ({"d_key": 7, "positions": "rotary"}, "`d_key` must be even with rotary .*d_key=7$"),
        ({"positions": "learned", "embedding_norm": True}, "`tie_positions` must be false with `embedding_norm` and l"),
        ({**HEADS, "heads": "1,2"}, "`heads` must have 2/2/2 numbers, the last one not 0"),
        ({**HEADS, "heads": "1,2/1,2/1,0"}, "`heads` must have .*the last one not 0"),
        ({**HEADS, "num_decoder_layers": 3}, "`heads` must have 2/3/3 numbers"),
        ({**HEADS, "d_key": None}, "`heads` needs `d_key`"),
        ({**HEADS, "num_key_value_heads": 1}, "`heads` does not go with `num_key_value_heads`"),
    ],
)
def test_what_is_unknown_of_another_type_or_does_not_go_with_the_others_is_refused(given, rule):
    with pytest.raises(ConfigError, match=f"^{rule}"):
        Config(**given)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"architecture": "gru", "num_heads": 2}, "`num_heads` .* architecture=gru, only with transformer:"),
        ({"attention": "dot"}, "`attention` .* architecture=transformer, only with rnn or lstm or gru:"),
        ({"preset": "rnn", "attention": "none", "hard_attention": True}, "`hard_attention` .* attention=none, only"),
        ({"preset": "gru", "attention_window": 3}, "`attention_window` .* attention_span=global, only with local_m"),
        ({"positions": "rotary", "relative_clip": 5}, "`relative_clip` has no effect with positions=rotary, "),
        ({"tie_positions": False}, "`tie_positions` has no effect with positions=sinusoidal, only with learned"),
        ({"workers": "a:{1..2}"}, "`workers` has no effect with strategy=auto, only with multi_worker"),
        ({"ema_decay": 0.9, "average_epochs": 7}, "`average_epochs` has no effect with `ema_decay`, "),
        ({**SPM, "vocabulary_size": 503}, "`vocabulary_size` has no effect with `tokenizer`, "),
        ({**RUN, "character_coverage": 0.99}, "`character_coverage` has no effect with `init_from`, "),
    ],
)
def test_a_setting_that_another_one_makes_useless_is_refused_where_it_is_given(given, rule):
    *others, useless = given
    check_effect(Config(**given), others)
    with pytest.raises(ConfigError, match=f"^{rule}.* leave it out. Received: {useless}="):
        check_effect(Config(**given), given)


TOGETHER = [
    {"architecture": "gru", "attention": "none", "context": "mean"},
    {"preset": "rnn", "hard_attention": True, "input_feeding": True, "bidirectional": False, "d_model": 33},
    {"positions": "relative", "relative_clip": 5},
    {"positions": "rotary", "d_model": 33, "num_heads": 5, "d_key": 14},
    {"d_model": 22, "num_heads": 7, "d_key": 3},  # heads of a given width need not divide the model
    {"heads": "4,3/4,4/0,2", "d_key": 7, "frame": "/3/", "average_epochs": 7, "vocabulary_size": 503},
    {**RUN, "preset": "tiny", "replay": 0.2, "extend_vocabulary": 7},
    {**SPM, "preset": "tiny"},
]


@pytest.mark.parametrize("given", TOGETHER)
def test_settings_that_go_together_are_taken(given):
    check_effect(Config(**given), given)
    assert vars(Config(**given)).items() >= given.items()


def test_a_value_is_of_a_type_or_not():
    right = {int: [3], float: [3.5, 3], bool: [True], int | None: [3, None], Literal["a", "b"]: ["a"]}
    right |= {tuple[str, ...]: [("a",), ("a", "b")], str | tuple[str, ...]: ["a", ("a", "b")]}
    wrong = {int: [True, 3.0, "3", None], float: [True, "3"], bool: [1, "true"], int | None: [3.5, "None"]}
    wrong |= {Literal["a", "b"]: ["c", 1, None], tuple[str, ...]: [(), ("a", 3), ["a"], "a"]}
    wrong |= {str | tuple[str, ...]: [(), None, ("a", None)]}
    for values, expected in ((right, True), (wrong, False)):
        assert [(kind, value) for kind in values for value in values[kind] if is_a(value, kind) != expected] == []
