import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import filelock
import numpy as np
import pytest

from keras_transformer.cli import sweep
from keras_transformer.cli.train import parse_config
from keras_transformer.tools.sweep import processes
from keras_transformer.tools.sweep.grid import plan, read_grid
from tests import tiny
from tests.tools.sweep.made import write_finished
from tests.training.curves import hparams_tab, read_events

# Takes the place of train.py: copies a run directory that a test has made, fails, or works until it is told to stop.
TRAINER = """
import json, pathlib, shutil, signal, sys
made, record, *flags = sys.argv[1:]
run = pathlib.Path(flags[-1].removeprefix("--model_dir="))
with open(record, "a") as file:
    file.write(json.dumps(flags) + "\\n")
def stop(number, frame):
    print("stopped     update 7 is saved")
    sys.exit(143)
if (pathlib.Path(made, run.name) / "fails").exists():
    print("error: no memory is left")
    sys.exit(2)
if (pathlib.Path(made, run.name) / "waits").exists() and not run.exists():
    signal.signal(signal.SIGTERM, stop)
    run.mkdir(parents=True)  # the test now interrupts
    signal.pause()
shutil.copytree(pathlib.Path(made, run.name), run, dirs_exist_ok=True)
print("trained")
"""
GRID = ["--grid", "positions", "rotary", "none", "--grid", "dropout_rate", "0.2", "0.3"]
NAMES = [f"positions={positions},dropout_rate={rate},seed=1" for positions in ("rotary", "none") for rate in (0.2, 0.3)]
BLEUS = [11.5, 31.25, 29.0, 30.0]
BEST = "best        positions=rotary, dropout_rate=0.3: validation BLEU 31.2"


@pytest.fixture
def first(tmp_path):
    """The flags of every sweep here."""
    corpus = tiny.write_corpus(tmp_path / "corpus", train=20)
    return ["--output", str(tmp_path / "out"), "--dataset", f"files:{corpus}@en-de", "--preset", "tiny"]


@pytest.fixture
def made(tmp_path, first):
    """The directory of the runs that the trainer copies."""
    parse = partial(parse_config, description="")
    runs = plan(read_grid([GRID[1:4], GRID[5:8]]), [], first[2:], tmp_path / "out", parse)
    for run, bleu in zip(runs, BLEUS, strict=True):
        directory = tmp_path / "made" / run.name
        write_finished(directory, run.config, bleu=[bleu - 1, bleu], loss=[3.0, 2.0], perplexity=[8.0, 4.0])
    return tmp_path / "made"


@pytest.fixture
def swept(tmp_path, first, made, monkeypatch, run, capsys):
    """A function that runs the program: its status, the lines that it prints, and the names of the runs it trains."""
    (tmp_path / "trainer.py").write_text(TRAINER)
    record = tmp_path / "record"
    monkeypatch.setattr(logging.getLogger("keras_transformer"), "handlers", [])  # the program adds its own
    monkeypatch.setattr(processes, "TRAIN", [sys.executable, "-S", *map(str, [tmp_path / "trainer.py", made, record])])

    def run_here(*flags):
        record.write_text("")
        status = 0
        try:
            run(sweep, *first, *GRID, *flags)
        except SystemExit as ended:
            status = ended.code
        trained = [json.loads(line)[-1].rpartition("/")[2] for line in record.read_text().splitlines()]
        return status, capsys.readouterr().out.splitlines(), trained

    return run_here


def test_every_combination_is_trained_once_and_the_best_one_is_named_with_its_flags(swept, tmp_path):
    status, lines, trained = swept()
    assert (status, trained) == (0, NAMES)
    plan = [f"sweep       4 runs in {tmp_path}/out", *(f"[{n}/4] {name}: new" for n, name in enumerate(NAMES, 1))]
    assert lines[:5] == plan and "[2/4] trained" in lines
    assert f"[2/4] finished    {NAMES[1]}: validation BLEU 31.2, after epoch 2" in lines
    assert lines[-10:-7] == [
        "positions  dropout_rate  seed  BLEU   loss  perplexity  epoch  parameters  minutes",
        "   rotary           0.3     1  31.2  2.000        4.00      2   1,234,567      2.8",
        "     none           0.3     1  30.0  2.000        4.00      2   1,234,567      2.8",
    ]
    assert lines[-4:] == [
        BEST,
        "flags       --positions=rotary --dropout_rate=0.3",
        f"results     {tmp_path}/out/results.tsv",
        f"watch       tensorboard --logdir {tmp_path}/out",
    ]
    assert "99.9" not in "".join(lines)  # the score on the test set
    # A second start trains only what is not finished.
    status, lines, trained = swept()
    assert (status, trained) == (0, []) and f"[4/4] {NAMES[3]}: finished" in lines and BEST in lines
    (tmp_path / "out" / NAMES[2] / "results.yaml").unlink()
    assert swept()[2] == [NAMES[2]]
    status, lines, trained = swept("--epochs", 90)
    assert trained == NAMES and f"[1/4] {NAMES[0]}: goes on with other settings" in lines


