import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from serving.errors import ServingError
from serving.signature import Signature


def tensor_info(name, dtype, *shape):
    dims = [{"size": size} for size in shape]
    return {"name": name, "dtype": dtype.as_datatype_enum, "tensor_shape": {"dim": dims}}


@pytest.fixture(scope="module")
def signature():
    """Its inputs are not in the order of their tensors."""
    definition = SignatureDef(
        inputs={
            "text": tensor_info("z:0", tf.string, -1),
            "options": tensor_info("a:0", tf.float32, -1, 5),
            "seed": tensor_info("m:0", tf.int64, -1),
        },
        outputs={"score": tensor_info("s:0", tf.float32, -1), "pieces": tensor_info("p:0", tf.string, -1, -1)},
    )
    definition.defaults["seed"].CopyFrom(tf.make_tensor_proto([11, 11, 11], tf.int64))
    return Signature(definition)


def inputs(**changes):
    good = {"text": np.array([b"a"] * 3, object), "options": np.zeros((3, 5), np.float32), "seed": np.arange(3)}
    return {**good, **changes}


def message_of(function, argument):
    with pytest.raises(ServingError) as caught:
        function(argument)
    assert caught.value.code == StatusCode.INVALID_ARGUMENT
    return caught.value.message


def test_what_fits_is_fed_as_it_is(signature):
    assert signature.checked_inputs(given := inputs()) is given


def test_an_input_with_a_default_may_be_left_out(signature):
    given = inputs()
    del given["seed"]
    assert signature.checked_inputs(given)["seed"].tolist() == [11, 11, 11]


def test_missing_and_extra_inputs_are_named(signature):
    given = {"seed": np.arange(3), "txt": np.arange(3)}
    assert message_of(signature.checked_inputs, given) == (
        "input size does not match signature: 2!=3 len({seed,txt}) != len({options,seed,text}). Sent extra: {txt}. "
        "Missing but required: {options,text}."
    )


def test_a_wrong_dtype_is_told_with_the_place_of_its_tensor(signature):
    assert message_of(signature.checked_inputs, inputs(text=np.zeros(3))) == (
        "Expects arg[2] to be string but double is provided"
    )
    assert message_of(signature.checked_inputs, inputs(options=np.zeros((3, 5), np.int32))) == (
        "Expects arg[0] to be float but int32 is provided"
    )


@pytest.mark.parametrize("array", [np.array(["a"] * 3), np.array([b"a"] * 3)])
def test_strings_of_numpys_own_are_strings_too(signature, array):
    assert signature.checked_inputs(inputs(text=array))["text"].dtype == object


@pytest.mark.parametrize("shape", [(3,), (3, 7), (3, 5, 2), ()])
def test_a_shape_that_does_not_fit_is_told(signature, shape):
    message = message_of(signature.checked_inputs, inputs(options=np.zeros(shape, np.float32)))
    assert message == f"input options must have shape ['?', 5]. Received: shape={list(shape)}"


def test_inputs_of_different_numbers_of_rows_are_refused(signature):
    message = message_of(signature.checked_inputs, inputs(seed=np.arange(2)))
    assert message == "inputs must have equal 0th-dimension size. Received: options: 3, seed: 2, text: 3"


def test_outputs_are_all_or_those_asked_for(signature):
    assert signature.checked_outputs(None) == signature.checked_outputs([]) == ("pieces", "score")
    assert signature.checked_outputs(["score"]) == ("score",)


def test_unknown_and_doubled_outputs_are_refused(signature):
    assert message_of(signature.checked_outputs, ["x"]) == (
        "output tensor alias not found in signature: x Outputs expected to be in the set {pieces,score}."
    )
    assert message_of(signature.checked_outputs, ["score", "score"]) == "duplicate output tensor alias: score"


def test_a_scalar_input_cannot_be_batched():
    scalar = Signature(SignatureDef(inputs={"x": tensor_info("x:0", tf.float32)}))
    assert not scalar.is_batched
    assert scalar.checked_inputs({"x": np.float32(2)}) == {"x": np.float32(2)}
