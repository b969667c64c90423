import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer import export
from keras_transformer.export import ExportError, check_parity, export_saved_model, next_version, run_like_serving
from keras_transformer.translator import SavedModelTranslator, Translator
from tests import tiny

TEXTS = ["one two three", "ten", "five five zero nine"]
ODD = ["", " \t", "\ufeff", "\U0001f600\u200d", "</s> <pad>", "\x00\x01", "seven " * 200, '%s {} \\ "']
BYTES = [b"\xff\xfe\xfa", b"one \x80 two", b"\xed\xa0\x80"]


@pytest.fixture(scope="module")
def translator():
    return Translator(tiny.trained_transformer(), tiny.tokenizer(), beam_size=3, length_penalty=0.6, max_length=31)


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("export"), sentences=TEXTS)


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
    assert set(signatures) == {"serving_default", "translate"}
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


def test_invalid_utf8_is_translated_to_valid_text_beside_the_others(exported):
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(exported))
        signature = loaded.signature_def["translate"]
        rows = [*BYTES, *(text.encode() for text in TEXTS)]
        translations, scores = session.run(
            [signature.outputs["translation"].name, signature.outputs["score"].name],
            {signature.inputs["text"].name: np.array(rows, dtype=object)},
        )
    assert [isinstance(text.decode("utf-8"), str) for text in translations] == [True] * len(rows)
    assert np.isfinite(scores).all()
    assert list(translations[len(BYTES) :]) == list(run_like_serving(exported, TEXTS)["translation"])


def test_an_empty_batch_gives_an_empty_batch(exported):
    outputs = run_like_serving(exported, [])
    assert outputs["translation"].shape == outputs["score"].shape == (0,)


def test_the_latest_version_is_taken_from_the_directory_of_all(exported, translator):
    assert SavedModelTranslator(exported.parent).translate(TEXTS) == translator.translate(TEXTS)


@pytest.mark.parametrize(
    ("present", "expected"), [([], 1), (["1"], 2), (["3", "11"], 12), (["7", ".8.partial", "notes"], 8)]
)
def test_next_version_is_above_all_others(tmp_path, present, expected):
    for name in present:
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == expected


def test_an_existing_version_is_never_overwritten(translator, tmp_path):
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "precious").write_text("text")
    with pytest.raises(ExportError, match="5 exists.*--version"):
        export_saved_model(translator, tmp_path, version=5)
    assert [path.name for path in tmp_path.rglob("*")] == ["5", "precious"]


@pytest.mark.parametrize("version", [0, -3])
def test_a_version_is_a_positive_number(translator, tmp_path, version):
    with pytest.raises(ExportError, match=f"positive.*{version}"):
        export_saved_model(translator, tmp_path, version=version)


def test_an_export_that_differs_is_refused_and_leaves_nothing(translator, tmp_path, monkeypatch):
    other = run_like_serving

    def differing(path, sentences):
        outputs = other(path, sentences)
        outputs["translation"][-1] = b"something else"
        return outputs

    monkeypatch.setattr(export, "run_like_serving", differing)
    with pytest.raises(ExportError, match="translates 'ten' to 'something else'"):
        export_saved_model(translator, tmp_path, sentences=["ten"])
    assert not list(tmp_path.iterdir())


def test_scores_that_differ_are_refused(exported, translator, monkeypatch):
    outputs = run_like_serving(exported, TEXTS)
    monkeypatch.setattr(
        export, "run_like_serving", lambda path, sentences: {**outputs, "score": outputs["score"] + 1e-2}
    )
    with pytest.raises(ExportError, match="scores"):
        check_parity(translator, exported, TEXTS)
