"""translate.py with a translation memory, in this process, with a translator that needs no model."""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformer import runs
from keras_transformer.cli import console, translate
from keras_transformer.translation.results import Translation
from tests.tools.documents.fake import WordByWord

UNIT = '<tu><tuv xml:lang="en-US"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
UNITS = [UNIT.format("One two", "eins zwei"), UNIT.format("one house", "ein Haus")]


class Upper(WordByWord):
    width, tags, languages, files = 3, None, ("en", "de"), []

    def __init__(self):
        super().__init__(str.upper)

    def between(self, source_lang=None, target_lang=None):
        return self

    def translate_scored(self, texts, on_progress=None):
        return [Translation(text, -1.5) for text in self.translate(texts, on_progress)]

    def alternatives(self, texts, on_progress=None):
        return [[Translation(f"{text.upper()} {n}", -n) for n in range(self.width)] for text in texts]


@pytest.fixture
def program(monkeypatch, tmp_path, capsys):
    """A function from flags and a text to the lines of the translation, and those that are for people."""
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: Upper())
    monkeypatch.setattr(console, "import_tensorflow", lambda: None)
    monkeypatch.chdir(tmp_path)
    write("memory.tmx", *UNITS)

    def run_here(*flags, text="One two\nthree\n\nOne twa\n", source="in", target="out"):
        Path(source).write_text(text)
        flags = ["--model_dir", "a", "--input", source, "--output", target, *flags]
        monkeypatch.setattr(sys, "argv", ["translate.py", *flags])
        translate.program()
        return Path(target).read_text().splitlines(), capsys.readouterr().err.splitlines()

    return run_here


def write(name, *units):
    with open(name, "w", encoding="utf-8") as file:
        file.write(f"<tmx><body>\n{''.join(units)}</body></tmx>")


TMX = ("--tmx", "memory.tmx")


def test_equal_lines_take_their_translation_from_the_memory_and_are_counted(program):
    lines, told = program(*TMX)
    assert lines == ["eins zwei", "THREE", "", "ONE TWA"]
    assert told == ["memory: 1 of 3 texts took a translation from it"]
    assert program(*TMX, text="One two")[1] == ["memory: 1 of 1 text took a translation from it"]


def test_sentences_of_a_text_are_counted(program, monkeypatch):
    monkeypatch.setattr(Upper, "fragments", lambda self, texts: [text.partition(". ") for text in texts], raising=False)
    lines, told = program(*TMX, text="One two\none house. x\none house. One two\n")
    assert lines == ["eins zwei", "ein Haus. X", "ein Haus. eins zwei"]
    assert told == ["memory: 1 of 3 texts took a translation from it; 2 of the others took 3 sentences"]


def test_without_the_flag_nothing_is_told(program):
    assert program("--json", text="One two\n") == (
        ['{"text": "One two", "translation": "ONE TWO", "score": -1.5}'],
        [],
    )


def test_json_shows_equal_and_similar_entries(program):
    lines, told = program(*TMX, "--tmx_threshold", "70", "--json")
    equal, other, blank, similar = map(json.loads, lines)
    of_equal = [{"source": "One two", "translation": "eins zwei", "match": 100}]
    assert equal == {"text": "One two", "translation": "eins zwei", "score": 0, "memory": of_equal}
    assert other == {"text": "three", "translation": "THREE", "score": -1.5, "memory": []}
    assert blank["memory"] == []
    assert similar["translation"] == "ONE TWA" and similar["memory"] == [of_equal[0] | {"match": 85}]
    assert told == [
        "memory: 1 of 3 texts took a translation from it; 1 of the others has similar entries (70 % or more)"
    ]


def test_an_equal_entry_is_the_first_of_the_best(program):
    lines, _ = program(*TMX, "--n_best", "2", text="One two\nx\n")
    assert lines == ["eins zwei", "ONE TWO 0", "X 0", "X 1"]
    ((line,), _) = program(*TMX, "--n_best", "2", "--json", text="One two\n")
    described = json.loads(line)
    assert [row["translation"] for row in described["alternatives"]] == ["eins zwei", "ONE TWO 0"]
    assert described["memory"][0]["match"] == 100


def test_several_files_are_one_memory_and_the_last_one_counts(program):
    write("new.tmx", UNIT.format("One two", "1 2"))
    assert program(*TMX, "--tmx", "new.tmx", text="One two\none house\n")[0] == ["1 2", "ein Haus"]


