"""Trains a Transformer on sentence pairs: data and preset in, run directory out. It has a flag for every setting.

Flags override the settings of a YAML file, and these override the defaults of the preset.
"""

import argparse
import dataclasses
import importlib
import os
import shlex
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin

from keras_transformer.cli import console
from keras_transformer.cli.parser import Parser, reader
from keras_transformer.config import Config, check_effect, configure, read_settings
from keras_transformer.errors import ConfigError
from keras_transformer.presets import PRESETS
from keras_transformer.process import find_tool, keep_freed_memory
from keras_transformer.settings import GROUPS, SETTINGS

DESCRIPTION = """Train a model to translate. After an interruption, the same command goes on.

  python train.py
      learns dates, numbers, prices and names from Unicode locale data: no download, 3 to 5 minutes on 2 cores
  python train.py --dataset files:DIR --source_lang en --target_lang de --preset tiny --model_dir runs/mine
      learns from the lines of DIR/train.en and DIR/train.de, validates with DIR/val.*, and tests with DIR/test.*
  python train.py --dataset tfds:ted_hrlr_translate/pt_to_en --preset small --model_dir runs/ted
      learns from a corpus of TensorFlow Datasets, which is downloaded once
  python train.py --dataset files:DIR --dataset tfds:NAME:0.3 ...
      learns from both: every epoch takes all pairs of the first corpus, and another 30 % of the second
  python train.py --dataset files:DIR@en-de --dataset files:DIR@de-en --dataset cldr:en-ja ...
      learns several directions in one model. A tag tells the model the language of a translation
  python train.py --dataset files:NEW --init_from runs/mine --replay 0.2 --extend_vocabulary 500 ...
      trains an old run further on new text, with up to 500 new pieces. 20 % of the pairs come from the old text, so
      that the model does not forget
  python train.py ... --dry_run
      prints all settings, figures of the corpus, and an estimate of time and memory. It trains nothing"""
NO_SETTINGS = ("help", "config", "dry_run", "callbacks")  # flags of train.py
TRAINING_FLAGS = {*NO_SETTINGS, *SETTINGS}
CONFIG_HELP = "YAML file of settings, such as the config.yaml of an earlier run. Flags override it."
DRY_RUN_HELP = "Print all settings, figures of the corpus and an estimate of time and memory. Train and keep nothing."
CALLBACKS_HELP = """Function without arguments that gives a list of Keras callbacks, such as mine:callbacks of mine.py.
They are called after those of the run."""
METAVARS = {int: "INT", float: "NUMBER", str: "TEXT", bool: "{true,false}"}
RULES = """The preset gives every setting its default, FILE of --config overrides it, and flags override both.
--NAME None removes the value of a setting that may be without one, such as --max_steps None."""


def main(config, dry_run=False, callbacks=None):
    """Trains, or rehearses that. `callbacks` is as `made_by` reads it."""
    from keras_transformer.evaluation import choose_tokenization, measure
    from keras_transformer.training.train import train

    made = made_by(callbacks) if callbacks else []
    keep_freed_memory()
    if dry_run:
        return find_tool("planning.dry_run", "--dry_run").rehearse(config)
    trained = train(config, measure, choose_tokenization, owns_process=True, callbacks=made)
    if trained is None:  # on all workers but the first
        return
    run, evaluated_set, evaluation = trained
    print(f"{evaluated_set} set, beam {config.beam_size}:\n{console.describe_scores(evaluation)}")
    translate, export = (console.command(name, "--model_dir", run.path) for name in ("translate", "export"))
    print(
        f"\ntranslate:  {translate}"
        f"\nwatch:      {shlex.join(['tensorboard', '--logdir', str(run.path / 'logs')])}"
        f"\nexport:     {export} {shlex.join(['--export_dir', f'exports/{run.path.name}'])}"
    )


def program():
    """The program, from its command line to its exit status."""
    with console.program(TRAINING_FLAGS):
        config, others = parse_training(sys.argv[1:], DESCRIPTION)
        console.import_tensorflow()
        main(config, **others)


