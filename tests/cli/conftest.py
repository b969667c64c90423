"""Programs in this process: what they do, and what they print for a user's mistake."""

import sys

import pytest

from keras_transformer.cli import console
from tests import tiny


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """A finished run of a model that has learned for certain, with its corpus in `corpus` beside it; for reading."""
    directory = tmp_path_factory.mktemp("learned")
    return tiny.write_run(directory / "run", tiny.write_corpus(directory / "corpus"))


@pytest.fixture
def run(monkeypatch):
    """A function that runs a program in this process, which has imported TensorFlow."""
    monkeypatch.setattr(console, "import_tensorflow", lambda: None)

    def run_here(module, *arguments):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
        module.program()

    return run_here


@pytest.fixture
def mistake(run, capsys):
    """A function that runs a program in this process, and gives the one line that it prints for a mistake."""

    def run_here(module, *arguments):
        with pytest.raises(SystemExit) as caught:
            run(module, *arguments)
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        return line

    return run_here
