import os
import random
import re
import signal
import subprocess
import sys
import time

import filelock
import numpy as np
import pytest
import yaml

from keras_transformer.cli import recipe as module
from keras_transformer.tools.recipe.build import Recipe, read_recipe
from keras_transformer.tools.recipe.plan import Pace, Sizes
from keras_transformer.tools.recipe.stages import Build
from tests import tiny

PACES = {"tiny": Pace(2.0, 11), "tiny_6_1": Pace(1.5, 11)}
SIZES = Sizes("tiny", 2, True, "tiny_6_1", False, False, ("saved_model", "ctranslate2", "argos"))


KILLED = ("prepare", "both", "teacher")  # stages that are under way when the recipe is killed


@pytest.fixture
def asked(tmp_path):
    """The flags of a recipe that is planned, without a measurement of this machine."""
    corpus, output = tiny.write_corpus(tmp_path / "corpus"), tmp_path / "mine"
    flags = ["--dataset", f"files:{corpus}@en-de", "--output", output, "--hours", 0.5]
    settings = {"dataset": f"files:{corpus}@en-de", "source_lang": None, "target_lang": None, "hours": 0.5}
    settings |= {"student": "tiny_6_1", "monolingual": None, "license": None, "seed": 1}
    build = Build(settings["dataset"], "en", "de", output, None, 1.0, "test", 1, None)
    Recipe(build, settings, SIZES, PACES, 211).save()
    return flags


def finish(flags, *stages):
    """Notes in recipe.yaml that stages are done."""
    path = flags[3] / "recipe.yaml"
    content = yaml.safe_load(path.read_text("utf-8"))
    for stage in content["stages"]:
        if stage["stage"] in stages:
            stage["took_seconds"] = 61
    path.write_text(yaml.safe_dump(content), "utf-8")


def test_a_dry_run_prints_every_stage_with_its_time_and_writes_nothing(asked, run, capsys):
    finish(asked, "prepare")
    before = {path: path.read_bytes() for path in asked[3].rglob("*") if path.is_file()}
    run(module, *asked, "--dry_run")
    printed = capsys.readouterr().out
    assert re.search(r"1/9  prepare +done in 1 min\n", printed) and re.search(r"3/9  teacher +29 s\n", printed)
    assert "one teacher of tiny, student tiny_6_1; 2 epochs" in printed and "of 30 min" in printed
    assert {path: path.read_bytes() for path in asked[3].rglob("*") if path.is_file()} == before


def test_a_changed_setting_names_the_stages_that_it_makes_stale(asked, run, mistake, capsys):
    finish(asked, "prepare", "both", "teacher", "distil", "student_both")
    line = mistake(module, *asked, "--student", "none", "--dry_run", "--hours", 0.05)
    assert "make these stages stale: both, teacher, distil, student_both." in line
    run(module, *asked, "--student", "none", "--dry_run", "--hours", 0.05, "--redo")
    printed = capsys.readouterr().out
    assert re.search(r"prepare +done", printed) and not re.search(r"teacher +done", printed)
    assert read_recipe(asked[3])["took"].keys() >= {"teacher"}  # a dry run removes nothing


def test_mistakes_are_one_line_before_any_work(asked, mistake, tmp_path):
    assert "--hours must be above 0" in mistake(module, *asked, "--hours", 0)
    assert "--seed must be at least 0" in mistake(module, *asked, "--seed", -1)
    assert "cannot read nowhere" in mistake(module, *asked, "--monolingual", "nowhere")
    assert "there is no stage 'baking': there are prepare, both" in mistake(module, *asked, "--stages", "baking")
    assert "--stages distil needs stages that are not done: prepare, both, teacher" in mistake(
        module, *asked, "--stages", "distil"
    )
    assert "no such directory" in mistake(module, "--dataset", f"files:{tmp_path}/no@en-de", "--output", asked[3])
    with filelock.FileLock(asked[3] / ".lock"):
        assert "in use by another recipe" in mistake(module, *asked)
    (asked[3] / "recipe.yaml").write_text("sizes: [", "utf-8")
    assert "recipe.yaml" in mistake(module, *asked)


def start(flags):
    words = [sys.executable, "-m", "keras_transformer", "recipe", *map(str, flags)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def weights(run):
    with np.load(run / "checkpoints" / "last.npz") as arrays:
        return {name: arrays[name] for name in arrays.files if "seconds" not in name}


@pytest.mark.slow
def test_a_recipe_that_is_killed_ends_with_the_weights_of_its_commands_run_by_hand(asked, tmp_path):
    output, moments = asked[3], random.Random(1)
    for _ in range(3):
        process = start(asked)
        time.sleep(moments.uniform(5, 25))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    process = start(asked)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said
    recorded = read_recipe(output)
    assert [*recorded["took"]] == [stage["stage"] for stage in recorded["stages"]]
    assert all(said.count(f"/9 {name}: about") <= 1 for name in recorded["took"])

    # What ships
    front, _, card = (output / "README.md").read_text("utf-8").removeprefix("---\n").partition("---\n")
    about = yaml.safe_load(front)
    assert (about["language"], about["pipeline_tag"]) == (["en", "de"], "translation")
    assert all(f"| {name} |" in card for name in ("teacher", "student", "together"))
    assert (output / "report.html").exists() and (output / "mine.argosmodel").exists()
    for place in (output, output / "export" / "1", output / "ctranslate2" / "1"):
        blocks = re.findall(
            r"^```python\n(.*?)^```$", (place / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        assert len(blocks) == (2 if place == output else 1)
        for block in blocks:
            ran = subprocess.run([sys.executable, "-c", block], cwd=place, capture_output=True, text=True, timeout=100)
            assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr

    # The same commands by hand, elsewhere
    by_hand = tmp_path / "by_hand"
    for stage in recorded["stages"]:
        if stage["stage"] in KILLED:
            for line in stage["commands"]:
                line = line.replace(str(output), str(by_hand)).replace("python ", f"{sys.executable} ", 1)
                subprocess.run(line, shell=True, check=True, capture_output=True)
    for name in KILLED[1:]:
        expected, found = weights(by_hand / name), weights(output / name)
        assert expected.keys() == found.keys()
        assert all(np.array_equal(expected[key], found[key]) for key in expected), name
