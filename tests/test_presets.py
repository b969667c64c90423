"""What stands in one place: a line more in the table of settings or presets, and everything else follows."""

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from keras_transformer import config, presets, settings
from keras_transformer.cli import train
from keras_transformer.errors import ConfigError

FOLLOWING = (presets, settings, config, train)  # the modules that a line more changes


class Edited:
    """The modules of settings, after a line has been written before another one into one of them."""

    def __init__(self, monkeypatch, module, line, before):
        for each in FOLLOWING:
            package, _, last = each.__name__.rpartition(".")
            monkeypatch.setattr(sys.modules[package], last, None)  # an import sets it; the test ends with the old one
            monkeypatch.delitem(sys.modules, each.__name__)
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert source.count(before) == 1
        edited = ModuleType(module.__name__)
        monkeypatch.setitem(sys.modules, module.__name__, edited)
        exec(compile(source.replace(before, line + before), module.__file__, "exec"), vars(edited))
        self.config = importlib.import_module("keras_transformer.config")
        self._flags = importlib.import_module("keras_transformer.cli.train")

    def parse(self, *flags):
        return self._flags.parse_config([*flags], "text")

    def help(self, capsys):
        pytest.raises(SystemExit, self.parse, "--help")
        return " ".join(capsys.readouterr().out.split())


@pytest.fixture
def edited(monkeypatch):
    return functools.partial(Edited, monkeypatch)


def test_a_preset_is_added_in_one_place(edited, capsys, tmp_path):
    new = edited(presets, '    "mine": {"d_ff": 53, "batch_tokens": 7777, "epochs": 7},\n', '    "tiny": TINY,\n')
    config = new.parse("--preset", "mine")
    assert config == new.config.preset("mine") == new.config.Config(preset="mine")
    assert (config.d_ff, config.epochs, config.batch_tokens, config.model_dir) == (53, 7, None, "runs/mine")
    assert config.of_preset("batch_tokens") == 7777
    config.save(tmp_path / "config.yaml")
    assert new.config.Config.load(tmp_path / "config.yaml") == config
    text = new.help(capsys)
    assert "--preset {quickstart,mine,tiny," in text
    assert "the number of the preset (quickstart 2,048; mine 7,777; base, big 25,000; else 4,096)" in text
    with pytest.raises(ConfigError, match="must be one of quickstart, mine, tiny,"):
        new.config.Config(preset="another")


def test_an_optimizer_is_added_in_one_place(edited, capsys):
    new = edited(presets, '    "sgd": {"momentum": 0.9},\n', '    "lion": {')
    assert new.parse("--optimizer", "sgd") == new.config.Config(optimizer="sgd")
    assert "--optimizer {adam,adamw,sgd,lion,adafactor}" in new.help(capsys)


SETTING = """\
    warmth: int = of_transformer(7, between(3, 11), only_with={**OF_TRANSFORMER, "positions": ("rotary", "relative")},
        needs="d_key", excludes={"heads": "which has no warmth"}, help="How warm it is.",
        rules={"must not be `d_ff`, {0.d_ff}": lambda c: c.warmth != c.d_ff})
"""


def test_a_setting_is_added_in_one_place_and_what_it_needs_and_excludes_is_checked(edited, capsys, tmp_path):
    new = edited(settings, SETTING, "    dropout_rate: float")
    some, rotary = {"positions": "rotary", "d_key": 22, "warmth": 5}, "--positions=rotary --d_key=22"
    config = new.parse(*(f"--{name}={value}" for name, value in some.items()))
    assert config.warmth == 5 and config == new.config.Config(**some)
    assert "--warmth INT How warm it is. (default: 7)" in new.help(capsys)
    config.save(tmp_path / "config.yaml")
    assert new.config.Config.load(tmp_path / "config.yaml") == config
    assert new.parse("--config", str(tmp_path / "config.yaml")) == config
    assert new.config.configure(init_from=str(tmp_path)).warmth == 5  # of the model, which the new run continues
    assert "warmth" in new.config.settings_of_model(config) and "How warm it is" in new.config.Config.__doc__
    assert "warmth" not in new.config.settings_of_model(new.config.Config())  # where it has no effect
    for flags, message in {
        f"{rotary} --warmth=2": "must be between 3 and 11. Received: warmth=2",
        "--positions=rotary --warmth=5": "needs `d_key`. Received: warmth=5",
        "--d_key=22 --warmth=5": "has no effect with positions=sinusoidal, only with rotary or relative",
        f"{rotary} --warmth=5 --d_ff=5": "must not be `d_ff`, 5. Received",
        f"{rotary} --warmth=5 --heads=1,1/1,1/1,1": "does not go with `heads`, which has no w",
    }.items():
        with pytest.raises(ConfigError, match=f"^`warmth` {message}"):
            new.parse(*flags.split())
