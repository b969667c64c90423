"""What all engines share: their names, and the one direction that they have of a model of many languages."""

import ctranslate2
import pytest
import sentencepiece

from keras_transformer.cli.export import make_parser
from keras_transformer.errors import UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.runs import Run
from keras_transformer.tools.engines import EXPORTS, export_class
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
from keras_transformer.tools.engines.litert import LiteRTExport
from keras_transformer.tools.engines.translate_litert import LiteRTTranslator
from tests import tiny

TEXTS = ["one two", "one two", "seven", "ten\nnine"]


@pytest.fixture(scope="module", params=["both", "source"])
def of_many(request):
    return tiny.many_languages(request.param)


def test_export_py_offers_all_formats_and_one_that_does_not_exist_is_named(tmp_path):
    (formats,) = (action.choices for action in make_parser()._actions if action.dest == "format")
    assert formats == ("saved_model", *EXPORTS)
    with pytest.raises(UserError, match="one of saved_model, ctranslate2, litert, argos. Received: format='onnx'"):
        Run(tmp_path).export(tmp_path / "exports", format="onnx")


def test_a_run_asks_an_engine_by_name_and_only_one_with_a_shortlist_takes_one(tmp_path):
    for format in EXPORTS:
        refused = f"uses all pieces. Received: shortlist=3, format='{format}'"
        expected = "cannot read settings" if export_class(format).has_shortlist else refused
        with pytest.raises(UserError, match=expected):
            Run(tmp_path).export(tmp_path / "exports", format=format, shortlist=3)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_export_for_litert_has_one_direction(of_many, tmp_path):
    export_version(LiteRTExport(of_many.between("de", "zh")), tmp_path, sentences=TEXTS)
    found = LiteRTTranslator(tmp_path).translate(TEXTS)
    assert found == of_many.translate(TEXTS, source_lang="de", target_lang="zh") != of_many.translate(TEXTS)


@pytest.mark.slow
def test_an_export_for_ctranslate2_begins_with_the_tag_of_its_direction(of_many, tmp_path):
    path = export_version(CTranslate2Export(of_many.between("de", "fr")), tmp_path, sentences=TEXTS)
    tag = read_manifest(path)["source_tag"]
    assert tag == ("<2fr>" if of_many.tags.place == "source" else "<2de>")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    source = [tag, *pieces.encode("seven", out_type=str)]  # as docs/export_and_serve.md says
    how = {"beam_size": 1, "max_decoding_length": len(source) - 1 + 50, "min_decoding_length": 0}
    (result,) = ctranslate2.Translator(str(path)).translate_batch([source], **how)
    expected = of_many.translate("seven", source_lang="de", target_lang="fr")
    assert pieces.decode(result.hypotheses[0]) == expected != of_many.translate("seven")
