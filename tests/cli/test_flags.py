import argparse
import dataclasses
import re
import sys
from types import SimpleNamespace
from typing import Literal
from unittest.mock import Mock

import pytest

from keras_transformer import runs
from keras_transformer.cli.flags import (
    add_translator_arguments,
    check_litert,
    check_ranges,
    load_translator,
    protected,
    search_options,
)
from keras_transformer.cli.parser import Parser, with_dashes
from keras_transformer.cli.parser import reader as reader_of
from keras_transformer.cli.request import add_request_arguments
from keras_transformer.cli.train import made_by, parse_config, parse_training
from keras_transformer.config import Config, configure
from keras_transformer.errors import ConfigError, UserError
from keras_transformer.presets import PRESETS
from keras_transformer.settings import GROUPS, SETTINGS
from keras_transformer.translation.options import MOST, OPTIONS


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


def test_a_file_overrides_the_preset_and_flags_override_the_file(yaml_file):
    for name in PRESETS:
        assert parse("--preset", name) == Config(preset=name)
    path = yaml_file(d_ff=53, warmup_steps=17)
    config = parse("--preset", "tiny", "--config", path, "--warmup_steps", "19", "--seed", "23")
    assert config == Config(preset="tiny", d_ff=53, warmup_steps=19, seed=23)
    assert config == parse("--seed=23", "--warmup_steps=19", f"--config={path}", "--preset=tiny")
    flags = ["--dataset=files:b", "--seed", "23", "--dataset", "cldr:en-de"]
    several = Config(dataset=("files:b", "cldr:en-de"), seed=23)
    assert parse("--config", yaml_file(dataset="files:a"), *flags) == several
    assert parse("--config", yaml_file(dataset='["files:b", "cldr:en-de"]')).dataset == several.dataset


def test_the_config_of_an_earlier_run_gives_that_run_again_under_its_own_preset(tmp_path):
    earlier = dataclasses.replace(Config(preset="tiny"), d_ff=53, source_lang="no", peak_learning_rate=1e-5)
    earlier.save(tmp_path / "config.yaml")
    flags = ["--config", str(tmp_path / "config.yaml"), "--preset"]
    assert parse(*flags[:2]) == earlier == parse(*flags, "tiny")
    with pytest.raises(ConfigError, match="has all settings of a run of the preset tiny.* Received: preset=big"):
        parse(*flags, "big")


def test_a_run_has_the_shape_of_the_run_that_it_starts_from(tmp_path, yaml_file):
    old, new = tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        directory.mkdir()
    of_model = {"d_model": 22, "num_heads": 11, "activation": "silu", "frame": "/3/", "share_tokenizer": False}
    Config(model_dir=str(old), **of_model, epochs=3, dropout_rate=0.5, max_length=77).save(old / "config.yaml")
    flags = ["--init_from", str(old), "--model_dir", str(new)]
    config = parse(*flags)
    assert config == dataclasses.replace(parse("--model_dir", str(new)), init_from=str(old), **of_model)
    assert config == configure(init_from=str(old), model_dir=str(new))  # from Python
    by_flags = parse("--init_from", str(old), "--model_dir", "new", "--activation", "gelu")
    assert (by_flags.d_model, by_flags.activation) == (22, "gelu")
    path = yaml_file(init_from=old, model_dir="new", activation="relu")
    assert parse("--config", path, "--activation=gelu") == by_flags
    assert parse("--config", path, "--init_from", "None").d_model == Config().d_model
    with pytest.raises(ConfigError, match="`init_from` must be text or not given. Received: init_from=7"):
        parse("--config", yaml_file(init_from=7))
    config.save(new / "config.yaml")
    (old / "config.yaml").unlink()
    assert parse(*flags) == config  # a run that is resumed knows its shape
    assert parse("--init_from", str(tmp_path / "none")).activation == "relu"


