"""translate.py with documents and with a translation memory, in this process, with a translator that needs no model."""

import dataclasses
import gzip
import io
import json
import os
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from keras_transformer import runs
from keras_transformer.cli import translate
from keras_transformer.cli.documents import refuse_documents
from keras_transformer.errors import UserError
from keras_transformer.tags import check_direction
from keras_transformer.translation.results import Translation
from tests.tools.documents.fake import WordByWord

UNIT = '<tu><tuv xml:lang="en-US"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
UNITS = [UNIT.format("One two", "eins zwei"), UNIT.format("one house", "ein Haus")]
TMX = ("--tmx", "memory.tmx")


class Upper(WordByWord):
    width, tags, languages, files = 3, None, ("en", "de"), []

    def __init__(self):
        super().__init__(str.upper)

    def between(self, source_lang=None, target_lang=None):
        check_direction((None, "de"), source_lang, target_lang)
        return self

    def translate_scored(self, texts, on_progress=None):
        return [Translation(text, -1.5) for text in self.translate(texts, on_progress)]

    def alternatives(self, texts, on_progress=None):
        return [[Translation(f"{text.upper()} {n}", -n) for n in range(self.width)] for text in texts]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """A list of the models that are loaded; each is an `Upper`. The directory is that of the test."""
    loaded = []
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: loaded.append(arguments) or Upper())
    monkeypatch.chdir(tmp_path)
    write("memory.tmx", *UNITS)
    return loaded


@pytest.fixture
def program(asked, capsys, run):
    """A function from flags and a text to the lines of the translation, and those that are for people."""

    def run_here(*flags, text="One two\nthree\n\nOne twa\n", source="in", target="out"):
        Path(source).write_text(text)
        run(translate, "--model_dir", "a", "--input", source, "--output", target, *flags)
        return Path(target).read_text().splitlines(), capsys.readouterr().err.splitlines()

    return run_here


def write(name, *units):
    with open(name, "w", encoding="utf-8") as file:
        file.write(f"<tmx><body>\n{''.join(units)}</body></tmx>")


def test_a_pipe_needs_the_format_of_a_document_and_is_read_once(asked, run, monkeypatch):
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text("one\ntwo\n"), daemon=True)
    writer.start()
    run(translate, "--model_dir", "a", "--input", "pipe", "--output", "out")
    writer.join()
    assert Path("out").read_text() == "ONE\nTWO\n"
    source, out = io.BytesIO(b"<p>one <b>two</b></p>"), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source, isatty=lambda: False))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out, fileno=lambda: 1))
    run(translate, "--model_dir", "a", "--format", "html")
    assert out.getvalue() == b"<p>ONE <b>TWO</b></p>"


