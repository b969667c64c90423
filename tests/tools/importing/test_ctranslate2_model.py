import json
import re
import shutil
import zipfile

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.tools.engines.argos import ArgosExport
from keras_transformer.tools.engines.ctranslate2 import CTranslate2Export
from keras_transformer.tools.importing.tensors import ImportedModelError
from keras_transformer.translation.translator import Translator
from tests import tiny

TEXTS = [source for source, _ in tiny.learned_pairs()][-23:]
VARIANTS = [
    {"positions": "rotary", "num_layers": 2, "d_key": 6, "num_key_value_heads": 1, "pre_norm": True},
    {"positions": "relative", "relative_clip": 3, "num_heads": 6, "d_key": 5, "num_key_value_heads": 2},
    {"positions": "none", "d_key": 7, "activation": "gelu_sigmoid", "embedding_norm": True, "num_decoder_layers": 1},
    {**tiny.OPUS, "tie_embeddings": False},
    {**tiny.M2M_100, "frame": "17,5/3/3"},
]


def translator(model, *tokenizers):
    """Greedy, as CTranslate2's own search is compared."""
    tokenizers = tokenizers or (tiny.spelling_tokenizer(), tiny.tokenizer())
    return Translator(model, *tokenizers, max_length=31, beam_size=1, length_penalty=0.0)


def exported(directory, model, quantization="float32", tokenizers=()):
    """A directory as CTranslate2 writes it, with the tokens that export.json tells."""
    directory.mkdir()
    export = CTranslate2Export(translator(model, *tokenizers), quantization)
    export.write(directory)
    (directory / "export.json").write_text(json.dumps(export.describe(directory)), "utf-8")
    return export


def differences(model, other):
    """The paths of the weights that are not equal to the bit."""
    mine, theirs = ({weight.path: np.array(weight) for weight in each.weights} for each in (model, other))
    assert mine.keys() == theirs.keys()
    return [path for path in mine if not np.array_equal(mine[path], theirs[path])]


@pytest.mark.parametrize(
    "variant", [*VARIANTS[:2], *(pytest.param(each, marks=pytest.mark.slow) for each in VARIANTS[2:])], ids=str
)
def test_an_export_comes_back_equal_to_the_bit_and_translates_as_the_engine_does(tmp_path, variant):
    model = tiny.transformer(**variant)
    export = exported(tmp_path / "theirs", model)
    run = kt.import_model(tmp_path / "theirs", tmp_path / "run", "en", "de")
    again = run.translator(beam_size=1, length_penalty=0.0)
    assert differences(model, again.model) == [] and again.languages == ("en", "de")
    back = CTranslate2Export(again)  # compares pieces, with the limits of the engine
    found, scores = back.expected(TEXTS)
    with export.opened(tmp_path / "theirs") as translate_batch:
        expected, expected_scores = translate_batch(TEXTS)
    assert found == expected and len(set(found)) > 5
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4)


def test_learned_positions_two_vocabularies_and_their_own_matrices_come_back(tmp_path):
    german = Tokenizer(train_tokenizer([target for _, target in tiny.pairs(211)], 311))
    learned = {"positions": "learned", "num_positions": 7, "tie_positions": False, "scale_embeddings": False}
    model = tiny.transformer(target_vocabulary_size=german.vocabulary_size, tie_embeddings=False, **learned)
    exported(tmp_path / "theirs", model, tokenizers=(tiny.tokenizer(), german))
    again = kt.import_model(tmp_path / "theirs", tmp_path / "run").translator(beam_size=1).model
    mine, theirs = ({weight.path: np.array(weight) for weight in each.weights} for each in (model, again))
    assert mine.keys() == theirs.keys()
    for path, expected in mine.items():
        found = theirs[path][: len(expected)]  # a table becomes as long as the engine's
        assert np.array_equal(found, expected), path


@pytest.mark.parametrize(
    "quantization", ["int8", *(pytest.param(each, marks=pytest.mark.slow) for each in ("int16", "bfloat16"))]
)
def test_a_quantised_model_comes_back_within_its_rounding(tmp_path, quantization):
    model = tiny.transformer(positions="rotary", d_key=6)
    exported(tmp_path / "theirs", model, quantization)
    again = kt.import_model(tmp_path / "theirs", tmp_path / "run").translator().model
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        expected, found = np.array(mine), np.array(theirs)
        rows = expected if "matrix" in mine.path else expected.T
        most = np.abs(rows).max(-1, keepdims=True)  # of a row of the engine's matrix
        allowed = {"int8": most / 254, "int16": np.abs(rows).max() / 2**9, "bfloat16": np.abs(rows) / 2**8}[
            quantization
        ]
        assert np.all(np.abs(rows - (found if "matrix" in mine.path else found.T)) <= allowed * 1.001 + 1e-9), mine.path


