"""The programs as a user runs them; few runs, since each imports TensorFlow."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

ROOT = Path(__file__).parent.parent
LINES = ["one two three", "", "ten nine", "   ", "zero"]
SETTINGS = {
    "vocabulary_size": tiny.VOCABULARY,
    **tiny.SIZES,
    "max_steps": 5,
    "batch_tokens": 401,
    "precision": "float32",
}


def run(script, *arguments, text=""):
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
    )


def train(corpus, model_dir, **settings):
    settings = {"dataset": f"files:{corpus}", "source_lang": "en", "target_lang": "de", **SETTINGS, **settings}
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return run("train.py", "--model_dir", model_dir, *flags)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scripts")
    tiny.write_corpus(directory / "corpus")
    return directory


@pytest.fixture(scope="module")
def trained(work):
    return train(work / "corpus", work / "run")


@pytest.fixture(scope="module")
def exported(work, trained):
    return run("export.py", "--model_dir", work / "run", "--export_dir", work / "export")


def test_training_ends_with_the_score_and_the_next_commands(trained, work):
    assert trained.returncode == 0, trained.stderr
    assert "7 sentences" in trained.stdout and "BLEU" in trained.stdout and "|tok:13a|" in trained.stdout
    for command in ("translate.py --model_dir", "tensorboard --logdir", "export.py --model_dir"):
        assert command in trained.stdout.splitlines()[-3 + ["tra", "ten", "exp"].index(command[:3])]


def test_nothing_but_the_progress_of_our_own_is_printed(trained, exported):
    assert exported.returncode == 0 and exported.stderr == ""
    assert not [line for line in trained.stderr.splitlines() if line.strip() and "test set" not in line]


def test_the_filter_keeps_lines_and_is_the_same_from_run_and_export(work, exported):
    text = "".join(f"{line}\n" for line in LINES)
    results = [
        run("translate.py", *source, text=text)
        for source in (("--model_dir", work / "run"), ("--saved_model", work / "export"))
    ]
    lines = results[0].stdout.split("\n")
    assert len(lines) == len(LINES) + 1 and lines[1] == lines[3] == ""
    assert results[0].stdout == results[1].stdout


def test_evaluation_prints_scores_with_signatures(work, exported):
    sides = ("--source", work / "corpus" / "test.en", "--reference", work / "corpus" / "test.de")
    result = run("evaluate.py", "--saved_model", work / "export", *sides, "--tokenize", "none")
    assert result.returncode == 0, result.stderr
    for part in ("BLEU", "|tok:none|", "chrF", "|nc:6|", "7 sentences", "sentences/s"):
        assert part in result.stdout


def test_mistakes_are_one_line_each(work, exported):
    (work / "uneven").mkdir()
    tiny.write_pairs(work / "uneven", "train", tiny.pairs(20))
    (work / "uneven" / "train.de").write_text("eins\n", encoding="utf-8")
    results = {
        "no such directory": train(work / "nowhere", work / "x"),
        "train.fr": train(work / "corpus", work / "x", target_lang="fr"),
        "20 lines": train(work / "uneven", work / "x"),
        "label_smoothing was": train(work / "corpus", work / "run", label_smoothing=0.2),
        "no model.keras": run("translate.py", "--model_dir", work / "nowhere", text="one\n"),
        "no SavedModel": run("translate.py", "--saved_model", work / "nowhere", text="one\n"),
        "never overwritten": run(
            "export.py", "--model_dir", work / "run", "--export_dir", work / "export", "--version", 1
        ),
    }
    for expected, result in results.items():
        assert result.returncode == 2, (expected, result)
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ") and expected in line
    assert not (work / "x" / "config.yaml").exists()
