import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto

from serving import messages
from serving.messages import NUMBERS, to_array, to_proto

DTYPES = [tf.dtypes.as_dtype(number) for number in NUMBERS]
TEXTS = np.array([[b"one", b""], [b"\xff\x00", "größe".encode()], [b"x" * 300, b"\n"]], object)


def written(array, **options):
    proto = TensorProto()
    to_proto(array, proto, **options)
    return proto


def some(dtype):
    return np.array([[0, 1, 2], [3, 5, 120]]).astype(dtype.as_numpy_dtype)


def parsed(proto):
    """As TensorFlow's C++ reads it, or None if it does not."""
    try:
        value = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype).numpy()
        return np.array(value, object) if proto.dtype == tf.string else value  # a scalar is bytes
    except tf.errors.InvalidArgumentError:
        return None


def read(proto):
    try:
        return to_array(proto)
    except ValueError:
        return None


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_numbers_are_read_and_written_in_typed_fields_or_as_content(dtype):
    array = some(dtype)
    typed, packed = written(array), written(array, as_content=True)
    assert packed.tensor_content and not typed.tensor_content
    for proto in (typed, packed):
        found = to_array(proto)
        assert found.dtype == array.dtype
        for read_back in (found, parsed(proto), tf.make_ndarray(proto)):
            np.testing.assert_array_equal(read_back, array)


def test_strings_are_read_from_typed_fields_and_from_content():
    packed = TensorProto(dtype=tf.string.as_datatype_enum, tensor_shape={"dim": [{"size": 3}, {"size": 2}]})
    flat = TEXTS.ravel().tolist()
    lengths = b"".join(bytes([len(text)]) if len(text) < 128 else b"\xac\x02" for text in flat)  # 300 takes two bytes
    packed.tensor_content = lengths + b"".join(flat)
    np.testing.assert_array_equal(parsed(packed), TEXTS)
    np.testing.assert_array_equal(to_array(packed), TEXTS)
    np.testing.assert_array_equal(to_array(written(TEXTS)), TEXTS)
    np.testing.assert_array_equal(parsed(written(TEXTS)), TEXTS)


@pytest.mark.parametrize("shape", [(), (0,), (5, 0, 10**12)])
def test_scalars_and_empty_tensors_survive(shape):
    for array in (np.full(shape, 7.5, np.float32), np.full(shape, b"a", object)):
        found = to_array(written(array))
        assert found.shape == shape and found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("dtype", [1, 3, 7])
@pytest.mark.parametrize("sizes", [[10**12], [2**40, 2**40], [2**62, 0, 3], [-1], [1] * 99, [3, -5]])
@pytest.mark.parametrize("content", [b"", b"\x01" * 11])
def test_a_shape_that_only_claims_is_refused_and_nothing_is_allocated_for_it(dtype, sizes, content):
    proto = TensorProto(dtype=dtype, tensor_shape={"dim": [{"size": size} for size in sizes]}, tensor_content=content)
    tracemalloc.start()
    with pytest.raises(ValueError, match="Received"):
        to_array(proto)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


@pytest.mark.parametrize("dtype", [0, 11, 20, 21, 101, 10**6])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=f"dtype={dtype}"):
        to_array(TensorProto(dtype=dtype, int_val=[3]))
    with pytest.raises(ValueError, match="datetime64"):
        written(np.zeros(3, "datetime64[s]"))


FIELDS = {
    1: ("float_val", st.floats(width=32)),
    3: ("int_val", st.integers(-(2**31), 2**31 - 1)),
    6: ("int_val", st.integers(-(2**31), 2**31 - 1)),
    7: ("string_val", st.binary(max_size=5)),
    9: ("int64_val", st.integers(-(2**63), 2**63 - 1)),
    19: ("half_val", st.integers(0, 2**16 - 1)),
}
SHAPES = st.builds(
    lambda sizes, unknown: {"dim": [{"size": size} for size in sizes], "unknown_rank": unknown},
    st.lists(st.integers(-1, 4), max_size=3),
    st.sampled_from([False] * 5 + [True]),
)
CONTENTS = st.just(b"") | st.lists(st.integers(0, 3), max_size=16).map(bytes)


@st.composite
def protos(draw):
    dtype = draw(st.sampled_from(sorted(FIELDS)))
    field, values = FIELDS[dtype]
    filled = {field: draw(st.lists(values, max_size=5))}
    return TensorProto(dtype=dtype, tensor_shape=draw(SHAPES), tensor_content=draw(CONTENTS), **filled)


@settings(deadline=None, max_examples=150)
@given(protos())
def test_whatever_hypothesis_thinks_of_is_read_or_refused_as_tensorflow_does(proto):
    expected, found = parsed(proto), read(proto)
    assert (found is None) == (expected is None)
    if found is not None:
        assert found.shape == np.shape(expected)
        np.testing.assert_array_equal(found, expected)


def test_tensors_of_many_chunks_keep_their_order(monkeypatch):
    monkeypatch.setattr(messages, "CHUNK", 7)
    array = np.arange(26)
    np.testing.assert_array_equal(to_array(written(array)), array)
    texts = array.astype("S").astype(object)
    np.testing.assert_array_equal(to_array(written(texts)), texts)


NO_TENSORFLOW = """
import sys, serving.client, serving.smoke_test
print(sorted({"tensorflow", "jax", "keras"} & {*sys.modules}))
"""
TENSORFLOW_AFTERWARDS = """
from serving.messages import PredictRequest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
assert type(PredictRequest(inputs={"x": {}}).inputs["x"]) is tensor_pb2.TensorProto
request = PredictRequest(inputs={"x": tf.make_tensor_proto([3.0, 5.0])})
print(tf.make_ndarray(request.inputs["x"]) + tf.constant(1.0))
"""


@pytest.mark.parametrize(
    "program, found", [(NO_TENSORFLOW, "[]"), pytest.param(TENSORFLOW_AFTERWARDS, "[4. 6.]", marks=pytest.mark.slow)]
)
def test_clients_do_not_start_tensorflow_which_can_be_imported_afterwards(program, found):
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and found in result.stdout, result.stderr