def test_a_setting_without_effect_is_refused_in_a_file_of_a_user_and_not_in_that_of_a_run(yaml_file, tmp_path):
    for flag in ("--vocabulary_size", "--vocabulary-size"):
        with pytest.raises(ConfigError, match="`vocabulary_size` has no effect with `tokenizer`"):
            parse_training(["--config", yaml_file(tokenizer="a"), flag, "503"], "text")
    assert parse("--config", yaml_file(workers="a-{0..1}:2222")).strategy == "multi_worker"  # as by the flag
    config = Config(preset="gru", tokenizer="a", vocabulary_size=503, cut_rate=0.1, num_heads=8)
    config.save(tmp_path / "config.yaml")
    assert parse("--config", str(tmp_path / "config.yaml")) == config
    with pytest.raises(ConfigError, match="`num_heads` has no effect with architecture=gru"):
        parse("--config", str(tmp_path / "config.yaml"), "--num_heads", "8")


def test_callbacks_are_those_of_a_function_that_a_user_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    functions = ["good(): return [keras.callbacks.TerminateOnNaN()]", "bad(): return good", "buggy(): return 1 / 0"]
    (tmp_path / "my_callbacks.py").write_text("import keras\n" + "".join(f"def {each}\n" for each in functions))
    assert parse_training(["--callbacks", "my_callbacks:good"], "text") == (parse(), {"callbacks": "my_callbacks:good"})
    (made,) = made_by("my_callbacks:good")
    assert type(made).__name__ == "TerminateOnNaN"
    for name, why in {
        "my_callbacks:bad": "must give a list of Keras callbacks. Received: <function good",
        "my_callbacks:none": "must name a function.*Received: my_callbacks:none.*has no function none",
        "no_such_module:a": "must name a function.*Received: no_such_module:a.*No module",
        "my_callbacks": "must name a function.*Received: my_callbacks",
    }.items():
        with pytest.raises(ConfigError, match=why):
            made_by(name)
    with pytest.raises(ZeroDivisionError):  # a bug of the user keeps its traceback
        made_by("my_callbacks:buggy")


def test_help_describes_every_setting_in_groups_with_the_defaults_of_preset_and_file(capsys, monkeypatch, yaml_file):
    monkeypatch.setenv("COLUMNS", "100")
    path = yaml_file(d_model=66, num_heads=3, pre_norm=False, seed=5)
    with pytest.raises(SystemExit) as caught:
        parse_training(["--help", "--preset", "tiny", "--config", path, "--seed=7"], "what the program does")
    out, err = capsys.readouterr()
    text = " ".join(out.split())
    assert (caught.value.code, err) == (0, "") and "what the program does" in text and "`" not in text
    helps = {name: with_dashes(setting.help, SETTINGS) for name, setting in SETTINGS.items()}
    assert [name for name, help in helps.items() if f"--{name} " not in text or not help or help not in text] == []
    assert re.search(r"--config .{0,30}YAML file of settings", text) and "no_dry_run" not in text
    assert re.search(r"--dry_run .{0,30}Print all settings", text)
    starts = [text.index(f" {group.__doc__}: ") for group in GROUPS]
    assert starts == sorted(starts) and len(starts) == 7
    defaults = {"d_model": 66, "d_ff": 256, "pre_norm": "false", "seed": 7, "model_dir": "runs/tiny"}
    for name, default in defaults.items():
        described = text[text.index(f" --{name} ") :]
        assert described[described.index("(default: ") :].startswith(f"(default: {default})")


def test_a_dry_run_is_no_setting_a_flag_of_a_boolean_may_stand_alone_and_none_is_no_value(yaml_file):
    assert parse_training(["--preset=tiny", "--dry_run"], "text") == (Config(preset="tiny"), {"dry_run": True})
    pytest.raises(SystemExit, parse, "--dry_run")
    with pytest.raises(ConfigError, match="unknown settings: dry_run"):
        parse_training(["--config", yaml_file(dry_run=True)], "text")
    assert parse("--share_vocabulary", "false", "--tie-embeddings=False").share_vocabulary is False
    assert parse("--pre_norm").pre_norm and parse("--pre_norm", "--epochs", "3").pre_norm
    assert parse("--preset", "tiny", "--peak_learning_rate", "None").peak_learning_rate is None


