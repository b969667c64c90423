import argparse
import contextlib
import dataclasses
import re
import sys
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli.flags import (
    add_search_arguments,
    add_translator_arguments,
    check_litert,
    check_ranges,
    check_width,
    load_translator,
    protected,
    sampling_options,
    search_options,
)
from keras_transformer.cli.parser import with_dashes
from keras_transformer.cli.request import add_request_arguments
from keras_transformer.cli.train import parse_config, parse_training
from keras_transformer.config import Config, configure
from keras_transformer.errors import ConfigError, UserError
from keras_transformer.presets import PRESETS
from keras_transformer.settings import GROUPS, SETTINGS
from keras_transformer.translation.options import MOST, OPTIONS
from tests import tiny


def parse(*arguments):
    return parse_config(list(arguments), "what the program does")


@pytest.fixture
def yaml_file(tmp_path):
    """Function from settings to the name of a YAML file that holds them."""

    def write(**settings):
        path = tmp_path / "settings.yaml"
        path.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()), encoding="utf-8")
        return str(path)

    return write


def refused(capsys, *arguments):
    """What is printed to standard error, on one line, when the command line is refused with exit status 2."""
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize(
    "flags",
    [
        ["--dataset", "files:b", "--dataset", "cldr:en-de:0.3", "--seed", "23"],
        ["--dataset=files:b", "--seed", "23", "--dataset", "cldr:en-de:0.3"],
        ["--seed", "23", "--dataset=files:b", "--dataset=cldr:en-de:0.3"],
    ],
    ids=" ".join,
)
def test_a_dataset_may_be_given_several_times(flags, yaml_file):
    expected = ("files:b", "cldr:en-de:0.3")
    assert parse(*flags) == Config(dataset=expected, seed=23)
    assert parse("--config", yaml_file(dataset='["files:b", "cldr:en-de:0.3"]')).dataset == expected
    assert parse("--config", yaml_file(dataset="files:a"), *flags).dataset == expected
    assert parse("--dataset", "files:b", "--seed", "23") == Config(dataset="files:b", seed=23)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset", "files:b", "files:c"], "unrecognized arguments: files:c"),
        (["--dataset", "--seed", "23"], "--dataset: expected one argument"),
    ],
    ids=str,
)
def test_every_corpus_has_its_flag(capsys, flags, message):
    assert message in refused(capsys, *flags)


def test_no_flags_give_the_default_preset():
    assert parse() == Config(preset=Config.preset)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_decides_all_other_settings(name):
    assert parse("--preset", name) == parse(f"--preset={name}") == Config(preset=name)


def test_a_file_overrides_the_preset_and_flags_override_the_file(yaml_file):
    path = yaml_file(d_ff=53, warmup_steps=17)
    config = parse("--preset", "tiny", "--config", path, "--warmup_steps", "19", "--seed", "23")
    assert config == Config(preset="tiny", d_ff=53, warmup_steps=19, seed=23)
    assert config == parse("--seed=23", "--warmup_steps=19", f"--config={path}", "--preset=tiny")


def test_a_preset_named_in_the_file_is_where_its_defaults_come_from(yaml_file):
    assert parse("--config", yaml_file(preset="big", d_ff=53)) == Config(preset="big", d_ff=53)


def test_the_config_of_an_earlier_run_gives_that_run_again(tmp_path):
    earlier = dataclasses.replace(
        Config(preset="tiny"), d_ff=53, source_lang="no", target_lang="de", peak_learning_rate=1e-5
    )
    earlier.save(tmp_path / "config.yaml")
    assert parse("--config", str(tmp_path / "config.yaml")) == earlier


FLAGS = {
    str: ("other", "other"),
    int: ("22", 22),
    float: ("0.98", 0.98),
    bool: ("True", True),
}


