"""The programs as a user runs them: slow tests, because each process imports TensorFlow. Mistakes: in tests/cli."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

ROOT = Path(__file__).parent.parent
LINES = [b"one two three", b"", b"ten nine\r", b"   ", b"\xff\xfe", b"zero", b"one two three"]
QUIET = ("TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND")  # set for the tests, not by users
SETTINGS = {"vocabulary_size": tiny.VOCABULARY, **tiny.SIZES, "max_steps": 61, "batch_tokens": 97, "warmup_steps": 11}
SETTINGS |= {"peak_learning_rate": 0.01, "precision": "float32", "source_lang": "en", "target_lang": "de"}


def run(script, *arguments, stdin=b"", warm=None):
    """Runs a program: from its start, or as a fork of the process of `warm`, which has imported TensorFlow."""
    start = ["-S", "tests/warm_start.py", "run", str(warm)] if warm else []
    result = subprocess.run(
        [sys.executable, *start, script, *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in QUIET},
        input=stdin,
        capture_output=True,
        timeout=600,
    )
    result.stdout, result.stderr = result.stdout.decode("utf-8"), result.stderr.decode("utf-8")
    return result


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scripts")
    tiny.write_corpus(directory / "corpus")
    return directory


@pytest.fixture(scope="module")
def trained(work):
    settings = {"model_dir": work / "run", "dataset": f"files:{work / 'corpus'}", **SETTINGS}
    return run("train.py", *(part for name, value in settings.items() for part in (f"--{name}", value)))


@pytest.fixture(scope="module")
def exported(work, trained):
    return run("export.py", "--model_dir", work / "run", "--export_dir", work / "export")


@pytest.mark.slow
def test_training_ends_with_the_score_and_the_next_commands(trained):
    assert (trained.returncode, trained.stderr) == (0, "")  # outside of a terminal
    assert "7 sentences" in trained.stdout and "BLEU" in trained.stdout and "|tok:13a|" in trained.stdout
    commands = ["translate.py --model_dir", "tensorboard --logdir", "export.py --model_dir"]
    last = trained.stdout.splitlines()[-3:]
    assert [command for command, line in zip(commands, last, strict=True) if command not in line] == []


@pytest.mark.slow
def test_an_export_says_where_it_is_and_that_it_is_proven_and_has_the_score_of_its_training(work, trained, exported):
    assert (exported.returncode, exported.stderr) == (0, "")
    first, second, *_ = exported.stdout.splitlines()
    assert first.split() == ["exported", str(work / "export" / "1")]
    assert "19 of 19 sentences" in second  # 13 of the validation set, and the probes
    manifest = json.loads((work / "export" / "1" / "export.json").read_text(encoding="utf-8"))
    evaluation = manifest["run"]["evaluation"]
    assert f"BLEU {evaluation['bleu']:.1f} ({evaluation['bleu_signature']})" in trained.stdout
    assert (evaluation["set"], evaluation["sentences"], evaluation["beam_size"]) == ("test", 7, 4)
    assert (manifest["run"]["source_lang"], manifest["run"]["target_lang"]) == ("en", "de")


@pytest.mark.slow
def test_the_filter_keeps_lines_and_is_the_same_from_run_and_export(work, exported, warm):
    """From standard input to standard output, and backwards from file to file."""
    result = run("translate.py", "--model_dir", work / "run", stdin=b"\n".join(LINES))
    assert (result.returncode, result.stderr) == (0, "")
    *lines, rest = result.stdout.split("\n")
    assert len(lines) == len(LINES) and rest == ""
    assert lines[1] == lines[3] == "" and lines[0] == lines[-1] != ""

    (work / "in").write_bytes(b"".join(line + b"\n" for line in reversed(LINES)))
    files = ("--input", work / "in", "--output", work / "out")
    result = run("translate.py", "--saved_model", work / "export", *files, warm=warm)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (work / "out").read_text(encoding="utf-8").split("\n") == [*reversed(lines), ""]


@pytest.mark.slow
def test_an_export_gives_json_of_its_best_translations_and_takes_options(work, exported, warm):
    (work / "plain").write_bytes(b"one two three\nzero\n\xff\n")
    model, files = ("--saved_model", work / "export"), ("--input", work / "plain", "--output", work / "objects")
    result = run("translate.py", *model, *files, "--json", "--n_best", 2, warm=warm)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    best = [json.loads(line) for line in (work / "objects").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in best] == ["one two three", "zero", "\ufffd"]
    assert [len(row["alternatives"]) for row in best] == [2, 2, 2] and not [*work.glob("objects.*")]

    options = ("--prefix", "neun", "--beam_size", 1, "--length_penalty", 0.1)
    result = run("translate.py", *model, *options, stdin=(work / "plain").read_bytes(), warm=warm)
    assert (result.returncode, result.stderr) == (0, "")
    *lines, invalid = result.stdout.splitlines()
    assert all(line.startswith("neun") for line in lines) and invalid == "\ufffd"  # which no model translates


@pytest.mark.slow
def test_evaluation_of_run_and_export_is_the_one_that_training_ended_with(work, trained, exported, warm):
    sides = ("--source", work / "corpus" / "test.en", "--reference", work / "corpus" / "test.de")
    for model in (("--model_dir", work / "run"), ("--saved_model", work / "export")):
        result = run("evaluate.py", *model, *sides, "--output", work / "translations", warm=warm)
        assert (result.returncode, result.stderr) == (0, "")
        bleu, chrf, exact, speed = result.stdout.splitlines()
        assert "\n".join(["test set, beam 4:", bleu, chrf, exact]) in trained.stdout
        assert "|tok:13a|" in bleu and "|nc:6|" in chrf and "7 sentences" in exact and "sentences/s" in speed
        assert len((work / "translations").read_text(encoding="utf-8").splitlines()) == 7


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
