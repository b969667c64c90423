"""What is read back is equal to the bit: tests/tools/engines/test_ctranslate2.py."""

import json
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

import keras_transformer as kt
from keras_transformer.tools.engines.argos import ArgosExport
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
from keras_transformer.tools.importing.tensors import ImportedModelError
from keras_transformer.translation.translator import Translator
from tests import tiny
from tests.tools.engines.test_ctranslate2 import differences
from tests.tools.importing.test_importing import refusal
from tests.tools.importing.toy_corpus import pairs

TEXTS = [source for source, _ in tiny.learned_pairs()][-23:]


def translator(model, *tokenizers):
    """Greedy, as CTranslate2's own search is compared."""
    return Translator(model, *tokenizers, max_length=31, beam_size=1, length_penalty=0.0)


def exported(directory, model, quantization="float32"):
    """A directory as CTranslate2 writes it, with the tokens that export.json tells."""
    directory.mkdir()
    export = CTranslate2Export(translator(model, tiny.spelling_tokenizer(), tiny.tokenizer()), quantization)
    export.write(directory)
    (directory / "export.json").write_text(json.dumps(export.describe(directory)), "utf-8")
    return export


@pytest.mark.parametrize(
    "quantization", ["int8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("int16", "bfloat16"))]
)
def test_a_quantised_model_comes_back_within_its_rounding(tmp_path, quantization):
    model = tiny.transformer(positions="rotary", d_key=6)
    exported(tmp_path / "theirs", model, quantization)
    (tmp_path / "corpus").write_text("\n".join(TEXTS), "utf-8")
    small = kt.import_model(tmp_path / "theirs", tmp_path / "small", trim_vocabulary=tmp_path / "corpus").translator()
    sizes = {each.vocabulary_size for each in (small.model, small.source_tokenizer, small.target_tokenizer)}
    assert max(sizes) < tiny.VOCABULARY and len(sizes) == 1 and small.model.target_vocabulary_size is None
    again = kt.import_model(tmp_path / "theirs", tmp_path / "run").translator().model
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        rows, found = (np.array(each) if "matrix" in mine.path else np.array(each).T for each in (mine, theirs))
        size = np.abs(rows)
        steps = {"int8": size.max(-1, keepdims=True) / 254, "int16": size.max() / 2**9, "bfloat16": size / 2**8}
        assert np.all(np.abs(rows - found) <= steps[quantization] * 1.001 + 1e-9), mine.path


@pytest.mark.slow
def test_the_epsilon_of_the_engine_is_known(tmp_path):
    model = tiny.transformer(positions="rotary", d_key=6, layer_norm_epsilon=1e-5)
    model.source_embedding.matrix.assign(model.source_embedding.matrix / 1000)  # an epsilon now counts
    export = exported(tmp_path / "theirs", model)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text("utf-8"))
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": None}), "utf-8")
    again = kt.import_model(tmp_path / "theirs", tmp_path / "run").translator(beam_size=1, length_penalty=0.0)
    with export.opened(tmp_path / "theirs") as translate_batch:
        expected, scores = translate_batch(TEXTS)
    found, found_scores = CTranslate2Export(again).expected(TEXTS)  # compares pieces, with the limits of the engine
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, rtol=1e-4)


