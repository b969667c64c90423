from pathlib import Path

import pytest

from keras_transformer.cli import back_translate, clean, distil, evaluate, export, translate
from keras_transformer.cli.train import parse_training
from keras_transformer.tools.recipe.plan import FORMATS, Sizes
from keras_transformer.tools.recipe.stages import Build, commands, systems

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
def test_each_program_takes_the_flags_of_its_commands(sizes, monkeypatch):
    for stage in words_of(sizes).values():
        for program, *flags in stage:
            if program == "train":
                assert not parse_training(flags, "")[0].score_test
            else:
                PROGRAMS[program].make_parser().parse_args(
                    flags
                )  # it ends the process for a flag that it does not have


def test_the_settings_of_the_trainings():
    stages = {
        name: parse_training(list(found[0][1:]), "")[0]
        for name, found in words_of(WHOLE).items()
        if found and found[0][0] == "train"
    }
    assert {name: (config.preset, config.epochs) for name, config in stages.items()} == {
        "both": ("tiny", 10),
        "teacher": ("tiny", 21),
        "second_both": ("tiny", 10),
        "second": ("tiny", 21),
        "student_both": ("tiny_6_1", 10),
        "student": ("tiny_6_1", 21),
    }
    assert {config.seed for config in stages.values()} == {7}
    assert stages["teacher"].positions != stages["second"].positions == stages["second_both"].positions
    same = {config.tokenizer for name, config in stages.items() if name in ("second_both", "student_both")}
    assert same == {"builds/mine/both/tokenizer.model"}  # so that all of them translate together
    assert stages["second"].init_from == "builds/mine/second_both"
    assert stages["student"].corpora == (
        "files:builds/mine/prepare:0.5",
        "files:builds/mine/distil:0.5",
        "files:builds/mine/back_translate:0.2500",
    )


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
