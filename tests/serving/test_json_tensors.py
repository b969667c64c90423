import json
import math

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.protobuf import meta_graph_pb2

from serving.errors import ServingError
from serving.json_reader import parse
from serving.json_tensors import check_document, quote, read_tensors, write_tensors
from serving.tensor_protos import CHUNK

TEXT = {"text": tf.string}
OPTIONS = {"text": tf.string, "alpha": tf.float32, "width": tf.int32}
ROW = {"text": "a", "alpha": 0.5, "width": 3}


def signature_inputs(dtypes):
    return {name: meta_graph_pb2.TensorInfo(dtype=dtype.as_datatype_enum) for name, dtype in dtypes.items()}


def read(body, dtypes=TEXT):
    document = parse(body if isinstance(body, bytes) else json.dumps(body).encode())
    check_document(document)
    return read_tensors(document, signature_inputs(dtypes))


def reply(outputs, is_rows=True):
    return json.loads(write_tensors(outputs, is_rows))


def strings(*values):
    return np.array(values, object)


def test_bytes_that_are_not_utf8_pass_and_lone_surrogates_do_not():
    inputs, _ = read(b'\xef\xbb\xbf{"instances": ["\xff\xc3", "\\ud83d\\ude00"]}')
    assert inputs["text"].tolist() == [b"\xff\xc3", "😀".encode()]
    with pytest.raises(ServingError, match="The surrogate pair in string is invalid."):
        read({"inputs": ["\ud800"]})


def test_every_input_has_the_dtype_and_shape_of_its_values():
    rows = [ROW, {"width": -5, "text": "b", "alpha": float("nan")}, {"width": 7, "alpha": float("-inf"), "text": ""}]
    inputs, _ = read({"instances": rows}, OPTIONS)
    assert {name: (x.dtype, x.shape) for name, x in inputs.items()} == {
        "text": (object, (3,)),
        "alpha": (np.float32, (3,)),
        "width": (np.int32, (3,)),
    }
    assert inputs["width"].tolist() == [3, -5, 7]
    np.testing.assert_array_equal(inputs["alpha"], np.float32([0.5, np.nan, -np.inf]))


def test_tensors_of_many_chunks_keep_their_order():
    numbers = list(range(3 * CHUNK + 5))
    for body in ({"inputs": numbers}, {"instances": numbers}):
        assert read(body, {"x": tf.int64})[0]["x"].tolist() == numbers
    assert read({"inputs": [[n, 0.5] for n in numbers]}, {"x": tf.float64})[0]["x"].tolist() == [
        [n, 0.5] for n in numbers
    ]
    with pytest.raises(ServingError, match="JSON Value: true .* expected type: int64"):
        read({"inputs": [*numbers, True]}, {"x": tf.int64})
    values = np.arange(2 * CHUNK + 3, dtype=np.float32)
    assert reply({"x": values}) == {"predictions": values.tolist()}
    assert reply({"x": values[None]}) == {"predictions": [values.tolist()]}
    assert reply({"x": values}, False) == {"outputs": values.tolist()}
    row = {"empty": [], "x": values.tolist()}
    assert reply({"x": values[None], "empty": values[:0][None]}) == {"predictions": [row]}
    assert reply({"x": np.empty((2 * CHUNK, 0), np.float32)}) == {"predictions": 2 * CHUNK * [[]]}


@pytest.mark.parametrize(
    "value, quoted",
    [
        (1, "1"),
        ("ä\n", '"ä\\n"'),
        ([1, [True, None], {}], "[1, [true, null], {}]"),
        ({"a": 1, "b": [{"c": []}]}, '{\n    "a": 1,\n    "b": [{\n            "c": []\n        }]\n}'),
    ],
)
def test_values_are_quoted_as_rapidjson_prints_them(value, quoted):
    assert quote(value) == quoted


def test_a_quote_is_short_and_no_depth_matters():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, list(range(10**6)), "a" * 10**6, {str(n): n for n in range(10**5)}):
        assert 250 < len(quote(value)) < 600


def test_one_output_is_bare_and_several_are_objects():
    text, score = strings(b"a", b"\xc3\xb6"), np.float32([0.5, -2])
    assert reply({"text": text}) == {"predictions": ["a", "ö"]}
    assert reply({"text": text}, is_rows=False) == {"outputs": ["a", "ö"]}
    both = {"text": text, "score": score}
    assert reply(both) == {"predictions": [{"text": "a", "score": 0.5}, {"text": "ö", "score": -2.0}]}
    assert reply(both, is_rows=False) == {"outputs": {"text": ["a", "ö"], "score": [0.5, -2.0]}}


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 0), (0, 3), (2, 0, 3), (0,)])
def test_outputs_of_any_rank_keep_it(shape):
    for array in (np.arange(math.prod(shape)).reshape(shape) / 2, np.full(shape, True), np.full(shape, 3, np.uint8)):
        assert reply({"x": array}) == {"predictions": array.tolist()}
        assert reply({"x": array}, is_rows=False) == {"outputs": array.tolist()}
    texts = np.full(shape, b"\xff", object)
    assert reply({"x": texts, "y": texts}) == {"predictions": [{"x": row, "y": row} for row in np.full(shape, "\ufffd").tolist()]}  # fmt: skip # noqa: E501


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from([np.float32, np.float64]))
def test_floats_survive(values, dtype):
    array = np.array(values, dtype)
    found = np.array(reply({"x": array})["predictions"], dtype)
    np.testing.assert_array_equal(found, array)


def test_rows_need_one_batch():
    for outputs, message in (
        ({}, "Cannot convert empty tensor map to JSON"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "Tensor name: b has inconsistent batch size: 3 expecting: 2"),
        ({"a": np.float32(2)}, "Tensor name: a has no shape information "),
        ({"a": np.zeros(2, np.float16)}, "Failed to write JSON value for tensor type: half"),
    ):
        with pytest.raises(ServingError) as caught:
            write_tensors(outputs, True)
        assert caught.value.message == message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text('aö😀\0"\\\ud83d', max_size=5)
    | st.just({"b64": "YQ=="}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "alpha", "b64", "x"]), inner),
    max_leaves=11,
)


@given(
    st.dictionaries(st.sampled_from(["instances", "inputs", "signature_name"]), JSON),
    st.sampled_from([TEXT, OPTIONS, {"x": tf.bool}, {"x": tf.uint8}, {"x": tf.float64}]),
)
def test_any_json_is_read_or_refused(body, dtypes):
    try:
        inputs, _ = read(body, dtypes)
    except ServingError as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.message
    else:
        assert {name: tf.as_dtype(x.dtype) for name, x in inputs.items()} == dtypes
        assert not any(math.prod(x.shape) != x.size for x in inputs.values())