@pytest.mark.parametrize("field", dataclasses.fields(Config), ids=lambda field: field.name)
def test_every_setting_has_a_flag(field):
    choices = getattr(field.type, "__args__", (field.type,))
    text, value = FLAGS.get(choices[0], (choices[-1], choices[-1]))
    shaped = {"heads": "3,1/2,4/0,2", "frame": "/3/", "workers": "train-{0..3}.train:2222"}
    text, value = (shaped[field.name],) * 2 if field.name in shaped else (text, value)
    arguments = ["--num_heads", "11"] if field.name == "d_model" else []
    arguments += ["--d_model", "22"] if field.name == "num_heads" else []
    for name, values in SETTINGS[field.name].only_with.items():
        arguments += [f"--{name}", values[0]]
    arguments += ["--d_key", "32"] if field.name == "heads" else []
    arguments += ["--init_from", "runs/a"] if field.name in ("replay", "extend_vocabulary") else []
    arguments += ["--num_heads", "22", "--d_model", "44"] if field.name == "num_key_value_heads" else []
    if field.name == "sampling_temperature":
        text, value, arguments = "2.5", 2.5, ["--dataset=cldr:en-de", "--dataset=cldr:de-en"]
    config = parse(*arguments, f"--{field.name}", text)
    assert getattr(config, field.name) == value
    assert type(getattr(config, field.name)) is type(value)


@pytest.mark.parametrize("flags", [["--vocabulary_size", "503"], ["--vocabulary-size=503"]], ids=" ".join)
@pytest.mark.parametrize("origin", ["tokenizer", "init_from"])
def test_a_size_of_the_vocabulary_is_refused_where_no_tokenizer_is_trained(origin, flags, yaml_file):
    for parse_any in (parse_config, parse_training):
        for others in ([f"--{origin}", "a"], ["--config", yaml_file(**{origin: "a"})]):
            with pytest.raises(ConfigError, match=f"`vocabulary_size` has no effect with `{origin}`"):
                parse_any([*flags, *others], "text")
    with pytest.raises(ConfigError, match=f"`vocabulary_size` has no effect with `{origin}`"):
        parse("--config", yaml_file(vocabulary_size=503, **{origin: "a"}))


