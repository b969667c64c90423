"""Flags: a flag for every setting of `Config`, and the flags that several programs share.

Flags override the settings of a YAML file, and these override the defaults of the preset.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Annotated, get_args

import tyro

from keras_transformer.config import Config, check_effect, describe_type, is_a, read_settings
from keras_transformer.errors import UserError
from keras_transformer.protection import read_glossary
from keras_transformer.translation.options import MOST, OPTIONS, options_of

RUN_OPTIONS = ("beam_size", "length_penalty")  # options of a search that are settings of a run
SWITCHES = [f"--{field.name}" for field in dataclasses.fields(Config) if field.type is bool]
CONFIG_HELP = "YAML file of settings, such as the config.yaml of an earlier run; flags override it."
DRY_RUN_HELP = "Print all settings, figures of the corpus and an estimate of time and memory; train and keep nothing."

_Settings = tyro.conf.OmitArgPrefixes[tyro.conf.FlagConversionOff[Config]]
_SettingsFile = Annotated[Path | None, tyro.conf.arg(name="config", help=CONFIG_HELP)]
_TYPES = tyro.constructors.ConstructorRegistry()
_DryRun = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=DRY_RUN_HELP)]


@_TYPES.primitive_rule
def _corpora_rule(info):
    """Reads the corpora of `--dataset`: a str, or a tuple of several."""
    if info.type != str | tuple[str, ...]:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="CORPUS[:WEIGHT] [--dataset ...]",
        instance_from_str=lambda texts: texts[0] if len(texts) == 1 else tuple(texts),
        is_instance=lambda value: is_a(value, info.type),
        str_from_instance=lambda value: [value] if isinstance(value, str) else list(value),
    )


@_TYPES.primitive_rule
def _value_rule(info):
    """Reads a number, or a value that may be None. tyro's own errors show a user the types and errors of Python."""
    kind, *others = get_args(info.type) or (info.type,)
    if not (kind in (int, float) and not others or kind in (int, float, str) and others == [type(None)]):
        return None

    def read(texts):
        try:
            return None if others and texts[0] == "None" else kind(texts[0])
        except ValueError:
            raise ValueError(f"must be {describe_type(info.type)}. Received: {texts[0]}") from None

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=("{None}|" if others else "") + kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: is_a(value, info.type),
        str_from_instance=lambda value: [str(value)],
    )


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
        SystemExit: for flags that do not exist (2), and after `--help` (0).
    """
    start = _start(arguments)

    def command_line(config: _Settings = start, config_file: _SettingsFile = None):
        return config

    config = _parse(command_line, arguments, description)
    check_effect(config, _names(arguments))
    return config


def parse_training(arguments, description):
    """Parses the command line of train.py: as `parse_config`, with the one flag that is no setting of a run.

    Args:
        arguments, description: as for `parse_config`.

    Returns:
        (Config, whether `--dry_run` was given).

    Raises:
        As `parse_config`.
    """
    start = _start(arguments)

    def command_line(config: _Settings = start, config_file: _SettingsFile = None, dry_run: _DryRun = False):
        return config, dry_run

    config, is_dry_run = _parse(command_line, arguments, description)
    check_effect(config, _names(arguments))
    return config, is_dry_run


def _names(arguments):
    """The names of the flags in a command line; `--a-b`, which is read as `--a_b`, is that as well."""
    flags = (argument.partition("=")[0] for argument in arguments if argument.startswith("--"))
    return {flag.removeprefix("--").replace("-", "_") for flag in flags}


def _start(arguments):
    """The `Config` of the preset and the YAML file, before the other flags."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    first.add_argument("--config")
    known, _ = first.parse_known_args(arguments)
    settings = read_settings(known.config) if known.config else {}
    return Config(**{**settings, **({"preset": known.preset} if known.preset else {})})


