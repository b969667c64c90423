import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from serving.messages import NUMBERS, STRING, to_array, to_proto

TEXTS = np.array([[b"one", b""], [b"\xff\x00", "größe".encode()], [b"x" * 300, b"\n"]], object)


def written(array):
    proto = TensorProto()
    to_proto(array, proto)
    return proto


def parsed(proto):
    """As TensorFlow's C++ reads it."""
    value = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype).numpy()
    return np.array(value, object) if proto.dtype == tf.string else value  # a scalar is bytes


@pytest.mark.parametrize("number", [*NUMBERS, STRING])
def test_tensors_are_written_and_read_as_tensorflow_does_whole_with_surplus_values_or_with_few(number):
    dtype = tf.dtypes.as_dtype(number)
    array = TEXTS if dtype == tf.string else np.array([[0, 1, 2], [3, 5, 120]]).astype(dtype.as_numpy_dtype)
    typed = written(array)
    protos = [typed, written(array[0]), written(array[0, :0]), written(array.reshape(-1)[:1].reshape(()))]
    for size in (1, 5, 9):  # of a row
        protos.append(TensorProto.FromString(typed.SerializeToString()))
        protos[-1].tensor_shape.dim[1].size = size
    if dtype == tf.string:
        lengths = b"".join(bytes([len(text)]) if len(text) < 128 else b"\xac\x02" for text in array.flat)
        shape = typed.tensor_shape  # The length 300 takes two bytes.
        protos.append(TensorProto(dtype=number, tensor_shape=shape, tensor_content=lengths + b"".join(array.flat)))
    else:
        protos.append(TensorProto(dtype=number, tensor_shape=typed.tensor_shape, tensor_content=array.tobytes()))
    for proto in protos:
        found, expected = to_array(proto), parsed(proto)
        assert found.shape == np.shape(expected) and found.dtype == array.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [1, 7])
@pytest.mark.parametrize("sizes", [[10**12], [2**40, 2**40], [2**62, 0, 3], [-1], [1] * 99])
@pytest.mark.parametrize("content", [b"", b"\x01" * 11])
def test_a_shape_that_only_claims_is_refused_and_nothing_is_allocated_for_it(dtype, sizes, content):
    proto = TensorProto(dtype=dtype, tensor_shape={"dim": [{"size": size} for size in sizes]}, tensor_content=content)
    tracemalloc.start()
    with pytest.raises(ValueError, match="must"):
        to_array(proto)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()
    with pytest.raises(ValueError, match="dtype=101"):
        to_array(TensorProto(dtype=101, int_val=[3]))


NO_TENSORFLOW = """
import sys, serving.client, serving.gateway, serving.smoke_test, keras_transformer.cli.document_api
print(sorted({"tensorflow", "jax", "keras"} & {*sys.modules}))
"""
TENSORFLOW_AFTERWARDS = """
from serving.messages import PredictRequest
import tensorflow as tf
request = PredictRequest(inputs={"x": tf.make_tensor_proto([3.0, 5.0])})
print(tf.make_ndarray(request.inputs["x"]) + tf.constant(1.0))
"""


@pytest.mark.parametrize(
    "program, found", [(NO_TENSORFLOW, "[]"), pytest.param(TENSORFLOW_AFTERWARDS, "[4. 6.]", marks=pytest.mark.slow)]
)
def test_clients_do_not_start_tensorflow_which_can_be_imported_afterwards(program, found):
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and found in result.stdout, result.stderr
