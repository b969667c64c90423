"""Flags: those of `Config`, and those that several programs share.

A `Config` comes from a preset, then a YAML file, then the flags, each overriding what came before.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from keras_transformer.config import Config, preset, read_settings

CONFIG_HELP = "YAML file of settings, such as the config.yaml of an earlier run; flags override it."
DRY_RUN_HELP = "Print all settings, figures of the corpus and an estimate of time and memory; train and keep nothing."

_Settings = tyro.conf.OmitArgPrefixes[tyro.conf.FlagConversionOff[Config]]
_SettingsFile = Annotated[Path | None, tyro.conf.arg(name="config", help=CONFIG_HELP)]
_DryRun = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=DRY_RUN_HELP)]


def parse_config(arguments, description):
    """Makes the `Config` that a command line asks for.

    Besides one flag for every field of `Config` there is `--config FILE.yaml`.

    Args:
        arguments: list of str, the command line without the program's name.
        description: str, what `--help` says first.

    Returns:
        Config.

    Raises:
        ConfigError: for a setting that cannot be.
        SystemExit: for flags that do not exist (2), and after `--help` (0).
    """
    start = _start(arguments)

    def command_line(config: _Settings = start, config_file: _SettingsFile = None):
        return config

    return _parse(command_line, arguments, description)


def parse_training(arguments, description):
    """Makes what train.py is asked for: as `parse_config`, with the one flag that is no setting of a run.

    Args:
        arguments: list of str, likewise.
        description: str, likewise.

    Returns:
        (Config, whether `--dry_run` was given).

    Raises:
        As `parse_config`.
    """
    start = _start(arguments)

    def command_line(config: _Settings = start, config_file: _SettingsFile = None, dry_run: _DryRun = False):
        return config, dry_run

    return _parse(command_line, arguments, description)


def _start(arguments):
    """The `Config` that the flags are to change: that of the preset and the YAML file."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    first.add_argument("--config")
    known, _ = first.parse_known_args(arguments)
    settings = read_settings(known.config) if known.config else {}
    start = preset(known.preset or settings.get("preset", Config.preset))
    start = dataclasses.replace(start, **settings)
    return dataclasses.replace(start, preset=known.preset) if known.preset else start


def _parse(command_line, arguments, description):
    return tyro.cli(command_line, args=arguments, description=description, use_underscores=True, prog="train.py")


def add_translator_arguments(parser):
    """Adds to an argparse parser the flags that say what translates, the same for translate.py and evaluate.py."""
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model_dir", help="run directory that train.py wrote")
    model.add_argument("--saved_model", help="EXPORT_DIR or EXPORT_DIR/VERSION that export.py wrote")
    parser.add_argument("--batch_size", type=int, default=32, help="sentences translated at a time (default: 32)")
    add_search_arguments(parser)


def translator_arguments(arguments):
    """What `add_translator_arguments` parsed, as the arguments of `load_translator`, a dict."""
    names = ("model_dir", "saved_model", "beam_size", "length_penalty", "batch_size")
    return {name: getattr(arguments, name) for name in names}


def add_search_arguments(parser):
    """Adds the flags of beam search, which default to what the run was trained with."""
    parser.add_argument("--beam_size", type=int, help="hypotheses kept by beam search (default: the run's)")
    parser.add_argument("--length_penalty", type=float, help="larger prefers longer translations (default: the run's)")
