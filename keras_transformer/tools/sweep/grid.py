"""The runs of a sweep: every combination of the values in a grid, with every seed, has a directory of its own."""

import dataclasses
import difflib
import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from keras_transformer.config import Config
from keras_transformer.data.corpora import are_same
from keras_transformer.errors import ConfigError, UserError

# What a grid may vary: every setting of a run, and the YAML file of settings that train.py --config reads.
NAMES = ("config", *(field.name for field in dataclasses.fields(Config)))
NOT_IN_A_GRID = {
    "seed": "`seeds` has the seeds of a sweep",
    "model_dir": "`output` has the directories of a sweep",
    "best_by": "it is the measure by which all runs are compared, so give it once, outside of the grid",
    **dict.fromkeys(
        ("average_epochs", "beam_size", "length_penalty"),
        "no measure during training depends on it: compare finished runs with evaluate.py",
    ),
}
CHANGED = "goes on with other settings"
LONGEST_NAME = 200  # bytes; file systems take 255


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep.

    Attributes:
        name: str, of its directory, such as "positions=rotary,seed=1".
        values: dict, the settings of the grid with their values as text.
        seed: int.
        chosen: tuple of str, the flags of train.py that set `values`.
        flags: tuple of str, all flags of train.py.
        config: `Config`.
    """

    name: str
    values: dict
    seed: int
    chosen: tuple
    flags: tuple
    config: Config

    @property
    def path(self):
        """pathlib.Path of its directory."""
        return Path(self.config.model_dir)

    @property
    def combination(self):
        """Its values without the seed, for people."""
        return describe(self.values)

    def state(self):
        """How far it is: "new", "unfinished", "finished", or `CHANGED` if its directory has a run of other settings.

        Raises:
            ConfigError: if the config.yaml in its directory is damaged.
        """
        if not (self.path / "config.yaml").exists():
            return "new"
        before = Config.load(self.path / "config.yaml")
        own = {"model_dir"} | ({"dataset"} if are_same(before.corpora, self.config.corpora) else set())
        if {**vars(before), **{name: getattr(self.config, name) for name in own}} != vars(self.config):
            return CHANGED
        return "finished" if (self.path / "results.yaml").exists() else "unfinished"


def describe(values):
    """A combination for people, "positions=rotary, dropout_rate=0.2", from a dict."""
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "the settings as given"


def read_grid(given):
    """The grid that a user gives, in the order of the settings of `Config`: the order of flags changes no directory.

    Args:
        given: iterable of lists of str: the name of a setting, then its values. A name may come several times.

    Returns:
        dict from the names of settings to lists of str.

    Raises:
        UserError: for a setting that does not exist or has no place in a grid, and for one without a value.
    """
    grid = {}
    for name, *values in given:
        name = name.replace("-", "_")
        if not values or "=" in name:
            rule = "`grid` takes a setting and its values, such as positions sinusoidal rotary"
            raise UserError(f"{rule}. Received: {' '.join([name, *values])}")
        if name in NOT_IN_A_GRID:
            raise UserError(f"{name} has no place in a grid: {NOT_IN_A_GRID[name]}")
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1)
            hint = f"did you mean {near[0]}?" if near else "train.py --help lists all settings"
            raise UserError(f"a grid cannot vary {name}, which is no setting of train.py: {hint}")
        grid[name] = [*grid.get(name, []), *values]
    return dict(sorted(grid.items(), key=lambda item: NAMES.index(item[0])))


def plan(grid, seeds, fixed, output, parse):
    """All runs of a sweep. The last setting of the grid varies fastest, and the seed faster.

    Args:
        grid: dict, see `read_grid`.
        seeds: list of int; empty for the one seed of `fixed`.
        fixed: list of str, the flags of train.py that all runs share.
        output: pathlib.Path of the directory for all runs.
        parse: function from a list of flags to `Config`.

    Returns:
        list of `PlannedRun`, no two with the same settings.

    Raises:
        UserError: for a flag in `fixed` that the sweep sets, and for a combination that is not possible.
    """
    check_fixed(fixed, {"model_dir": "output", **dict.fromkeys(grid, "grid"), **({"seed": "seeds"} if seeds else {})})
    runs = {}
    for words in itertools.product(*grid.values()):
        chosen = [f"--{name}={word}" for name, word in zip(grid, words, strict=True)]
        for seed in [f"--seed={seed}" for seed in seeds] or [None]:
            flags = [*fixed, *chosen, *([seed] if seed else [])]
            try:
                config = parse(flags)
            except ConfigError as error:
                where = f"{describe(dict(zip(grid, words, strict=True)))}: " if grid else ""
                raise ConfigError(f"{where}{error}") from error
            values = {name: text_of(getattr(config, name, word)) for name, word in zip(grid, words, strict=True)}
            name = directory_name({**values, "seed": config.seed})
            flags.append(f"--model_dir={output / name}")
            run = PlannedRun(name, values, config.seed, tuple(chosen), tuple(flags), parse(flags))
            runs.setdefault(name, run)  # 0.2 and .2 are one value
    return [*runs.values()]


def check_fixed(fixed, varied):
    """Raises UserError for a flag of all runs that a sweep sets for each run: `varied`, name -> flag of the sweep."""
    given = {word[2:].partition("=")[0].replace("-", "_") for word in fixed if word.startswith("--")}
    for name, flag in varied.items():
        if name in given:
            raise UserError(f"the runs of a sweep get their {name} from `{flag}`: leave out --{name}")


def text_of(value):
    """A value as a flag of train.py takes it, str."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def directory_name(values):
    """The name of a directory that tells settings apart, on every file system: "positions=rotary,seed=1".

    Characters other than ASCII letters, digits and `_.-~+` are written as in a URL: `/` is `%2F`. A very long name ends
    with a hash in place of its rest.

    Args:
        values: dict from names of settings to values.
    """
    name = ",".join(f"{setting}={quote(str(value), safe='+')}" for setting, value in values.items())
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