def test_a_run_that_fails_ends_no_other_and_is_tried_again(swept, made):
    (made / NAMES[1] / "fails").touch()
    status, lines, trained = swept("--processes", 2)
    assert status == 1 and sorted(trained) == sorted(NAMES)
    assert f"failed      {NAMES[1]}: error: no memory is left" in lines
    assert "best        positions=none, dropout_rate=0.3: validation BLEU 30.0" in lines
    (made / NAMES[1] / "fails").unlink()
    status, lines, trained = swept()
    assert (status, trained) == (0, [NAMES[1]]) and BEST in lines


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_under_way_and_the_same_command_goes_on(swept, made, tmp_path, number, code):
    (made / NAMES[1] / "waits").touch()

    def interrupt():
        end = time.monotonic() + 20
        while not (tmp_path / "out" / NAMES[1]).exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    status, lines, trained = swept()
    thread.join()
    assert (status, trained) == (code, NAMES[:2]) and lines[-1] == "[2/4] stopped     update 7 is saved"
    status, lines, trained = swept()
    assert (status, trained) == (0, NAMES[1:]) and len([line for line in lines if "trained" in line]) == 3


def test_a_dry_run_lists_the_runs_and_writes_nothing(swept, tmp_path):
    status, lines, trained = swept("--dry_run", "--seeds", 3, 5)
    assert (status, trained) == (0, []) and not (tmp_path / "out").exists()
    assert len(lines) == 10 and lines[8] == "[8/8] positions=none,dropout_rate=0.3,seed=5: new"
    assert lines[9].startswith("estimate    of time and memory, by the first run: keras-transformer train --dataset ")
    assert lines[9].endswith(f"--seed=3 --model_dir={tmp_path}/out/{NAMES[0][:-1]}3 --dry_run")


def test_a_mistake_is_one_line_and_writes_nothing(first, mistake, tmp_path):
    for flags, message in (
        (["--seeds", "one"], "--seeds must be a whole number. Received: one"),
        (["--processes", "0"], "--processes must be a whole number of at least 1. Received: processes=0"),
        (["--dataset", "cldr:en-de", "--skip_bad_lines", "--dataset", "files:none@en-de"], "no such directory: none"),
        (["--grid", "strategy", "auto", "multi_worker"], "a sweep trains on one machine. Received: strategy=multi"),
    ):
        assert message in mistake(sweep, *first, *flags) and not (tmp_path / "out").exists()


def test_files_with_different_measures_and_a_directory_of_other_runs_or_of_another_sweep_are_refused(
    swept, first, mistake, tmp_path
):
    files = [tmp_path / f"{measure}.yaml" for measure in ("bleu", "loss")]
    for file in files:
        file.write_text(f"best_by: {file.stem}\n")
    assert "give --best_by once" in mistake(sweep, *first, "--grid", "config", *files)
    (tmp_path / "out" / NAMES[0] / "checkpoints").mkdir(parents=True)
    for name in ("checkpoints/last.npz", "tokenizer.model"):
        (tmp_path / "out" / NAMES[0] / name).touch()
    config = parse_config([*first[2:], "--positions=rotary", "--dropout_rate=0.2", "--seed=1"], "")
    config.save(tmp_path / "out" / NAMES[0] / "config.yaml")
    found = mistake(sweep, *first, *GRID, "--d_ff", 19).removeprefix(f"error: {tmp_path}/out/{NAMES[0]} ")
    assert found == "holds a run with other settings: d_ff was 256 and is 19. Choose another --output"
    with filelock.FileLock(tmp_path / "out" / ".lock"):
        assert f"{tmp_path}/out is in use by another sweep: wait" in mistake(sweep, *first, *GRID)
    unwritable = files[0] / "out"
    assert f"cannot write {unwritable}: Not" in mistake(sweep, *first, *GRID, "--output", unwritable)


@pytest.mark.slow
def test_two_runs_of_train_py_side_by_side_are_compared_also_in_tensorboard(tmp_path):
    corpus, output = tiny.write_corpus(tmp_path / "corpus", train=53), tmp_path / "out"
    sizes = {"vocabulary_size": tiny.VOCABULARY, **tiny.SIZES, "d_model": 28, "max_length": 31, "batch_tokens": 97}
    flags = [f"--{name}={value}" for name, value in {**sizes, "dataset": f"files:{corpus}@en-de"}.items()]
    flags += ["--max_steps", "2", "--processes", "2", "--grid", "positions", "rotary", "none", "--seeds", "3"]
    command = [sys.executable, "-m", "keras_transformer", "sweep", "--output", str(output), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    _, *rows = [line.split("\t") for line in (output / "results.tsv").read_text().splitlines()]
    shown = {settings["positions"]: (settings, measures) for settings, measures in hparams_tab(output)}
    assert len(shown) == len(rows) == 2
    for positions, _, bleu, loss, _, epoch, parameters, *_, name in rows:
        curves = read_events(output / name / "logs" / "validation")
        assert ([(2, float(bleu))], "1", f"positions={positions},seed=3") == (curves["bleu"], epoch, name)
        with np.load(output / name / "checkpoints" / "best.npz") as weights:
            assert int(parameters) == sum(weights[key].size for key in weights.files if key != "progress")
        settings, measures = shown[positions]
        assert (settings["seed"], measures["bleu"]) == (3, float(bleu))
        assert [measures["loss"], curves["loss"][0][1]] == pytest.approx([float(loss)] * 2, rel=1e-6)