@pytest.mark.parametrize("version", ["1.0", "2.24"])
def test_a_model_of_an_old_version_translates_as_in_the_engine(tmp_path, version):
    """1.0: the tests of CTranslate2 have this model of Arabic names. 2.24: it has converted marian.tar.xz to int8."""
    with tarfile.open(Path(__file__).parent / "old" / f"ctranslate2_{version}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    directory = str(tmp_path / f"ctranslate2_{version}")
    for vocabulary in Path(directory).glob("shared_vocabulary.txt"):  # as OPUS-MT of many target languages has it
        vocabulary.write_text(vocabulary.read_text("utf-8").replace("\nü\n", "\n>>deu<<\n"), "utf-8")
    known = [("آتزمون", "atzmon"), ("برلين", "berlin")] if version == "1.0" else pairs(23, 7)[1:5]
    texts, answers = map(list, zip(*known, strict=True))
    again = kt.import_model(directory, tmp_path / "run", None, "de").translator(beam_size=1, length_penalty=0.0)
    found, scores = again.translate_batch(texts)
    source, target = (SentencePieceProcessor(model_file=f"{directory}/{side}.spm") for side in ("source", "target"))
    pieces = [[">>deu<<"] * (version != "1.0") + row for row in source.encode(texts, out_type=str)]
    engine = ctranslate2.Translator(directory, compute_type="float32")
    expected = engine.translate_batch(pieces, beam_size=1, length_penalty=0, return_scores=True)
    assert found == [target.decode(result.hypotheses[0]) for result in expected]
    assert version != "1.0" or found == answers
    np.testing.assert_allclose(scores, [result.scores[0] for result in expected], rtol=1e-4, atol=1e-5)


def test_a_package_of_argos_translate_comes_back_with_its_languages(tmp_path):
    model, one = tiny.transformer(positions="rotary", d_key=6), tiny.tokenizer()
    of_a_pair = translator(model, one, one)
    of_a_pair.languages = "pt_BR", "zho_Hant"  # "pb" and "zt" in a package
    ArgosExport(of_a_pair).write(tmp_path)
    (package,) = tmp_path.glob("*.argosmodel")
    run = kt.import_model(package, tmp_path / "run")
    again = run.translator()
    assert differences(model, again.model) == [] and again.languages == ("pt-BR", "zh-Hant")
    assert "`source_lang` is pt-BR" in refusal(package, tmp_path / "new", source_lang="zt", target_lang="pb")
    assert run.config.has_one_tokenizer and again.source_tokenizer.model == one.model
    lying = "unpacks to 10,000,000 bytes", "a/metadata.json", " " * 10**7
    for text, name, content in (("must have one directory", "a/nothing", ""), lying, ("is not a package", None, "")):
        with zipfile.ZipFile(tmp_path / "bad.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name or "x", content)
        if name is None:
            (tmp_path / "bad.argosmodel").write_bytes(b"PK none")
        with pytest.raises(ImportedModelError, match=text):
            kt.import_model(tmp_path / "bad.argosmodel", tmp_path / "new")


def test_what_is_damaged_or_has_no_equal_is_refused_in_one_line(tmp_path):
    exported(tmp_path / "theirs", tiny.transformer(positions="rotary", d_key=6))
    whole = (tmp_path / "theirs" / "model.bin").read_bytes()
    config = json.loads((tmp_path / "theirs" / "config.json").read_text("utf-8"))
    alibi = whole.index(b"decoder/alibi\0") + len(b"decoder/alibi\0") + 1 + 1 + 4  # rank, dtype, size
    shape = whole.index(b"decoder/layer_0/ffn/linear_0/bias\0") + len(b"decoder/layer_0/ffn/linear_0/bias\0")
    of_another = re.sub(b"\x10\0TransformerSpec\0", b"\x0c\0WhisperSpec\0", whole, count=1)
    misspelt = whole.replace(b"decoder/embeddings/weight", b"decoder/embedding_/weight")
    for content, missing, changed, words in (
        (b"\x07" + whole[1:], "", {}, "version 7 is not known"),
        (whole[: len(whole) // 2], "", {}, "is damaged"),
        (whole[: shape + 5] + b"\xc8" + whole[shape + 6 :], "", {}, "is damaged"),  # a dtype that there is not
        (of_another, "", {}, "it is a WhisperSpec"),
        (misspelt, "", {}, "has weights that no model here has, such as decoder/embedding_/weight"),
        (whole[:alibi] + b"\1" + whole[alibi + 1 :], "", {}, "no model here has alibi. Received: decoder/alibi=1"),
        (whole, "", {"eos_token": "<none>"}, "has no piece '<none>'"),
        (whole, "", {"unk_token": 7}, "unk_token must be a str. Received: 7"),
        (whole, "source_tokenizer.model", {}, "has no tokenizer: copy the SentencePiece model"),
        (whole, "shared_vocabulary.json", {}, "has no shared_vocabulary.json"),
    ):
        bad = Path(shutil.copytree(tmp_path / "theirs", tmp_path / "bad", dirs_exist_ok=True))
        (bad / "model.bin").write_bytes(content)
        (bad / "config.json").write_text(json.dumps({**config, **changed}), "utf-8")
        if missing:
            (bad / missing).unlink()
        with pytest.raises(ImportedModelError) as caught:
            kt.import_model(bad, tmp_path / "new")
        assert words in str(caught.value) and "\n" not in str(caught.value) and not (tmp_path / "new").exists()
    with pytest.raises(ImportedModelError, match="one direction here"):
        kt.import_model(tmp_path / "theirs", tmp_path / "new", languages="en,de")
    (tmp_path / "theirs" / "export.json").write_text('{"run": {"source_lang": "en", "target_lang": "de"}}', "utf-8")
    assert "`source_lang` is en" in refusal(tmp_path / "theirs", tmp_path, source_lang="de", target_lang="en")