def test_what_a_model_leaves_to_the_engine_is_known(tmp_path, monkeypatch):
    """Without a table of positions, CTranslate2 adds its own sinusoids, as for models of OpenNMT-tf; and an epsilon."""
    model = tiny.transformer(positions="sinusoidal_tensor2tensor", first_position=1, layer_norm_epsilon=1e-5)
    model.source_embedding.matrix.assign(model.source_embedding.matrix / 100)  # an epsilon now counts
    monkeypatch.setattr("keras_transformer.tools.engines.ctranslate2.fill_positions", lambda *arguments: None)
    export = exported(tmp_path / "theirs", model)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text("utf-8"))
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": None}), "utf-8")
    again = kt.import_model(tmp_path / "theirs", tmp_path / "run").translator(beam_size=1, length_penalty=0.0)
    assert differences(model, again.model) == []
    with export.opened(tmp_path / "theirs") as translate_batch:
        expected, scores = translate_batch(TEXTS)
    found, found_scores = CTranslate2Export(again).expected(TEXTS)
    assert found == expected
    np.testing.assert_allclose(found_scores, scores, rtol=1e-4)


def test_a_package_of_argos_translate_comes_back_with_its_languages(tmp_path):
    model, one = tiny.transformer(positions="rotary", d_key=6), tiny.tokenizer()
    of_a_pair = translator(model, one, one)
    of_a_pair.languages = "en", "de"
    ArgosExport(of_a_pair).write(tmp_path)
    (package,) = tmp_path.glob("*.argosmodel")
    run = kt.import_model(package, tmp_path / "run")
    again = run.translator()
    assert differences(model, again.model) == [] and again.languages == ("en", "de")
    assert run.config.has_one_tokenizer and again.source_tokenizer.model == one.model
    with zipfile.ZipFile(tmp_path / "bad.argosmodel", "w") as archive:
        archive.writestr("a/nothing", "")
    with zipfile.ZipFile(tmp_path / "bomb.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/metadata.json", " " * 10**7)
    for text, path in (
        ("must have one directory", "bad"),
        ("unpacks to 10,000,000 bytes", "bomb"),
        ("is not a package", "none"),
    ):
        (tmp_path / "none.argosmodel").write_bytes(b"PK none")
        with pytest.raises(ImportedModelError, match=text):
            kt.import_model(tmp_path / f"{path}.argosmodel", tmp_path / "new")


def test_what_is_damaged_or_has_no_equal_is_refused_in_one_line(tmp_path):
    exported(tmp_path / "theirs", tiny.transformer(positions="rotary", d_key=6))
    whole = (tmp_path / "theirs" / "model.bin").read_bytes()
    config = json.loads((tmp_path / "theirs" / "config.json").read_text("utf-8"))

    def refused(content=whole, without=(), **changed):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "theirs", tmp_path / "bad")
        (tmp_path / "bad" / "model.bin").write_bytes(content)
        (tmp_path / "bad" / "config.json").write_text(json.dumps({**config, **changed}), "utf-8")
        for name in without:
            (tmp_path / "bad" / name).unlink()
        with pytest.raises(ImportedModelError) as caught:
            kt.import_model(tmp_path / "bad", tmp_path / "new")
        assert not (tmp_path / "new").exists() and "\n" not in str(caught.value)
        return str(caught.value)

    assert "version 7 is not known" in refused(b"\x07" + whole[1:])
    assert "is damaged" in refused(whole[: len(whole) // 2])
    assert "is damaged" in refused(whole[:200])
    assert "it is a WhisperSpec" in refused(re.sub(b"\x10\0TransformerSpec\0", b"\x0c\0WhisperSpec\0", whole, count=1))
    assert "has weights that no model here has, such as decoder/embedding_/weight" in refused(
        whole.replace(b"decoder/embeddings/weight", b"decoder/embedding_/weight")
    )
    alibi = whole.index(b"decoder/alibi\0") + len(b"decoder/alibi\0") + 1 + 1 + 4  # rank, dtype, size
    assert "no model here has alibi. Received: decoder/alibi=1" in refused(whole[:alibi] + b"\1" + whole[alibi + 1 :])
    assert "has no piece '<none>'" in refused(eos_token="<none>")
    shape = whole.index(b"decoder/layer_0/ffn/linear_0/bias\0") + len(b"decoder/layer_0/ffn/linear_0/bias\0")
    assert "is damaged" in refused(whole[: shape + 5] + b"\xc8" + whole[shape + 6 :])  # a dtype that there is not
    assert "unk_token must be a str. Received: 7" in refused(unk_token=7)
    assert "layer_norm_epsilon must be a float. Received: 'x'" in refused(layer_norm_epsilon="x")
    assert "has no tokenizer: copy the SentencePiece model" in refused(without=["source_tokenizer.model"])
    assert "has no shared_vocabulary.json" in refused(without=["shared_vocabulary.json"])
    with pytest.raises(ImportedModelError, match="one direction here"):
        kt.import_model(tmp_path / "theirs", tmp_path / "new", languages="en,de")
