import random
import re
import shlex
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import filelock
import numpy as np
import pytest
import yaml

from keras_transformer.cli import recipe as module
from keras_transformer.data.corpora import open_corpus
from keras_transformer.tools.recipe.build import Recipe, read_recipe
from keras_transformer.tools.recipe.plan import Pace, Sizes
from tests import tiny, warm_start

Ended = namedtuple("Ended", "returncode stdout stderr")
PACES = {"tiny": Pace(2.0, 11), "tiny_6_1": Pace(1.5, 11), "quickstart": Pace(1.0, 11)}
SIZES = Sizes("tiny", 2, True, "tiny_6_1", True, True, ("saved_model", "ctranslate2", "argos"))
BUILT = replace(SIZES, epochs=1, teacher="quickstart", student="quickstart", second=False, formats=("saved_model",))
KILLED = ("prepare", "both")  # stages that are under way when the recipe is killed


def plan(flags, *done, sizes=SIZES):
    """Writes recipe.yaml without a measurement of this machine. Some stages are done."""
    arguments = module.make_parser().parse_args(flags)
    opened = open_corpus(arguments.dataset)
    settings = {name: getattr(arguments, name) for name in module.SETTINGS} | module.texts_of(arguments, opened)
    took = dict.fromkeys(done, 61)
    Recipe(module.make_build(arguments, opened), settings, sizes, PACES, 211, took).save()


@pytest.fixture
def asked(tmp_path):
    """The flags of a recipe that is planned."""
    corpus, output, text = tiny.write_corpus(tmp_path / "corpus"), tmp_path / "mine", tmp_path / "text.de"
    text.write_text("".join(f"{target}\n" for _, target in tiny.pairs(53, seed=7)), "utf-8")
    given = {"dataset": f"files:{corpus}@en-de", "output": output, "hours": 0.5, "monolingual": text, "license": "mit"}
    flags = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    plan(flags)
    return flags


def test_a_dry_run_prints_every_stage_with_its_time_and_writes_nothing(asked, run, capsys):
    plan(asked, "prepare")
    before = {path: path.read_bytes() for path in Path(asked[3]).rglob("*") if path.is_file()}
    run(module, *asked, "--dry_run")
    printed = capsys.readouterr().out
    assert re.search(r"1/12  prepare +done in 1 min\n", printed) and re.search(r"4/12  teacher +1 min\n", printed)
    assert "two teachers of tiny, student tiny_6_1; 2 epochs" in printed and "of 30 min" in printed
    assert {path: path.read_bytes() for path in Path(asked[3]).rglob("*") if path.is_file()} == before


def test_a_changed_setting_or_text_names_the_stages_that_it_makes_stale(asked, run, mistake, capsys):
    plan(asked, "prepare", "both", "teacher", "distil", "student_both")
    changed = [*asked, "--student", "none", "--dry_run", "--hours", 0.05]
    assert "make these stages stale: both, teacher, distil, student_both." in mistake(module, *changed)
    run(module, *changed, "--redo")
    printed = capsys.readouterr().out
    assert re.search(r"prepare +done", printed) and not re.search(r"teacher +done", printed)
    assert read_recipe(Path(asked[3]))["took"].keys() >= {"teacher"}  # a dry run removes nothing
    with open(asked[7], "a", encoding="utf-8") as text:
        text.write("eins\n")
    assert "have changed, and make these stages stale: prepare, both," in mistake(module, *asked, "--dry_run")


def test_other_text_is_measured_anew_whatever_lies_in_the_default_directory(asked, run, monkeypatch):
    measured, said = [], "epoch a; 11 updates in all\ntime a 1.0 s an update\n"
    monkeypatch.setattr(module.subprocess, "run", lambda words, **_: measured.append(words) or Ended(0, said, ""))
    run(module, *asked, "--dry_run", "--hours", 9)
    assert not measured
    for language in ("en", "de"):  # a test set alone is other text, too: `prepare` copies it
        with open(f"{asked[1].removeprefix('files:').removesuffix('@en-de')}/test.{language}", "a") as file:
            file.write("one\n")
    run(module, *asked, "--dry_run")
    assert [words[words.index("--preset") + 1] for words in measured] == ["tiny", "tiny_6_1"]
    assert not any(Path(words[words.index("--model_dir") + 1]).exists() for words in measured)


