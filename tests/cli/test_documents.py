import gzip
import io
import sys
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import console, translate
from keras_transformer.cli.documents import refuse_documents
from keras_transformer.errors import UserError
from keras_transformer.languages import check_direction
from tests.tools.documents.fake import WordByWord


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A function that runs translate.py in this process with a translator that needs no model, in `tmp_path`."""
    translator = WordByWord(str.upper)
    translator.width, translator.files = 4, []

    def between(source_lang=None, target_lang=None):
        check_direction((None, "de"), source_lang, target_lang)
        return translator

    translator.between = between
    translator.translate_scored = lambda texts, *_: [SimpleNamespace(text=text) for text in translator.translate(texts)]
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
    ("name", "text", "translated"),
    [
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>one\n", "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>ONE\n"),
        ("a.html.gz", "<p>one <b>two</b></p>", "<p>ONE <b>TWO</b></p>"),
        ("a.TXT.gz", "one\ntwo\n", "ONE\nTWO\n"),
        ("a.en.gz", "one\ntwo\n", "ONE\nTWO\n"),
        ("a.json", "one\ntwo", "ONE\nTWO\n"),
    ],
)
def test_a_file_is_translated_by_its_ending_packed_or_not(program, tmp_path, name, text, translated):
    data, target = text.encode(), f"b{name[1:]}"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    program("--input", name, "--output", target)
    found = (tmp_path / target).read_bytes()
    assert (gzip.decompress(found) if name.endswith(".gz") else found) == translated.encode()
    program("--input", name, "--output", f"{target.removesuffix('.gz')}")
    assert (tmp_path / target.removesuffix(".gz")).read_bytes() == translated.encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, target, target.removesuffix(".gz")})


@pytest.mark.parametrize("name", ["a.odt", "a.gz", "a", "a.png", "a.txt", "a.pptx.gz"])
def test_what_is_no_text_is_refused_in_one_line(program, tmp_path, capsys, monkeypatch, name):
    data = b"PK\x03\x04\n\0one"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: pytest.fail("the model was loaded"))
    with pytest.raises(SystemExit) as caught:
        program("--input", name, "--output", "b.odt")
    assert caught.value.code == 2 and [path.name for path in tmp_path.iterdir()] == [name]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {name} is no text: it is a zip archive.")


OTHER_LANGUAGE = "the model has one direction, and its --target_lang is de. Received: target_lang=fr"


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
        (("--input", "a.html", "--output", "b.html", "--mbr", "chrf"), "--mbr needs lines, not a document"),
        (("--format", "html", "--reverse", "b"), "--reverse needs lines, not a document"),
        (("--input", "a.xliff", "--output", "b.xliff"), "a.xliff is not well-formed XML: line 2, column "),
        (("--engine", "beam", "--format", "html"), "--engine beam"),
        (("--format", "srt", "--target_lang", "fr"), OTHER_LANGUAGE),
        (("--target_lang", "fr"), OTHER_LANGUAGE),
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


def test_beam_translates_no_document_as_lines():
    refuse_documents(["in/a.txt", "in/b.en.gz", "in/c"], None)
    refuse_documents(["in/a.srt"], "lines")
    with pytest.raises(UserError, match=r"--engine beam translates lines, no documents: .*in/b.srt.gz \(srt\)"):
        refuse_documents(["in/a.txt", "in/b.srt.gz"], None)
