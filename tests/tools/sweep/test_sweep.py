import csv
import dataclasses
import functools
import itertools
import math
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer.cli.train import parse_config
from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, ConfigError, FileError, UserError
from keras_transformer.tools.sweep import grid as module
from keras_transformer.tools.sweep import processes as running
from keras_transformer.tools.sweep.grid import directory_name, plan, read_grid
from keras_transformer.tools.sweep.processes import Trainings, environment, share
from keras_transformer.tools.sweep.results import Comparison, Result, read_result
from tests.tools.sweep.made import write_curves, write_finished

parse = functools.partial(parse_config, description="")


def planned(*given, seeds=(), fixed=(), output="runs"):
    return plan(read_grid(map(str.split, given)), seeds, [*fixed], Path(output), parse)


def test_every_combination_is_a_run_with_every_seed_whatever_the_order_of_the_flags():
    pairs = itertools.product(("rotary", "none"), ("0.2", "0.3"), (5, 7))
    expected = ["positions={},dropout_rate={},seed={}".format(*values) for values in pairs]
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


def test_a_grid_that_means_nothing_or_is_not_possible_is_refused_and_named(capsys):
    relative = {"fixed": ["--relative_clip", "8"]}
    for given, how, message in (
        (["postions a"], {}, "a grid cannot vary postions, which is no setting of train.py: did you mean positions?"),
        (["seed 1 2"], {}, "seed has no place in a grid: `seeds` has the seeds of a sweep"),
        (["best_by bleu loss"], {}, "best_by has no place in a grid: it is the measure"),
        (["beam_size 1 4"], {}, "beam_size has no place in a grid: no measure during training depends on it"),
        (["num_heads 2 3", "d_model 32 48"], {}, "d_model=32, num_heads=3: `num_heads` must divide `d_model`, 32"),
        (["dropout_rate 0.2 1"], {}, "dropout_rate=1: `dropout_rate` must be in [0, 1). Received: dropout_rate=1.0"),
        (["positions none relative"], relative, "positions=none: `relative_clip`"),
        (["d_ff 17"], {"fixed": ["--d-ff=19"]}, "the runs of a sweep get their d_ff from `grid`: leave out --d_ff"),
        ([], {"seeds": [1], "fixed": ["--seed", "2"]}, "get their seed from `seeds`: leave out --seed"),
        ([], {"fixed": ["--model_dir", "x"]}, "get their model_dir from `output`: leave out --model_dir"),
    ):
        with pytest.raises(UserError) as caught:
            planned(*given, **how)
        assert message in str(caught.value)
        assert isinstance(caught.value, ConfigError) == ("must" in message or "relative" in message)
    with pytest.raises(SystemExit) as caught:  # the program ends
        planned("dropout_rate 0.1 much")
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: --dropout_rate must be a number. Received: much\n"


CURVES = {"bleu": [3.0, 12.5, 11.0], "loss": [5.0, 4.5, 4.25], "perplexity": [32.0, 16.0, 8.0]}
CURVES["bleu/en-de"] = [90.0] * 3