def test_a_run_has_the_shape_of_the_run_that_it_starts_from(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        directory.mkdir()
    of_model = {"d_model": 22, "num_heads": 11, "activation": "silu", "frame": "/3/", "share_tokenizer": False}
    Config(model_dir=str(old), **of_model, epochs=3, dropout_rate=0.5, max_length=77).save(old / "config.yaml")
    flags = ["--init_from", str(old), "--model_dir", str(new)]
    config = parse(*flags)
    assert {name: getattr(config, name) for name in of_model} == of_model
    assert configure(init_from=str(old), model_dir=str(new)) == config  # from Python
    own = parse("--model_dir", str(new))
    for name in ("epochs", "dropout_rate", "max_length"):  # they are not its shape
        assert getattr(config, name) == getattr(own, name) != getattr(Config.load(old / "config.yaml"), name)
    assert parse(*flags, "--activation", "gelu").activation == "gelu"
    config.save(new / "config.yaml")
    (old / "config.yaml").unlink()
    assert parse(*flags) == config  # a run that is resumed knows its shape
    assert parse("--init_from", str(tmp_path / "none")).activation == "relu"


def test_a_run_to_start_from_may_be_named_in_a_file_or_by_a_flag(tmp_path, yaml_file):
    old = tmp_path / "old"
    old.mkdir()
    Config(model_dir=str(old), d_model=22, num_heads=11, activation="silu", epochs=3).save(old / "config.yaml")
    by_flags = parse("--init_from", str(old), "--model_dir", "new", "--activation", "gelu")
    assert (by_flags.d_model, by_flags.activation, by_flags.epochs) == (22, "gelu", Config().epochs)
    assert parse("--config", yaml_file(init_from=old, model_dir="new", activation="gelu")) == by_flags
    path = yaml_file(init_from=old, activation="relu")
    assert parse("--config", path, "--model_dir=new", "--activation=gelu") == by_flags
    assert parse("--config", yaml_file(activation="gelu"), f"--init_from={old}", "--model_dir=new") == by_flags
    assert parse("--config", path, "--init_from", "None").d_model == Config().d_model
    with pytest.raises(ConfigError, match="`init_from` must be text or not given. Received: init_from=7"):
        parse("--config", yaml_file(init_from=7))


def test_a_setting_without_effect_is_refused_in_a_file_of_a_user_and_not_in_that_of_a_run(yaml_file, tmp_path):
    with pytest.raises(ConfigError, match="`cut_rate` has no effect with consistency=r_drop, only with simcut"):
        parse("--config", yaml_file(cut_rate=0.1), "--consistency", "r_drop")
    with pytest.raises(ConfigError, match="`context` has no effect with attention=dot"):
        parse("--config", yaml_file(preset="gru", attention="dot", context="mean"))
    assert parse("--config", yaml_file(workers="a-{0..1}:2222")).strategy == "multi_worker"  # as by the flag
    config = Config(preset="gru", tokenizer="a", vocabulary_size=503, cut_rate=0.1, num_heads=8)
    config.save(tmp_path / "config.yaml")
    assert parse("--config", str(tmp_path / "config.yaml")) == config
    with pytest.raises(ConfigError, match="`num_heads` has no effect with architecture=gru"):
        parse("--config", str(tmp_path / "config.yaml"), "--num_heads", "8")


def test_help_describes_every_setting_and_ends_well(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    text = " ".join(out.split())
    assert err == "" and "what the program does" in text
    described = {name: with_dashes(setting.help, SETTINGS) for name, setting in SETTINGS.items()}
    assert [name for name, help in described.items() if f"--{name} " not in text or not help or help not in text] == []
    assert "`" not in text and re.search(r"--config .{0,30}YAML file of settings", text)


def test_help_has_the_groups_of_the_settings_and_the_defaults_of_the_preset_and_the_file(capsys, yaml_file):
    path = yaml_file(d_model=66, num_heads=3, pre_norm=False, seed=5)
    with pytest.raises(SystemExit):
        parse("--help", "--preset", "tiny", "--config", path, "--seed=7")
    text = " ".join(capsys.readouterr().out.split())
    groups = [group.__doc__ for group in GROUPS]
    starts = [text.index(f" {title}: ") for title in groups]
    assert starts == sorted(starts) and len(starts) == 7
    defaults = {"d_model": 66, "d_ff": 256, "pre_norm": "false", "seed": 7, "model_dir": "runs/tiny"}
    for name, default in defaults.items():
        described = text[text.index(f" --{name} ") :]
        assert described[described.index("(default: ") :].startswith(f"(default: {default})")


def test_a_dry_run_is_asked_for_beside_the_settings():
    assert parse_training([], "text") == (parse(), False)
    assert parse_training(["--dry_run", "--seed", "23"], "text") == (parse("--seed", "23"), True)
    assert parse_training(["--preset=tiny", "--dry_run"], "text") == (Config(preset="tiny"), True)


def test_help_of_training_describes_the_dry_run_and_every_setting(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as caught:
        parse_training(["--help"], "what the program does")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert re.search(r"--dry_run .{0,30}Print all settings", text) and "no_dry_run" not in text
    assert [name for name in SETTINGS if f"--{name} " not in text] == []


def test_a_dry_run_is_no_setting(capsys, yaml_file):
    assert "--dry_run" in refused(capsys, "--dry_run")
    with pytest.raises(ConfigError, match="unknown settings: dry_run"):
        parse_training(["--config", yaml_file(dry_run=True)], "text")


@pytest.mark.parametrize("value", ["false", "False"])
def test_a_switch_is_written_as_in_yaml_or_as_in_python(value, yaml_file):
    expected = Config(share_vocabulary=False, tie_embeddings=False)
    assert parse("--share_vocabulary", value, f"--tie_embeddings={value}") == expected
    assert parse("--config", yaml_file(share_vocabulary="false", tie_embeddings=False)) == expected
    assert parse("--pre_norm", "true", "--source_lang", "false", "--target_lang=true").source_lang == "false"
    assert parse("--pre_norm").pre_norm and parse("--pre_norm", "--epochs", "3").pre_norm


def test_none_can_be_asked_for(yaml_file):
    config = parse("--preset", "tiny", "--peak_learning_rate", "None", "--config", yaml_file(max_steps=7))
    assert (config.peak_learning_rate, config.max_steps) == (None, 7)


def test_an_unknown_flag_is_named(capsys):
    expected = "error: unrecognized arguments: --gibberish 3; --help lists all flags"
    assert refused(capsys, "--gibberish", "3") == expected
    assert "unrecognized arguments: gibberish;" in refused(capsys, "gibberish")
    assert "unrecognized arguments: --epoch 3; did you mean --epochs?" in refused(capsys, "--epoch", "3")


def test_a_flag_may_have_dashes_for_underscores():
    assert parse("--batch-tokens", "401", "--pre-norm=false", "--model_dir", "a-b") == Config(
        batch_tokens=401, pre_norm=False, model_dir="a-b"
    )
    with pytest.raises(ConfigError, match="`vocabulary_size` has no effect"):
        parse("--vocabulary-size", "503", "--tokenizer", "a")


def test_a_flag_is_not_guessed_from_its_beginning(capsys):
    assert "--epoch" in refused(capsys, "--epoch", "3")
    assert "--pre" in refused(capsys, "--pre", "tiny")
    assert "--conf" in refused(capsys, "--conf", "settings.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "many"],
        ["--epochs", "1.5"],
        ["--pre_norm", "maybe"],
        ["--strategy", "nonsense"],
        ["--epochs"],
        ["--preset"],
    ],
    ids=" ".join,
)
def test_a_flag_with_a_value_of_the_wrong_type_is_named_with_what_was_received(capsys, arguments):
    message = refused(capsys, *arguments)
    assert [text for text in arguments if text not in message] == []


@pytest.mark.parametrize(
    ("name", "value", "described"),
    [
        ("epochs", "many", "a whole number"),
        ("epochs", "None", "a whole number"),
        ("dropout_rate", "1,5", "a number"),
        ("clip_norm", "abc", "a number or not given"),
        ("max_steps", "1.5", "a whole number or not given"),
    ],
)
def test_a_flag_of_the_wrong_type_is_told_what_it_must_be_in_words(capsys, name, value, described):
    message = refused(capsys, f"--{name}", value)
    assert message == f"error: --{name} must be {described}. Received: {value}"


@pytest.mark.parametrize(
    ("name", "value", "rule"), [("epochs", 0, "must be at least 1"), ("num_heads", 7, "must divide `d_model`, 128")]
)
def test_a_flag_with_a_value_that_cannot_be_is_named_with_what_was_received(name, value, rule):
    with pytest.raises(ConfigError, match=f"^`{name}` {rule}. Received: {name}={value}$"):
        parse(f"--{name}", str(value))


def test_an_unknown_preset_is_an_error(capsys):
    message = refused(capsys, "--preset", "nonsense")
    assert message == f"error: --preset must be one of {', '.join(PRESETS)}. Received: nonsense"


@pytest.mark.parametrize("value", ["nonsense", "null", "[tiny]"])
def test_an_unknown_preset_in_a_file_is_an_error(yaml_file, value):
    with pytest.raises(ConfigError, match="unknown preset .*: it must be one of quickstart, tiny"):
        parse("--config", yaml_file(preset=value))


def test_a_missing_file_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match="cannot read settings from missing.yaml"):
        parse("--config", "missing.yaml")


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", "many"), ("epochs", "0"), ("strategy", "nonsense"), ("pre_norm", "maybe")]
)
def test_a_bad_value_in_a_file_is_an_error_that_names_it(yaml_file, name, value):
    with pytest.raises(ConfigError, match=f"`{name}` .* Received: {name}="):
        parse("--config", yaml_file(**{name: value}))


