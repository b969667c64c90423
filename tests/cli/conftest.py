"""Programs in this process: what they print for a user's mistake."""

import sys

import pytest

from keras_transformer.tokenizer import save_tokenizers
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """A finished run of a model that has learned for certain, with its corpus in `corpus` beside it; for reading."""
    directory = tmp_path_factory.mktemp("learned")
    run = RunDirectory(directory / "run")
    run.path.mkdir()
    tiny.config(tiny.write_corpus(directory / "corpus"), run.path).save(run.config)
    save_tokenizers(run.path, tiny.tokenizer(), tiny.tokenizer())
    tiny.trained_transformer().save(run.model)
    run.samples.write_text("\n".join(source for source, _ in tiny.learned_pairs()), encoding="utf-8")
    return run


@pytest.fixture
def mistake(monkeypatch, capsys):
    """A function that runs a program in this process, and gives the one line that it prints for a mistake."""

    def run_here(module, *arguments):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            module.program()
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        return line

    return run_here
