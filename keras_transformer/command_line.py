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

MOST = 2**31 - 1  # of an int32
# Least and most of flags. Signatures never raise, but take numbers beyond as if they were not given, or as the nearest.
RANGES = {
    "batch_size": (1, MOST),
    "beam_size": (1, MOST),
    "length_penalty": (-10.0, 10.0),
    "max_length": (1, MOST),
    "repetition_penalty": (0.01, 100.0),
    "no_repeat_ngram": (0, MOST),
    "n_best": (1, MOST),
    "temperature": (0.01, 100.0),
    "top_k": (0, MOST),
    "top_p": (0.000001, 1.0),
    "seed": (-(2**63), 2**63 - 1),
}

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
    parser.add_argument(
        "--max_length",
        type=int,
        help="most tokens of the translation of a sentence (default: 50 more than the sentence has)",
    )
    parser.add_argument(
        "--repetition_penalty", type=float, help="above 1, tokens used already become less likely (default: 1)"
    )
    parser.add_argument(
        "--no_repeat_ngram", type=int, help="no N tokens come twice in the same order; 0 allows all (default: 0)"
    )


def translator_arguments(arguments):
    """What `add_translator_arguments` parsed, as the arguments of `load_translator`, a dict."""
    names = ("model_dir", "saved_model", "beam_size", "length_penalty", "batch_size")
    given = {name: getattr(arguments, name) for name in names}
    return given | dict.fromkeys(_told_at_each_call(arguments))


def search_options(arguments):
    """What is left of the same, and `--prefix`, for `TextTranslator.translate`: a dict of what was given."""
    names = (*_told_at_each_call(arguments), "prefix", "max_length", "repetition_penalty", "no_repeat_ngram")
    options = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in options.items() if value is not None}


def _told_at_each_call(arguments):
    """Flags of beam search that a SavedModel cannot be loaded with: it has its own, inside."""
    return ("beam_size", "length_penalty") if arguments.saved_model else ()


def check_ranges(arguments):
    """Raises ValueError for a number that is not in `RANGES`."""
    for name, (least, most) in RANGES.items():
        value = getattr(arguments, name, None)
        if value is not None and not least <= value <= most:
            raise ValueError(f"--{name} must be between {least} and {most}. Received: {name}={value}")


def check_width(translator, **sizes):
    """Raises ValueError for one that is more than the translator's search keeps; None is no size."""
    for name, size in sizes.items():
        if size is not None and size > translator.width:
            raise ValueError(f"--{name} must be at most the model's beam size, {translator.width}. Received: {size}")


def add_search_arguments(parser):
    """Adds the flags of beam search, which default to what the run was trained with."""
    parser.add_argument("--beam_size", type=int, help="hypotheses kept by beam search (default: the run's)")
    parser.add_argument("--length_penalty", type=float, help="larger prefers longer translations (default: the run's)")
