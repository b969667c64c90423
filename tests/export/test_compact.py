import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.export.compact import compact, compact_saved_model, renamed
from keras_transformer.export.saved_model import open_like_serving, run
from tests import tiny

TEXTS = ["one two three", "", "ten ten seven"]
SIGNATURES = ("count", "draw")


class Module(tf.Module):
    """A tokenizer, a variable in a loop, much that is done twice or for nothing, and chance."""

    def __init__(self):
        super().__init__()
        self.tokenizer = tiny.tokenizer()
        self.weight = tf.Variable(1.5, name="the_weight")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def count(self, text):
        tf.exp(self.weight, name="never_asked_for")
        lengths = [tf.cast(self.tokenizer.encode(text).row_lengths(), tf.float32) for _ in range(2)]

        def power(step, total):
            return step + 1, total * self.weight

        _, grown = tf.while_loop(lambda step, total: step < 5, power, (0, lengths[0] + lengths[1]))
        return {"first": lengths[0], "second": lengths[1], "grown": grown}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def draw(self, text):
        return {name: tf.random.uniform([tf.size(text)]) for name in ("first", "second")}


@pytest.fixture(scope="module")
def module():
    return Module()


@pytest.fixture(scope="module")
def saved(module, tmp_path_factory):
    """As it is after `tf.saved_model.save`, and the same made smaller."""
    paths = [tmp_path_factory.mktemp(name) for name in ("large", "small")]
    for path in paths:
        tf.saved_model.save(module, str(path), signatures={name: getattr(module, name) for name in SIGNATURES})
    compact_saved_model(paths[1])
    return paths


def run_like_serving(path, texts, signature):
    """What a Session answers: output name -> NumPy array."""
    with open_like_serving(path) as (session, signatures):
        return run(session, signatures[signature], texts)


def model_of(path):
    return SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs[0]


def functions_of(path):
    return model_of(path).graph_def.library.function


def test_a_session_finds_the_same(saved):
    large, small = (run_like_serving(path, TEXTS, "count") for path in saved)
    assert large.keys() == small.keys() == {"first", "second", "grown"}
    for name, expected in large.items():
        np.testing.assert_array_equal(small[name], expected)
    assert small["first"].any()
    np.testing.assert_array_equal(small["grown"], 1.5**5 * 2 * small["first"])


def test_python_finds_the_same(saved, module):
    text = tf.constant(TEXTS)
    loaded = tf.saved_model.load(str(saved[1]))
    for found in (loaded.signatures["count"](text=text), loaded.count(text)):
        for name, expected in module.count(text).items():
            np.testing.assert_array_equal(found[name], expected)


def test_what_is_left_to_chance_is_left_to_it_twice(saved):
    drawn = run_like_serving(saved[1], TEXTS, "draw")
    assert not np.equal(drawn["first"], drawn["second"]).any()


def test_signatures_are_called_as_before(saved):
    with open_like_serving(saved[0]) as (_, before), open_like_serving(saved[1]) as (_, after):
        assert dict(after) == dict(before)


def test_no_function_does_the_same_twice(saved):
    for function in functions_of(saved[1]):
        if not any("_class" in node.attr for node in function.node_def):
            constants = [node.attr["value"].SerializeToString() for node in function.node_def if node.op == "Const"]
            assert len(constants) == len(set(constants))
    transcode = [
        sum(node.op == "UnicodeTranscode" for function in functions_of(path) for node in function.node_def)
        for path in saved
    ]
    assert transcode == [2, 1]


def control_edges(path):
    """How many edges of functions only order two nodes."""
    return sum(name[0] == "^" for f in functions_of(path) for node in f.node_def for name in node.input)


def test_no_node_with_an_effect_loses_an_edge(saved):
    def edges_of_effects(path):
        pure = {op.name for op in model_of(path).meta_info_def.stripped_op_list.op if not op.is_stateful}
        nodes = [node for function in functions_of(path) for node in function.node_def if node.op not in pure]
        return sorted((node.name, len(node.input)) for node in nodes)

    assert edges_of_effects(saved[1]) == edges_of_effects(saved[0])
    assert edges_of_effects(saved[0]) != [] and control_edges(saved[1]) > 0


def test_an_unknown_operation_stays_as_it_is(saved):
    meta_graph = model_of(saved[0])
    function = meta_graph.graph_def.library.function.add()
    function.signature.name = "of_the_unknown"
    for name, inputs in (("first", ()), ("second", ()), ("third", ("first:out:0", "^second"))):
        function.node_def.add(name=name, op="NoSuchOperation", input=inputs)
    function.ret["result"] = "third:out:0"
    before = function.SerializeToString(deterministic=True)
    compact(meta_graph)
    assert meta_graph.graph_def.library.function[-1].SerializeToString(deterministic=True) == before


def test_what_has_an_effect_takes_place(tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.calls = tf.Variable(0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def count(self, text):
            tf.debugging.Assert(tf.reduce_all(text != "raise"), ["a text"])
            self.calls.assign_add(1)
            return {"calls": self.calls + 0 * tf.size(text)}

    module = Counter()
    tf.saved_model.save(module, str(tmp_path), signatures={"count": module.count})
    compact_saved_model(tmp_path)
    with open_like_serving(tmp_path) as (session, signatures):
        assert [int(run(session, signatures["count"], ["x"])["calls"]) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(tf.errors.InvalidArgumentError, match="a text"):
            run(session, signatures["count"], ["raise"])


def test_the_graph_is_smaller_than_it_was(saved):
    sizes = [(path / "saved_model.pb").stat().st_size for path in saved]
    assert sizes[1] < 0.95 * sizes[0]


@pytest.mark.parametrize(
    "reference, expected", [("x", "y"), ("x:0", "y:0"), ("x:x:2", "y:x:2"), ("^x", "^y"), ("xx:x:0", "xx:x:0")]
)
def test_references_keep_all_but_the_name(reference, expected):
    assert renamed(reference, {"x": "y"}) == expected
