import dataclasses
import functools
import re
from pathlib import Path

import pytest

from keras_transformer.cli.train import parse_config
from keras_transformer.config import Config
from keras_transformer.errors import ConfigError, UserError
from keras_transformer.tools.sweep import grid as module
from keras_transformer.tools.sweep.grid import directory_name, plan, read_grid

parse = functools.partial(parse_config, description="")


def planned(*given, seeds=(), fixed=(), output="runs"):
    return plan(read_grid(map(str.split, given)), seeds, [*fixed], Path(output), parse)


def test_every_combination_is_a_run_with_every_seed_whatever_the_order_of_the_flags():
    expected = [
        f"positions={positions},dropout_rate={rate},seed={seed}"
        for positions in ("rotary", "none")
        for rate in ("0.2", "0.3")
        for seed in (5, 7)
    ]
    for given in (["positions rotary none", "dropout_rate 0.2 .3"], ["dropout-rate .2 0.30", "positions rotary none"]):
        runs = planned(*given, seeds=[5, 7], fixed=["--preset", "tiny"])
        assert [run.name for run in runs] == expected
    assert runs[0].path == Path("runs") / expected[0] and runs[0].combination == "positions=rotary, dropout_rate=0.2"
    for run in runs:
        values = {"positions": run.values["positions"], "dropout_rate": float(run.values["dropout_rate"])}
        wanted = Config("tiny", **values, seed=run.seed, model_dir=f"runs/{run.name}")
        assert run.config == wanted == parse(run.flags)
        assert parse(["--preset=tiny", *run.chosen]) == dataclasses.replace(wanted, seed=1, model_dir="runs/tiny")


@pytest.mark.parametrize(
    ("given", "how", "expected"),
    [
        ([], {}, ["seed=1"]),
        ([], {"fixed": ["--seed", "3"]}, ["seed=3"]),
        ([], {"seeds": [2, 2]}, ["seed=2"]),
        (["pre_norm True false"], {}, ["pre_norm=true,seed=1", "pre_norm=false,seed=1"]),
        (["max_steps None 10 10"], {}, ["max_steps=None,seed=1", "max_steps=10,seed=1"]),
        (["epochs 3", "epochs 4"], {}, ["epochs=3,seed=1", "epochs=4,seed=1"]),
        (["dropout_rate 0.2 .2 2e-1"], {}, ["dropout_rate=0.2,seed=1"]),
        (["tokenizer a,b None"], {}, ["tokenizer=a%2Cb,seed=1", "tokenizer=None,seed=1"]),
        (["preset tiny gru"], {}, ["preset=tiny,seed=1", "preset=gru,seed=1"]),
        (["dataset files:a@en-de cldr:en-ja"], {}, ["dataset=files%3Aa%40en-de,seed=1", "dataset=cldr%3Aen-ja,seed=1"]),
    ],
)
def test_the_directories_of_runs_are_named_by_values_and_seed(given, how, expected):
    assert [run.name for run in planned(*given, **how)] == expected


def test_a_grid_of_files_changes_settings_together(tmp_path):
    (tmp_path / "a.yaml").write_text("pre_norm: true\npeak_learning_rate: 0.004\n")
    (tmp_path / "b.yaml").write_text("pre_norm: false\n")
    first, second = planned(f"config {tmp_path}/a.yaml {tmp_path}/b.yaml")
    assert (first.config.pre_norm, first.config.peak_learning_rate) == (True, 0.004)
    assert (second.config.pre_norm, second.config.peak_learning_rate) == (False, None)  # the preset's
    assert second.values == {"config": f"{tmp_path}/b.yaml"} and second.name.endswith("b.yaml,seed=1")


def test_names_are_safe_and_tell_all_values_apart():
    values = ["a/b", "a_b", "a%2Fb", "a b", "a,b", "a=b", "a:b", "..", "", "äöü", "字", 'a"b', "a\nb"]
    values += ["x" * 300, "x" * 301, "字" * 100, "字" * 101]
    names = [directory_name({"dataset": value, "seed": 1}) for value in values]
    assert len(set(names)) == len(values)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_.~+=,%-]+", name) and name[0] == "d" and len(name) <= module.LONGEST_NAME


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("postions rotary", "a grid cannot vary postions, which is no setting of train.py: did you mean positions?"),
        ("help a", "a grid cannot vary help, which is no setting of train.py: train.py --help lists all settings"),
        ("positions", "`grid` takes a setting and its values, such as positions sinusoidal rotary. Received: posit"),
        ("positions=rotary,none", "its values, such as positions sinusoidal rotary. Received: positions=rotary,none"),
        ("seed 1 2", "seed has no place in a grid: `seeds` has the seeds of a sweep"),
        ("model_dir a b", "model_dir has no place in a grid: `output` has"),
        ("best_by bleu loss", "best_by has no place in a grid: it is the measure"),
        ("beam_size 1 4", "beam_size has no place in a grid: no measure during training depends on it"),
    ],
)
def test_a_grid_that_means_nothing_is_refused(given, message):
    with pytest.raises(UserError) as caught:
        planned(given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "how", "message"),
    [
        (["num_heads 2 3", "d_model 32 48"], {}, "d_model=32, num_heads=3: `num_heads` must divide `d_model`, 32"),
        (["dropout_rate 0.2 1"], {}, "dropout_rate=1: `dropout_rate` must be in [0, 1). Received: dropout_rate=1.0"),
        (["positions none relative"], {"fixed": ["--relative_clip", "8"]}, "positions=none: `relative_clip`"),
        ([], {"seeds": [-1]}, "`seed` must be at least 0"),
        (["d_ff 17"], {"fixed": ["--d-ff=19"]}, "the runs of a sweep get their d_ff from `grid`: leave out --d_ff"),
        ([], {"seeds": [1], "fixed": ["--seed", "2"]}, "get their seed from `seeds`: leave out --seed"),
        ([], {"fixed": ["--model_dir", "x"]}, "get their model_dir from `output`: leave out --model_dir"),
    ],
)
def test_a_combination_that_is_not_possible_is_named(given, how, message):
    with pytest.raises(UserError) as caught:
        planned(*given, **how)
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert isinstance(caught.value, ConfigError) == ("must" in message or "relative" in message)


def test_a_word_that_is_no_value_ends_the_program_and_is_named(capsys):
    with pytest.raises(SystemExit) as caught:
        planned("dropout_rate 0.1 much")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: --dropout_rate must be a number. Received: much\n"


def test_a_run_knows_how_far_it_is(tmp_path):
    (run,) = planned("d_ff 17", output=tmp_path)
    assert run.state() == "new"
    run.path.mkdir()
    run.config.save(run.path / "config.yaml")
    assert run.state() == "unfinished"
    (run.path / "results.yaml").touch()
    assert run.state() == "finished"
    (moved,) = planned("d_ff 17", output=f"{tmp_path}/../{tmp_path.name}")
    assert moved.state() == "finished"
    (longer,) = planned("d_ff 17", fixed=["--epochs", "20"], output=tmp_path)
    assert longer.state() == module.CHANGED
