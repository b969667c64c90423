import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.recipe.build import CHILD, LOG, Recipe, read_recipe, run_command, stop_orphan
from keras_transformer.tools.recipe.plan import Pace, Sizes
from keras_transformer.tools.recipe.stages import Build, Command

PACES = {"tiny": Pace(2.5, 11)}
SIZES = Sizes("tiny", 2, False, None, False, False, ("saved_model",))


def recipe(output, **took):
    build = Build("files:data/mine", "en", "de", output, None, 1.0, "test", 1, None)
    return Recipe(build, {"hours": 0.5}, SIZES, PACES, 211, took)


def test_what_is_written_is_read_again_and_the_directories_of_products_are_there(tmp_path):
    written = recipe(tmp_path / "out", prepare=61)
    written.save()
    found = read_recipe(tmp_path / "out")
    assert (found["sizes"], found["paces"], found["pairs"], found["took"]) == (SIZES, PACES, 211, {"prepare": 61})
    assert (tmp_path / "out" / "evaluate").is_dir() and written.left() == ["teacher", "evaluate", "export", "card"]
    assert [stage["commands"] for stage in found["stages"]] == [written.lines(name) for name in written.commands]
    assert read_recipe(tmp_path) is None


def test_a_stage_is_stale_with_all_that_stand_behind_it(tmp_path):
    recipe(tmp_path, prepare=1, teacher=2, evaluate=3).save()
    before = read_recipe(tmp_path)
    assert recipe(tmp_path).stale(before) == []
    before["stages"][1]["commands"] = ["another"]
    assert recipe(tmp_path).stale(before) == ["teacher", "evaluate"]


def test_a_program_that_fails_is_one_line_and_the_log_has_all_of_its_lines(tmp_path):
    with pytest.raises(
        UserError, match=r"^python -m keras_transformer nonsense failed: no program 'nonsense'.*goes on"
    ):
        run_command(Command(("nonsense",)), tmp_path, "[1/5 teacher]")
    assert (tmp_path / LOG).read_text("utf-8").startswith("[1/5 teacher] error: no program 'nonsense'")
    run_command(Command(("--help",)), tmp_path, "[2/5 x]")
    assert "[2/5 x] usage: keras-transformer PROGRAM" in (tmp_path / LOG).read_text("utf-8")
    assert not (tmp_path / CHILD).exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / LOG).symlink_to("/dev/full")
    with pytest.raises(FileError, match="No space left on device"):
        run_command(Command(("--help",)), tmp_path, "[1/5 x]")


def test_the_program_of_a_recipe_that_was_killed_is_ended_and_no_other(tmp_path):
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    created = psutil.Process(sleeping.pid).create_time()
    try:
        (tmp_path / CHILD).write_text(f"{sleeping.pid} {created - 100}", "utf-8")  # an older process of this number
        stop_orphan(tmp_path)
        assert sleeping.poll() is None and not (tmp_path / CHILD).exists()
        (tmp_path / CHILD).write_text(f"{sleeping.pid} {created}", "utf-8")
        stop_orphan(tmp_path)
        assert not psutil.pid_exists(sleeping.pid)
    finally:
        sleeping.kill()
    stop_orphan(tmp_path)  # nothing is there
