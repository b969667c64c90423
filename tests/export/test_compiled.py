"""An export with compiled programs, as TensorFlow Serving with XLA runs it."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.decoding.programs import Programs
from keras_transformer.errors import ExportError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.versions import export_version
from keras_transformer.export.warmup import read_warm_up, size_of
from keras_transformer.models import transformer
from tests import tiny
from tests.in_cpp import run_in_cpp

PROGRAMS = Programs((1, 3), (4, 9))
TEXTS = ["one two three", "ten", "five five zero nine"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A version, which a Session and Python in another process have proven."""
    export = SavedModelExport(tiny.beam_translator(), programs=PROGRAMS)
    return export_version(export, tmp_path_factory.mktemp("compiled"), sentences=TEXTS)


def test_the_manifest_lists_the_programs_and_equals_the_run(exported):
    manifest = read_manifest(exported)
    assert [(each["rows"], each["length"], each["steps"]) for each in manifest["programs"]] == [
        (1, 4, 6),
        (3, 4, 6),
        (1, 9, 13),
        (3, 9, 13),
    ]
    assert manifest["parity"]["equal"] == manifest["parity"]["sentences"]


def test_the_warm_up_has_one_request_for_every_program(exported):
    sizes = []
    for request in read_warm_up(exported):
        texts = tf.make_ndarray(request.inputs["text"]).tolist()
        length = len(tiny.tokenizer().encode(texts)[0])
        if request.model_spec.signature_name == "translate":
            sizes.append((size_of(request), min((each for each in PROGRAMS.lengths if each >= length), default=None)))
    assert {(rows, length) for rows in PROGRAMS.rows for length in PROGRAMS.lengths} <= set(sizes)


def test_only_two_functions_are_compiled_and_nothing_else_needs_xla(exported):
    functions = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def.library
    compiled = [each for each in functions.function if each.attr["_XlaMustCompile"].b]
    assert len(compiled) == 2  # of all sizes: one reads the source, the other takes the steps
    assert not any(
        node.op.startswith(("PyFunc", "EagerPyFunc")) for each in functions.function for node in each.node_def
    )


def test_the_c_library_runs_programs_with_xla_and_says_what_is_missing_without(exported):
    found = run_in_cpp(exported, TEXTS, xla="on")
    assert found.returncode == 0, found.stderr.decode()
    assert found.stdout.decode().splitlines() == tiny.beam_translator().translate(TEXTS)
    assert b"XLA compilation disabled" in run_in_cpp(exported, TEXTS, xla="off").stderr


def test_a_program_that_translates_otherwise_is_no_export(tmp_path, monkeypatch):
    monkeypatch.setattr(transformer, "written", lambda past, newest, position: past)
    with pytest.raises(ExportError, match="a compiled program translates"):
        export_version(SavedModelExport(tiny.beam_translator(), programs=PROGRAMS), tmp_path, sentences=TEXTS)
    assert not list(tmp_path.glob("1"))
