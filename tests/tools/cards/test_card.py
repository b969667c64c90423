import itertools
import json
import re
import shlex

import pytest
import yaml

from keras_transformer.evaluation import measure
from keras_transformer.export.manifest import write_manifest
from keras_transformer.export.parity import Loading, Parity
from keras_transformer.tools.cards.card import card_of, write_card
from keras_transformer.tools.cards.shipped import Shipped, write_card_of

ODD = 'He said "5 | 3", `$HOME` \\ and left.'
SETTINGS = {"dataset": ["files:a", "files:b"], "architecture": "transformer", "preset": "tiny", "seed": 7}
EVALUATION = {"set": "test", "bleu": 31.25, "bleu_signature": "tok:13a", "chrf": 57.125, "chrf_signature": "nc:6"}
RUN = {"source_lang": "en", "target_lang": "de", "license": "cc-by-4.0", "settings": SETTINGS}
RUN |= {"evaluation": {**EVALUATION, "sentences": 1013}, "examples": [[ODD, "Er ging."], ["one two", "eins zwei"]]}
FILES = {"a": {"bytes": 2_500_000}, "tokenizer.model": {"bytes": 500_000}}
MANIFEST = {"format": "saved_model", "weights": "float32", "files": FILES, "run": RUN}


def front_of(text):
    """(The YAML before a card, read; the Markdown)."""
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), body


TAGS = {"source_tag": ">>de<< x", "source_end": "</s>", "target_prefix": "__de__"}


@pytest.mark.parametrize("format", ["saved_model", "ctranslate2", "litert", "argos", "hugging_face"])
def test_the_lines_that_run_a_format_stand_any_text(format):
    for tags in ({}, TAGS):
        about = {"format": format, "package": "translate-en_de-1_0.argosmodel", "codes": ["en", "pb"]}
        text = card_of({**MANIFEST, **tags, **about})
        assert ("--to-lang pb" in text) == (format == "argos")
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for language, block in blocks:
            if language == "python":
                compile(block, "card", "exec")
        lines = [line for language, block in blocks if language == "bash" for line in block.splitlines()]
        in_python = format in ("saved_model", "ctranslate2", "hugging_face")
        assert in_python or "He said 5 | 3, HOME  and left." in itertools.chain(*map(shlex.split, lines))
    if format == "ctranslate2":
        expected = "['>>de<<', 'x'] + source.encode(", "target_prefix=[['__de__']]", "found[1:]"
        assert all(part in text for part in expected)


def test_a_hub_reads_language_licence_task_and_scores():
    front, body = front_of(card_of(MANIFEST))
    assert (front["language"], front["license"], front["pipeline_tag"]) == (["en", "de"], "cc-by-4.0", "translation")
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["split"] == "test" and [metric["value"] for metric in result["metrics"]] == [31.25, 57.12]
    assert "preset `tiny`" in body and "3.0 MB" in body and "| test | 31.2 | 57.1 | 1,013 |" in body
    assert "`tok:13a` and `nc:6`" in body and "| one two | eins zwei |" in body and "5 \\| 3" in body


def test_a_run_without_languages_or_a_score_and_a_format_of_somebody_else_have_cards():
    run = {**RUN, "source_lang": None, "target_lang": None}
    front, body = front_of(card_of({**MANIFEST, "run": run, "format": "own"}))
    assert "language" not in front and body.startswith("\n# Translation\n") and "## Run it" not in body
    run = {**RUN, "evaluation": None, "examples": [], "license": None}
    sides = {"sources": {"en": "eng_Latn"}, "targets": {"de": "deu_Latn", "fr": "fra_Latn"}, "default": ["en", "de"]}
    front, body = front_of(card_of({**MANIFEST, "run": run, "languages": sides}))
    assert front["language"] == ["en", "de", "fr"] and not front.keys() & {"license", "model-index"}
    assert "has no score" in body and "## Examples" not in body
    assert 'Hello"]), source_lang=tf.constant(["en"]), target_lang=tf.constant(["de"]))' in body
    assert '{"instances": [{"text": "Hello", "source_lang": "en", "target_lang": "de"}]}' in body


def test_a_card_says_what_an_import_an_ensemble_other_weights_and_a_compiled_export_are():
    imported = {**RUN, "corpus": None, "evaluation": None, "ensemble": ["a", "b"]}
    front, body = front_of(card_of({**MANIFEST, "run": imported, "programs": ["one"]}))
    assert (
        "A Transformer, imported into keras_transformer. It is an ensemble: 2 models" in body and "\nTexts, and" in body
    )
    assert "preset" not in body and "seed" not in body and "with the flag `--xla_cpu_compilation_enabled=true`" in body
    for other in ({"weights": "int8"}, {"search": {"beam_size": 1}}, {"shortlist": {"size": 5}}):
        run = {**RUN, "evaluation": {**RUN["evaluation"], "beam_size": 4}}
        front, body = front_of(card_of({**MANIFEST, "run": run, **other}))
        assert "model-index" not in front and "Scored with weights in float32 and a beam of 4, and all pieces." in body


def test_a_card_is_beside_its_export_and_that_of_a_recipe_above_all(tmp_path):
    version, other = tmp_path / "export" / "1", tmp_path / "argos" / "1"
    for directory in (version, other, tmp_path / "prepare", tmp_path / "evaluate"):
        directory.mkdir(parents=True)
    (version / "weights").write_bytes(b"abc")
    export, run = {"format": "saved_model", "weights": "float32"}, {**RUN, "settings": {**SETTINGS, "beam_size": 4}}
    write_manifest(version, 1, export, run, Parity(4, 3, 3, 0.0), Loading(1.0, 5))
    manifest = json.loads((version / "export.json").read_text("utf-8"))
    write_card(version, manifest)
    assert front_of((version / "README.md").read_text("utf-8"))[0]["license"] == "cc-by-4.0"

    for name, text in {
        "prepare/test.de": "eins zwei drei vier\nfünf\n",
        "prepare/clean.json": json.dumps({"pairs": {"kept": 1999, "read": 2003}}),
        "evaluate/teacher.de": "eins zwei drei vier\nfünf\n",
        "evaluate/student.de": "eins zwei drei sieben\n\n",
        "argos/1/translate-en_de-1_0.argosmodel": "package",
        "argos/1/export.json": json.dumps({**manifest, "format": "argos"}),
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    systems = ["teacher", "student"]
    write_card_of(Shipped(tmp_path, "files:data/mine", "de", "test", systems, "student", {"student": 30.04}))
    front, body = front_of((tmp_path / "README.md").read_text("utf-8"))
    score = measure(["eins zwei drei sieben", ""], ["eins zwei drei vier", "fünf"], target_lang="de").bleu
    assert front["model-index"][0]["results"][0]["metrics"][0]["value"] == round(score, 2)
    assert "| teacher | 100.0 | 100.0 | 2 |" in body and "1,999 of 2,003 pairs" in body and "30.0 (student)" in body
    assert 'tf.saved_model.load("export/1")' in body and f'("./{tmp_path.name}.argosmodel")' in body
    assert (tmp_path / f"{tmp_path.name}.argosmodel").read_bytes() == b"package"