def test_a_file_is_translated_by_its_ending_packed_or_not(asked, run):
    times = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>"
    for name, text, translated in (
        ("a.vtt", f"{times}one\n", f"{times}ONE\n"),
        ("a.html.gz", "<p>one <b>two</b></p>", "<p>ONE <b>TWO</b></p>"),
        ("a.TXT.gz", "one\ntwo\n", "ONE\nTWO\n"),
        ("a.x", "one\ntwo", "ONE\nTWO\n"),
    ):
        Path(name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        for target in {f"b{name[1:]}", f"b{name[1:].removesuffix('.gz')}"}:
            run(translate, "--model_dir", "a", "--input", name, "--output", target)
            found = Path(target).read_bytes()
            assert (gzip.decompress(found) if target.endswith(".gz") else found) == translated.encode()
            os.remove(target)
        os.remove(name)
    assert os.listdir() == ["memory.tmx"]


def test_a_file_whose_keys_and_tags_would_be_translated_is_refused(asked, run, mistake):
    for name, text in {
        "a.csv.gz": "one\n",
        "a": '<?xml version="1.0"?>\n<a>one</a>\n',
        "a.de.gz": '{\n  "one": "two"\n}\n',
        "c.txt": '["one", "two"]\n',
    }.items():
        Path(name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        files = ("--model_dir", "a", "--input", name, "--output", "out")
        assert f"{name} has keys or tags" in mistake(translate, *files) and not Path("out").exists()
        run(translate, *files, "--format", "lines")
        os.remove("out")
    for lines in ("<b>one</b> two\n", "[1] one\n", "{x} is one\n", "[[one]] two\n", '["one" two]\n', "{{x}}\n"):
        Path("a.en").write_text(lines)
        run(translate, "--model_dir", "a", "--input", "a.en", "--output", "out")


def test_a_document_declares_its_language_and_texts_that_stay_are_named_in_one_line(program, monkeypatch):
    files = {"text": '<html lang="en"><p>one</p></html>', "source": "a.html", "target": "b.html"}
    assert program("--target_lang", "de", **files)[0] == ['<html lang="de"><p>ONE</p></html>']
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: WordByWord(lambda word: "{x}"))
    text = 'msgid "one"\nmsgstr ""\n\nmsgid "two"\nmsgstr ""\n\nmsgid "three"\nmsgstr "3"\n'
    said = 'warning: 2 texts of a.po stay untranslated, because a variable was lost or moved: "one", "two"'
    assert program(text=text, source="a.po", target="b.po") == (text.splitlines(), [said])


def test_beam_translates_no_document_as_lines():
    refuse_documents(["in/a.txt", "in/b.en.gz", "in/c"], None)
    refuse_documents(["in/a.srt"], "lines")
    with pytest.raises(UserError, match=r"--engine beam translates lines, no documents: .*in/b.srt.gz \(srt\)"):
        refuse_documents(["in/a.txt", "in/b.srt.gz"], None)


def test_equal_lines_and_sentences_take_their_translation_from_the_memory_and_are_counted(program, monkeypatch):
    lines, told = program(*TMX)
    assert lines == ["eins zwei", "THREE", "", "ONE TWA"]
    assert told == ["memory: 1 of 3 texts took a translation from it"]
    assert program(*TMX, text="One two")[1] == ["memory: 1 of 1 text took a translation from it"]
    page = "<p>One two</p><p>one <b>house</b></p><p>x</p>"
    (translated,), told = program(*TMX, text=page, source="page.html", target="seite.html")
    assert translated == "<p>eins zwei</p><p>ein <b>Haus</b></p><p>X</p>"
    assert told == ["memory: 2 of 3 texts took a translation from it"]
    monkeypatch.setattr(Upper, "fragments", lambda self, texts: [text.partition(". ") for text in texts], raising=False)
    lines, told = program(*TMX, text="One two\none house. x\none house. One two\n")
    assert lines == ["eins zwei", "ein Haus. X", "ein Haus. eins zwei"]
    assert told == ["memory: 1 of 3 texts took a translation from it; 2 of the others took 3 sentences"]


def test_json_shows_equal_and_similar_entries(program):
    of_equal = {"source": "One two", "translation": "eins zwei", "match": 100}
    lines, (told,) = program(*TMX, "--tmx_threshold", "70", "--json", text="One two\nthree\n\nOne twa\n")
    assert [*map(json.loads, lines)] == [
        {"text": "One two", "translation": "eins zwei", "score": 0, "memory": [of_equal]},
        {"text": "three", "translation": "THREE", "score": -1.5, "memory": []},
        {"text": "", "translation": "", "score": 0, "memory": []},
        {"text": "One twa", "translation": "ONE TWA", "score": -1.5, "memory": [of_equal | {"match": 85}]},
    ]
    assert told.endswith("took a translation from it; 1 of the others has similar entries (70 % or more)")
    assert json.loads(program("--json", text="x\n")[0][0]).keys() == {"text", "translation", "score"}


def test_an_equal_entry_is_the_first_of_the_best_and_the_last_of_several_files_counts(program):
    assert program(*TMX, "--n_best", "2", text="One two\nx\n")[0] == ["eins zwei", "ONE TWO 0", "X 0", "X 1"]
    ((line,), _) = program(*TMX, "--n_best", "2", "--json", text="One two\n")
    assert [row["translation"] for row in json.loads(line)["alternatives"]] == ["eins zwei", "ONE TWO 0"]
    write("new.tmx", UNIT.format("One two", "1 2"))
    assert program(*TMX, "--tmx", "new.tmx", text="One two\none house\n")[0] == ["1 2", "ein Haus"]


def test_a_translation_with_another_memory_language_or_model_begins_anew_and_one_without_goes_on(asked):
    def all_asked(*flags, reverse=()):
        arguments = translate.make_parser().parse_args(["--model_dir", "a", *flags])
        return translate.all_asked(arguments, translate.Request({}), SimpleNamespace(files=[]), *reverse)

    assert all_asked() == [[], [None, None, None, {}], dataclasses.asdict(translate.Request({}))]  # of older versions
    flags = (), TMX, (*TMX, *TMX), (*TMX, "--tmx_threshold", "70"), ("--target_lang", "fr"), ("--source_lang", "fr")
    before = [*(all_asked(*each) for each in flags), all_asked(reverse=[SimpleNamespace(files=[__file__])])]
    assert all_asked(*TMX) == before[1]
    os.utime("memory.tmx", (1, 1))
    before.append(all_asked(*TMX))
    assert all(one not in before[number + 1 :] for number, one in enumerate(before))


OTHER_LANGUAGE = "the model has one direction, and its --target_lang is de. Received: target_lang=fr"
OUT, HTML = ("--input", "page.txt", "--output", "out"), ("--format", "html")


def test_a_mistake_is_one_line_and_writes_nothing(asked, mistake):
    texts = {"a.html": "<p>one</p>", "a.xliff": "<xliff>\n<a></xliff>", "page.txt": "text", "a.odt": "PK\3\4\n\0"}
    for name, text in texts.items():
        Path(name).write_text(text)
    write("empty.tmx")
    before = sorted(os.listdir())
    for flags, named in (
        (("--input", "a.html"), "name the file for the translation of a.html: --output. Received: no --output"),
        (("--input", "a.html", "--output", "b.md"), "the translation is html, as the source is. Received: --output b"),
        (("--input", "a.odt", "--output", "b.odt"), "a.odt is no text: it is a zip archive."),
        ((*HTML, "--n_best", "2"), "--n_best needs lines, not a document: leave it out, or give --format"),
        ((*HTML, "--prefix", "x"), "--prefix needs lines"),
        (("--input", "a.xliff", "--output", "b.xliff"), "a.xliff is not well-formed XML: line 2, column "),
        ((*HTML, "--engine", "beam"), "--engine beam"),
        (("--format", "srt", "--target_lang", "fr"), OTHER_LANGUAGE),
        (("--target_lang", "fr"), OTHER_LANGUAGE),
        (("--format", "po", "--target_lang", "Deutsch"), "--target_lang must be the code of a language"),
        ((*OUT, "--tmx", "none.tmx"), "cannot read none.tmx: No such file"),
        ((*OUT, "--tmx", "empty.tmx"), "empty.tmx has no unit"),
        ((*OUT, "--tmx_threshold", "70"), "--tmx_threshold needs --tmx"),
        ((*OUT, *TMX, "--score"), "--tmx does not go with --score"),
        ((*OUT, *TMX, "--prefix", "ein"), "--tmx does not go with --prefix"),
        (("--engine", "beam", *OUT, *TMX), "--tmx does not go with --engine beam"),
    ):
        model = "--saved_model" if flags[:2] == ("--engine", "beam") else "--model_dir"
        assert named in mistake(translate, model, "a", *flags)
        assert sorted(os.listdir()) == before and (not asked or "_lang" in flags[-2] or "a.xliff" in flags)
        asked.clear()


def test_languages_that_a_memory_lacks_or_needs_are_told_in_one_line_and_nothing_is_written(
    asked, mistake, monkeypatch
):
    monkeypatch.setattr(Upper, "between", lambda self, source_lang=None, target_lang=None: self)
    Path("in").write_text("One two\n")
    for languages, flags, named in (
        (("fr", "de"), (), "memory.tmx has no text in fr with a translation into de. Its languages are de, en-US"),
        (("en", None), (), "--tmx needs a language that the model does not tell: give --target_lang"),
        ((None, None), ("--target_lang", "de"), "--tmx needs a language that .* --source_lang"),
        ((None, None), ("--target_lang", "it", "--source_lang", "en"), "no text in en with a translation into it"),
    ):
        monkeypatch.setattr(Upper, "languages", languages)
        line = mistake(translate, "--model_dir", "a", *TMX, "--input", "in", "--output", "out", *flags)
        assert re.search(named, line) and not Path("out").exists()


def test_similar_entries_without_their_package_are_one_line(asked, mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    line = mistake(translate, "--model_dir", "a", *TMX, "--tmx_threshold", "70")
    assert "need the package rapidfuzz, which is not installed: pip install 'rapidfuzz>=3,<4'" in line


def test_a_line_that_is_refused_does_not_end_a_dialogue(capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", Mock(side_effect=["one", "two", EOFError]))
    translate.converse(Mock(side_effect=[[["eins"]], UserError("no such line")]))
    printed = capsys.readouterr()
    assert printed.out == "eins\n" and "error: no such line\n" in printed.err