@pytest.fixture
def translator_parser():
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser)
    return parser


@pytest.fixture
def loaded(monkeypatch):
    """What `runs.load` is called with, a list."""
    calls = []
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: calls.append((arguments, settings)))
    return calls


def test_a_run_is_loaded_with_the_flags_of_its_search(translator_parser, loaded):
    flags = ["--beam_size", "3", "--length_penalty", "0.7", "--batch_size", "11", "--checkpoint", "best"]
    load_translator(translator_parser.parse_args(["--model_dir", "runs/a", *flags, "--shortlist", "64"]))
    search = {"beam_size": 3, "length_penalty": 0.7, "shortlist": 64}
    assert loaded == [(("runs/a", "best"), {**search, "batch_size": 11})]


def test_search_options_left_out_are_the_runs(translator_parser, loaded):
    load_translator(translator_parser.parse_args(["--model_dir", "runs/a"]))
    search = {"beam_size": None, "length_penalty": None, "shortlist": None}
    assert loaded == [(("runs/a", "average"), {**search, "batch_size": 32})]


def test_a_saved_model_is_told_its_beam_at_each_call(translator_parser, loaded):
    flags = ["--saved_model", "exports/a", "--beam_size", "3", "--length_penalty", "0", "--max_length", "7"]
    arguments = translator_parser.parse_args(flags)
    load_translator(arguments)
    assert loaded == [(("exports/a",), {"batch_size": 32})]
    assert search_options(arguments) == {"beam_size": 3, "length_penalty": 0.0, "max_length": 7}