def _parse(command_line, arguments, description):
    arguments = _gathered("--dataset", _with_switches(arguments))
    return tyro.cli(
        command_line,
        args=arguments,
        description=description,
        use_underscores=True,
        prog=Path(sys.argv[0]).name,
        registry=_TYPES,
    )


def _gathered(flag, arguments):
    """The arguments with all values of a flag that is given several times behind it, where it comes first."""
    rest, values = [], []
    for argument in arguments:
        name, is_given, value = argument.partition("=")
        if name == flag and is_given:
            values.append(value)
        elif rest[-1:] == [flag] and not argument.startswith("--"):
            values.append(argument)
            rest.pop()
        else:
            rest.append(argument)
    return [*rest, flag, *values] if values else rest


def _with_switches(arguments):
    """The arguments with switches as tyro reads them: `--pre_norm`, `--pre_norm true`, `--pre_norm=false`."""
    words, found = {"true": "True", "false": "False"}, []
    for argument, following in zip(arguments, [*arguments, "--"][1:], strict=True):
        name, is_given, value = argument.partition("=")
        if found[-1:] and found[-1] in SWITCHES:
            argument = words.get(argument, argument)
        elif name in SWITCHES and (is_given or following.startswith("--")):
            argument = f"{name}={words.get(value, value) if is_given else True}"
        found.append(argument)
    return found


def add_translator_arguments(parser, **instead):
    """Adds to an argparse parser the flags that choose a model and a search: those of translate.py and evaluate.py.

    Args:
        parser: argparse parser.
        instead: flags that replace a model, name=help.
    """
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model_dir", help="run directory that train.py wrote")
    model.add_argument("--saved_model", help="EXPORT_DIR or EXPORT_DIR/VERSION that export.py wrote")
    model.add_argument(
        "--litert", help="EXPORT_DIR or EXPORT_DIR/VERSION that export.py --format litert wrote; needs no TensorFlow"
    )
    for name, described in instead.items():
        model.add_argument(f"--{name}", help=described)
    add_checkpoint_argument(parser)
    parser.add_argument(
        "--batch_size",
        type=int,
        default=32,
        help="sentences translated at a time; --litert translates one on each core (default: 32)",
    )
    add_option_arguments(parser, "translate_with_options")
    add_shortlist_argument(parser, prefix="of a run: ")
    parser.add_argument(
        "--glossary",
        help="file of terms, a source form, a tab and its target form on every line: translations have these target "
        "forms; needs a model that was trained with --protect",
    )
    parser.add_argument(
        "--protect",
        action="store_true",
        help="keep URLs, e-mail addresses, numbers with units, {variables}, format directives such as %%s, and `code` "
        "as they are; needs a model that was trained with --protect",
    )


def add_option_arguments(parser, signature, names=None, prefix=""):
    """Adds a flag for every option of a signature.

    Args:
        parser: argparse parser.
        signature: name.
        names: those of the options to add; None adds all.
        prefix: text before every help.
    """
    for option in options_of(signature):
        if names is None or option.name in names:
            described = f" (default: {option.default_text})" if option.default_text else ""
            parser.add_argument(f"--{option.name}", type=option.type, help=f"{prefix}{option.help}{described}")


def add_search_arguments(parser):
    """Adds the flags of beam search that are part of a run and of an export."""
    add_option_arguments(parser, "translate_with_options", RUN_OPTIONS)


def add_checkpoint_argument(parser):
    """Adds the flag that chooses the weights of a run."""
    parser.add_argument(
        "--checkpoint",
        default="average",
        help="weights of a run, finished or not: average (of the last epochs, as training ends), best (the epoch "
        "that validated best), last (the newest checkpoint) or N, the number of one of the last epochs "
        "(default: average)",
    )


def add_shortlist_argument(parser, prefix):
    """Adds the flag of the lexical shortlist, with text before its help."""
    parser.add_argument(
        "--shortlist",
        type=int,
        help=f"{prefix}a search chooses only among the N likeliest target pieces of each source piece, counted from "
        "the training corpus, and the most frequent ones; faster, and a few translations differ (default: among all)",
    )


