"""All settings of a run: one flat, frozen `Config` with the fields of `settings`, and what is read from them."""

import contextlib
import dataclasses
import inspect
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from keras_transformer.errors import ConfigError, describe_type
from keras_transformer.presets import PRESETS
from keras_transformer.settings import GROUPS, SETTINGS, RunSettings

log = logging.getLogger(__name__)

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3  # the control symbols of every vocabulary
FIRST_PLACEHOLDER_ID = 4  # of the placeholders, right behind them, in a vocabulary that has some

# What most presets have. A setting of None is suited to the corpus. A preset without a rate has that of equation (3).
SUITED = {name: setting.usual for name, setting in SETTINGS.items() if setting.suited}


@dataclass(frozen=True, init=False)
class Config(*reversed(GROUPS)):  # a dataclass has the fields of its last base first
    """Every setting of a training run. Flags, YAML files and the run's config.yaml use these names.

    A setting that is not given comes from the preset, and from the defaults of `settings` if the preset does not name
    it.

    Raises:
        ConfigError: for a setting that does not exist or is not possible.

    Example:

    ```python
    Config(preset="big").d_model  # 1024
    Config(preset="tiny", dropout_rate=0.2).dropout_rate  # 0.2
    ```
    """

    def __init__(self, preset: str = RunSettings.preset, **settings: Any):
        if unknown := [name for name in settings if name not in SETTINGS]:
            raise ConfigError(f"unknown settings: {', '.join(unknown)}; there are {', '.join(SETTINGS)}")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise ConfigError(f"unknown preset {preset!r}: it must be one of {', '.join(PRESETS)}")
        settings = {name: os.fspath(x) if isinstance(x, os.PathLike) else x for name, x in settings.items()}
        if isinstance(names := settings.get("dataset"), list | tuple):
            settings["dataset"] = names[0] if len(names) == 1 else tuple(names)
        defaults = {name: value for name, value in PRESETS[preset].items() if name not in SUITED}
        given = {"model_dir": f"runs/{preset}", **defaults, **settings, "preset": preset}
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, given.get(field.name, field.default))
        _check_values(self)

    def of_preset(self, name: str) -> Any:
        """The preset's number for one of `SUITED`: what a setting that is None becomes, unless the corpus is small.

        It is None for the learning rate of a preset that has that of equation (3).
        """
        return PRESETS[self.preset].get(name, SUITED[name])

    @property
    def corpora(self) -> tuple[str, ...]:
        """The corpora that `dataset` names, a tuple of str."""
        return (self.dataset,) if isinstance(self.dataset, str) else self.dataset

    @property
    def has_one_tokenizer(self) -> bool:
        """Whether one tokenizer divides source and target."""
        return self.share_vocabulary if self.share_tokenizer is None else self.share_tokenizer

    @property
    def decoder_depth(self) -> int:
        """Layers of the decoder."""
        return self.num_decoder_layers or self.num_layers

    @property
    def num_positions(self) -> int:
        """Positions of the longest text in training: `max_length` tokens after bos, or before eos."""
        return self.max_length + 1

    def save(self, path: str | os.PathLike) -> None:
        """Writes all settings as YAML."""
        Path(path).write_text(yaml.safe_dump(dataclasses.asdict(self), sort_keys=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Config":
        """Reads the file of `save`. Raises ConfigError."""
        return cls(**read_settings(path))


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Config)}
_described = "\n".join(f"    {name}: {setting.help}" for name, setting in SETTINGS.items())
Config.__doc__ = f"{inspect.cleandoc(Config.__doc__ or '')}\n\nAttributes:\n{_described}"


def _check_values(config):
    """Raises ConfigError for a setting that is not possible, alone or beside the others."""
    values = vars(config)
    for field in dataclasses.fields(config):
        value, range = values[field.name], SETTINGS[field.name].range
        if not is_a(value, field.type):
            check_setting(config, field.name, False, f"must be {describe_type(field.type)}")
        if isinstance(value, float):
            check_setting(config, field.name, math.isfinite(value), "must be finite")
        if range and value is not None:
            check_setting(config, field.name, range.holds(value), range.text)
    given = {name for name, value in values.items() if value != _DEFAULTS[name]}
    for name, setting in SETTINGS.items():
        if not _has(values, setting.only_with):
            continue
        needs = setting.needs is None or name not in given or setting.needs in given
        check_setting(config, name, needs, f"needs `{setting.needs}`")
        for other, reason in setting.excludes.items():
            is_alone = not {name, other} <= given
            check_setting(config, name, is_alone, f"does not go with `{other}`, {reason}")
        for text, holds in setting.rules.items():
            check_setting(config, name, holds(config), text.format(config))


