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
from keras_transformer.presets import ACTIVATIONS, OPTIMIZERS, POSITIONS, PRESETS, SINUSOIDAL, split_frame_setting
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


def test_the_other_values_are_other():
    assert [field.name for field in dataclasses.fields(Config) if OTHER[field.name] == field.default] == SAME


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


def test_a_setting_goes_before_the_preset_wherever_it_is_given(tmp_path):
    path, settings = tmp_path / "config.yaml", {"preset": "big", "num_layers": 5, "epochs": 7, "optimizer": "lion"}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    assert Config(**settings) == Config.load(path) == parse_config(flags, "train")
    assert parse_config([f"--config={path}", "--epochs=3"], "train") == Config(**{**settings, "epochs": 3})
    path.write_text("preset: tiny\n", encoding="utf-8")
    config = parse_config([f"--config={path}", *flags], "train")
    assert (config.d_model, config.num_layers, config.epochs, config.optimizer) == (1024, 5, 7, "lion")


@pytest.mark.parametrize(
    ("name", "d_model", "d_ff", "num_heads", "dropout_rate"),
    [("base", 512, 2048, 8, 0.1), ("big", 1024, 4096, 16, 0.3)],
)
def test_base_and_big_are_those_of_table_3(name, d_model, d_ff, num_heads, dropout_rate):
    config = Config(preset=name)
    assert (config.num_layers, config.d_model, config.d_ff, config.num_heads) == (6, d_model, d_ff, num_heads)
    assert (config.dropout_rate, config.label_smoothing, config.of_preset("warmup_steps")) == (dropout_rate, 0.1, 4000)
    assert (config.attention_dropout_rate, config.feed_forward_dropout_rate, config.pre_norm) == (0, 0, False)
    assert (config.positions, config.first_position, config.activation) == ("sinusoidal", 0, "relu")  # 3.5 and 3.3
    assert (config.attention_bias, config.logits_bias) == (False, False)  # equation (1) and 3.4
    assert (config.scale_embeddings, config.embedding_norm, config.layer_norm_epsilon) == (True, False, 1e-6)  # 3.4
    assert (config.share_vocabulary, config.tie_embeddings) == (True, True)  # 5.1 and 3.4
    assert (config.optimizer, config.clip_norm, config.peak_learning_rate) == ("adam", None, None)  # equation (3)
    assert OPTIMIZERS["adam"] == {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}  # 5.3
    assert (config.of_preset("batch_tokens"), config.vocabulary_size) == (25000, 37000)  # 5.1
    assert (config.beam_size, config.length_penalty) == (4, 0.6)  # 6.1


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


@pytest.mark.parametrize("config", [Config("gru"), Config(**OTHER)], ids=["of a preset", "all other"])
def test_a_saved_config_has_every_setting_in_order_and_loads_as_the_same(config, tmp_path):
    config.save(tmp_path / "config.yaml")
    loaded = Config.load(tmp_path / "config.yaml")
    assert loaded == config
    assert [type(x) for x in dataclasses.astuple(loaded)] == [type(x) for x in dataclasses.astuple(config)]
    lines = (tmp_path / "config.yaml").read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in lines] == list(OTHER)


def test_several_corpora_are_saved_and_loaded_in_their_order_and_one_remains_a_text(tmp_path):
    several = ["files:b:0.3", "files:a"]
    for given, expected in (("files:a", "files:a"), (["files:a"], "files:a"), (several, tuple(several))):
        config = Config(dataset=given)
        config.save(tmp_path / "config.yaml")
        loaded = Config.load(tmp_path / "config.yaml")
        assert config.dataset == loaded.dataset == expected and config == loaded
        assert loaded.corpora == (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("preset: big\nd_ff: 53  # F\n", {"preset": "big", "d_ff": 53}),
        *[(f"peak_learning_rate: {text}\n", {"peak_learning_rate": 0.001}) for text in ("1e-3", "0.001")],
        ("dropout_rate: 0\npeak_learning_rate: 1\n", {"dropout_rate": 0.0, "peak_learning_rate": 1.0}),
    ],
)
def test_a_file_has_some_settings_and_numbers_as_people_write_them(tmp_path, text, settings):
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml") == Config(**settings)


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


