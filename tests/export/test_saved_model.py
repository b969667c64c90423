import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.errors import ExportError
from keras_transformer.export import saved_model as module
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.saved_model import (
    SavedModelExport,
    in_precision,
    open_like_serving,
    run,
    translate_in_python,
)
from keras_transformer.export.versions import export_version
from keras_transformer.export.warmup import read_warm_up, replay
from keras_transformer.layers.kernels import SPARE
from keras_transformer.translation.options import INPUTS, OUTPUTS
from keras_transformer.translation.segments import divide_into_parts
from keras_transformer.translation.translator import Translator
from serving.configuration import read_message
from tests import tiny

ROOT = Path(__file__).parents[2]
TEXTS = ["one two three", "ten", "five five zero nine"]
ODD = ["", " \t", "\ufeff", "\U0001f600\u200d", "</s> <pad>", "\x00\x01", "seven " * 200, '%s {} \\ "']
# Operations, and attributes of others, that TensorFlow 2.21 has and 2.20, that of TensorFlow Serving, lacks: compared
# by TF_GetAllOpList of both. Other versions need a new comparison.
NEWER = {
    ("2.20", "2.21"): ({"DecodeJxl", "_CopyFromGpuToHost", "_CopyFromHostToGpu"}, {("TensorListGetItem", "Tshape")})
}
BYTES = [b"\xff\xfe\xfa", b"one \x80 two", b"\xed\xa0\x80"]


@pytest.fixture(scope="module")
def translator():
    return tiny.beam_translator()


@pytest.fixture(scope="module")
def exported():
    return tiny.saved_model() / "exports" / "1"


def run_like_serving(path, texts):
    """The answer of a SavedModel in a Session, the way TensorFlow Serving runs it."""
    with open_like_serving(path) as (session, signatures):
        return run(session, signatures["serving_default"], texts)


@pytest.fixture(scope="module")
def opened(exported):
    """A Session as the kit sets it, of one thread, and the signatures of `exported`."""
    config = read_message(ROOT / "serving" / "config" / "session.config", tf.compat.v1.ConfigProto())
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():  # for the loading alone: a graph left open would be that of other tests
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(exported))
    yield session, loaded.signature_def
    session.close()


@pytest.fixture(scope="module")
def answers(opened):
    """A function from a list of str or bytes to the outputs of `exported`."""
    session, signature = opened[0], opened[1]["serving_default"]
    fetches = {name: output.name for name, output in signature.outputs.items()}

    def ask(rows):
        rows = [row.encode() if isinstance(row, str) else row for row in rows]
        return session.run(fetches, {signature.inputs["text"].name: np.array(rows, dtype=object)})

    return ask


@pytest.fixture(scope="module")
def definition(exported):
    return saved_model_pb2.SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0]


def test_a_session_finds_what_the_translator_finds_and_odd_rows_change_no_other(answers, translator):
    together, alone, nothing = answers(TEXTS + ODD + BYTES), answers(TEXTS), answers([])
    texts, scores = translator.translate_batch(TEXTS + ODD)
    found = [text.decode("utf-8") for text in together["translation"]]  # invalid UTF-8 raises
    assert found[: len(texts)] == texts and found[len(TEXTS) : len(TEXTS) + 3] == [""] * 3
    np.testing.assert_allclose(together["score"][: len(texts)], scores, atol=1e-4)
    assert any(texts[: len(TEXTS)]) and np.isfinite(together["score"]).all()
    assert [text.decode() for text in alone["translation"]] == texts[: len(TEXTS)]
    np.testing.assert_allclose(together["score"][: len(TEXTS)], alone["score"], atol=1e-5)
    assert nothing["translation"].shape == nothing["score"].shape == (0,)


def test_what_nobody_sees_does_not_change_a_translation(answers, translator):
    plain, *odd = (text.decode() for text in answers(["one two three", *tiny.ODD_SPELLINGS])["translation"])
    assert odd == [plain] * len(tiny.ODD_SPELLINGS) == translator.translate(tiny.ODD_SPELLINGS)
    around = answers([" \u00a0one  two three\u3000", "\u034f"])["translation"].tolist()
    assert around == [f" \u00a0{plain}\u3000".encode(), "\u034f".encode()]


