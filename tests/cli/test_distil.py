import json
import shutil
import sys

import pytest

from keras_transformer import runs
from keras_transformer.cli import distil
from keras_transformer.data.corpora import open_corpus
from keras_transformer.languages import check_direction
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.translation.results import Translation
from tests import tiny

PAIRS = tiny.learned_pairs()[:11]


class Teacher:
    """A translator that notes what it is asked, and may be interrupted when it is asked for the third time."""

    tags, width, languages = None, 4, ("en", "de")

    def __init__(self, path):
        self.files, self.asked, self.is_interrupted = [path], [], False

    def between(self, **languages):
        check_direction(self.languages, **languages)
        return self

    def translate(self, texts, on_progress):
        return [row[0].text for row in self.alternatives(texts, on_progress)]

    def alternatives(self, texts, on_progress):
        if self.is_interrupted and len(self.asked) == 2:
            raise KeyboardInterrupt
        self.asked.append(texts)
        return [[Translation(f"{text}\n{n}" if text else "", -n) for n in range(self.width)] for text in texts]


@pytest.fixture
def teacher(tmp_path, monkeypatch):
    (tmp_path / "weights").write_text("weights")
    translator = Teacher(tmp_path / "weights")

    def load(path, checkpoint, batch_size, **search):
        translator.path = path
        return translator

    monkeypatch.setattr(runs, "load", load)
    return translator


@pytest.fixture
def corpus(tmp_path):
    """The directory of a corpus with a blank line in its training text, and its test set under another name."""
    directory = tmp_path / "mine"
    directory.mkdir()
    for stem, pairs in {"train": [*PAIRS[:5], ("", ""), PAIRS[0]], "val": PAIRS[5:8], "test2016": PAIRS[8:]}.items():
        tiny.write_pairs(directory, stem, pairs)
    return directory


@pytest.fixture
def first(corpus, tmp_path):
    """The flags that the program needs."""
    return ["--teacher", tmp_path / "a", "--dataset", f"files:{corpus}@en-de", "--output", tmp_path / "out"]


@pytest.fixture
def taught(monkeypatch, teacher, first, tmp_path):
    """A function from more flags to the directory that the program writes."""

    def run_here(*flags, output="out"):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, [*first, *flags, "--output", tmp_path / output])])
        distil.program()
        return tmp_path / output

    return run_here


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_the_pairs_are_a_corpus_of_the_training_text_and_what_the_teacher_writes(taught, corpus):
    directory = taught()
    assert (directory / "train.en").read_bytes() == (corpus / "train.en").read_bytes()
    assert lines(directory / "train.de") == [f"{line} 0" if line else "" for line in lines(corpus / "train.en")]
    whole = open_corpus(f"files:{directory}", "en", "de")
    assert (list(whole.validation), list(whole.test)) == (PAIRS[5:8], PAIRS[8:]) and not whole.held_out
    names = ["distillation.json", "test.de", "test.en", "train.de", "train.en", "val.de", "val.en"]
    assert sorted(path.name for path in directory.iterdir()) == names


def test_the_n_best_translations_are_as_many_pairs(taught, corpus):
    directory = taught("--n_best", 3)
    texts = lines(corpus / "train.en")
    assert lines(directory / "train.en") == [text for text in texts for _ in range(3)]
    assert lines(directory / "train.de") == [f"{text} {n}" if text else "" for text in texts for n in range(3)]


def test_a_text_without_validation_holds_some_out_for_good(taught, corpus, capsys):
    (corpus / "val.en").unlink(), (corpus / "val.de").unlink()
    tiny.write_pairs(corpus, "train", tiny.pairs(60))
    directory = taught()
    real = open_corpus(f"files:{corpus}", "en", "de")
    assert real.held_out and "held out" in capsys.readouterr().out
    whole = open_corpus(f"files:{directory}", "en", "de")
    assert list(whole.validation) == list(real.validation)
    assert [source for source, _ in whole.train] == [source for source, _ in real.train]


def test_several_teachers_are_one_ensemble(taught, teacher, tmp_path):
    taught("--teacher", tmp_path / "b")
    assert teacher.path == [tmp_path / "a", tmp_path / "b"]
    taught(output="one")
    assert teacher.path == tmp_path / "a"


