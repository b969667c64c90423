"""Bodies and messages, small ones and large ones: JSON, gzip and tensors of gRPC."""

import gzip
import json
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto

from serving import json_tensors
from serving.errors import ServingError
from serving.http_server import inflate
from serving.json_tensors import CHUNK, MOST_HOLDERS, parse, read_large, read_request, write_tensors
from serving.messages import NUMBERS, STRING, to_array, to_proto
from tests.serving.live import refusal

FLOAT, INT64 = (dtype.as_datatype_enum for dtype in (tf.float32, tf.int64))
SIGNATURES = {"serving_default": {"x": FLOAT}, "two": {"n": INT64, "text": STRING}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=11,
)


def reply(outputs, is_rows=True):
    return json.loads(write_tensors(outputs, is_rows))


@settings(max_examples=20)
@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_what_python_writes_is_read_as_it_was(value, indent, ascii):
    text = json.dumps({"a": value}, indent=indent, ensure_ascii=ascii)
    assert json.dumps(parse(text.encode("utf-8", "surrogatepass"))) == json.dumps({"a": value})


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 0), (0, 3), (2, 0, 3), (0,)])
def test_outputs_of_any_rank_keep_it(monkeypatch, shape):
    monkeypatch.setattr(json_tensors, "CHUNK", 7)
    for array in (np.arange(math.prod(shape)).reshape(shape) / 2, np.full(shape, True), np.full(shape, 3, np.uint8)):
        assert reply({"x": array}) == {"predictions": array.tolist()}
        assert reply({"x": array}, is_rows=False) == {"outputs": array.tolist()}
    texts, rows = np.full(shape, "ö".encode(), object), np.full(shape, "ö").tolist()
    assert reply({"x": texts, "y": texts}) == {"predictions": [{"x": row, "y": row} for row in rows]}


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from([np.float32, np.float64]))
def test_floats_survive(values, dtype):
    array = np.array(values, dtype)
    np.testing.assert_array_equal(np.array(reply({"x": array})["predictions"], dtype), array)


def test_another_process_reads_a_large_body_as_the_server_does_until_the_deadline():
    """That it holds up nobody: test_hostile.py."""

    def read_here(body, signatures):
        return read_request(parse(body), signatures)

    numbers, texts = list(range(3 * CHUNK // 2)), ["a", {"b64": "/w=="}, "ö"] * (CHUNK // 2)
    several = {"signature_name": "two", "inputs": {"n": numbers, "text": texts}}
    for document in ({"instances": [[1, 2.5], [3, 4]]}, several):
        body = json.dumps(document).encode()
        (name, inputs, is_rows), expected = read_large(body, SIGNATURES), read_here(body, SIGNATURES)
        assert (name, is_rows, inputs.keys()) == (expected[0], expected[2], expected[1].keys())
        for key, array in inputs.items():
            np.testing.assert_array_equal(array, expected[1][key], strict=True)
    for body in (b'{"inputs": ["\\ud800"]}', 10**6 * b"["):
        assert refusal(read_large, body, SIGNATURES) == refusal(read_here, body, SIGNATURES)
    assert refusal(read_large, 10**6 * b"[", SIGNATURES, 0.01)[0] == "DEADLINE_EXCEEDED"
    assert refusal(read_large, b"[]," * MOST_HOLDERS + b"[", SIGNATURES)[0] == "RESOURCE_EXHAUSTED"


def test_inflating_stops_at_the_limit():
    bomb = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    assert "at most 1009 bytes" in str(pytest.raises(ServingError, inflate, bomb, 1009).value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and inflate(gzip.compress(bytes(1009)), 1009) == bytes(1009)


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


@pytest.mark.parametrize("sizes", [[10**12], [2**40, 2**40], [2**62, 0, 3], [-1], [1] * 99])
def test_a_shape_that_only_claims_is_refused_and_nothing_is_allocated_for_it(sizes):
    shape = {"dim": [{"size": size} for size in sizes]}
    tracemalloc.start()
    for dtype, content in ((FLOAT, b""), (FLOAT, b"\x01" * 11), (STRING, b""), (STRING, b"\x01" * 11)):
        claimed = TensorProto(dtype=dtype, tensor_shape=shape, tensor_content=content)
        assert "must" in str(pytest.raises(ValueError, to_array, claimed).value)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()
    assert "dtype=101" in str(pytest.raises(ValueError, to_array, TensorProto(dtype=101, int_val=[3])).value)


WITHOUT_TENSORFLOW = """
import sys, serving.client, serving.gateway, serving.smoke_test, keras_transformer.cli.document_api
print(sorted({"tensorflow", "jax", "keras"} & {*sys.modules}))
"""
TENSORFLOW_AFTERWARDS = """
import tensorflow as tf
request = serving.messages.PredictRequest(inputs={"x": tf.make_tensor_proto([3.0, 5.0])})
print((tf.make_ndarray(request.inputs["x"]) + tf.constant(1.0)).numpy())
"""


@pytest.mark.parametrize(
    "afterwards, printed", [("", ""), pytest.param(TENSORFLOW_AFTERWARDS, "[4. 6.]\n", marks=pytest.mark.slow)]
)
def test_clients_do_not_start_tensorflow_which_can_be_imported_afterwards(afterwards, printed):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW + afterwards]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout) == (0, f"[]\n{printed}"), result.stderr
