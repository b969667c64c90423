import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from keras_transformer.cli import back_translate, clean, distil, evaluate, export, translate
from keras_transformer.cli.train import parse_training
from keras_transformer.data.corpora import split_pair
from keras_transformer.errors import FileError, UserError
from keras_transformer.tools.recipe.build import (
    CHILD,
    LOG,
    Recipe,
    read_recipe,
    remove_stages,
    run_command,
    stop_orphan,
)
from keras_transformer.tools.recipe.plan import FORMATS, MOST, Pace, Sizes, choose, fitted, order, seconds_of
from keras_transformer.tools.recipe.stages import Build, Command, commands, dropout, systems

PACES = {"tiny": Pace(61.0, 179), "tiny_6_1": Pace(47.0, 179)}
PAIRS, HOUR = 30_011, 3600


def chosen(hours, student="tiny_6_1", paces=PACES, teachers=("tiny",), back=False, pairs=PAIRS):
    return choose(HOUR * hours, paces, pairs, list(teachers), student, back, tuple(FORMATS))


def test_a_stage_stands_behind_all_that_it_reads():
    whole = Sizes("tiny", 20, True, "tiny_6_1", True, True, ("saved_model",))
    stages = order(whole)
    assert stages == [*dict.fromkeys(stages)] and {*stages} == {*seconds_of(whole, PACES, PAIRS)}
    reads = {"both": ["prepare"], "back_translate": ["both"], "teacher": ["both", "back_translate"]}
    reads |= {"second_both": ["both"], "second": ["second_both"], "distil": ["teacher", "second"]}
    reads |= {"student_both": ["both"], "student": ["student_both", "distil"], "evaluate": ["student"]}
    for name, read in {**reads, "export": ["student"], "card": ["export", "evaluate"]}.items():
        assert all(stages.index(each) < stages.index(name) for each in read)
    assert order(MADE) == ["prepare", "teacher", "evaluate", "export", "card"]


def test_more_hours_give_more_stages_and_then_more_epochs():
    chains = [chosen(hours) for hours in (0.2, 1, 2.5, 3, 6)]
    assert [len(order(sizes)) for sizes in chains] == [5, 6, 9, 9, 11]
    assert [sizes.student for sizes in chains] == [None, None, *["tiny_6_1"] * 3]
    assert chains[2].epochs < chains[3].epochs and chains[4].second
    assert chosen(100).epochs == MOST  # a model learns no more
    without = chosen(2.5, student=None)
    assert without.both and without.epochs > chains[2].epochs and "distil" not in order(without)
    # A larger teacher needs the time for its whole chain. Compiled programs need a tenth of the time at most.
    paces = {**PACES, "small": Pace(400.0, 2003)}
    assert [chosen(hours, paces=paces, teachers=("tiny", "small")).teacher for hours in (2, 8)] == ["tiny", "small"]
    assert "compiled" not in chosen(0.3).formats and "compiled" in chosen(0.4).formats


@pytest.mark.parametrize("back", [False, True])
def test_the_stages_fit_into_the_hours_unless_one_epoch_alone_does_not(back):
    for hours in (0.05, 0.1, 0.3, 0.7, 1, 2, 3, 8, 24):
        for seconds, updates in ((2.0, 101), (61.0, 179), (3000.0, 9001)):
            paces = {"tiny": Pace(seconds, updates), "tiny_6_1": Pace(0.7 * seconds, updates)}
            sizes = chosen(hours, paces=paces, back=back)
            fits = sum(seconds_of(sizes, paces, PAIRS).values()) <= HOUR * hours
            assert fits or (sizes.epochs, len(order(sizes))) == (1, 5)
            assert sizes.back == (back and sizes.both)


def test_an_hour_of_the_table_of_the_guide_by_hand():
    """12 epochs: both 25 + 6 * 2 * 61, teacher 25 + 12 * 61, student the same with 47 s, distil 25 + 3 * 61."""
    sizes = fitted(Sizes("tiny", 0, True, "tiny_6_1", False, False, ("saved_model",)), 3040, PACES, 30_000)
    assert sizes.epochs == 12
    expected = {"both": 757, "teacher": 757, "distil": 208, "student_both": 589, "student": 589}
    expected |= {"prepare": 40, "export": 45}
    assert expected.items() <= seconds_of(sizes, PACES, 30_000).items()


PROGRAMS = {"clean": clean, "back_translate": back_translate, "distil": distil, "evaluate": evaluate}
PROGRAMS |= {"export": export, "translate": translate}
WHOLE = Sizes("tiny", 21, True, "tiny_6_1", True, True, tuple(FORMATS))
ALONE = Sizes("small", 3, False, None, False, False, ("saved_model",))
WITHOUT_STUDENT = Sizes("tiny", 20, True, None, True, False, ("saved_model", "compiled"))


def build(output, held_out="test"):
    return Build("files:data/mine", "en", "de", output, "news.de", 0.25, held_out, 7, "mit")


def words_of(sizes, output=Path("builds/mine"), **how):
    return {name: [command.words for command in found] for name, found in commands(build(output, **how), sizes).items()}