@pytest.mark.parametrize("flag", ["--checkpoint", "--shortlist"])
def test_a_saved_model_has_neither_checkpoints_nor_another_shortlist(translator_parser, loaded, flag):
    with pytest.raises(UserError, match=f"{flag} needs --model_dir: for a SavedModel, give {flag} to export.py"):
        load_translator(translator_parser.parse_args(["--saved_model", "exports/a", flag, "3"]))
    assert loaded == []


def test_languages_are_those_of_the_translator(translator_parser, monkeypatch):
    some = tiny.many_languages("both")
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: some)

    def default(*flags):
        return load_translator(translator_parser.parse_args(["--model_dir", "runs/a", *flags])).tags.default

    assert default() == ("en", "de") and default("--target_lang", "fra") == ("en", "fr")
    assert default("--source_lang", "DE", "--target_lang", "zh-CN") == ("de", "zh_Hans")
    with pytest.raises(UserError, match="the model has no `target_lang` ja, only de, en, fr, zh"):
        default("--target_lang", "ja")


@pytest.mark.parametrize(
    ("flags", "message"),
    [(("en", "de"), None), (("en-US", "fr"), "its `target_lang` is de"), (("ja", "de"), "its `source_lang` is en")],
)
def test_a_model_of_one_direction_takes_its_own_languages(translator_parser, monkeypatch, tmp_path, flags, message):
    (tmp_path / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}')
    of_litert = SimpleNamespace(path=tmp_path)
    reader = SimpleNamespace(LiteRTTranslator=lambda path: of_litert)
    monkeypatch.setitem(sys.modules, "keras_transformer.tools.engines.translate_litert", reader)
    arguments = translator_parser.parse_args(["--litert", "a", "--source_lang", flags[0], "--target_lang", flags[1]])
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        assert load_translator(arguments) is of_litert


def test_an_export_for_litert_is_read_without_tensorflow(translator_parser, loaded, monkeypatch):
    reader = SimpleNamespace(LiteRTTranslator=lambda path: f"reader of {path}")
    monkeypatch.setitem(sys.modules, "keras_transformer.tools.engines.translate_litert", reader)
    assert load_translator(translator_parser.parse_args(["--litert", "exports/a"])) == "reader of exports/a"
    assert loaded == []


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("no JSON"), RuntimeError("no model")])
def test_an_export_for_litert_that_cannot_be_read_is_a_mistake(translator_parser, monkeypatch, error):
    def fail(path):
        raise error

    reader = SimpleNamespace(LiteRTTranslator=fail)
    monkeypatch.setitem(sys.modules, "keras_transformer.tools.engines.translate_litert", reader)
    with pytest.raises(UserError, match=f"no LiteRT export at exports/a, or it is damaged: {error}"):
        load_translator(translator_parser.parse_args(["--litert", "exports/a"]))


