"""A stand-in for the package unbabel-comet, whose interface is that of version 2.2.7."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer.cli import evaluate
from keras_transformer.errors import UserError
from keras_transformer.tools.comparison.comet import comet_score, load_comet

ROOT = Path(__file__).parents[3]
# COMET is 1 where a translation is its reference, and 0.25 where it is not. It needs the source of each.
COMET = """
import logging
import pathlib

logging.basicConfig(level=logging.INFO, force=True)


class Prediction(dict):
    def __getattr__(self, name):
        return self[name]


class Model:
    def __init__(self, path):
        self.path = path

    def predict(self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0, progress_bar=True,
                accelerator="auto", num_workers=None, length_batching=True):
        assert batch_size == 7 and not progress_bar
        for sample in samples:
            assert sample.keys() == {"src", "mt", "ref"} and sample["src"] == sample["ref"].upper()
        scores = [1.0 if sample["mt"] == sample["ref"] else 0.25 for sample in samples]
        return Prediction(scores=scores, system_score=sum(scores) / len(scores))


def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
    assert local_files_only and checkpoint_path.endswith("model.ckpt")
    if not pathlib.Path(checkpoint_path).read_bytes():
        raise OSError("We couldn't connect to 'https://huggingface.co'\\nto load xlm-roberta-large.")
    return Model(checkpoint_path)
"""
# A process with COMET has no TensorFlow: the two packages need different versions of protobuf.
WITHOUT_TENSORFLOW = """
import runpy, sys
for name in ("tensorflow", "keras", "sentencepiece", "google.protobuf"):
    sys.modules[name] = None
sys.argv[0] = "evaluate.py"
runpy.run_path("evaluate.py", run_name="__main__")
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A directory with a COMET model, a test set and the translations of two systems."""
    for name in ("checkpoints", "package/comet"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "package/comet/__init__.py").write_text(COMET, encoding="utf-8")
    (tmp_path / "checkpoints/model.ckpt").write_bytes(b"weights")
    (tmp_path / "hparams.yaml").touch()
    for name, lines in {
        "test.en": ["ONE", "TWO", "ÖL", "FOUR"],
        "test.de": ["one", "two", "öl", "four"],
        "new.de": ["one", "two", "öl", "x"],
        "old.de": ["x", "x", "x", "four"],
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def package(work, monkeypatch):
    """The stand-in can be imported. Yields `work`."""
    monkeypatch.syspath_prepend(str(work / "package"))
    yield work
    sys.modules.pop("comet", None)


def flags_of(work):
    flags = {"source": "test.en", "reference": "test.de", "hypotheses": "new.de"}
    return [word for name, file in flags.items() for word in (f"--{name}", work / file)] + ["--batch_size", "7"]


@pytest.fixture
def lines(monkeypatch, capsys):
    """What evaluate.py prints with these flags."""

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, flags)])
        evaluate.program()
        return capsys.readouterr().out.splitlines()

    return run


def test_comet_is_printed_for_one_system_and_for_two(package, lines):
    flags = [*flags_of(package), "--comet", package]
    assert lines(*flags)[3:] == [f"COMET 0.8125 ({package})"]  # (1 + 1 + 1 + 0.25) / 4
    both = lines(*flags, "--baseline", package / "old.de")
    assert both[-2:] == [f"COMET 0.8125 ({package})", f"COMET 0.4375 ({package}) (baseline)"]


def test_all_references_count(package):
    model, references = load_comet(package), [["a", "a"], ["b", "b"]]
    assert comet_score(model, ["a", "x"], references, ["A", "B"], 7) == (1 + 1 + 0.25 + 0.25) / 4


def test_the_report_has_the_comet_that_is_printed(package, lines):
    path = package / "report.html"
    lines(*flags_of(package), "--comet", package, "--report", path)
    assert '"metric":"COMET"' in path.read_text(encoding="utf-8") and '"0.8125"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda work: (work / "hparams.yaml").unlink(), "no COMET model at {}: there is no file hparams.yaml"),
        (
            lambda work: (work / "checkpoints/model.ckpt").unlink(),
            "no COMET model at {}: there is no file checkpoints/model.ckpt",
        ),
        (
            lambda work: (work / "checkpoints/model.ckpt").write_bytes(b""),
            "the COMET model {} cannot be opened: We couldn't connect to 'https://huggingface.co' to load "
            "xlm-roberta-large.",
        ),
    ],
)
def test_a_model_that_is_missing_or_cannot_be_opened_is_named_in_one_line(package, change, message):
    change(package)
    with pytest.raises(UserError) as caught:
        load_comet(package)
    assert str(caught.value) == message.format(package)


def test_the_package_does_not_change_what_is_logged(package):
    root = logging.getLogger()
    before = [*root.handlers], root.level
    load_comet(package)
    assert ([*root.handlers], root.level) == before


def test_comet_works_where_tensorflow_is_not_installed(work):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *map(str, flags_of(work)), "--comet", str(work)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(work / "package")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", f"COMET 0.8125 ({work})")
