"""Each tool can be deleted: all else still trains, translates and exports, and names a missing tool in one line."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import tiny, warm_start

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"
TOOLS = sorted(path.name for path in (PACKAGE / "tools").iterdir() if path.is_dir() and path.name[0] not in "._")
# What a user asks for, and the tool that it needs. The names in capitals are files and directories of the test.
EVALUATE = ["-m", "keras_transformer", "evaluate"]
TRAINED = ["--dataset", "files:CORPUS", "--source_lang", "en", "--target_lang", "de"]
NEEDS = {
    "analysis": ["-m", "keras_transformer", "analyze", "--model_dir", "RUN"],
    "back_translation": ["-m", "keras_transformer", "back_translate", "--model_dir", "RUN"],
    "beam": ["translate.py", "--engine", "beam", "--saved_model", "EXPORT", "--input", "TEXT", "--output", "OUT"],
    "cards": ["-m", "keras_transformer", "recipe", "--dataset", "files:CORPUS@en-de", "--output", "OUT"],
    "cldr": ["train.py", "--dataset", "cldr:en-de", "--model_dir", "OUT", "--dry_run"],
    "cleaning": ["-m", "keras_transformer", "clean", "--input", "CORPUS", "--output", "OUT"],
    "comparison": [*EVALUATE, "--hypotheses", "TEXT", "--reference", "TEXT", "--report", "OUT"],
    "distillation": ["-m", "keras_transformer", "distil", "--teacher", "RUN"],
    "documents": ["translate.py", "--model_dir", "RUN", "--format", "html", "--input", "TEXT", "--output", "OUT"],
    "engines": ["-m", "keras_transformer", "export", "--model_dir", "RUN", "--export_dir", "OUT", "--format", "litert"],
    "ensemble": ["translate.py", "--model_dir", "RUN", "--model_dir", "CORPUS", "--input", "TEXT", "--output", "OUT"],
    "importing": ["-m", "keras_transformer", "import", "CORPUS", "--model_dir", "OUT"],
    "memory": ["translate.py", "--model_dir", "RUN", "--tmx", "TEXT", "--input", "TEXT", "--output", "OUT"],
    "planning": ["train.py", "--dry_run", "--dataset", "cldr:en-de", "--model_dir", "OUT"],
    "recipe": ["-m", "keras_transformer", "recipe", "--dataset", "files:CORPUS@en-de", "--output", "OUT"],
    "reranking": ["translate.py", "--model_dir", "RUN", "--mbr", "chrf", "--input", "TEXT", "--output", "OUT"],
    "saved_models": ["translate.py", "--saved_model", "EXPORT", "--input", "TEXT", "--output", "OUT"],
    "shortlist": ["translate.py", "--model_dir", "RUN", "--shortlist", "7", "--input", "TEXT", "--output", "OUT"],
    "sweep": ["-m", "keras_transformer", "sweep", "--output", "OUT"],
    "tfds": ["train.py", "--dataset", "tfds:mine", "--model_dir", "RUN"],
    "variation": ["train.py", "--upper_case", "0.1", *TRAINED, "--model_dir", "OUT"],
    "workers": ["train.py", "--strategy", "multi_worker", "--model_dir", "OUT"],
}
PROGRAMS = {"analysis": "analyze", "back_translation": "back_translate", "cleaning": "clean"}
PROGRAMS |= {"distillation": "distil", "importing": "import", "recipe": "recipe", "sweep": "sweep"}


def test_every_tool_is_asked_for():
    assert [*NEEDS] == TOOLS


# The export is proven: it translates as the run does.
WORK = """
import sys
import keras_transformer as kt
settings = eval(sys.argv[1])
kt.train(max_steps=2, **settings).export(f"{settings['model_dir']}/export")
"""
SETTINGS = {"vocabulary_size": tiny.VOCABULARY, **tiny.SIZES, "max_length": 31, "strategy": "one_device"}
SETTINGS |= {"source_lang": "en", "target_lang": "de", "beam_size": 1, "validation_sentences": 3}


def run(tree, warm, *words):
    """Runs a program of a tree as a fork of the process of `warm`, which has imported nothing of the project."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [*warm_start.command(warm), *map(str, words)]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_one_tool_after_the_other_is_deleted_and_all_else_works(tmp_path, warm):
    tree, corpus = tmp_path / "tree", tiny.write_corpus(tmp_path / "corpus")
    shutil.copytree(PACKAGE, tree / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for program in ("train.py", "translate.py"):
        shutil.copyfile(ROOT / program, tree / program)
    (tmp_path / "text").write_text("one two\n")
    places = {"CORPUS": corpus, "TEXT": tmp_path / "text", "OUT": tmp_path / "out"}
    places |= {"RUN": tiny.write_run(tmp_path / "run", corpus).path, "EXPORT": tiny.saved_model() / "exports" / "1"}
    for tool in TOOLS:
        shutil.rmtree(tree / PACKAGE.name / "tools" / tool)
        if tool in PROGRAMS:
            (tree / PACKAGE.name / "cli" / f"{PROGRAMS[tool]}.py").unlink()
        asked = run(tree, warm, *(places.get(word, word) for word in NEEDS[tool]))
        assert asked.returncode != 0 and asked.stdout == "" and not places["OUT"].exists()
        (line,) = asked.stderr.splitlines()
        assert line.startswith("error: ") and ("is not installed" in line or "is missing" in line), line
    # What works without any tool works without one of them.
    (tree / "work.py").write_text(WORK)
    done = run(tree, warm, "work.py", {**SETTINGS, "dataset": f"files:{corpus}", "model_dir": f"{tmp_path}/without"})
    assert done.returncode == 0, done.stderr
