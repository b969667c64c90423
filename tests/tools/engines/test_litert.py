import ast
import random
import re
import runpy
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import PAD_ID
from keras_transformer.data.full_stops import Known, learn_full_stops
from keras_transformer.errors import ExportError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.tools.engines import translate_litert
from keras_transformer.tools.engines.litert import LiteRTExport, as_python, reader_settings
from keras_transformer.tools.engines.translate_litert import LiteRTTranslator, Rules, number_of_cores
from keras_transformer.tools.shortlist import Shortlist
from keras_transformer.translation import sentences
from keras_transformer.translation.directions import OwnTag
from keras_transformer.translation.segments import divide_into_parts, join, split_at
from keras_transformer.translation.sentences import divisions_of
from keras_transformer.translation.translator import Translator
from tests import reference, tiny
from tests.abbreviations import CORPORA, PAIRS, UNSEEN, UNSPACED_PAIRS

LEARNED = [source for source, _ in tiny.learned_pairs()]
TEXTS = [*LEARNED[-11:], "", " \t\n", "\ufeff", "</s> <pad>", "seven " * 50, "One two. Three four!\n five  six"]
TEXTS += ["一二。三四", "※ one two ★ ж. § Three\n… four"]
RELATIVE = {"positions": "relative", "relative_clip": 3, "num_heads": 6, "num_key_value_heads": 2}


def translated(export, path, texts=TEXTS):
    with export.opened(path) as translate_batch:
        return translate_batch(texts)


def check(export, path, most_different=0):
    """The export translates and scores as its run does, and the run does not say the same of everything.

    Two hypotheses of a model with random weights can be so close that rounding decides between them in a long text.
    """
    texts, scores = export.expected(TEXTS)
    found, found_scores = translated(export, path)
    equal = np.array(found) == np.array(texts)
    assert len(set(texts)) > 5 and np.count_nonzero(~equal) <= most_different
    np.testing.assert_allclose(np.array(found_scores)[equal], np.array(scores)[equal], rtol=1e-4, atol=1e-5)


def test_the_version_has_all_that_a_user_needs_and_translates_as_the_run_does(known, litert_version):
    assert known.settings["beam_size"] == 4
    check(LiteRTExport(known), litert_version)
    names = {"model.tflite", "litert.json", "tokenizer.model", "translate_litert.py", "export.json"}
    assert {path.name for path in litert_version.iterdir()} == names
    assert (litert_version / "tokenizer.model").read_bytes() == tiny.tokenizer_model()
    manifest = read_manifest(litert_version)
    assert (manifest["format"], manifest["weights"], manifest["search"]) == ("litert", "float32", known.settings)
    assert "ai-edge-litert" in manifest["libraries"]
    assert manifest["parity"]["equal"] == manifest["parity"]["sentences"] > len(LEARNED)
    numbers = sum(np.prod(variable.shape) for variable in known.model.trainable_variables)
    graph = 130_000  # bytes, whatever the size of the model: every weight is stored once
    assert 4 * numbers < (litert_version / "model.tflite").stat().st_size < 4 * numbers + graph


PATTERNS = [getattr(sentences, x) for x in "BLANK SPACE LINE_BREAK CLOSING MARK TIGHT_STOP".split()] + [r"\p{Thai}"]
PATTERNS += [rf"[^\pP\pZ{sentences.BORDER}]", r"\p{Nd}", r"[\p{Lu}\p{Lt}\p{Lo}\p{Georgian}]", r"[\p{Lu}\p{Lo}]"]


def test_a_pattern_matches_the_same_characters_in_python_as_in_the_graph():
    """Of characters that are as old as Unicode 3.2, because the two may know different versions of Unicode."""
    old, points = unicodedata.ucd_3_2_0.category, [*range(1, 0x3000), *range(0x3000, 0x110000, 37)]
    known = [x for x in map(chr, points) if old(x) == unicodedata.category(x) not in ("Cn", "Cs")]
    for pattern in PATTERNS:
        expected = tf.strings.regex_full_match(tf.constant(known), pattern).numpy()
        compiled = re.compile(as_python(pattern))
        assert [compiled.fullmatch(x) is not None for x in known] == expected.tolist(), pattern
        assert 0 < expected.sum() < len(known)