def test_words_that_are_no_settings_end_the_program_with_one_line(capsys):
    for arguments, message in (
        (["--gibberish", "3"], "unrecognized arguments: --gibberish 3; --help lists all flags"),
        (["--epoch", "3"], "unrecognized arguments: --epoch 3; did you mean --epochs?"),  # nothing is guessed
        (["--dataset", "files:b", "seed"], "unrecognized arguments: seed; --help lists all flags"),
        (["--dataset", "--seed", "23"], "argument --dataset: expected one argument"),
        (["--preset", "nonsense"], f"--preset must be one of {', '.join(PRESETS)}. Received: nonsense"),
        (["--epochs", "None"], "--epochs must be a whole number. Received: None"),
    ):
        with pytest.raises(SystemExit) as caught:
            parse(*arguments)
        assert caught.value.code == 2 and capsys.readouterr() == ("", f"error: {message}\n")


def test_a_flag_is_spelled_with_underscores_or_dashes_and_words_of_another_program_stay_as_they_are():
    parser = Parser("does it")
    parser.add_argument("--beam_size", type=int, help="100%% of the beam, unless `seed` or `other` is given")
    parser.add_argument("--seed", type=float)
    arguments, others = parser.parse_known_args(["--some-flag=a-b", "--beam-size=3", "--seed", "-5", "--other-one"])
    assert (vars(arguments), others) == ({"beam_size": 3, "seed": -5.0}, ["--some-flag=a-b", "--other-one"])
    assert "100% of the beam, unless --seed or `other` is given" in " ".join(parser.format_help().split())


def test_a_word_becomes_a_value_of_the_type():
    for kind, right, wrong in (
        (int, {"3": 3, "-3": -3}, ["3.0", "None", ""]),
        (float, {"3": 3.0, "1e-3": 0.001}, ["1,5", "true"]),
        (bool, {"true": True, "True": True, "false": False, "False": False}, ["1", "TRUE", ""]),
        (int | None, {"3": 3, "None": None}, ["none", "3.5"]),
        (str | None, {"None": None, "true": "true", "3": "3", "": ""}, []),
        (Literal["a", "3"], {"a": "a", "3": "3"}, ["b", "None"]),
    ):
        assert repr({word: reader_of(kind)(word) for word in right}) == repr(right)  # with their types
        for word in wrong:
            with pytest.raises(argparse.ArgumentTypeError, match=f"must be .*Received: {word}$"):
                reader_of(kind)(word)


@pytest.fixture
def given():
    """A function from flags to what the parser of a program with a translator makes of them."""
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser)
    add_request_arguments(parser)
    return lambda *flags: parser.parse_args([*flags])


RUN, EXPORT, LITERT = ("--model_dir", "runs/a"), ("--saved_model", "exports/a"), ("--litert", "exports/a")


@pytest.fixture
def loaded(monkeypatch):
    """What `runs.load` is called with, a list."""
    calls = []
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: calls.append((arguments, settings)))
    return calls


def test_a_run_is_loaded_with_the_flags_of_its_search_and_without_them_with_its_own(given, loaded, monkeypatch):
    flags = ["--beam_size", "3", "--length_penalty", "0.7", "--batch_size", "11", "--checkpoint", "best"]
    load_translator(given(*RUN, *flags, "--shortlist", "64"))
    load_translator(given(*RUN))
    search = {"beam_size": 3, "length_penalty": 0.7, "shortlist": 64}
    (_, of_flags), (_, of_run) = loaded
    assert [arguments for arguments, _ in loaded] == [("runs/a", "best"), ("runs/a", "average")]
    assert (of_flags, of_run) == ({**search, "batch_size": 11}, {**dict.fromkeys(search), "batch_size": 128})
    monkeypatch.setattr(runs, "load", translator := Mock())
    asked = load_translator(given(*RUN, "--target_lang", "fra")), load_translator(given(*RUN))
    assert asked == (translator().between(), translator())
    translator().between.assert_any_call(target_lang="fra")


