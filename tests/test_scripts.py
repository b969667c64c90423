"""The programs as a user runs them: slow tests, because each process imports TensorFlow. Mistakes: in tests/cli."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny, warm_start

ROOT = Path(__file__).parent.parent
LINES = [b"one two three", b"", b"ten nine\r", b"   ", b"\xff\xfe", b"zero", b"one two three"]
QUIET = ("TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND")  # set for the tests, not by users
SETTINGS = {"vocabulary_size": tiny.VOCABULARY, **tiny.SIZES, "max_steps": 61, "batch_tokens": 97, "warmup_steps": 11}
SETTINGS |= {"peak_learning_rate": 0.01, "precision": "float32", "source_lang": "en", "target_lang": "de"}


def run(script, *arguments, stdin=b"", warm=None):
    """Runs a program: from its start, or as a fork of the process of `warm`, which has imported TensorFlow."""
    start = warm_start.command(warm) if warm else [sys.executable]
    result = subprocess.run(
        [*start, script, *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in QUIET},
        input=stdin,
        capture_output=True,
        timeout=600,
    )
    result.stdout, result.stderr = result.stdout.decode("utf-8"), result.stderr.decode("utf-8")
    return result


def made_by_programs(warm):
    """A directory with a corpus, a run of train.py, an export of export.py, and what both printed: for reading."""

    def make(path):
        path.mkdir()
        settings = {"model_dir": path / "run", "dataset": f"files:{path}/corpus", **SETTINGS}
        tiny.write_corpus(path / "corpus")
        trained = run("train.py", *(part for name, value in settings.items() for part in (f"--{name}", value)))
        exported = run("export.py", "--model_dir", path / "run", "--export_dir", path / "export", warm=warm)
        for name, result in (("train", trained), ("export", exported)):
            assert (result.returncode, result.stderr) == (0, ""), result.stderr  # outside of a terminal
            (path / f"{name}.txt").write_text(result.stdout, encoding="utf-8")

    return tiny.once("made_by_programs", make)


@pytest.fixture(scope="module")
def made(warm):
    return made_by_programs(warm)


@pytest.mark.slow
def test_training_and_export_end_with_the_same_score_and_a_proof_and_say_where_to_go_on(made):
    trained, exported = ((made / f"{name}.txt").read_text(encoding="utf-8") for name in ("train", "export"))
    commands = ["translate.py --model_dir", "tensorboard --logdir", "export.py --model_dir"]
    last = trained.splitlines()[-3:]
    assert [command for command, line in zip(commands, last, strict=True) if command not in line] == []
    first, second, *_ = exported.splitlines()
    assert first.split() == ["exported", str(made / "export" / "1")]
    assert "19 of 19 sentences" in second  # 13 of the validation set, and the probes
    manifest = json.loads((made / "export" / "1" / "export.json").read_text(encoding="utf-8"))
    evaluation = manifest["run"]["evaluation"]
    assert f"BLEU {evaluation['bleu']:.1f} ({evaluation['bleu_signature']})" in trained
    assert (evaluation["set"], evaluation["sentences"], evaluation["beam_size"]) == ("test", 7, 4)
    assert (manifest["run"]["source_lang"], manifest["run"]["target_lang"]) == ("en", "de")


@pytest.mark.slow
def test_the_filter_keeps_lines_and_is_the_same_from_run_and_export(made, tmp_path, warm):
    """From standard input to standard output, and backwards from file to file."""
    result = run("translate.py", "--model_dir", made / "run", stdin=b"\n".join(LINES))
    assert (result.returncode, result.stderr) == (0, "")
    *lines, rest = result.stdout.split("\n")
    assert len(lines) == len(LINES) and rest == "" and lines[1] == lines[3] == "" and lines[0] == lines[-1] != ""

    (tmp_path / "in").write_bytes(b"".join(line + b"\n" for line in reversed(LINES)))
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
    result = run("translate.py", "--saved_model", made / "export", *files, warm=warm)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n") == [*reversed(lines), ""]


@pytest.mark.slow
def test_evaluation_of_an_export_is_the_one_that_training_ended_with(made, tmp_path, warm):
    sides = ("--source", made / "corpus" / "test.en", "--reference", made / "corpus" / "test.de")
    output = ("--output", tmp_path / "translations")
    result = run("evaluate.py", "--saved_model", made / "export", *sides, *output, warm=warm)
    assert (result.returncode, result.stderr) == (0, "")
    bleu, chrf, exact, speed = result.stdout.splitlines()
    trained = (made / "train.txt").read_text(encoding="utf-8")
    assert "\n".join(["test set, beam 4:", bleu, chrf, exact]) in trained
    assert "|tok:13a|" in bleu and "|nc:6|" in chrf and "7 sentences" in exact and "sentences/s" in speed
    assert len((tmp_path / "translations").read_text(encoding="utf-8").splitlines()) == 7


# Mistakes. A process proves that a program prints a line for them; tests/cli has the mistakes themselves.


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train.py --preset huge", "--preset must be one of"),
        ("translate.py --model_dir some --explain", "--explain needs --json"),
        ("evaluate.py --model_dir some --source s --reference r --beam_size 0", "--beam_size must be between 1 and"),
        ("export.py --model_dir some --export_dir some --quantization int8", "--quantization needs --format ctr"),
    ],
)
def test_a_program_prints_a_mistake_as_one_line(command, expected):
    result = run(*command.split())
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and expected in line
