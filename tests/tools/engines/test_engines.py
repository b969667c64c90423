"""What all engines share: their names, and the one direction that they have of a model of many languages."""

import importlib
import json
import sys
import zipfile

import ctranslate2
import pytest
import sentencepiece

from keras_transformer.cli.export import make_parser
from keras_transformer.errors import ExportError, UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.versions import export_version
from keras_transformer.runs import Run
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.tools.engines import EXPORTS
from keras_transformer.tools.engines.argos import ArgosExport, argos_code
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
from keras_transformer.tools.engines.litert import LiteRTExport
from keras_transformer.tools.engines.translate_litert import LiteRTTranslator
from keras_transformer.translation.translator import Translator
from tests import tiny

TEXTS = ["one two", "one two", "seven", "ten\nnine"]


def test_export_py_offers_all_formats_and_each_refuses_what_it_lacks(tmp_path):
    (formats,) = (action.choices for action in make_parser()._actions if action.dest == "format")
    assert formats == ("saved_model", *EXPORTS)
    unknown = "one of saved_model, ctranslate2, litert, argos, hugging_face. Received: format='onnx'"
    with pytest.raises(UserError, match=unknown):
        Run(tmp_path).export(tmp_path / "exports", format="onnx")
    for format, lacking in (("litert", ""), ("ctranslate2", "bls"), ("argos", "bls"), ("hugging_face", "s")):
        for name in ("beam_size", "length_penalty", "split_sentences", "shortlist"):
            refused = f"^`{name}` has no effect with `format` {format}: "
            with pytest.raises(UserError, match=refused if name[0] in lacking else "no run in|cannot read"):
                Run(tmp_path).export(tmp_path / "exports", format=format, **{name: 1})
    with pytest.raises(UserError, match="^the weights of litert must be float32 or int8. Received: int16"):
        Run(tmp_path).export(tmp_path / "exports", format="litert", precision="int16")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("package", "modules"), [("ctranslate2", ["ctranslate2"]), ("ai-edge-litert", ["litert", "translate_litert"])]
)
def test_without_its_package_an_engine_says_in_one_line_what_to_install(monkeypatch, package, modules):
    monkeypatch.setitem(sys.modules, {"ai-edge-litert": "ai_edge_litert.interpreter"}.get(package, package), None)
    for name in modules:
        monkeypatch.delitem(sys.modules, f"keras_transformer.tools.engines.{name}")
        monkeypatch.delattr(f"keras_transformer.tools.engines.{name}")
    with pytest.raises(ExportError, match=f"pip install {package}"):
        importlib.import_module(f"keras_transformer.tools.engines.{modules[0]}")


@pytest.mark.slow
def test_an_export_for_litert_has_one_direction(tmp_path):
    of_many = tiny.many_languages("both")
    export_version(LiteRTExport(of_many.between("de", "zh")), tmp_path, sentences=TEXTS)
    found = LiteRTTranslator(tmp_path).translate(TEXTS)
    assert found == of_many.translate(TEXTS, source_lang="de", target_lang="zh") != of_many.translate(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["both", "source"])
def test_an_export_for_ctranslate2_begins_with_the_tag_of_its_direction(place, tmp_path):
    of_many = tiny.many_languages(place)
    path = export_version(CTranslate2Export(of_many.between("de", "fr")), tmp_path, sentences=TEXTS)
    tag = read_manifest(path)["source_tag"]
    assert tag == ("<2fr>" if place == "source" else "<2de>")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    source = [tag, *pieces.encode("seven", out_type=str)]  # as docs/formats.md says
    how = {"beam_size": 1, "min_decoding_length": 0}
    how["max_decoding_length"] = len(source) - 1 + of_many.signatures.extra_length
    (result,) = ctranslate2.Translator(str(path)).translate_batch([source], **how)
    expected = of_many.translate("seven", source_lang="de", target_lang="fr")
    assert pieces.decode(result.hypotheses[0]) == expected != of_many.translate("seven")


SENTENCES = ["one two three", "ten", "five five zero nine", "seven", "_ 7 \U0001f600"]


@pytest.fixture(scope="module")
def of_a_pair():
    made = Translator(tiny.transformer(), tiny.tokenizer(), max_length=31)
    made.languages = "pt-BR", "xx"
    return made


def test_a_package_for_argos_translates_as_its_run_and_names_its_languages(of_a_pair, tmp_path):
    export = ArgosExport(of_a_pair)
    (tmp_path / "argos").mkdir()
    export.write(tmp_path / "argos")
    with export.opened(tmp_path / "argos") as translate_batch:
        assert translate_batch(SENTENCES)[0] == export.expected(SENTENCES)[0]
    about = export.describe(tmp_path / "argos")
    assert (about["format"], about["weights"]) == ("argos", "float32")
    (package,) = (tmp_path / "argos").iterdir()
    assert package.name == "translate-pb_xx-1_0.argosmodel" == about["package"] and zipfile.is_zipfile(package)
    with zipfile.ZipFile(package) as file:
        file.extractall(tmp_path / "installed")
    (root,) = (tmp_path / "installed").iterdir()
    assert (root / "sentencepiece.model").read_bytes() == tiny.tokenizer_model() and (root / "model/model.bin").exists()
    assert (root / "README.md").read_text() and json.loads((root / "metadata.json").read_text()) == {
        **{"package_version": "1.0", "argos_version": "1.0"},
        **{"from_code": "pb", "from_name": "Portuguese (Brazil)", "to_code": "xx", "to_name": "xx"},
    }


def test_what_a_package_cannot_say_is_refused_and_languages_have_the_codes_of_argos_translate(of_a_pair):
    codes = {"de": "de", "deu_Latn": "de", "zh_Hans": "zh", "zho_Hant": "zt", "zh-TW": "zt", "pt_BR": "pb", "xx": "xx"}
    assert {code: argos_code(code) for code in codes} == codes
    other = Tokenizer(tiny.tokenizer_model())
    one, tagged, two = (Translator(of_a_pair.model, tiny.tokenizer(), each) for each in (None, None, other))
    one.languages, tagged.languages, tagged.tags = ("de", None), of_a_pair.languages, tiny.tags("source")
    complaints = {one: "a package names its languages", tagged: "adds no tag to a text"}
    for refused, complaint in {**complaints, two: "one tokenizer for both languages"}.items():
        with pytest.raises(ExportError, match=complaint):
            ArgosExport(refused)
