import csv
import dataclasses
import functools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer.cli.train import parse_config
from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, ConfigError, FileError, UserError
from keras_transformer.tools.sweep import grid as module
from keras_transformer.tools.sweep.grid import directory_name, plan, read_grid
from keras_transformer.tools.sweep.results import Comparison, Result, read_result
from tests.tools.sweep.made import write_curves, write_finished

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


def test_the_directories_of_runs_are_named_by_values_and_seed():
    for given, how, expected in (
        ([], {}, ["seed=1"]),
        ([], {"fixed": ["--seed", "3"]}, ["seed=3"]),
        (["pre_norm True false"], {}, ["pre_norm=true,seed=1", "pre_norm=false,seed=1"]),
        (["dropout_rate 0.2 .2 2e-1"], {}, ["dropout_rate=0.2,seed=1"]),
        (["tokenizer a,b None"], {}, ["tokenizer=a%2Cb,seed=1", "tokenizer=None,seed=1"]),
        (["preset tiny gru"], {}, ["preset=tiny,seed=1", "preset=gru,seed=1"]),
        (["dataset files:a@en-de cldr:en-ja"], {}, ["dataset=files%3Aa%40en-de,seed=1", "dataset=cldr%3Aen-ja,seed=1"]),
    ):
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


def test_a_grid_that_means_nothing_is_refused():
    for given, message in (
        ("postions rotary", "a grid cannot vary postions, which is no setting of train.py: did you mean positions?"),
        ("positions", "`grid` takes a setting and its values, such as positions sinusoidal rotary. Received: posit"),
        ("seed 1 2", "seed has no place in a grid: `seeds` has the seeds of a sweep"),
        ("model_dir a b", "model_dir has no place in a grid: `output` has"),
        ("best_by bleu loss", "best_by has no place in a grid: it is the measure"),
        ("beam_size 1 4", "beam_size has no place in a grid: no measure during training depends on it"),
    ):
        with pytest.raises(UserError) as caught:
            planned(given)
        assert message in str(caught.value)


def test_a_combination_that_is_not_possible_is_named():
    for given, how, message in (
        (["num_heads 2 3", "d_model 32 48"], {}, "d_model=32, num_heads=3: `num_heads` must divide `d_model`, 32"),
        (["dropout_rate 0.2 1"], {}, "dropout_rate=1: `dropout_rate` must be in [0, 1). Received: dropout_rate=1.0"),
        (["positions none relative"], {"fixed": ["--relative_clip", "8"]}, "positions=none: `relative_clip`"),
        ([], {"seeds": [-1]}, "`seed` must be at least 0"),
        (["d_ff 17"], {"fixed": ["--d-ff=19"]}, "the runs of a sweep get their d_ff from `grid`: leave out --d_ff"),
        ([], {"seeds": [1], "fixed": ["--seed", "2"]}, "get their seed from `seeds`: leave out --seed"),
        ([], {"fixed": ["--model_dir", "x"]}, "get their model_dir from `output`: leave out --model_dir"),
    ):
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


CURVES = {"bleu": [3.0, 12.5, 11.0], "loss": [5.0, 4.5, 4.25], "perplexity": [32.0, 16.0, 8.0]}
CURVES["bleu/en-de"] = [90.0] * 3


def test_a_result_is_that_of_the_best_epoch_on_the_validation_set(tmp_path):
    write_finished(tmp_path, Config(), **CURVES)
    for best_by, measures in {"bleu": (12.5, 4.5, 16.0, 2), "loss": (11.0, 4.25, 8.0, 3)}.items():
        assert read_result(tmp_path, best_by) == Result(*measures, parameters=1234567, minutes=170 / 60)


def test_the_curves_of_a_run_that_was_interrupted_are_read_and_a_run_without_them_is_refused(tmp_path):
    write_finished(tmp_path, Config(), **{name: values[:1] for name, values in CURVES.items()})
    (file,) = (tmp_path / "logs" / "validation").iterdir()
    file.write_bytes(file.read_bytes() + file.read_bytes()[:30])  # killed in the middle of a record
    write_curves(file.parent, **CURVES)
    assert read_result(tmp_path, "bleu").bleu == 12.5
    write_finished(tmp_path / "a", Config(), loss=[1.0])
    with pytest.raises(CheckpointError, match="a has no curves of validation in logs: remove it"):
        read_result(tmp_path / "a", "bleu")
    (tmp_path / "a" / "run.log").unlink()
    with pytest.raises(FileError, match="cannot read .*a: No such file"):
        read_result(tmp_path / "a", "bleu")


def planned_run(values, seed):
    combination = ", ".join(f"{name}={value}" for name, value in values.items())
    return SimpleNamespace(name=f"{combination},{seed}", values=values, seed=seed, combination=combination)