def made_by(name):
    """Calls a function that a user names, and returns its Keras callbacks, a list.

    Args:
        name: str, "module:function". The module may be in the current directory.

    Raises:
        ConfigError: if there is no such function, or if it gives something else.
    """
    import keras

    message = f"`callbacks` must name a function without arguments, such as mine:callbacks of mine.py. Received: {name}"
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(message)
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function, None)
        if not callable(make):
            raise ConfigError(f"{message}, and {module} has no function {function}")
        made = make()
    except ImportError as error:
        raise ConfigError(f"{message} ({error})") from error
    if not isinstance(made, list | tuple) or not all(isinstance(each, keras.callbacks.Callback) for each in made):
        raise ConfigError(f"`callbacks` must give a list of Keras callbacks. Received: {made!r} from {name}")
    return [*made]


def parse_config(arguments, description):
    """Makes the `Config` that a command line asks for.

    Besides one flag for every field of `Config` there is `--config FILE.yaml`.

    Args:
        arguments: list of str, the command line without the program's name.
        description: str, what `--help` says first.

    Returns:
        Config.

    Raises:
        ConfigError: for a setting that is not possible.
        SystemExit: for flags that do not exist and words that are no values (2), and after `--help` (0).
    """
    return _parse(arguments, description, ("help", "config"))[0]


def parse_training(arguments, description):
    """Parses the command line of train.py: as `parse_config`, with the flags that are no settings of a run.

    Args:
        arguments, description: as for `parse_config`.

    Returns:
        (Config, dict of the flags that were given among `dry_run` and `callbacks`).

    Raises:
        As `parse_config`.
    """
    return _parse(arguments, description, NO_SETTINGS)


def _parse(arguments, description, no_settings):
    given = vars(_settings_parser(description, no_settings, Config()).parse_args(arguments))
    others = {name: given.pop(name) for name in no_settings if name in given}
    of_file = read_settings(others["config"]) if "config" in others else {}
    before, preset = of_file.get("preset"), given.get("preset")
    if before and preset and before != preset and of_file.keys() >= PRESETS[preset].keys():
        raise ConfigError(
            f"{others['config']} has all settings of a run of the preset {before}, so `preset` would change its name "
            f"alone: leave one of the two out. Received: preset={preset}"
        )
    for settings in (of_file, given):
        if settings.get("workers"):
            settings.setdefault("strategy", "multi_worker")
    config = configure(**{**of_file, **given})
    if "help" in others:
        _settings_parser(description, no_settings, config).print_help()
        sys.exit(0)
    is_of_run = len(of_file) > len(SETTINGS) / 2  # the file is the record of a run, and nobody wrote it
    check_effect(config, given if is_of_run else {**of_file, **given})
    return config, {name: value for name, value in others.items() if name not in ("help", "config")}


def _settings_parser(description, no_settings, defaults):
    """The parser of all settings. It gives those that are in the command line, and no others.

    Args:
        description: str.
        no_settings: names, of `NO_SETTINGS`, of the other flags that the parser has.
        defaults: `Config`, with the defaults that `--help` shows.
    """
    parser = Parser(
        description,
        epilog=RULES,
        usage=f"{Path(sys.argv[0]).name} [--preset NAME] [--config FILE] [--SETTING VALUE ...]",
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    for settings in GROUPS:
        group = parser.add_argument_group(settings.__doc__)
        if settings is GROUPS[0]:
            _add_others(group, no_settings)
        for field in dataclasses.fields(settings):
            _add_setting(group, field, getattr(defaults, field.name))
    return parser


def _add_others(group, names):
    group.add_argument("-h", "--help", action="store_true", help="Show this text.")
    group.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
    if "dry_run" in names:
        group.add_argument("--dry_run", action="store_true", help=DRY_RUN_HELP)
        group.add_argument("--callbacks", metavar="MODULE:FUNCTION", help=CALLBACKS_HELP)


def _add_setting(group, field, default):
    """Adds the flag of a field of `Config`. `default` is for `--help`."""
    kind, setting = field.type, SETTINGS[field.name]
    how, described = {"type": reader(kind), "metavar": setting.metavar or _metavar(kind)}, setting.help
    if tuple[str, ...] in get_args(kind):
        how = {"action": "append", "metavar": setting.metavar}
        described += " For several, give the flag several times."
    elif kind is bool:
        how |= {"nargs": "?", "const": True}
    shown = ", ".join(default) if isinstance(default, tuple) else str(default).lower() if kind is bool else default
    described += "" if default is None else f" (default: {shown})"
    group.add_argument(f"--{field.name}", help=described.replace("%", "%%"), **how)


def _metavar(kind):
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    return METAVARS.get((get_args(kind) or (kind,))[0])