@pytest.mark.parametrize("sizes", [WHOLE, ALONE, WITHOUT_STUDENT])
def test_each_program_takes_the_flags_of_its_commands(sizes):
    for stage in words_of(sizes).values():
        for program, *flags in stage:
            if program == "train":
                assert not parse_training(flags, "")[0].score_test
            else:  # it ends the process for a flag that it does not have
                PROGRAMS[program].make_parser().parse_args(flags)


def test_the_settings_of_the_trainings():
    trainings = {name: found[0][1:] for name, found in words_of(WHOLE).items() if found and found[0][0] == "train"}
    stages = {name: parse_training(list(flags), "")[0] for name, flags in trainings.items()}
    first, last = {"both": "tiny", "second_both": "tiny", "student_both": "tiny_6_1"}, ("teacher", "second", "student")
    expected = {name: (preset, 10) for name, preset in first.items()}
    expected |= {name: (preset, 21) for name, preset in zip(last, first.values(), strict=True)}
    assert {name: (config.preset, config.epochs) for name, config in stages.items()} == expected
    assert stages["teacher"].positions != stages["second"].positions == stages["second_both"].positions
    same = {stages[name].tokenizer for name in ("second_both", "student_both")}
    assert same == {"builds/mine/both/tokenizer.model"}  # so that all of them translate together
    assert stages["second"].init_from == "builds/mine/second_both"
    assert {(config.seed, config.dropout_rate) for config in stages.values()} == {(7, 0.1)}
    asked = [("tiny", 30), ("tiny", 31), ("tiny", 60), ("tiny", 61), ("small", 31), ("base", 20)]
    assert [dropout(*each)[1:] for each in asked] == [["0.1"], ["0.2"], ["0.2"], [], [], []]
    corpora = ("prepare:0.5", "distil:0.5", "back_translate:0.2500")
    assert stages["student"].corpora == tuple(f"files:builds/mine/{corpus}" for corpus in corpora)


def test_a_code_with_a_hyphen_is_named_as_a_corpus_takes_it():
    found = commands(build(Path("builds/mine"))._replace(target="pt-BR"), WHOLE)
    named = [word for stage in found.values() for command in stage for word in command.words if "@" in word]
    assert {split_pair(word)[1] for word in named} == {("en", "pt_BR"), ("pt_BR", "en")} and len(named) == 7


def test_only_the_translations_at_the_end_read_the_test_set():
    stages = words_of(WHOLE)
    readers = {name for name, found in stages.items() for words in found if any("test.en" in word for word in words)}
    assert readers == {"evaluate"}
    sources = [words[words.index("--input") + 1] for words in stages["evaluate"] if words[0] == "translate"]
    assert sources == ["builds/mine/prepare/test.en"] * len(systems(WHOLE)) and len(sources) == 4
    assert not any(
        "test.en" in word for found in words_of(WHOLE, held_out="val").values() for words in found for word in words
    )


def test_the_student_ships_and_without_one_the_teacher():
    for sizes, name in ((WHOLE, "student"), (WITHOUT_STUDENT, "teacher")):
        for words in words_of(sizes)["export"]:
            assert words[words.index("--model_dir") + 1] == f"builds/mine/{name}"
            assert words[words.index("--license") + 1] == "mit"
    assert systems(WITHOUT_STUDENT) == {"teacher": ["teacher"], "second": ["second"], "together": ["teacher", "second"]}
    assert systems(ALONE) == {"teacher": ["teacher"]}


def test_a_command_can_be_copied_into_a_shell():
    (command,) = commands(build(Path("builds/a b")), ALONE)["prepare"]
    assert str(command).startswith("python -m keras_transformer clean --input files:data/mine ")
    assert str(command).endswith("--output 'builds/a b/prepare'")


MADE = Sizes("tiny", 2, False, None, False, False, ("saved_model",))


def recipe(output, **took):
    described = Build("files:data/mine", "en", "de", output, None, 1.0, "test", 1, None)
    return Recipe(described, {"hours": 0.5}, MADE, PACES, 211, took)


def test_what_is_written_is_read_again_and_a_stage_is_stale_with_all_that_stand_behind_it(tmp_path):
    written = recipe(tmp_path / "out", prepare=1, teacher=2, evaluate=3)
    written.save()
    found = read_recipe(tmp_path / "out")
    assert (found["sizes"], found["paces"], found["pairs"], found["took"]) == (MADE, PACES, 211, written.took)
    assert (tmp_path / "out" / "evaluate").is_dir() and written.left() == ["export", "card"]
    assert [stage["commands"] for stage in found["stages"]] == [written.lines(name) for name in written.commands]
    assert read_recipe(tmp_path) is None and recipe(tmp_path / "out").stale(found) == []
    found["stages"][1]["commands"] = ["another"]
    assert recipe(tmp_path / "out").stale(found) == ["teacher", "evaluate"]
    found["stages"][1]["commands"] = written.lines("teacher")
    found["stages"][3]["commands"] = ["another"]
    (tmp_path / "out" / "export" / "1").mkdir()  # a stage that was stopped
    assert recipe(tmp_path / "out").stale(found) == ["export"]
    (tmp_path / "out" / "argos" / "1").mkdir(parents=True)  # of longer hours
    remove_stages(written, ["export"])
    assert not (tmp_path / "out" / "argos" / "1").exists()


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
