import io
import sys
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import console, translate
from tests.tools.documents.fake import WordByWord


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A function that runs translate.py in this process with a translator that needs no model, in `tmp_path`."""
    translator = WordByWord(str.upper)
    translator.width = 4
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: translator)
    monkeypatch.setattr(console, "import_tensorflow", lambda: None)
    monkeypatch.chdir(tmp_path)

    def run_here(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["translate.py", "--model_dir", "a", *arguments])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        translate.program()

    return run_here


def test_a_document_is_translated_by_its_ending(program, tmp_path):
    (tmp_path / "page.md").write_text("# one *two*\n")
    program("--input", "page.md", "--output", "seite.md")
    assert (tmp_path / "seite.md").read_text() == "# ONE *TWO*\n"


def test_a_pipe_needs_the_format(program, capfdbinary, monkeypatch):
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=(out := io.BytesIO()), fileno=lambda: 1))
    program("--format", "html", stdin=b"<p>one <b>two</b></p>")
    assert out.getvalue() == b"<p>ONE <b>TWO</b></p>"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--input", "a.html"), "name the file for the translation of a.html: --output. Received: no --output"),
        (
            ("--input", "a.html", "--output", "b.md"),
            "the translation is html, as the source is. Received: --output b.md",
        ),
        (
            ("--format", "html", "--n_best", "2"),
            "--n_best needs lines, not a document: leave it out, or give --format lines",
        ),
        (("--format", "html", "--prefix", "x"), "--prefix needs lines"),
        (("--input", "a.xliff", "--output", "b.xliff"), "a.xliff is not well-formed XML: line 2, column "),
        (("--engine", "beam", "--format", "html"), "--engine beam"),
        (("--target_lang", "de"), "--target_lang needs a document. Received: lines"),
        (("--format", "srt", "--target_lang", "de"), "--target_lang needs a format that declares a language: html, "),
        (("--format", "po", "--target_lang", "Deutsch"), "--target_lang must be the code of a language"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(program, tmp_path, capsys, flags, named):
    (tmp_path / "a.html").write_text("<p>one</p>")
    (tmp_path / "a.xliff").write_text("<xliff>\n<a></xliff>")
    with pytest.raises(SystemExit) as caught:
        program(*flags)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line and line.startswith("error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.xliff"]


def test_texts_that_stay_are_named_in_one_line(program, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: WordByWord(lambda word: "{x}"))
    (tmp_path / "a.po").write_text('msgid "one"\nmsgstr ""\n\nmsgid "two"\nmsgstr ""\n\nmsgid "three"\nmsgstr "3"\n')
    program("--input", "a.po", "--output", "b.po")
    assert capsys.readouterr().err.splitlines() == [
        'warning: 2 texts of a.po stay untranslated, because a variable was lost or moved: "one", "two"'
    ]
    assert (tmp_path / "b.po").read_text() == (tmp_path / "a.po").read_text()


def test_a_document_declares_the_language_that_is_given(program, tmp_path):
    (tmp_path / "a.html").write_text('<html lang="en"><p>one</p></html>')
    program("--input", "a.html", "--output", "b.html", "--target_lang", "de")
    assert (tmp_path / "b.html").read_text() == '<html lang="de"><p>ONE</p></html>'
