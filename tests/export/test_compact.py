import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto, GraphOptions
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.export.compact import compact
from keras_transformer.translation.options import INPUTS, OPTIONS
from tests import tiny

TEXTS = ["one two three", "", "ten ten seven. Five five!"]


@pytest.fixture(scope="module")
def exports():
    """The export of a `Translator`, as TensorFlow writes it and compacted."""
    return [tiny.saved_model() / name for name in ("plain", "compacted")]


@pytest.fixture(scope="module")
def call(exports):
    """A function from the name of a signature and its inputs to the outputs of both exports, name -> array."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(each) for each in map(open_apart, exports)]

        def outputs(session, signature, inputs):
            fetches = {key: tensor.name for key, tensor in signature.outputs.items()}
            return session.run(fetches, {signature.inputs[key].name: value for key, value in inputs.items()})

        yield lambda name, inputs: [outputs(session, signatures[name], inputs) for session, signatures in opened]


@contextlib.contextmanager
def open_apart(path):
    """As `open_like_serving`, not in the graph of the tests that follow, and without Grappler, which merges as well."""
    options = GraphOptions(rewrite_options=RewriterConfig(disable_meta_optimizer=True))
    session = tf.compat.v1.Session(graph=tf.Graph(), config=ConfigProto(graph_options=options))
    with session.graph.as_default():
        signatures = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(path)).signature_def
    yield session, signatures
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_every_signature_answers_as_before(call, name):
    inputs = {"text": np.array([text.encode() for text in TEXTS], object)}
    inputs |= {
        option.name: np.full(len(TEXTS), option.example, object if option.dtype == "string" else option.dtype)
        for option in OPTIONS
        if option.signature == name
    }
    if name == "score":
        inputs["translation"] = np.array([b"eins zwei drei", b"", b"zehn"], object)
    plain, compacted = call(name, inputs)
    assert plain.keys() == compacted.keys()
    for output, expected in plain.items():
        if expected.dtype == object:
            np.testing.assert_array_equal(compacted[output], expected)
        else:
            np.testing.assert_allclose(compacted[output], expected, atol=1e-5)
    assert any(expected.any() for expected in plain.values())


def test_the_graph_is_less_than_half_of_what_it_was_and_its_signatures_are_the_same(exports):
    sizes = [(path / "saved_model.pb").stat().st_size - len(tiny.tokenizer_model()) for path in exports]
    assert sizes[1] < 0.5 * sizes[0]
    models = (SavedModel.FromString((path / "saved_model.pb").read_bytes()) for path in exports)
    plain, compacted = (model.meta_graphs[0] for model in models)
    assert dict(compacted.signature_def) == dict(plain.signature_def)
    for function in compacted.graph_def.library.function:
        constants = [
            (*node.input, node.attr["value"].SerializeToString()) for node in function.node_def if node.op == "Const"
        ]
        assert len(constants) == len(set(constants))


def graph_of(nodes):
    """A MetaGraphDef with one function of nodes (name, op, *inputs), and a list of the operations that it knows."""
    graph = MetaGraphDef()
    for name in ("Known", "Effect"):
        graph.meta_info_def.stripped_op_list.op.add(name=name, is_stateful=name == "Effect")
    function = graph.graph_def.library.function.add()
    function.signature.name = "function"
    for name, op, *inputs in nodes:
        function.node_def.add(name=name, op=op, input=inputs)
    function.ret["result"] = "n5:output:0"
    return graph


def nodes_of(graph):
    (function,) = graph.graph_def.library.function
    return [(node.name, node.op, *node.input) for node in function.node_def]


def test_pure_operations_are_merged_only_if_they_wait_for_the_same():
    start, result = ("n1", "Effect"), ("n5", "Effect", "n2:output:0", "n3:output:0", "n4:output:0", "^n3")
    graph = graph_of([start, ("n2", "Known", "^n1"), ("n3", "Known", "^n1"), ("n4", "Known"), result])
    compact(graph)
    merged = ("n5", "Effect", "a:output:0", "a:output:0", "b:output:0", "^a")
    assert nodes_of(graph) == [start, ("a", "Known", "^n1"), ("b", "Known"), merged]


@pytest.mark.parametrize("kind", ["Unknown", "Effect", "calls a function", "is named by an attribute"])
def test_other_operations_stay_as_they_are(kind):
    op = kind if kind in ("Unknown", "Effect") else "Known"
    nodes = [("n1", op), ("n2", op), ("n5", "Effect", "n1:output:0", "n2:output:0", "^n1")]
    graph = graph_of(nodes)
    first, second, last = graph.graph_def.library.function[0].node_def
    if kind == "calls a function":
        first.attr["f"].func.name = second.attr["f"].func.name = "another"
    if kind == "is named by an attribute":
        last.attr["_class"].list.s.append(b"loc:@n2")
    compact(graph)
    assert nodes_of(graph) == nodes