def test_a_saved_model_is_told_its_beam_at_each_call_and_has_no_checkpoint_and_no_other_shortlist(given, loaded):
    arguments = given(*EXPORT, "--beam_size", "3", "--length_penalty", "0", "--max_length", "7")
    load_translator(arguments)
    assert loaded == [(("exports/a",), {"batch_size": 128})]
    assert search_options(arguments) == {"beam_size": 3, "length_penalty": 0.0, "max_length": 7}
    for flag in ("--checkpoint", "--shortlist"):
        with pytest.raises(UserError, match=f"{flag} needs --model_dir: for a SavedModel, give {flag} to export.py"):
            load_translator(given(*EXPORT, flag, "3"))
    assert len(loaded) == 1


def test_an_export_for_litert_has_its_languages_and_search_and_a_damaged_one_is_a_mistake(given, tmp_path, monkeypatch):
    (tmp_path / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}')
    module, reader = "keras_transformer.tools.engines.translate_litert", SimpleNamespace()
    monkeypatch.setitem(sys.modules, module, reader)
    reader.LiteRTTranslator = lambda path: SimpleNamespace(path=tmp_path, given=path)
    assert load_translator(given(*LITERT, "--source_lang", "en-US", "--target_lang", "de")).given == "exports/a"
    with pytest.raises(UserError, match="its `target_lang` is de"):
        load_translator(given(*LITERT, "--source_lang", "en", "--target_lang", "fr"))
    for flag in (("--beam_size", "1"), ("--checkpoint", "best"), ("--protect",), ("--glossary", "a.tsv")):
        check_litert(given(*RUN, *flag))
        with pytest.raises(UserError, match=f"{flag[0]} does not go with --litert"):
            check_litert(given(*LITERT, *flag))
    for error in (OSError("no such file"), ValueError("no JSON"), RuntimeError("no model")):
        reader.LiteRTTranslator = Mock(side_effect=error)
        with pytest.raises(UserError, match=f"no LiteRT export at exports/a, or it is damaged: {error}"):
            load_translator(given(*LITERT))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UserError, match="--litert needs the package ai_edge_litert.* pip install ai-edge-litert"):
        load_translator(given(*LITERT))


def test_a_number_out_of_its_range_is_named_with_what_was_received():
    ranges = {option.name: (option.least, option.most) for option in OPTIONS if option.range}
    ranges |= dict.fromkeys(("batch_size", "n_best", "shortlist"), (1, MOST)) | {"tmx_threshold": (1, 100)}
    for name, (least, most) in ranges.items():
        for value in (None, least, most):
            check_ranges(argparse.Namespace(**{name: value}))
        for value in (least - 1, most + 1, float("nan")):
            with pytest.raises(UserError, match=f"--{name} must be between .* Received: {name}={value}"):
                check_ranges(argparse.Namespace(**{name: value}))


def test_one_model_has_to_be_named_or_what_a_program_takes_instead(given, capsys):
    parser = argparse.ArgumentParser()
    add_translator_arguments(parser, hypotheses="file of translations")
    assert parser.parse_args(["--hypotheses", "out.de"]).hypotheses == "out.de"
    instead = [*RUN, "--hypotheses", "out.de"]
    for ask in (given, lambda: given(*RUN, *EXPORT), lambda: parser.parse_args(instead)):
        with pytest.raises(SystemExit) as caught:
            ask()
        assert caught.value.code == 2 and "--model_dir" in capsys.readouterr().err


def test_a_glossary_is_read_before_the_model(given, loaded, tmp_path):
    glossary = tmp_path / "terms.tsv"
    arguments = given(*RUN, "--glossary", str(glossary), "--protect")
    glossary.write_text("two\tzwei\n", encoding="utf-8")
    assert protected(arguments) == {"glossary": {"two": "zwei"}, "protect": True}
    glossary.write_text("two\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: write a source form, a tab"):
        load_translator(arguments)
    assert loaded == []
