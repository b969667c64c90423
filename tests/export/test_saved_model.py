import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras_transformer.signatures import INPUTS
from keras_transformer.translator import SavedModelTranslator, Translator
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.saved_model import SavedModelExport, in_precision, run_like_serving
from keras_transformer.export.versions import export_version
from tests import tiny

TEXTS = ["one two three", "ten", "five five zero nine"]
ODD = ["", " \t", "\ufeff", "\U0001f600\u200d", "</s> <pad>", "\x00\x01", "seven " * 200, '%s {} \\ "']
BYTES = [b"\xff\xfe\xfa", b"one \x80 two", b"\xed\xa0\x80"]


@pytest.fixture(scope="module")
def translator():
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=3, length_penalty=0.6, max_length=31)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    return export_version(SavedModelExport(translator), tmp_path_factory.mktemp("export"), sentences=TEXTS)


@pytest.fixture(scope="module")
def definition(exported):
    model = saved_model_pb2.SavedModel()
    model.ParseFromString((exported / "saved_model.pb").read_bytes())
    return model.meta_graphs[0]


def test_a_session_finds_what_the_translator_finds(exported, translator):
    outputs = run_like_serving(exported, TEXTS + ODD)
    texts, scores = translator.translate_batch(TEXTS + ODD)
    assert [text.decode("utf-8") for text in outputs["translation"]] == texts
    np.testing.assert_allclose(outputs["score"], scores, atol=1e-4)
    assert any(texts[: len(TEXTS)])  # something was translated at all


def test_signatures_are_text_to_translation_and_score(definition):
    signatures = {name: s for name, s in definition.signature_def.items() if not name.startswith("__")}
    assert set(signatures) == {"serving_default", *INPUTS}
    signatures = {name: signatures[name] for name in ("serving_default", "translate")}
    for signature in signatures.values():
        described = {
            name: (tensor.dtype, [dim.size for dim in tensor.tensor_shape.dim])
            for name, tensor in [*signature.inputs.items(), *signature.outputs.items()]
        }
        string, float32 = tf.string.as_datatype_enum, tf.float32.as_datatype_enum
        assert described == {"text": (string, [-1]), "translation": (string, [-1]), "score": (float32, [-1])}


def test_the_graph_needs_neither_python_nor_xla(definition):
    library = definition.graph_def.library.function
    nodes = [*definition.graph_def.node, *(node for function in library for node in function.node_def)]
    assert not [node.op for node in nodes if node.op.startswith("Xla") or "PyFunc" in node.op]
    assert not [function.signature.name for function in library if function.attr["_XlaMustCompile"].b]


def test_every_weight_is_stored_once(exported, translator):
    reader = tf.train.load_checkpoint(str(exported / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    stored = sum(
        np.prod(shape) for name, shape in shapes.items() if reader.get_variable_to_dtype_map()[name].is_floating
    )
    assert stored == translator.model.count_params()


def test_odd_rows_neither_raise_nor_change_the_others(exported):
    alone = run_like_serving(exported, TEXTS)
    together = run_like_serving(exported, TEXTS + ODD)
    assert list(together["translation"][: len(TEXTS)]) == list(alone["translation"])
    np.testing.assert_allclose(together["score"][: len(TEXTS)], alone["score"], atol=1e-5)
    assert list(together["translation"][len(TEXTS) : len(TEXTS) + 3]) == [b""] * 3
    assert np.isfinite(together["score"]).all()


@pytest.fixture(scope="module")
def translate_bytes(exported):
    """A function from a list of bytes to their (translations, scores), through one Session."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():  # for the loading alone: a graph left open would be that of other tests
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(exported))
    signature = loaded.signature_def["translate"]
    fetches = [signature.outputs[name].name for name in ("translation", "score")]
    yield lambda rows: session.run(fetches, {signature.inputs["text"].name: np.array(rows, dtype=object)})
    session.close()


def test_invalid_utf8_is_translated_to_valid_text_beside_the_others(exported, translate_bytes):
    rows = [*BYTES, *(text.encode() for text in TEXTS)]
    translations, scores = translate_bytes(rows)
    assert [isinstance(text.decode("utf-8"), str) for text in translations] == [True] * len(rows)
    assert np.isfinite(scores).all()
    assert list(translations[len(BYTES) :]) == list(run_like_serving(exported, TEXTS)["translation"])


rows_of_bytes = st.binary(max_size=31) | st.text(max_size=31).map(str.encode)


@settings(max_examples=7, deadline=None, derandomize=True)
@given(st.lists(rows_of_bytes, min_size=43, max_size=43))
def test_no_text_raises(translate_bytes, rows):
    translations, scores = translate_bytes(rows)
    assert [isinstance(text.decode("utf-8"), str) for text in translations] == [True] * len(rows)
    assert np.isfinite(scores).all()


def test_an_empty_batch_gives_an_empty_batch(exported):
    outputs = run_like_serving(exported, [])
    assert outputs["translation"].shape == outputs["score"].shape == (0,)


def test_the_latest_version_is_taken_from_the_directory_of_all(exported, translator):
    assert SavedModelTranslator(exported.parent).translate(TEXTS) == translator.translate(TEXTS)


def test_half_precision_is_half_the_size_and_translates_nearly_the_same(translator, exported, tmp_path):
    half = export_version(SavedModelExport(translator, "bfloat16"), tmp_path)
    texts = [source for source, _ in tiny.pairs(53, seed=5)]
    same = np.equal(run_like_serving(half, texts)["translation"], run_like_serving(exported, texts)["translation"])
    assert 0.8 < same.mean()
    sizes = [(path / "variables" / "variables.data-00000-of-00001").stat().st_size for path in (half, exported)]
    assert sizes[0] < 0.55 * sizes[1]


def test_half_precision_translates_as_python_does_in_half_precision(translator, tmp_path):
    half = SavedModelExport(translator, "bfloat16")
    half.write(tmp_path)
    texts, scores = in_precision(translator, "bfloat16").translate_batch(TEXTS)
    with half.opened(tmp_path) as translate_batch:
        assert translate_batch(TEXTS)[0] == texts
        np.testing.assert_allclose(translate_batch(TEXTS)[1], scores, rtol=1e-3)
    assert translator.model.dtype_policy.name == "float32"  # it is left as it was


def test_layer_normalisation_stays_exact_in_half_precision(translator):
    model = in_precision(translator, "bfloat16").model
    assert {variable.dtype for variable in model.trainable_variables} == {"bfloat16", "float32"}
    assert all("norm" in variable.path for variable in model.trainable_variables if variable.dtype == "float32")


def test_the_manifest_has_signatures_search_and_precision(exported, translator):
    manifest = read_manifest(exported)
    text = {"text": {"dtype": "string", "shape": [None]}}
    outputs = {"translation": text["text"], "score": {"dtype": "float32", "shape": [None]}}
    assert manifest["signatures"].keys() == {"serving_default", *INPUTS}
    for name in ("serving_default", "translate"):
        assert manifest["signatures"][name] == {"inputs": text, "outputs": outputs}
    assert (manifest["format"], manifest["weights"]) == ("saved_model", "float32")
    assert manifest["search"] == translator.options


def test_it_comes_with_the_requests_that_warm_it_up(exported):
    manifest = read_manifest(exported)
    assert manifest["warm_up"]["signatures"] == sorted(manifest["signatures"])
    assert manifest["warm_up"]["file"] in manifest["files"]