def test_a_result_is_that_of_the_best_epoch_on_the_validation_set_and_a_run_without_is_refused(tmp_path):
    write_finished(tmp_path, Config(), **{name: values[:1] for name, values in CURVES.items()})
    (file,) = (tmp_path / "logs" / "validation").iterdir()
    file.write_bytes(file.read_bytes() + file.read_bytes()[:30])  # killed in the middle of a record
    write_curves(file.parent, **CURVES)
    for best_by, measures in {"bleu": (12.5, 4.5, 16.0, 2), "loss": (11.0, 4.25, 8.0, 3)}.items():
        assert read_result(tmp_path, best_by) == Result(*measures, parameters=1234567, minutes=170 / 60)
    write_finished(tmp_path / "nan", Config(), bleu=[0.0] * 3, loss=[math.nan, 2.0, 3.0], perplexity=[2.0] * 3)
    assert [read_result(tmp_path / "nan", best_by).epoch for best_by in ("bleu", "loss")] == [3, 2]
    write_finished(tmp_path / "equal", Config(), bleu=[1.0, 100.0, 100.0], loss=[2.0] * 3, perplexity=[2.0] * 3)
    assert read_result(tmp_path / "equal", "bleu").epoch == 2  # which a run keeps
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
    bleus = [float(row.split()[2]) for row in comparison.table_of_runs()[1:]]
    assert bleus == sorted(filter(None, BLEUS), reverse=True) and comparison.has_seeds
    assert comparison.table_of_combinations() == [
        " positions   seeds        BLEU           loss   perplexity  minutes",
        "      none  2 of 3  40.5 ± 0.7  1.975 ± 0.035  8.12 ± 0.00      1.9",
        "    rotary  3 of 3  32.0 ± 2.6  2.400 ± 0.132  8.12 ± 0.00      0.5",
        "sinusoidal  3 of 3  29.0 ± 1.0  2.550 ± 0.050  8.12 ± 0.00      1.2",
    ]


def test_the_best_is_a_combination_of_which_all_seeds_have_finished():
    assert Comparison(RUNS, RESULTS, "bleu").best().runs == RUNS[:3]
    whole = {**RESULTS, RUNS[8].name: RESULTS[RUNS[7].name]}
    assert Comparison(RUNS, whole, "bleu").best().runs == RUNS[6:]
    assert Comparison(RUNS, {RUNS[8].name: RESULTS[RUNS[7].name]}, "bleu").best() is None
    # The least loss decides if it is asked for, and between equal BLEUs.
    runs = [planned_run({"d_ff": size}, 1) for size in ("7", "9", "11")]
    measured = zip(runs, [(20.0, 3.0), (20.0, 2.0), (10.0, 1.0)], strict=True)
    results = {run.name: Result(bleu, loss, 1.0, 1, 1, 1.0) for run, (bleu, loss) in measured}
    for best_by, order in (("bleu", [1, 0, 2]), ("loss", [2, 1, 0])):
        comparison = Comparison(runs, results, best_by)
        assert [run for run, _ in comparison.ranked()] == [runs[number] for number in order]
        assert comparison.best().runs == [runs[order[0]]] and not comparison.has_seeds


def test_the_file_has_a_row_for_every_run_with_the_moments_of_its_combination(tmp_path):
    path = tmp_path / "results.tsv"
    Comparison(RUNS, RESULTS, "bleu").write(path)
    rows = [*csv.DictReader(path.read_text("utf-8").splitlines(), delimiter="\t")]
    assert [row["run"] for row in rows] == [RUNS[number].name for number in (7, 6, 2, 1, 0, 5, 3, 4, 8)]
    names = "positions seed bleu loss perplexity epoch parameters minutes mean_bleu spread_bleu mean_loss spread_loss"
    row = "rotary 3 35 2.25 8.125 3 1234567890 0.75 32 2.6457513 2.4 0.13228757 positions=rotary,3"
    assert rows[2] == dict(zip([*names.split(), "run"], row.split(), strict=True))
    assert (rows[8]["bleu"], rows[8]["minutes"], rows[8]["mean_bleu"]) == ("", "", "40.5")
    # A sweep without a finished run has a file, too.
    Comparison(RUNS, {}, "bleu").write(path)
    header, *rows = path.read_text().splitlines()
    assert header.startswith("positions\tseed\tbleu\t") and len(rows) == len(RUNS)


