import ast
import random
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.tools.engines import translate_litert
from keras_transformer.tools.engines.translate_litert import LiteRTTranslator, divisions, number_of_cores
from keras_transformer.translation.segments import divide_into_parts, join
from tests import tiny

OTHERS = {"numpy", "sentencepiece", "ai_edge_litert"}
CHARACTERS = [*"aZ7.!?,'\"() ßé", "  ", "\n", "\t", "\r\n", *"\u2028。？一アö\ufeff\U0001f600", "❤️", *"→»\uffff"]
WORDS = ["Prof.", "Dr.", "one", "two.", "Three", "vgl.", "2001.", "(four.)", "five!", "x" * 40]


@pytest.fixture(scope="module")
def reader(litert_version):
    return LiteRTTranslator(litert_version, threads=2)


def test_the_reader_needs_no_tensorflow_and_nothing_of_the_project():
    with open(translate_litert.__file__, encoding="utf-8") as file:
        nodes = list(ast.walk(ast.parse(file.read())))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) == OTHERS


def test_text_is_divided_and_joined_as_in_the_graph(reader, known, monkeypatch):
    """The model repeats its source, so the result shows each step but the model."""
    draw, some = random.Random(5), [" ", *CHARACTERS, *(f"{word} " for word in WORDS)]
    texts = ["".join(draw.choices(some, k=draw.randrange(1, 40))) for _ in range(700)]
    tokenizer, longest = tiny.tokenizer(), reader._rules.max_length
    parts = divide_into_parts(tf.constant(texts), tokenizer, longest, known.signatures.division)
    expected = join(parts, tokenizer.decode(parts.ids)[:, None])[:, 0].numpy()
    searched = []

    def repeat(ids):
        searched.append(ids)
        return ids, 0.0

    monkeypatch.setattr(reader, "_search", repeat)
    shown = [row for row, text in zip(known.fragments(texts), texts, strict=True) if text.strip()]
    assert reader.fragments([text for text in texts if text.strip()]) == shown
    found = [reader._translate_text(text).text for text in texts]
    assert found == [text.decode("utf-8") for text in expected]
    assert searched == parts.ids.to_list()
    assert max(map(len, searched)) > longest / 2 and len(searched) > 2 * len(texts)


def test_what_nobody_sees_does_not_change_a_translation(reader):
    expected = reader.translate("one two three")
    assert reader.translate(tiny.ODD_SPELLINGS) == [expected] * len(tiny.ODD_SPELLINGS)
    assert reader.translate(" \u00a0one  two three\u3000") == f" \u00a0{expected}\u3000"
    assert reader.translate("😀 one  two three ❤️") == f"😀 {expected} ❤️"
    assert reader.translate("\u034f") == "\u034f"  # no space, and nothing to translate


def test_ids_are_written_as_in_the_graph(reader):
    rows = np.random.default_rng(3).integers(0, tiny.VOCABULARY, (500, 7))
    space = tiny.tokenizer().encode(["a b"])[0].numpy()  # ids with a space at the start
    rows = [*rows.tolist(), [], [2, 3], *([int(space[0])] * n + [2, int(space[-1])] for n in range(3))]
    expected = tiny.tokenizer().decode(tf.ragged.constant(rows, tf.int32))
    assert [reader._decode(ids) for ids in rows] == [text.decode("utf-8") for text in expected.numpy()]


def test_a_part_begins_at_a_word_and_never_inside_a_character():
    pieces = ["▁a", "b", "▁c", "<0xE4>", "<0xB8>", "<0x80>"] * 11
    begins = divisions(pieces, 13)
    assert begins[0] == 0 and len(begins) > 4
    assert all(pieces[place].startswith("▁") for place in begins)
    assert divisions(pieces, len(pieces)) == [0]
    inside = divisions(["<0xE4>", "<0xB8>", "<0x80>"] * 23, 13)
    assert len(inside) > 4 and all(place % 3 == 0 for place in inside)


def test_results_come_in_order_and_progress_counts_every_text(reader):
    sources, targets = map(list, zip(*tiny.learned_pairs(), strict=True))
    counted = []
    found = reader.translate_scored([*sources, "", " \n"], counted.append)
    agreeing = np.mean([row.text == target for row, target in zip(found, targets, strict=False)])
    assert agreeing > 0.8 and all(row.score < 0 for row in found[:-2])
    assert found[-2:] == [("", 0.0), (" \n", 0.0)] or found[-2:] == [("", 0.0), ("", 0.0)]
    assert counted == [1] * (len(sources) + 2)
    assert reader.translate(sources[0]) == found[0].text and reader.translate([]) == []
    assert number_of_cores() >= 1


def test_of_a_directory_of_versions_the_latest_is_read(litert_version):
    assert LiteRTTranslator(litert_version.parent).path == litert_version


@pytest.mark.parametrize("name", ["model.tflite", "litert.json", "tokenizer.model"])
def test_a_file_that_is_missing_or_damaged_is_an_error_at_once(litert_version, tmp_path, name):
    path = Path(shutil.copytree(litert_version, tmp_path / "copy"), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for _ in range(2):
        with pytest.raises((OSError, ValueError, RuntimeError)):
            LiteRTTranslator(tmp_path / "copy")
        path.unlink(missing_ok=True)


@pytest.mark.slow
def test_a_process_without_tensorflow_translates_line_by_line(litert_version, reader):
    texts = ["one two", "", "five  nine. Seven", "ten\r"]
    program = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'keras_transformer']))\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    command = [sys.executable, "-c", program, litert_version / "translate_litert.py"]
    result = subprocess.run(command, input="\n".join(texts).encode(), capture_output=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode().split("\n") == [*reader.translate([text.strip("\r") for text in texts]), ""]


def test_the_program_says_in_one_line_that_its_model_is_missing(tmp_path):
    program = shutil.copy(translate_litert.__file__, tmp_path)
    with pytest.raises(SystemExit, match=r"^error: no LiteRT export at .*model\.tflite'$"):
        runpy.run_path(program, run_name="__main__")
