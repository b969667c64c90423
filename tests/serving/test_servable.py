import time

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.translation.options import INPUTS
from serving.errors import ServingError
from serving.servable import SOON_DONE, Servable
from tests.serving import toy


def texts(*rows):
    return np.array([row.encode() for row in rows], dtype=object)


@pytest.fixture(scope="module")
def servable(tmp_path_factory):
    servable = Servable.load("toy", 7, toy.write(tmp_path_factory.mktemp("models"), 7))
    yield servable
    servable.close()


def error_of(function, *arguments):
    with pytest.raises(ServingError) as caught:
        function(*arguments)
    return caught.value.code, caught.value.message


def test_a_session_answers_with_every_output_or_those_asked_for(servable):
    found = servable.run("", {"text": texts("ab", "ü")})
    assert list(found["translation"]) == [toy.translation("ab", 7), toy.translation("ü", 7)]
    np.testing.assert_allclose(found["score"], [2 * toy.WEIGHT, 2 * toy.WEIGHT])
    assert set(servable.run("translate", {"text": texts("ab")}, ["score"])) == {"score"}


def test_all_signatures_are_there_and_tensorflows_own_does_not_run(servable):
    assert {"serving_default", *INPUTS} <= set(servable.signatures)
    for own in set(servable.signatures) - {"serving_default", *INPUTS}:
        assert error_of(servable.run, own, {})[0] == StatusCode.INVALID_ARGUMENT


def test_what_the_graph_raises_is_told_without_the_place_in_the_graph(servable):
    assert error_of(servable.run, "", {"text": texts("raise")}) == (
        StatusCode.INVALID_ARGUMENT,
        "assertion failed: [a text]",
    )


def test_a_long_computation_is_given_up_after_its_time(servable):
    code, _ = error_of(servable.run, "", {"text": texts("wait 30" + SOON_DONE * " ")}, None, 0.05)
    assert code == StatusCode.DEADLINE_EXCEEDED


def test_little_is_computed_by_the_thread_that_asks_and_much_by_others(servable):
    def own_share(text):
        """How much of the processor time that a text takes is this thread's."""
        whole, own = time.process_time(), time.thread_time()
        servable.run("", {"text": texts(text)})
        return (time.thread_time() - own) / (time.process_time() - whole)

    assert own_share("wait 0.5") > 0.5
    assert own_share("wait 0.5" + SOON_DONE * " ") < 0.5


@pytest.mark.parametrize(
    "file, code",
    [
        ("saved_model.pb", StatusCode.NOT_FOUND),
        ("variables/variables.index", StatusCode.DATA_LOSS),
        ("variables/variables.data-00000-of-00001", StatusCode.UNKNOWN),
    ],
)
def test_a_missing_file_is_an_error_with_a_code(tmp_path, file, code):
    path = toy.write(tmp_path, 1)
    (path / file).unlink()
    assert error_of(Servable.load, "toy", 1, path)[0] == code


def test_a_truncated_graph_is_data_loss(tmp_path):
    path = toy.write(tmp_path, 1)
    graph = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(graph[: len(graph) // 2])
    code, message = error_of(Servable.load, "toy", 1, path)
    assert code == StatusCode.DATA_LOSS and "Cannot parse file" in message


def test_an_unknown_op_is_an_error(tmp_path):
    path = toy.write(tmp_path, 1)
    graph = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(graph.replace(b"StringUpper", b"StringUpset"))
    code, message = error_of(Servable.load, "toy", 1, path)
    assert "StringUpset" in message


def test_a_default_stands_for_an_input_that_is_missing(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int64, "x"), tf.TensorSpec([], tf.int64, "y")])
    def add(x, y):
        return {"sum": x + y}

    tf.saved_model.save(tf.Module(), str(tmp_path), {"serving_default": add})
    path = tmp_path / "saved_model.pb"
    saved = SavedModel.FromString(path.read_bytes())
    saved.meta_graphs[0].signature_def["serving_default"].defaults["y"].CopyFrom(tf.make_tensor_proto(5, tf.int64))
    path.write_bytes(saved.SerializeToString())
    servable = Servable.load("m", 1, tmp_path)
    assert servable.run("", {"x": np.int64(2)}) == {"sum": 7}
    assert "Missing but required: {x}" in error_of(servable.run, "", {"y": np.int64(2)})[1]
    servable.close()


def test_tags_choose_the_graph(tmp_path):
    path = toy.write(tmp_path, 1)
    assert "tags" in error_of(lambda: Servable.load("toy", 1, path, tags=["serve", "gpu"]))[1]