@pytest.mark.parametrize("language", CORPORA)
def test_sentences_are_divided_as_in_the_graph(language):
    known = Known(learn_full_stops(CORPORA[language].split("\n")), copies_unknown=False)
    division, _ = divisions_of(tiny.tokenizer(), tiny.tokenizer(), True, known)
    how = {"tags": None, "settings": {"beam_size": 1, "length_penalty": 0.0, "max_length": 31}}
    signatures = SimpleNamespace(division=division, reader=OwnTag({"deu": 7}))
    rules = Rules(**reader_settings(SimpleNamespace(**how, signatures=signatures)))
    lines = [*CORPORA[language].split("\n"), *UNSEEN[language].split("\n"), *PAIRS.get(language, "A.|B.").split("|")]
    texts = [*lines, " ".join(lines), "".join(lines), "  ".join(PAIRS.values()), "".join(UNSPACED_PAIRS.values())]
    texts += ["Dr. med. Huber. Brig. Gen. Lee! Yahoo! Inc. is. Hrsg. Meyer. See vol. II. See vol. He left. "]
    texts += " >>deu<< One. Two.|one >>deu<<|>>deu one|>>deu<<|>>DE<<one|<2ger_Latn> one|>>fra<< one".split("|")
    found = split_at(division.breaks, signatures.reader.of(tf.constant(texts))["text"]).to_list()
    assert ["".join(rules.fragments(text)) for text in texts[-3:]] == ["one", "one", ">>fra<< one"]
    assert [rules.fragments(text) for text in texts] == [[part.decode() for part in row] for row in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        {**RELATIVE, "d_key": 5, "d_value": 7, "tie_embeddings": False, "frame": "17/3/3"},
        {"positions": "rotary", "d_key": 12, "heads": "0/2/1", "autoregression": "ssru", "pre_norm": True},
        {**tiny.OPUS, "positions": "learned", "tie_positions": False, "embedding_norm": True, "activation": "gelu"},
    ],
    ids=str,
)
def test_the_engine_runs_every_variant_of_the_transformer(tmp_path, variant):
    model, tokenizers = tiny.transformer(**variant), (tiny.spelling_tokenizer(), tiny.tokenizer())  # one vocabulary
    export = LiteRTExport(Translator(model, *tokenizers, max_length=31))
    export.write(tmp_path)
    check(export, tmp_path)


@pytest.mark.slow
def test_the_engine_runs_a_greedy_recurrent_network_of_two_vocabularies(tmp_path):
    german = Tokenizer(train_tokenizer([target for _, target in tiny.pairs(211)], 311))
    sizes = {"d_model": 22, "target_vocabulary_size": german.vocabulary_size, "tie_embeddings": False}
    model = reference.randomise(RecurrentNetwork(tiny.VOCABULARY, cell="lstm", **sizes), 0)
    how = {"max_length": 31, "beam_size": 1, "split_sentences": False}
    export = LiteRTExport(Translator(model, tiny.tokenizer(), german, **how))
    export.write(tmp_path)
    check(export, tmp_path, most_different=1)
    for name, tokenizer in (("source", tiny.tokenizer()), ("target", german)):
        assert (tmp_path / f"{name}_tokenizer.model").read_bytes() == tokenizer.model


@pytest.mark.slow
def test_a_search_keeps_to_its_shortlist(known, tmp_path):
    table = np.random.default_rng(3).integers(tiny.VOCABULARY, size=(tiny.VOCABULARY, 3))
    table[PAD_ID] = PAD_ID
    shortlist = Shortlist(table, np.arange(0, len(table), 2), len(table))
    listed = known.with_model(known.model, shortlist=shortlist)
    export = LiteRTExport(listed, shortlist={"size": 3})
    assert np.mean(np.array(export.expected(TEXTS)[0]) != known.translate_batch(TEXTS)[0]) > 0.5
    export.write(tmp_path)
    check(export, tmp_path)
    assert export.describe(tmp_path)["shortlist"] == {"size": 3}


@pytest.mark.slow
def test_a_quantised_model_is_smaller_and_translates_what_was_learned(known, litert_version, tmp_path):
    export = LiteRTExport(known.with_model(known.model, beam_size=1), "int8")
    path = export_version(export, tmp_path, sentences=LEARNED)
    assert (path / "model.tflite").stat().st_size < (litert_version / "model.tflite").stat().st_size
    assert read_manifest(path)["weights"] == "int8"
    found, _ = translated(export, path, LEARNED)
    assert np.mean([text == target for text, (_, target) in zip(found, tiny.learned_pairs(), strict=True)]) > 0.9


@pytest.mark.slow
def test_a_model_that_litert_cannot_run_is_refused_by_the_operation(tmp_path):
    how = {"d_model": 22, "attention": "dot", "hard_attention": True, "attention_span": "local_p"}
    export = LiteRTExport(Translator(RecurrentNetwork(tiny.VOCABULARY, **how), tiny.tokenizer(), max_length=31))
    with pytest.raises(ExportError, match="LiteRT has no tf.*, which this RecurrentNetwork needs: export a SavedModel"):
        export_version(export, tmp_path)
    assert not list(tmp_path.iterdir())


