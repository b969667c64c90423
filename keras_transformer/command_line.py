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
_MARKERS = (tyro.conf.FlagConversionOff,)


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
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    first.add_argument("--config")
    known, _ = first.parse_known_args(arguments)
    settings = read_settings(known.config) if known.config else {}
    start = preset(known.preset or settings.get("preset", Config.preset))
    start = dataclasses.replace(start, **settings)
    if known.preset:
        start = dataclasses.replace(start, preset=known.preset)

    def command_line(
        config: tyro.conf.OmitArgPrefixes[Config] = start,
        config_file: Annotated[Path | None, tyro.conf.arg(name="config", help=CONFIG_HELP)] = None,
    ):
        return config

    return tyro.cli(
        command_line, args=arguments, description=description, use_underscores=True, config=_MARKERS, prog="train.py"
    )


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
