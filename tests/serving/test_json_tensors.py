import json
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.protobuf import meta_graph_pb2

from serving import json_tensors, messages
from serving.errors import ServingError
from serving.json_reader import parse
from serving.json_tensors import check_document, quote, read_tensors, write_tensors

TEXT = {"text": tf.string}


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


def test_bytes_that_are_not_utf8_pass():
    inputs, _ = read(b'\xef\xbb\xbf{"instances": ["\xff\xc3", "\\ud83d\\ude00"]}')
    assert inputs["text"].tolist() == [b"\xff\xc3", "😀".encode()]


@pytest.mark.parametrize(
    "text, value", [("aGk=", b"hi"), ("aGk.", b"hi"), ("a G\tk", b"hi"), ("YQ..", b"a"), ("", b"")]
)
def test_base64_may_have_white_space_and_no_padding(text, value):
    assert read({"inputs": {"text": {"b64": text}}})[0]["text"] == value


@pytest.mark.parametrize("text", ["YQ=", "Y", "YWJj=", "aG*k", "aGk=a", "=", "a-_k", "YQ\u00a0=="])
def test_other_base64_is_refused(text):
    with pytest.raises(ServingError, match="Unable to base64 decode"):
        read({"inputs": {"text": {"b64": text}}})


def test_tensors_of_many_chunks_keep_their_order(monkeypatch):
    for module in (json_tensors, messages):
        monkeypatch.setattr(module, "CHUNK", 7)
    numbers = list(range(26))
    for body in ({"inputs": numbers}, {"instances": numbers}):
        assert read(body, {"x": tf.int64})[0]["x"].tolist() == numbers
    assert read({"inputs": [[n, 0.5] for n in numbers]}, {"x": tf.float64})[0]["x"].tolist() == [
        [n, 0.5] for n in numbers
    ]
    with pytest.raises(ServingError, match="JSON Value: true .* expected type: int64"):
        read({"inputs": [*numbers, True]}, {"x": tf.int64})
    values = np.arange(17, dtype=np.float32)
    assert reply({"x": values}) == {"predictions": values.tolist()}
    assert reply({"x": values[None]}) == {"predictions": [values.tolist()]}
    assert reply({"x": values}, False) == {"outputs": values.tolist()}
    row = {"empty": [], "x": values.tolist()}
    assert reply({"x": values[None], "empty": values[:0][None]}) == {"predictions": [row]}
    assert reply({"x": np.empty((14, 0), np.float32)}) == {"predictions": 14 * [[]]}


@pytest.mark.parametrize(
    "value, quoted",
    [
        (1, "1"),
        ("ä\n\x1f/\x7f", '"ä\\n\\u001F/\x7f"'),
        ([1e16, 1e21, 1.5e30, -0.0], "[10000000000000000.0, 1e21, 1.5e30, -0.0]"),
        ([0.00001, 1e-7, 1.25e-10], "[0.00001, 1e-7, 1.25e-10]"),
        (
            [2**64 - 1, 2**64, 123456789012345678901234567890],
            "[18446744073709551615, 18446744073709552000.0, 1.2345678901234568e29]",
        ),
        ([1, math.nan, 2], "[1, "),  # RapidJSON's writer stops there.
        ([1, [True, None], {}], "[1, [true, null], {}]"),
        ({"a": 1, "b": [{"c": []}]}, '{\n    "a": 1,\n    "b": [{\n            "c": []\n        }]\n}'),
        (["a" * 247, 5, 6, 7], f'["{247 * "a"}", 5, 6'),  # It is whole until it has 256 bytes.
        ({"ä" * 122: 1, "b": 2}, f'{{\n    "{122 * "ä"}": 1,\n    "b"'),
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


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 0), (0, 3), (2, 0, 3), (0,)])
def test_outputs_of_any_rank_keep_it(shape):
    for array in (np.arange(math.prod(shape)).reshape(shape) / 2, np.full(shape, True), np.full(shape, 3, np.uint8)):
        assert reply({"x": array}) == {"predictions": array.tolist()}
        assert reply({"x": array}, is_rows=False) == {"outputs": array.tolist()}
    texts = np.full(shape, "ö".encode(), object)
    rows = np.full(shape, "ö").tolist()
    assert reply({"x": texts, "y": texts}) == {"predictions": [{"x": row, "y": row} for row in rows]}


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from([np.float32, np.float64]))
def test_floats_survive(values, dtype):
    array = np.array(values, dtype)
    found = np.array(reply({"x": array})["predictions"], dtype)
    np.testing.assert_array_equal(found, array)