def load_translator(arguments):
    """The translator that the flags of `add_translator_arguments` choose.

    Raises:
        UserError: if there is none, or for a flag that a SavedModel does not have.
    """
    if arguments.litert:
        return _load_litert(arguments.litert)
    from keras_transformer.runs import load

    how = {"batch_size": arguments.batch_size, **protected(arguments)}
    if arguments.saved_model:
        if arguments.checkpoint != "average":
            raise UserError("--checkpoint is of a run: a SavedModel has only the weights that export.py was told")
        if arguments.shortlist is not None:
            raise UserError("--shortlist is of a run: a SavedModel has the one that export.py was told, or none")
        return load(arguments.saved_model, **how)
    search = {name: getattr(arguments, name) for name in (*RUN_OPTIONS, "shortlist")}
    return load(arguments.model_dir, arguments.checkpoint, **how, **search)


def _load_litert(path):
    try:
        from keras_transformer.export.translate_litert import LiteRTTranslator
    except ImportError as error:
        raise UserError("--litert needs a package that is not installed: pip install ai-edge-litert") from error
    try:
        return LiteRTTranslator(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"no LiteRT export at {path}, or it is damaged: {error}") from error


def protected(arguments):
    """The arguments of a translator that `--glossary` and `--protect` ask for: dict, {} if neither is given.

    Raises:
        UserError: for a glossary that cannot be read.
    """
    if not arguments.glossary and not arguments.protect:
        return {}
    try:
        terms = read_glossary(arguments.glossary) if arguments.glossary else None
    except ValueError as error:
        raise UserError(str(error)) from None
    return {"glossary": terms, "protect": arguments.protect}


def check_litert(arguments, *others):
    """Raises UserError for a flag that does not go with `--litert`.

    Args:
        arguments: parsed flags.
        others: names of flags of the program that need more than the best translation and its score.
    """
    names = (*(option.name for option in OPTIONS), "shortlist", "glossary")
    others = (*others, "protect")
    given = [name for name in names if getattr(arguments, name, None) is not None]
    given += [name for name in others if getattr(arguments, name)]
    given += ["checkpoint"] if arguments.checkpoint != "average" else []
    if arguments.litert and given:
        raise UserError(
            f"--{given[0]} does not go with --litert: the export gives the best translation of the search that "
            "export.py was told; leave one out"
        )


def search_options(arguments):
    """The options that were given for `TextTranslator.translate`, a dict, from the flags of a program."""
    at_load = set(RUN_OPTIONS) - set(_told_at_each_call(arguments))
    names = [option.name for option in options_of("translate_with_options") if option.name not in at_load]
    return _given(arguments, names)


def sampling_options(arguments):
    """The options that were given for `TextTranslator.sample`, a dict, from the flags of a program."""
    return _given(arguments, [option.name for option in options_of("sample")])


def _given(arguments, names):
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def _told_at_each_call(arguments):
    """Options of a run that a SavedModel takes at each call, because it is loaded with its own inside."""
    return RUN_OPTIONS if arguments.saved_model else ()


def check_ranges(arguments):
    """Raises UserError, with its name, for a number out of range."""
    ranges = {option.name: (option.least, option.most) for option in OPTIONS if option.range}
    for name, (least, most) in {"batch_size": (1, MOST), "n_best": (1, MOST), "shortlist": (1, MOST), **ranges}.items():
        value = getattr(arguments, name, None)
        if value is not None and not least <= value <= most:
            raise UserError(f"--{name} must be between {least:.15g} and {most:.15g}. Received: {name}={value}")


def check_width(translator, **sizes):
    """Raises UserError, with its name, for a size above the translator's beam size; None is no size."""
    for name, size in sizes.items():
        if size is not None and size > translator.width:
            raise UserError(f"--{name} must be at most the model's beam size, {translator.width}. Received: {size}")