@pytest.mark.parametrize("flags", [[], ["--n_best", 2]], ids=str)
def test_an_interrupted_text_goes_on_and_is_as_if_it_never_was_interrupted(
    taught, teacher, monkeypatch, capsys, tmp_path, flags
):
    expected = {path.name: path.read_bytes() for path in taught(*flags, output="whole").iterdir()}
    monkeypatch.setattr("keras_transformer.translation.lines.CHUNK", 2)
    teacher.asked, teacher.is_interrupted = [], True
    with pytest.raises(SystemExit) as caught:
        taught(*flags)
    assert caught.value.code == 130 and "the same command goes on from here" in capsys.readouterr().out
    assert not (tmp_path / "out" / "train.de").exists()
    teacher.asked, teacher.is_interrupted = [], False
    assert {path.name: path.read_bytes() for path in taught(*flags).iterdir()} == expected
    assert list(map(len, teacher.asked)) == [2, 1]  # the chunks of two that were not done
    taught(*flags)
    assert "out is complete" in capsys.readouterr().out and len(teacher.asked) == 2


@pytest.mark.parametrize("change", ["text", "teacher", "n_best", "beam_size"])
def test_pairs_of_another_text_or_teacher_are_never_mixed(taught, first, corpus, teacher, mistake, tmp_path, change):
    directory = taught()
    before = {path: path.read_bytes() for path in directory.iterdir()}
    assert json.loads((directory / "distillation.json").read_text())["n_best"] == 1
    if change == "text":
        tiny.write_pairs(corpus, "train", PAIRS[:4])
    if change == "teacher":
        (tmp_path / "weights").write_text("other weights")
    flags = [f"--{change}", 3] if change in ("n_best", "beam_size") else []
    line = mistake(distil, *first, *flags)
    assert line == f"error: {directory} has pairs of another {change}: remove it, or choose another --output"
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("name", ["train.en", "train.de", "train.tsv", "val.en"])
def test_a_corpus_that_is_there_already_stays_as_it_is(teacher, first, mistake, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine\n")
    assert mistake(distil, *first) == f"error: {tmp_path}/out/{name} exists: choose another --output"
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n_best", "5"], "--n_best must be at most the model's beam size, 4. Received: 5"),
        (["--n_best", "0"], "--n_best must be between 1 and"),
        (["--dataset", "files:more"], "--dataset names one corpus: distil each by itself. Received: files:"),
        (["--engine", "beam", "--no_such", "3"], "neither this program nor Apache Beam has a flag --no_such"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_writes_nothing(teacher, first, mistake, tmp_path, flags, message):
    assert message in mistake(distil, *first, *flags)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("files:CORPUS@de-en", "the model has one direction, and its --source_lang is en. Received: source_lang=de"),
        ("files:CORPUS", "needs its languages: files:"),
        ("files:nowhere@en-de", "no such directory: nowhere"),
    ],
)
def test_a_corpus_that_the_teacher_cannot_translate_is_one_line(teacher, corpus, mistake, tmp_path, dataset, message):
    asked = ["--teacher", "a", "--dataset", dataset.replace("CORPUS", str(corpus)), "--output", tmp_path / "out"]
    assert message in mistake(distil, *asked)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_runs_teach_here_and_on_beam(learned, tmp_path, monkeypatch):
    other = shutil.copytree(learned.path, tmp_path / "other")
    asked = ["--teacher", learned.path, "--teacher", other, "--dataset", f"files:{learned.path.parent / 'corpus'}"]
    asked += ["--source_lang", "en", "--target_lang", "de", "--beam_size", 2, "--n_best", 2, "--output"]
    for name, flags in {"here": [], "beam": ["--engine", "beam", "--direct_num_workers", 2]}.items():
        monkeypatch.setattr(sys, "argv", ["program", *map(str, [*asked, tmp_path / name, *flags])])
        distil.program()
    texts = lines(learned.path.parent / "corpus" / "train.en")
    alternatives = load_translator(learned, beam_size=2).alternatives(texts)
    assert lines(tmp_path / "here" / "train.de") == [each.text for row in alternatives for each in row]
    for name in ("train.en", "train.de", "val.de"):
        assert (tmp_path / "beam" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
