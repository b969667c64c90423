import sys

import pytest

from keras_transformer.cli import train
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
def corpus(tmp_path):
    return tiny.write_corpus(tmp_path / "corpus", train=20)


@pytest.fixture
def mistake_in_training(mistake):
    def run_here(corpus, model_dir, **settings):
        flags = {"dataset": f"files:{corpus}", "model_dir": model_dir, **SETTINGS, **settings}
        return mistake(train, *[part for name, value in flags.items() for part in (f"--{name}", value)])

    return run_here


def test_an_unknown_flag_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--no_such_flag", "1"])
    with pytest.raises(SystemExit) as caught:
        train.program()
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and "--no_such_flag" in err


def test_a_corpus_that_is_not_there_is_one_line(corpus, tmp_path, mistake_in_training):
    assert "no such directory" in mistake_in_training(tmp_path / "nowhere", tmp_path / "x")
    assert "train.fr" in mistake_in_training(corpus, tmp_path / "y", target_lang="fr")
    assert not [*tmp_path.glob("[xy]/config.yaml")]


def test_sides_of_different_lengths_are_one_line(corpus, tmp_path, mistake_in_training):
    (corpus / "train.de").write_text("eins\n", encoding="utf-8")
    assert "20 lines" in mistake_in_training(corpus, tmp_path / "z")
    assert not (tmp_path / "z" / "config.yaml").exists()


def test_other_settings_in_the_directory_of_a_run_are_one_line(learned, mistake_in_training):
    settings = {"label_smoothing": 0.2, "max_length": 31, "epochs": 3, "batch_tokens": 401, "validation_sentences": 5}
    assert "label_smoothing was" in mistake_in_training(learned.path.parent / "corpus", learned.path, **settings)