@pytest.mark.parametrize(
    "line",
    ["epochs: many", "epochs: null", "epochs: true", 'd_model: "128"', "d_model: 128.0", "num_heads: [4]"]
    + ["peak_learning_rate: 1e-3 a step", "pre_norm: 1", "source_lang: no", "strategy: {auto: 1}"],
)
def test_a_value_of_the_wrong_type_in_a_file_is_named(tmp_path, line):
    (tmp_path / "config.yaml").write_text(f"{line}\n", encoding="utf-8")
    name = line.split(":")[0]
    with pytest.raises(ConfigError, match=f"^`{name}` .* Received: {name}="):
        Config.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(("value", "is_named"), [("20,30", True), ("null", False)])
def test_the_file_of_a_run_begun_before_may_have_a_setting_that_is_gone(tmp_path, caplog, value, is_named):
    path = tmp_path / "config.yaml"
    Config(seed=23).save(path)
    path.write_text(path.read_text(encoding="utf-8") + f"profile: {value}\n", encoding="utf-8")
    assert Config.load(path) == Config(seed=23)
    assert ("has `profile`, which is gone" in caplog.text) == is_named


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
        ({"max_steps": []}, "`max_steps` must be a whole number or not given. "),
        ({"dropout_rate": []}, "`dropout_rate` must be a number. "),
        ({"clip_norm": []}, "`clip_norm` must be a number or not given. "),
        ({"pre_norm": []}, "`pre_norm` must be true or false. "),
        ({"model_dir": []}, "`model_dir` must be text. "),
        ({"source_lang": []}, "`source_lang` must be text or not given. "),
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
        ({"architecture": "gru", "logits_bias": True}, "`logits_bias` has no effect with architecture=gru, "),
        ({"attention": "dot"}, "`attention` .* architecture=transformer, only with rnn or lstm or gru:"),
        ({"preset": "rnn", "attention": "none", "hard_attention": True}, "`hard_attention` .* attention=none, only"),
        ({"preset": "lstm", "context": "mean"}, "`context` .* attention=additive, only with none:"),
        ({"preset": "gru", "attention_window": 3}, "`attention_window` .* attention_span=global, only with local_m"),
        ({"positions": "learned", "first_position": 2}, "`first_position` has no effect with positions=learned, "),
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
    {"preset": "lstm", "attention": "general", "attention_span": "local_p", "attention_window": 3},
    {"preset": "rnn", "hard_attention": True, "input_feeding": True, "bidirectional": False, "d_model": 33},
    {"positions": "relative", "relative_clip": 5},
    {"positions": "learned", "d_model": 33, "num_heads": 11},
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


def test_a_frame_is_three_lists_of_ids_and_one_vocabulary_may_have_two_tokenizers():
    assert split_frame_setting("17,5/3/") == [[17, 5], [3], []] and split_frame_setting("//") == [[], [], []]
    for vocabulary, tokenizer, has_one in ((True, None, True), (False, None, False), (True, False, False)):
        assert Config(share_vocabulary=vocabulary, share_tokenizer=tokenizer).has_one_tokenizer is has_one
    assert not Config(share_vocabulary=False, share_tokenizer=False).has_one_tokenizer
    assert Config(share_tokenizer=True).has_one_tokenizer


def test_a_value_is_of_a_type_or_not():
    right = {int: [3], float: [3.5, 3], bool: [True], int | None: [3, None], Literal["a", "b"]: ["a"]}
    right |= {tuple[str, ...]: [("a",), ("a", "b")], str | tuple[str, ...]: ["a", ("a", "b")]}
    wrong = {int: [True, 3.0, "3", None], float: [True, "3"], bool: [1, "true"], int | None: [3.5, "None"]}
    wrong |= {Literal["a", "b"]: ["c", 1, None], tuple[str, ...]: [(), ("a", 3), ["a"], "a"]}
    wrong |= {str | tuple[str, ...]: [(), None, ("a", None)]}
    for values, expected in ((right, True), (wrong, False)):
        assert [(kind, value) for kind in values for value in values[kind] if is_a(value, kind) != expected] == []