def test_a_search_reads_the_matrix_that_was_laid_out_at_load(exported, translator):
    loaded = tf.saved_model.load(str(exported))
    columns = {"resource": loaded.columns[0].resource_handle}
    values = tf.raw_ops.ReadVariableOp(**columns, dtype=tf.float32)
    np.testing.assert_array_equal(values, translator.model.output_matrix.numpy().T)
    tf.raw_ops.AssignVariableOp(**columns, value=tf.zeros_like(values))  # every token is now equally likely
    score = loaded.signatures["serving_default"](text=tf.constant(["ten"]))["score"]
    tf.raw_ops.AssignVariableOp(**columns, value=values)  # other loads of this process share it
    assert score < translator.translate_batch(["ten"])[1][0] - 1


@pytest.mark.slow
def test_an_export_of_a_variant_finds_what_the_translator_finds(tmp_path):
    """The tokenizers are two over one vocabulary, as those of OPUS-MT, which tests/tools/importing export."""
    variant = {"positions": "learned", "num_positions": 7, "num_decoder_layers": 2, "num_key_value_heads": 1}
    model, tokenizers = tiny.transformer(seed=3, **variant), (tiny.spelling_tokenizer(), tiny.tokenizer())
    how = {"beam_size": 3, "length_penalty": 0.6, "max_length": 31}
    divided = Translator(model, *tokenizers, **how)
    translator = Translator(model, *tokenizers, **how, split_sentences=False)
    SavedModelExport(translator).write(tmp_path)
    line = "Five five zero. Nine nine."  # whose sentences are translated at once, as the run says so
    outputs = run_like_serving(tmp_path, [*TEXTS, *ODD, line, f"{line}\n{line}"])
    *found, one, two = [text.decode("utf-8") for text in outputs["translation"]]
    texts, scores = translator.translate_batch(TEXTS + ODD)
    assert found == texts
    np.testing.assert_allclose(outputs["score"][:-2], scores, atol=1e-4)
    (read,) = divide_into_parts(tf.constant([line]), tokenizers[0], 31, translator.signatures.division).ids.to_list()
    ids = translator.signatures.find_labels(tf.ragged.constant([read]), tf.constant(3, tf.int64))
    expected = tiny.tokenizer().decode(ids.to_tensor()).numpy()[0].decode() + "."  # which the tokenizer does not know
    assert (one, two) == (expected, f"{expected}\n{expected}") and [one] != divided.translate_batch([line])[0]


@pytest.mark.slow
def test_an_export_that_python_reads_otherwise_than_a_session_is_no_export(exported, translator, monkeypatch):
    monkeypatch.setattr(module, "read_warm_up", lambda directory: [])  # for speed
    monkeypatch.setattr(module, "translate_in_python", lambda directory, inputs: ["else"] * len(inputs["text"]))
    message = "`tf.saved_model.load` .* 'one two three' to 'else', TensorFlow Serving to .* differ in 3 of 3 sentences"
    with pytest.raises(ExportError, match=message), SavedModelExport(translator).opened(exported) as translate:
        translate(TEXTS)


def test_a_process_that_cannot_open_an_export_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ExportError) as refused:
        translate_in_python(tmp_path, {"text": TEXTS})
    assert re.fullmatch(r"`tf.saved_model.load` in another process cannot .*: \w+Error: .+", str(refused.value))
    monkeypatch.setattr(module, "IN_PYTHON", "import os\nos.kill(os.getpid(), 9)")
    with pytest.raises(ExportError, match="status -9$"):
        translate_in_python(tmp_path, {"text": TEXTS})


def test_the_names_dtypes_and_shapes_of_the_signatures_are_these(definition):
    """A server prepares one graph for the default signature and `translate`."""
    signatures = {name: s for name, s in definition.signature_def.items() if not name.startswith("__")}
    inputs = {
        name: {key: tf.dtypes.as_dtype(tensor.dtype).name for key, tensor in signature.inputs.items()}
        for name, signature in signatures.items()
    }
    assert inputs == {"serving_default": INPUTS["translate"], **INPUTS}
    shapes = [tensor.tensor_shape for signature in signatures.values() for tensor in signature.inputs.values()]
    assert {tuple(dim.size for dim in shape.dim) for shape in shapes} == {(-1,)}
    assert signatures["serving_default"] == signatures["translate"]
    one = {"translation": ("string", [-1]), "score": ("float32", [-1])}
    of_pieces = {"token_scores": ("float32", [-1] * 2), "pieces": ("string", [-1] * 2)}
    of_source = {"source_pieces": ("string", [-1] * 2), "alignment": ("float32", [-1] * 3)}
    several = {"translations": ("string", [-1, 3]), "scores": ("float32", [-1, 3])}
    expected = dict.fromkeys(("translate", "translate_with_options", "sample"), one) | {"alternatives": several}
    expected |= {"score": {"score": one["score"], **of_pieces}, "explain": of_pieces | of_source}
    for name, outputs in expected.items():
        assert outputs == {
            key: (tf.dtypes.as_dtype(tensor.dtype).name, [dim.size for dim in tensor.tensor_shape.dim])
            for key, tensor in signatures[name].outputs.items()
        }
        listed = OUTPUTS[name].items()
        assert outputs == {key: (dtype, [3 if d == "W" else -1 for d in dims]) for key, (dtype, dims) in listed}