# Programs of a few lines take the place of train.py.
TOGETHER = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / sys.argv[2]).touch()
end = time.monotonic() + 20
while len([*here.iterdir()]) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(len([*here.iterdir()]))
"""
ALONE = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1], "used")
here.mkdir()
time.sleep(0.1)
here.rmdir()
"""
OBSTINATE = """
import pathlib, signal, sys, time
signals = []
def note(number, frame):
    signals.append(number)
    print("stopping", flush=True)
    if len(signals) == 2:
        pathlib.Path(sys.argv[1]).touch()
        sys.exit()
signal.signal(signal.SIGTERM, note)
print("going", flush=True)
time.sleep(20)
"""
ENDS = {
    "good": "print('done')",
    "mistake": "import sys; print('loading'); print('error: no such corpus', file=sys.stderr); print(); sys.exit(2)",
    "bug": "1 / 0",
    "silent": "import sys; sys.exit(3)",
    "killed": "import os, signal; print('update 5', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "last": "import os; print(os.getpgid(0) == os.getpid()); print('grüße 字')",
}


@pytest.fixture
def trained(monkeypatch):
    """A function that trains runs, and gives the lines and the ends of all."""
    monkeypatch.setattr(running, "TRAIN", [sys.executable, "-X", "utf8", "-S", "-c"])

    def train(runs, processes=1):
        said, ended = [], {}
        Trainings(processes, lambda *line: said.append(line), ended.__setitem__).train(runs)
        return said, ended

    return train


def test_a_run_in_a_group_of_its_own_that_fails_ends_no_other_and_its_last_line_is_known(trained):
    said, ended = trained({name: [source] for name, source in ENDS.items()}, processes=2)
    assert ended == {
        "good": None,
        "mistake": "error: no such corpus",
        "bug": "ZeroDivisionError: division by zero",
        "silent": "exit status 3",
        "killed": "ended by SIGKILL, as when memory runs out; its last line: update 5",
        "last": None,
    }
    # A terminal sends Ctrl-C to the group of processes in its foreground. A run that gets it twice saves nothing.
    assert [line for name, line in said if name == "last"] == ["True", "grüße 字"]


def test_as_many_runs_at_a_time_as_are_asked_for(trained, tmp_path):
    said, _ = trained({name: [TOGETHER, str(tmp_path), name] for name in "ab"}, processes=2)
    assert sorted(said) == [("a", "2"), ("b", "2")]
    _, ended = trained({name: [ALONE, str(tmp_path)] for name in "abc"})
    assert ended == dict.fromkeys("abc")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_runs_share_out_the_cores_and_this_process_keeps_its_own(trained):
    before = sorted(os.sched_getaffinity(0))
    source = "import os; print(sorted(os.sched_getaffinity(0)))"
    said, _ = trained(dict.fromkeys("ab", [source]), processes=2)
    assert sorted(said) == [("a", str(share(before, 0, 2))), ("b", str(share(before, 1, 2)))]
    assert trained({"a": [source]})[0] == [("a", str(before))] and sorted(os.sched_getaffinity(0)) == before


def test_a_second_signal_is_passed_on_as_well(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "TRAIN", [sys.executable, "-S", "-c"])

    def interrupt(name, line):  # Ctrl-C at the first line, and again when the run says that it stops
        if line in ("going", "stopping"):
            raise KeyboardInterrupt

    pytest.raises(KeyboardInterrupt, Trainings(1, interrupt, None).train, {"a": [OBSTINATE, str(tmp_path / "second")]})
    end = time.monotonic() + 20
    while not (tmp_path / "second").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert (tmp_path / "second").exists()


def test_shares_are_apart_as_long_as_there_are_enough_also_of_the_gpus_that_the_environment_names(monkeypatch):
    shares = {("abcdef", 2): ["ace", "bdf"], ("abcde", 2): ["ace", "bd"], ("ab", 3): ["a", "b", "a"]}
    for (things, processes), expected in {**shares, ("a", 2): ["a", "a"], ("abc", 1): ["abc"]}.items():
        assert [share([*things], place, processes) for place in range(processes)] == [[*each] for each in expected]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3,5")
    assert [environment(place, 2)["CUDA_VISIBLE_DEVICES"] for place in (0, 1)] == ["0,5", "3"]
    assert environment(0, 2)["TF_FORCE_GPU_ALLOW_GROWTH"] == "true" and environment(0, 1) is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "CUDA_VISIBLE_DEVICES" not in environment(1, 2)