def check_setting(config, name, holds, rule):
    """Raises ConfigError with the rule and the value of a setting, unless `holds`."""
    if not holds:
        raise ConfigError(f"`{name}` {rule}. Received: {name}={getattr(config, name)!r}")


def is_a(value, kind):
    """Whether a value is of a type: a class, Literal, union, or tuple of one type. An int is a float, a bool no int."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and len(value) > 0 and all(is_a(each, get_args(kind)[0]) for each in value)
    if get_args(kind):
        return any(is_a(value, choice) for choice in get_args(kind))
    return type(value) is kind or (kind is float and type(value) is int)


def _has(values, need):
    """Whether a dict of settings has one of the values that `need`, a dict, has for each of its settings."""
    return all(values[name] in several for name, several in need.items())


def check_effect(config, given):
    """Refuses a setting that another setting makes useless.

    Args:
        config: `Config`.
        given: names of the settings that the user gave, as opposed to those of a preset or of an earlier run.

    Raises:
        ConfigError: that names both settings.
    """
    for name in [name for name in SETTINGS if name in given]:
        for other, several in SETTINGS[name].only_with.items():
            value = getattr(config, other)
            rule = f"has no effect with {other}={value}, only with {' or '.join(several)}: leave it out"
            check_setting(config, name, value in several, rule)
        for other, reason in SETTINGS[name].useless_with.items():
            rule = f"has no effect with `{other}`, {reason}: leave it out"
            check_setting(config, name, getattr(config, other) is None, rule)


def settings_of_model(config):
    """The names of the settings that decide about the weights of the model and about what it does with them: list."""
    values = vars(config)
    return [name for name in _taken_from(values) if _has(values, SETTINGS[name].only_with)]


def _taken_from(values):
    """The names of the settings that a run takes from the run that it starts from, of which `values` has all: list."""
    of_model = {name: setting.of_model for name, setting in SETTINGS.items()}
    return [name for name, need in of_model.items() if need is not None and _has(values, need)]


def configure(**settings: Any) -> Config:
    """The `Config` of some settings; with `init_from`, the settings of the model are those of that run.

    Example:

    ```python
    configure(preset="tiny", epochs=20).epochs  # 20
    ```
    """
    return Config(**{**settings_of_origin(settings), **settings})


def preset(name: str, **settings: Any) -> Config:
    """The settings of a preset: `Config`.

    Args:
        name: a preset, such as "quickstart", "tiny", "gru", "base".
        settings: those that differ.

    Example:

    ```python
    preset("tiny", epochs=20).d_ff  # 256
    ```
    """
    return configure(preset=name, **settings)


def settings_of_origin(given):
    """The settings of the model that a run starts from with `init_from`, so that the new one has its shape.

    Args:
        given: dict, the settings that a user gives. A run that is resumed has the settings itself.

    Returns:
        dict; {} without `init_from`, and if there is no such run.
    """
    origin, places = given.get("init_from"), (given.get("model_dir"), given.get("init_from"))
    if not origin or not isinstance(origin, str | os.PathLike):  # `Config` refuses the latter
        return {}
    paths = [Path(place, "config.yaml") for place in places if isinstance(place, str | os.PathLike)]
    known = {path.parent: read_settings(path) for path in paths if os.path.isfile(path)}
    before = next((old for path, old in known.items() if Path(origin) in (path, Path(str(old.get("init_from"))))), {})
    return {name: before[name] for name in _taken_from({**_DEFAULTS, **before}) if name in before}


def read_settings(path):
    """Reads a YAML file of settings into a dict.

    Raises:
        ConfigError: if there is no such file, it is not a YAML mapping, or has a setting that does not exist.
    """
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read settings from {path}: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must hold `name: value` lines, and has none")
    if settings.pop("profile", None) is not None:  # a setting before version 0.2.0
        log.warning("%s has `profile`, which is gone: benchmarks.train_trace shows where an update goes", path)
    if unknown := [str(name) for name in settings if name not in SETTINGS]:
        raise ConfigError(f"{path} has unknown settings: {', '.join(unknown)}; there are {', '.join(SETTINGS)}")
    for field in dataclasses.fields(Config):
        if isinstance(settings.get(field.name), str) and is_a(0.0, field.type):
            with contextlib.suppress(ValueError):  # YAML 1.1 reads 1e-3 as text, and 1.0e-3 as a number
                settings[field.name] = float(settings[field.name])
    return settings
