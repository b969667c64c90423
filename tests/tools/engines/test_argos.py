"""The package is read as argostranslate 1.11 reads it, which needs PyTorch: `install_from_path` and `Package` of its
package.py, `SentencePieceTokenizer` of tokenizer.py, `apply_packaged_translation` of translate.py."""

import json
import zipfile

import ctranslate2
import pytest
import sentencepiece

from keras_transformer.errors import ExportError
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.tools.engines.argos import ArgosExport
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
from keras_transformer.translation.translator import Translator
from tests import tiny

SENTENCES = ["one two three", "ten", "five five zero nine", "seven", "_ 7 \U0001f600"]
SEARCH = {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 0.2, "replace_unknowns": True}
SEARCH |= {"max_decoding_length": 23}  # a random model knows no end


def translator(languages=("pt-BR", "xx"), tags=None):
    made = Translator(tiny.transformer(), tiny.tokenizer(), max_length=31)
    made.languages, made.tags = languages, tags
    return made


def translations(model, tokenizer):
    engine, pieces = ctranslate2.Translator(str(model)), sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    results = engine.translate_batch(pieces.encode(SENTENCES, out_type=str), **SEARCH)
    return [pieces.decode_pieces(result.hypotheses[0]) for result in results]


def test_argos_translates_as_the_export_for_ctranslate2(tmp_path):
    for name, export in {"argos": ArgosExport(translator()), "plain": CTranslate2Export(translator())}.items():
        (tmp_path / name).mkdir()
        export.write(tmp_path / name)
    (package,) = (tmp_path / "argos").iterdir()
    assert package.name == "translate-pt-BR_xx-1_0.argosmodel" and zipfile.is_zipfile(package)
    with zipfile.ZipFile(package) as file:
        file.extractall(tmp_path / "installed")
    (root,) = (tmp_path / "installed").iterdir()
    assert json.loads((root / "metadata.json").read_text()) == {
        **{"package_version": "1.0", "argos_version": "1.0"},
        **{"from_code": "pt-BR", "from_name": "Portuguese (Brazil)", "to_code": "xx", "to_name": "xx"},
    }
    assert (root / "README.md").read_text()
    found = translations(root / "model", root / "sentencepiece.model")
    assert found == translations(tmp_path / "plain", tmp_path / "plain" / "tokenizer.model") and any(found)


def test_the_proof_reads_the_package(tmp_path):
    export = ArgosExport(translator())
    export.write(tmp_path)
    with export.opened(tmp_path) as translate_batch:
        assert translate_batch(SENTENCES)[0] == export.expected(SENTENCES)[0]
    found = export.describe(tmp_path)
    assert (found["format"], found["weights"], (tmp_path / found["package"]).is_file()) == ("argos", "float32", True)


def test_what_a_package_cannot_say_is_refused():
    other = Tokenizer(tiny.tokenizer_model())
    for refused, complaint in (
        (translator(languages=("de", None)), "a package names its languages"),
        (translator(tags=tiny.tags("source")), "adds no tag to a text"),
        (Translator(tiny.transformer(), tiny.tokenizer(), other), "one tokenizer for both languages"),
    ):
        with pytest.raises(ExportError, match=complaint):
            ArgosExport(refused)
