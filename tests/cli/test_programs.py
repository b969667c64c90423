"""train, export and translate: mistakes that they find themselves. Flags alone: test_flags.py and test_request.py."""

import functools
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import export, train, translate
from keras_transformer.languages import check_direction
from tests import tiny

SETTINGS = {
    "source_lang": "en",
    "target_lang": "de",
    "vocabulary_size": tiny.VOCABULARY,
    **tiny.SIZES,
    "batch_tokens": 97,
    "warmup_steps": 11,
    "precision": "float32",
    "strategy": "one_device",  # any other changes this process for good
}


@pytest.fixture
def mistake_in_training(mistake):
    def run_here(corpus, model_dir, **settings):
        flags = {"dataset": f"files:{corpus}", "model_dir": model_dir, **SETTINGS, **settings}
        return mistake(train, *[part for name, value in flags.items() for part in (f"--{name}", value)])

    return run_here


def test_a_corpus_that_is_not_there_or_uneven_is_one_line(tmp_path, mistake_in_training):
    corpus = tiny.write_corpus(tmp_path / "corpus", train=20)
    assert "no such directory" in mistake_in_training(tmp_path / "nowhere", tmp_path / "x")
    assert "train.fr" in mistake_in_training(corpus, tmp_path / "y", target_lang="fr")
    (corpus / "train.de").write_text("eins\n", encoding="utf-8")
    assert "20 lines" in mistake_in_training(corpus, tmp_path / "z")
    assert not [*tmp_path.glob("[xyz]/config.yaml")]


def test_other_settings_in_the_directory_of_a_run_are_one_line(learned, mistake_in_training):
    settings = {"label_smoothing": 0.2, "max_length": 31, "epochs": 3, "batch_tokens": 401, "validation_sentences": 5}
    assert "label_smoothing was" in mistake_in_training(learned.path.parent / "corpus", learned.path, **settings)


def test_a_run_that_is_not_there_is_not_exported_and_no_export_is_overwritten(learned, tmp_path, mistake):
    flags = ("--model_dir", tmp_path / "nowhere", "--export_dir", tmp_path / "exports")
    assert "no run in" in mistake(export, *flags)
    assert "unrecognized arguments: --no_such_flag 1" in mistake(export, *flags, "--no_such_flag", 1)
    assert not [*tmp_path.iterdir()]
    (tmp_path / "1").mkdir()
    flags = ("--model_dir", learned.path, "--export_dir", tmp_path, "--version", 1)
    assert f"{tmp_path / '1'} exists" in mistake(export, *flags)
    assert [*tmp_path.rglob("*")] == [tmp_path / "1"]


def test_a_model_that_is_not_there_or_that_searches_less_is_one_line(tmp_path, monkeypatch, mistake):
    assert "no run and no export in" in mistake(translate, "--model_dir", tmp_path / "nowhere")
    assert "no run and no export in" in mistake(translate, "--saved_model", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: SimpleNamespace(width=4))
    most = "must be at most the model's beam size, 4"
    assert f"--n_best {most}" in mistake(translate, "--saved_model", tmp_path, "--n_best", 5)


def test_a_reverse_model_that_cannot_rank_is_one_line_and_writes_nothing(tmp_path, monkeypatch, mistake):
    def load(path, *arguments, **settings):
        languages, width = {"en-de": (("en", "de"), 4), "de-en": (("de", "en"), 4), "greedy": (("en", "de"), 1)}[path]
        between = functools.partial(check_direction, languages)
        return SimpleNamespace(width=width, files=[], tags=None, languages=languages, between=between)

    monkeypatch.setattr(runs, "load", load)
    (tmp_path / "in").write_text("one\n")
    asked = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--model_dir"]
    line = mistake(translate, *asked, "en-de", "--reverse", "en-de")
    assert "--reverse must translate from de to en" in line and "its `source_lang` is en" not in line
    assert "--reverse ranks the hypotheses of a beam" in mistake(translate, *asked, "greedy", "--reverse", "de-en")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
