import copy
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
SETTINGS = {
    "dataset": ["files:data/mine", "files:data/more"],
    "architecture": "transformer",
    "preset": "tiny",
    "seed": 7,
}
EVALUATION = {"set": "test", "bleu": 31.25, "bleu_signature": "tok:13a", "chrf": 57.125, "chrf_signature": "nc:6"}
MANIFEST = {
    "format": "saved_model",
    "weights": "float32",
    "files": {"a": {"bytes": 2_500_000}, "tokenizer.model": {"bytes": 500_000}},
    "run": {
        "source_lang": "en",
        "target_lang": "de",
        "license": "cc-by-4.0",
        "settings": SETTINGS,
        "evaluation": {**EVALUATION, "sentences": 1013},
        "examples": [[ODD, "Er ging."], ["one two", "eins zwei"]],
    },
}


def front_of(text):
    """(The YAML before a card, read; the Markdown)."""
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), body


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_a_hub_reads_language_licence_task_and_scores():
    front, body = front_of(card_of(MANIFEST))
    assert (front["language"], front["license"], front["pipeline_tag"]) == (["en", "de"], "cc-by-4.0", "translation")
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["split"] == "test" and [metric["value"] for metric in result["metrics"]] == [31.25, 57.12]
    assert "preset `tiny`" in body and "3.0 MB" in body and "| test | 31.2 | 57.1 | 1,013 |" in body
    assert "`tok:13a` and `nc:6`" in body and "| one two | eins zwei |" in body and "5 \\| 3" in body


def test_a_run_without_languages_and_a_format_of_somebody_else_have_cards():
    run = {**MANIFEST["run"], "source_lang": None, "target_lang": None}
    front, body = front_of(card_of({**MANIFEST, "run": run, "format": "own"}))
    assert "language" not in front and body.startswith("\n# Translation\n") and "## Run it" not in body


def test_a_run_without_a_score_and_of_many_languages_has_a_card_too():
    manifest = copy.deepcopy(MANIFEST)
    manifest["run"] |= {"evaluation": None, "examples": [], "license": None}
    sides = {"sources": {"en": "eng_Latn"}, "targets": {"de": "deu_Latn", "fr": "fra_Latn"}, "default": ["en", "de"]}
    front, body = front_of(card_of({**manifest, "languages": sides}))
    assert front["language"] == ["en", "de", "fr"] and not front.keys() & {"license", "model-index"}
    assert "was not scored" in body and "## Examples" not in body


@pytest.mark.parametrize("format", ["saved_model", "ctranslate2", "litert", "argos", "hugging_face"])
@pytest.mark.parametrize("tags", [{}, {"source_tag": ">>de<< x", "source_end": "</s>", "target_prefix": "__de__"}])
def test_the_lines_that_run_a_format_stand_any_text(format, tags):
    text = card_of({**MANIFEST, **tags, "format": format, "package": "translate-en_de-1_0.argosmodel"})
    for block in blocks(text, "python"):
        compile(block, "card", "exec")
    found = [word for block in blocks(text, "bash") for line in block.splitlines() for word in shlex.split(line)]
    in_python = ("saved_model", "ctranslate2", "hugging_face")
    assert format in in_python or "He said 5 | 3, HOME  and left." in found
    if format == "ctranslate2" and tags:
        assert (
            "['>>de<<', 'x'] + source.encode(" in text and "target_prefix=[['__de__']]" in text and "found[1:]" in text
        )


def test_a_card_is_beside_its_export_and_that_of_a_recipe_above_all(tmp_path):
    version = tmp_path / "export" / "1"
    version.mkdir(parents=True)
    (version / "weights").write_bytes(b"abc")
    export = {"format": "saved_model", "weights": "float32"}
    write_manifest(version, 1, export, MANIFEST["run"], Parity(4, 3, 3, 0.0), Loading(1.0, 5))
    write_card(version, json.loads((version / "export.json").read_text("utf-8")))
    assert front_of((version / "README.md").read_text("utf-8"))[0]["license"] == "cc-by-4.0"

    (tmp_path / "prepare").mkdir()
    (tmp_path / "prepare" / "test.de").write_text("eins zwei drei vier\nfünf\n", "utf-8")
    (tmp_path / "prepare" / "clean.json").write_text(json.dumps({"pairs": {"kept": 1999, "read": 2003}}), "utf-8")
    (tmp_path / "evaluate").mkdir()
    (tmp_path / "evaluate" / "teacher.de").write_text("eins zwei drei vier\nfünf\n", "utf-8")
    (tmp_path / "evaluate" / "student.de").write_text("eins zwei drei sieben\n\n", "utf-8")
    (tmp_path / "argos" / "1").mkdir(parents=True)
    (tmp_path / "argos" / "1" / "translate-en_de-1_0.argosmodel").write_bytes(b"package")
    settings = {**SETTINGS, "beam_size": 4}
    manifest = json.loads((version / "export.json").read_text("utf-8"))
    manifest["run"]["settings"] = settings
    (version / "export.json").write_text(json.dumps(manifest), "utf-8")
    (tmp_path / "argos" / "1" / "export.json").write_text(json.dumps({**manifest, "format": "argos"}), "utf-8")
    systems = ["teacher", "student"]
    write_card_of(Shipped(tmp_path, "files:data/mine", "de", "test", systems, "student", {"student": 30.04}))
    front, body = front_of((tmp_path / "README.md").read_text("utf-8"))
    score = measure(["eins zwei drei sieben", ""], ["eins zwei drei vier", "fünf"], target_lang="de").bleu
    assert front["model-index"][0]["results"][0]["metrics"][0]["value"] == round(score, 2)
    assert "| teacher | 100.0 | 100.0 | 2 |" in body and "1,999 of 2,003 pairs" in body and "30.0 (student)" in body
    assert 'tf.saved_model.load("export/1")' in body
    assert f"argospm install ./{tmp_path.name}.argosmodel" in body
    assert (tmp_path / f"{tmp_path.name}.argosmodel").read_bytes() == b"package"