def too_new(nodes):
    """The operations and attributes of nodes that the TensorFlow Serving of Docker Compose does not know."""
    compose = (ROOT / "serving" / "docker-compose.yml").read_text(encoding="utf-8")
    serving, ours = re.search(r"TF_SERVING_TAG:-(\d+\.\d+)", compose)[1], re.match(r"\d+\.\d+", tf.__version__)[0]
    operations, attributes = NEWER[serving, ours]
    return [
        node.op for node in nodes if node.op in operations or any((node.op, name) in attributes for name in node.attr)
    ]


def test_the_graph_needs_neither_python_nor_xla_nor_a_newer_tensorflow_than_that_of_serving(definition):
    library = definition.graph_def.library.function
    nodes = [*definition.graph_def.node, *(node for function in library for node in function.node_def)]
    assert len({node.op for node in nodes}) > 50 and too_new(nodes) == []
    assert not [node.op for node in nodes if node.op.startswith("Xla") or "PyFunc" in node.op]
    assert not [function.signature.name for function in library if function.attr["_XlaMustCompile"].b]
    newer = tf.compat.v1.NodeDef(op="TensorListGetItem")
    newer.attr["Tshape"].type = tf.int64.as_datatype_enum
    assert too_new([tf.compat.v1.NodeDef(op="DecodeJxl"), newer]) == ["DecodeJxl", "TensorListGetItem"]


def test_every_weight_is_stored_once(exported, translator):
    reader = tf.train.load_checkpoint(str(exported / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    stored = sum(
        np.prod(shape) for name, shape in shapes.items() if reader.get_variable_to_dtype_map()[name].is_floating
    )
    assert stored == translator.model.count_params() + 2 * SPARE * tiny.SIZES["d_model"]  # of two `inner`


@pytest.mark.slow
def test_one_thread_runs_every_signature(opened, exported):
    replay(*opened, read_warm_up(exported))


@pytest.mark.slow
def test_half_precision_is_half_the_size_and_translates_what_was_learned(translator, exported, tmp_path):
    """As Python does in half precision. The search is greedy: it finds for certain what the model has learned."""
    sources, targets = zip(*tiny.learned_pairs(), strict=True)
    greedy = translator.with_model(translator.model, beam_size=1)
    path = export_version(SavedModelExport(greedy, "bfloat16"), tmp_path, sentences=sources)
    assert greedy.model.dtype_policy.name == "float32"  # it is left as it was
    found = run_like_serving(path, [*sources, *TEXTS])
    translations = [text.decode("utf-8") for text in found["translation"]]
    assert np.mean([text == target for text, target in zip(translations, targets, strict=False)]) > 0.9
    sizes = [(each / "variables" / "variables.data-00000-of-00001").stat().st_size for each in (path, exported)]
    assert sizes[0] < 0.55 * sizes[1]
    texts, scores = greedy.with_model(in_precision(greedy.model, "bfloat16")).translate_batch(TEXTS)
    assert translations[len(sources) :] == texts
    np.testing.assert_allclose(found["score"][len(sources) :], scores, rtol=1e-3, atol=1e-3)


def test_layer_normalisation_stays_exact_in_half_precision(translator):
    model = in_precision(translator.model, "bfloat16")
    assert {variable.dtype for variable in model.trainable_variables} == {"bfloat16", "float32"}
    assert all("norm" in variable.path for variable in model.trainable_variables if variable.dtype == "float32")


def test_the_manifest_has_signatures_search_precision_and_warm_up(exported, translator):
    manifest, text = read_manifest(exported), {"dtype": "string", "shape": [None]}
    assert manifest["signatures"].keys() == {"serving_default", *INPUTS}
    outputs = {"translation": text, "score": {"dtype": "float32", "shape": [None]}}
    assert manifest["signatures"]["translate"] == {"inputs": {"text": text}, "outputs": outputs}
    assert (manifest["format"], manifest["weights"]) == ("saved_model", "float32")
    assert manifest["search"] == translator.settings and manifest["warm_up"]["signatures"] == sorted(INPUTS)
    assert manifest["warm_up"]["file"] in manifest["files"]