def test_litert_without_its_package_says_which_one(translator_parser, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    monkeypatch.delitem(sys.modules, "keras_transformer.tools.engines.translate_litert", raising=False)
    with pytest.raises(UserError, match="--litert needs the package ai_edge_litert.* pip install ai-edge-litert"):
        load_translator(translator_parser.parse_args(["--litert", "exports/a"]))


@pytest.mark.parametrize("flag", [("--beam_size", "1"), ("--max_length", "7"), ("--checkpoint", "best")])
def test_an_export_for_litert_has_one_search(translator_parser, flag):
    check_litert(translator_parser.parse_args(["--litert", "exports/a"]))
    check_litert(translator_parser.parse_args(["--model_dir", "runs/a", *flag]))
    with pytest.raises(UserError, match=f"{flag[0]} does not go with --litert"):
        check_litert(translator_parser.parse_args(["--litert", "exports/a", *flag]))


def test_a_run_is_loaded_with_its_beam_and_told_the_rest_at_each_call(translator_parser):
    flags = ["--model_dir", "runs/a", "--beam_size", "3", "--repetition_penalty", "1.3", "--no_repeat_ngram", "0"]
    options = search_options(translator_parser.parse_args(flags))
    assert options == {"repetition_penalty": 1.3, "no_repeat_ngram": 0}
    assert search_options(translator_parser.parse_args(flags[:2])) == {}


RANGES = {option.name: (option.least, option.most) for option in OPTIONS if option.range}


@pytest.mark.parametrize(("name", "least", "most"), [(name, *ends) for name, ends in RANGES.items()])
def test_an_option_out_of_its_range_is_named_with_what_was_received(name, least, most):
    check_ranges(argparse.Namespace(**{name: None}))
    for value in (least, most):
        check_ranges(argparse.Namespace(**{name: value}))
    for value in (least - 1, most + 1, float("nan")):
        with pytest.raises(UserError, match=f"--{name} must be between .* Received: {name}={value}"):
            check_ranges(argparse.Namespace(**{name: value}))


@pytest.mark.parametrize("name", ["batch_size", "n_best"])
def test_a_size_of_a_program_is_positive(name):
    for value in (1, MOST):
        check_ranges(argparse.Namespace(**{name: value}))
    for value in (0, -1, MOST + 1):
        with pytest.raises(UserError, match=f"--{name} must be between 1 and 2147483647. Received: {name}={value}"):
            check_ranges(argparse.Namespace(**{name: value}))


def test_no_more_is_asked_of_a_search_than_it_keeps():
    translator = argparse.Namespace(width=3)
    check_width(translator, n_best=3, beam_size=None)
    with pytest.raises(UserError, match="--n_best must be at most the model's beam size, 3. Received: 4"):
        check_width(translator, beam_size=2, n_best=4)


def test_options_of_a_draw_are_those_that_were_given(translator_parser):
    add_request_arguments(translator_parser)
    flags = ["--model_dir", "runs/a", "--sample", "--temperature", "0.7", "--seed", "-5", "--top_k", "0"]
    arguments = translator_parser.parse_args(flags)
    assert sampling_options(arguments) == {"temperature": 0.7, "seed": -5, "top_k": 0}
    assert sampling_options(translator_parser.parse_args(flags[:3])) == {}


@pytest.mark.parametrize("flags", [[], ["--model_dir", "runs/a", "--saved_model", "exports/a"]])
def test_one_model_has_to_be_named(translator_parser, capsys, flags):
    with pytest.raises(SystemExit) as caught:
        translator_parser.parse_args(flags)
    assert caught.value.code == 2
    assert "--model_dir" in capsys.readouterr().err


def test_every_shared_flag_is_described(translator_parser):
    parser = argparse.ArgumentParser()
    add_search_arguments(parser)
    flags = {action.dest: action.help for action in translator_parser._actions}
    assert {action.dest for action in parser._actions} == {"help", "beam_size", "length_penalty"} < set(flags)
    assert all(flags.values())


def test_a_program_can_take_something_else_instead_of_a_model(capsys):
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser, hypotheses="file of translations")
    assert parser.parse_args(["--hypotheses", "out.de"]).hypotheses == "out.de"
    with pytest.raises(SystemExit):
        parser.parse_args(["--hypotheses", "out.de", "--model_dir", "runs/a"])
    assert "--hypotheses" in capsys.readouterr().err


def test_a_glossary_is_read_before_the_model(translator_parser, loaded, tmp_path):
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("two\tzwei\n", encoding="utf-8")
    arguments = translator_parser.parse_args(["--model_dir", "runs/a", "--glossary", str(glossary), "--protect"])
    assert protected(arguments) == {"glossary": {"two": "zwei"}, "protect": True}
    glossary.write_text("two\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: write a source form, a tab"):
        load_translator(arguments)
    for flags in (["--protect"], ["--glossary", "terms.tsv"]):
        with pytest.raises(UserError, match=f"{flags[0]} does not go with --litert"):
            check_litert(translator_parser.parse_args(["--litert", "exports/a", *flags]))


def test_a_file_of_another_preset_does_not_get_the_name_of_this_one(tmp_path):
    Config(preset="tiny").save(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="has all settings of a run of the preset tiny.* Received: preset=big"):
        parse_config(["--config", str(tmp_path / "config.yaml"), "--preset", "big"], "")
    assert parse_config(["--config", str(tmp_path / "config.yaml"), "--preset", "tiny"], "") == Config(preset="tiny")
    (tmp_path / "some.yaml").write_text("epochs: 3")
    assert parse_config(["--config", str(tmp_path / "some.yaml"), "--preset", "big"], "").d_model == 1024