OTHERS = {"numpy", "sentencepiece", "ai_edge_litert"}
CHARACTERS = [*"aZ7.!?,'\"() ßé", "  ", "\n", "\t", "\r\n", *"\u2028。？一アö\ufeff\U0001f600", "❤️", *"→»\uffff"]
WORDS = ["Prof.", "Dr.", "one", "two.", "Three", "vgl.", "2001.", "(four.)", "five!", "x" * 40]


@pytest.fixture(scope="module")
def reader(litert_version):
    return LiteRTTranslator(litert_version, threads=2)


def test_the_reader_needs_no_tensorflow_and_nothing_of_the_project():
    nodes = list(ast.walk(ast.parse(Path(translate_litert.__file__).read_text("utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) == OTHERS


def test_text_is_divided_and_joined_as_in_the_graph(reader, known, monkeypatch):
    """The model repeats its source, so the result shows each step but the model."""
    draw, some = random.Random(5), [" ", *CHARACTERS, *(f"{word} " for word in WORDS)]
    texts = ["".join(draw.choices(some, k=draw.randrange(1, 40))) for _ in range(700)]
    tokenizer, longest, searched = tiny.tokenizer(), reader._rules.max_length, []
    parts = divide_into_parts(tf.constant(texts), tokenizer, longest, known.signatures.division)
    expected = join(parts, tokenizer.decode(parts.ids)[:, None])[:, 0].numpy()

    def repeat(ids):
        searched.append(ids)
        return ids, 0.0

    monkeypatch.setattr(reader, "_search", repeat)
    shown = [row for row, text in zip(known.fragments(texts), texts, strict=True) if text.strip()]
    assert reader.fragments([text for text in texts if text.strip()]) == shown
    found = [reader._translate_text(text).text for text in texts]
    assert found == [text.decode("utf-8") for text in expected] and searched == parts.ids.to_list()
    assert max(map(len, searched)) > longest / 2 and len(searched) > 2 * len(texts)


def test_what_nobody_sees_does_not_change_a_translation(reader):
    expected = reader.translate("one two three")
    assert reader.translate(tiny.ODD_SPELLINGS) == [expected] * len(tiny.ODD_SPELLINGS)
    assert reader.translate(" \u00a0one  two three\u3000") == f" \u00a0{expected}\u3000"
    assert reader.translate("😀 one  two three ❤️") == f"😀 {expected} ❤️"
    assert reader.translate("\u034f") == "\u034f"  # no space, and nothing to translate


def test_results_come_in_order_and_progress_counts_every_text(reader):
    (sources, targets), counted = map(list, zip(*tiny.learned_pairs(), strict=True)), []
    found = reader.translate_scored([*sources, "", " \n"], counted.append)
    agreeing = np.mean([row.text == target for row, target in zip(found, targets, strict=False)])
    assert agreeing > 0.8 and all(row.score < 0 for row in found[:-2])
    assert found[-2] == ("", 0.0) and found[-1] in [(" \n", 0.0), ("", 0.0)] and counted == [1] * (len(sources) + 2)
    assert reader.translate(sources[0]) == found[0].text and reader.translate([]) == [] and number_of_cores() >= 1


def test_of_versions_the_latest_is_read_and_a_file_that_is_missing_or_damaged_is_an_error(litert_version, tmp_path):
    assert LiteRTTranslator(litert_version.parent).path == litert_version
    for name in ("model.tflite", "litert.json", "tokenizer.model"):
        path = Path(shutil.copytree(litert_version, tmp_path / name), name)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        for _ in range(2):
            pytest.raises((OSError, ValueError, RuntimeError), LiteRTTranslator, tmp_path / name)
            path.unlink(missing_ok=True)


@pytest.mark.slow
def test_a_process_without_tensorflow_translates_line_by_line(litert_version, reader):
    texts = ["one two", "", "five  nine. Seven", "ten\r"]
    program = "import runpy, sys; sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'keras_transformer']))\n"
    program += "runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", program, litert_version / "translate_litert.py"]
    result = subprocess.run(command, input="\n".join(texts).encode("utf-8-sig"), capture_output=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode().split("\n") == [*reader.translate([text.strip("\r") for text in texts]), ""]


def test_the_program_says_in_one_line_that_its_model_is_missing(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: no LiteRT export at .*model\.tflite'$"):
        runpy.run_path(shutil.copy(translate_litert.__file__, tmp_path), run_name="__main__")