def test_every_text_of_a_document_is_looked_up(program):
    page = "<p>One two</p><p>one <b>house</b></p><p>x</p>"
    (translated,), told = program(*TMX, text=page, source="page.html", target="seite.html")
    assert translated == "<p>eins zwei</p><p>ein <b>Haus</b></p><p>X</p>"
    assert told == ["memory: 2 of 3 texts took a translation from it"]


def test_a_changed_memory_begins_anew(program):
    def asked(*flags):
        arguments = translate.make_parser().parse_args(["--model_dir", "a", *flags])
        return translate.all_asked(arguments, translate.Request({}), SimpleNamespace(files=[]))

    before = [asked(), asked(*TMX), asked(*TMX, *TMX), asked(*TMX, "--tmx_threshold", "70")]
    assert asked(*TMX) == before[1]
    os.utime("memory.tmx", (1, 1))
    before.append(asked(*TMX))
    assert all(one not in before[number + 1 :] for number, one in enumerate(before))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--tmx", "none.tmx"), "cannot read none.tmx: No such file"),
        (("--tmx", "page.html"), "page.html is no TMX"),
        (("--tmx", "empty.tmx"), "empty.tmx has no unit"),
        (("--tmx", "page.txt"), "page.txt is not well-formed XML: line 1"),
        (("--tmx_threshold", "70"), "--tmx_threshold needs --tmx"),
        ((*TMX, "--tmx_threshold", "101"), "--tmx_threshold must be between 1 and 100. Received: tmx_threshold=101"),
        ((*TMX, "--tmx_threshold", "0"), "--tmx_threshold must be between 1 and 100. Received: tmx_threshold=0"),
        ((*TMX, "--score"), "--tmx does not go with --score"),
        ((*TMX, "--sample"), "--tmx does not go with --sample"),
        ((*TMX, "--mbr", "chrf"), "--tmx does not go with --mbr"),
        ((*TMX, "--reverse", "b"), "--tmx does not go with --reverse"),
        ((*TMX, "--explain", "--json"), "--tmx does not go with --explain"),
        ((*TMX, "--prefix", "ein"), "--tmx does not go with --prefix"),
    ],
)
def test_a_mistake_is_one_line_before_the_model_is_loaded(program, mistake, monkeypatch, tmp_path, flags, named):
    monkeypatch.setattr(runs, "load", lambda *arguments, **settings: pytest.fail("the model was loaded"))
    (tmp_path / "page.html").write_text("<html/>")
    (tmp_path / "page.txt").write_text("text")
    write("empty.tmx")
    before = {path.name for path in tmp_path.iterdir()}
    assert named in mistake(translate, "--model_dir", "a", "--input", "page.txt", "--output", "out", *flags)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_beam_has_no_memory(program, mistake):
    flags = ("--engine", "beam", "--saved_model", "a", "--input", "x", "--output", "y", *TMX)
    assert "--tmx does not go with --engine beam" in mistake(translate, *flags)


def test_similar_entries_without_their_package_are_one_line(program, mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    line = mistake(translate, "--model_dir", "a", *TMX, "--tmx_threshold", "70")
    assert "need the package rapidfuzz, which is not installed: pip install 'rapidfuzz>=3,<4'" in line


@pytest.mark.parametrize(
    ("languages", "flags", "named"),
    [
        (("fr", "de"), (), "memory.tmx has no text in fr with a translation into de. Its languages are de, en-US"),
        (("en", None), (), "--tmx needs a language that the model does not tell: give --target_lang"),
        (
            (None, None),
            ("--target_lang", "de"),
            "--tmx needs a language that the model does not tell: .* --source_lang",
        ),
        ((None, None), ("--target_lang", "it", "--source_lang", "en"), "no text in en with a translation into it"),
        (("en", "de"), ("--tmx", "torn.tmx"), "torn.tmx is not well-formed XML: line 2, column"),
    ],
)
def test_languages_and_damage_are_told_in_one_line_and_nothing_is_written(
    program, mistake, monkeypatch, tmp_path, languages, flags, named
):
    monkeypatch.setattr(Upper, "languages", languages)
    write("torn.tmx", *UNITS * 3000, "<tu>")
    (tmp_path / "in").write_text("One two\n")
    line = mistake(translate, "--model_dir", "a", *TMX, "--input", "in", "--output", "out", *flags)
    assert re.search(named, line) and not (tmp_path / "out").exists()