def test_mistakes_are_one_line_before_any_work(asked, mistake, tmp_path):
    (tmp_path / "empty").write_text("")
    undone = "prepare, both, back_translate, teacher, second_both, second"
    for flags, message in (
        (["--hours", 0], "--hours must be a number above 0"),
        (["--hours", "nan"], "--hours must be a number above 0"),
        (["--monolingual", tmp_path / "empty", "--dry_run"], "has no text to translate"),
        (["--output", tmp_path / "empty"], "--output must be a directory"),
        (["--seed", -1], "--seed must be at least 0"),
        (["--monolingual", "nowhere"], "cannot read nowhere"),
        (["--stages", "baking"], "invalid choice: 'baking' (choose from"),
        (["--stages", "distil"], f"--stages distil needs stages that are not done: {undone}"),
        (["--dataset", f"files:{tmp_path}/no@en-de"], "no such directory"),
    ):
        assert message in mistake(module, *asked, *flags)
    with filelock.FileLock(Path(asked[3]) / ".lock"):
        assert "in use by another recipe" in mistake(module, *asked)
    (Path(asked[3]) / "recipe.yaml").write_text("sizes: [", "utf-8")
    assert "recipe.yaml" in mistake(module, *asked)


# Its programs are forks: see warm_start.py.
RECIPE = "import sys; sys.executable = sys.argv.pop(1); from keras_transformer.cli import programs; programs.main()"


def start(python, flags):
    words = [sys.executable, "-c", RECIPE, python, "recipe", *flags]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def weights(run):
    with np.load(run / "checkpoints" / "last.npz") as arrays:
        return {name: arrays[name] for name in arrays.files if "seconds" not in name}


@pytest.mark.slow
def test_a_recipe_that_is_killed_ends_with_the_weights_of_its_commands_run_by_hand(asked, tmp_path, warm):
    output, moments, python = Path(asked[3]), random.Random(1), tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join(warm_start.command(warm))} "$@"\n', "utf-8")
    python.chmod(0o755)
    plan(asked, sizes=BUILT)
    for _ in range(2):
        process = start(python, asked)
        time.sleep(moments.uniform(5, 15))
        process.kill()
        process.wait()
    process = start(python, asked)
    said, _ = process.communicate(timeout=3000)  # beside the other tests, on two cores
    assert process.returncode == 0, said
    recorded = read_recipe(output)
    assert [*recorded["took"]] == [stage["stage"] for stage in recorded["stages"]]
    assert all(said.count(f"/10 {name}: about") <= 1 for name in recorded["took"])

    # What ships
    front, _, card = (output / "README.md").read_text("utf-8").removeprefix("---\n").partition("---\n")
    about = yaml.safe_load(front)
    assert (about["language"], about["pipeline_tag"], about["license"]) == (["en", "de"], "translation", "mit")
    assert all(f"| {name} |" in card for name in ("teacher", "student", "together"))
    assert "The test set," in card and (output / "report.html").exists()
    for place in (output, output / "export" / "1"):
        text = (place / "README.md").read_text("utf-8")
        (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        ran = subprocess.run([python, "-"], input=block, cwd=place, capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr

    # The same commands by hand, elsewhere
    by_hand = tmp_path / "by_hand"
    for line in [line for stage in recorded["stages"] if stage["stage"] in KILLED for line in stage["commands"]]:
        line = line.replace(str(output), str(by_hand)).replace("python ", f"{python} ", 1)
        subprocess.run(line, shell=True, check=True, capture_output=True)
    expected, found = weights(by_hand / "both"), weights(output / "both")
    assert expected.keys() == found.keys() and all(np.array_equal(expected[key], found[key]) for key in expected)