# Two values, three seeds. "none" is the better one in every run, but one of its seeds has not finished.
RUNS = [planned_run({"positions": value}, seed) for value in ("rotary", "sinusoidal", "none") for seed in (1, 2, 3)]
BLEUS = [30.0, 31.0, 35.0, 29.0, 28.0, 30.0, 40.0, 41.0, None]
RESULTS = {
    run.name: Result(bleu, 4 - bleu / 20, 8.125, epoch, 1234567890, minutes=epoch / 4)
    for epoch, (run, bleu) in enumerate(zip(RUNS, BLEUS, strict=True), start=1)
    if bleu
}


def test_the_tables_have_the_best_first_with_means_and_spreads_of_the_seeds():
    comparison = Comparison(RUNS, RESULTS, "bleu")
    assert [each.mean("bleu") for each in comparison.combinations] == [40.5, 32, 29]
    spreads = [math.sqrt(0.5), math.sqrt((4 + 1 + 9) / 2), 1]
    assert [each.spread("bleu") for each in comparison.combinations] == pytest.approx(spreads)
    assert comparison.table_of_runs()[:3] == [
        " positions  seed  BLEU   loss  perplexity  epoch     parameters  minutes",
        "      none     2  41.0  1.950        8.12      8  1,234,567,890      2.0",
        "      none     1  40.0  2.000        8.12      7  1,234,567,890      1.8",
    ]
    bleus = [float(row.split()[2]) for row in comparison.table_of_runs()[1:]]
    assert bleus == sorted(filter(None, BLEUS), reverse=True)
    assert comparison.has_seeds
    assert comparison.table_of_combinations() == [
        " positions   seeds        BLEU           loss   perplexity  minutes",
        "      none  2 of 3  40.5 ± 0.7  1.975 ± 0.035  8.12 ± 0.00      1.9",
        "    rotary  3 of 3  32.0 ± 2.6  2.400 ± 0.132  8.12 ± 0.00      0.5",
        "sinusoidal  3 of 3  29.0 ± 1.0  2.550 ± 0.050  8.12 ± 0.00      1.2",
    ]


def test_only_a_combination_of_which_all_seeds_have_finished_can_be_the_best():
    assert Comparison(RUNS, RESULTS, "bleu").best().runs == RUNS[:3]
    whole = {**RESULTS, RUNS[8].name: RESULTS[RUNS[7].name]}
    assert Comparison(RUNS, whole, "bleu").best().runs == RUNS[6:]
    assert Comparison(RUNS, {RUNS[8].name: RESULTS[RUNS[7].name]}, "bleu").best() is None


def test_the_least_loss_decides_if_it_is_asked_for_and_between_equal_bleus():
    runs = [planned_run({"d_ff": "7"}, 1), planned_run({"d_ff": "9"}, 1), planned_run({"d_ff": "11"}, 1)]
    measured = zip(runs, [(20.0, 3.0), (20.0, 2.0), (10.0, 1.0)], strict=True)
    results = {run.name: Result(bleu, loss, 1.0, 1, 1, 1.0) for run, (bleu, loss) in measured}
    for best_by, order in (("bleu", [1, 0, 2]), ("loss", [2, 1, 0])):
        comparison = Comparison(runs, results, best_by)
        assert [run for run, _ in comparison.ranked()] == [runs[number] for number in order]
        assert comparison.best().runs == [runs[order[0]]] and not comparison.has_seeds


def test_the_file_has_a_row_for_every_run_with_the_moments_of_its_combination(tmp_path):
    Comparison(RUNS, RESULTS, "bleu").write(tmp_path / "results.tsv")
    with open(tmp_path / "results.tsv", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file, delimiter="\t")]
    assert [row["run"] for row in rows] == [RUNS[number].name for number in (7, 6, 2, 1, 0, 5, 3, 4, 8)]
    names = (
        "positions seed bleu loss perplexity epoch parameters minutes mean_bleu spread_bleu mean_loss spread_loss run"
    )
    row = "rotary 3 35 2.25 8.125 3 1234567890 0.75 32 2.6457513 2.4 0.13228757 positions=rotary,3"
    assert rows[2] == dict(zip(names.split(), row.split(), strict=True))
    assert (rows[8]["bleu"], rows[8]["minutes"], rows[8]["mean_bleu"]) == ("", "", "40.5")
    # A sweep without a finished run has a file, too.
    Comparison(RUNS, {}, "bleu").write(tmp_path / "results.tsv")
    header, *rows = (tmp_path / "results.tsv").read_text().splitlines()
    assert header.startswith("positions\tseed\tbleu\t") and len(rows) == len(RUNS)
