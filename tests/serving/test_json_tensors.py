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
from serving.json_tensors import parse, read_tensors, write_tensors

TEXT = {"text": tf.string}
OPTIONS = {"text": tf.string, "alpha": tf.float32, "width": tf.int32}
ROW = {"text": "a", "alpha": 0.5, "width": 3}
OF_ONE = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "


def signature_inputs(dtypes):
    return {name: meta_graph_pb2.TensorInfo(dtype=dtype.as_datatype_enum) for name, dtype in dtypes.items()}


def read(body, dtypes=TEXT):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_tensors(parse(body), signature_inputs(dtypes))


def error_of(body, dtypes=TEXT, code=grpc.StatusCode.INVALID_ARGUMENT):
    with pytest.raises(ServingError) as caught:
        read(body, dtypes)
    assert caught.value.code == code
    return caught.value.message


def reply(outputs, is_rows=True):
    return json.loads(write_tensors(outputs, is_rows))


def strings(*values):
    return np.array(values, object)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b" \n", "JSON Parse error: The document is empty"),
        (b"instances = [1, 2]", "JSON Parse error: Invalid value. at offset: 0"),
        ("{'ä': 1}".encode(), "JSON Parse error: Missing a name for object member. at offset: 1"),
        ('{"ä" 1}'.encode(), "JSON Parse error: Missing a colon after a name of object member. at offset: 6"),
        (b'{"a": 1 2}', "JSON Parse error: Missing a comma or a closing bracket after a value. at offset: 8"),
        (b'{"a": "1}', "JSON Parse error: Missing a closing quotation mark in string. at offset: 6"),
        (b'{"a": "\n"}', "JSON Parse error: Invalid encoding in string. at offset: 7"),
        (b'{"a": "\\x"}', "JSON Parse error: Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\u00g0"}', "JSON Parse error: Incorrect hex digit after \\u escape in string. at offset: 8"),
        (b"{} {}", "JSON Parse error: The document root must not be followed by other values. at offset: 3"),
        (b'{"a": 1' + 5000 * b"0" + b"}", "JSON Parse error: Number too big to be stored in double."),
        (b'{"a": 1e999}', "JSON Parse error: Number too big to be stored in double."),
        (100_000 * b"[", "JSON Parse error: Nested too deeply."),
        (b"[1, 2]", "JSON Value: [1, 2] Is not object"),
        (b"null", "JSON Value: null Is not object"),
    ],
)
def test_what_is_no_json_object_is_said_as_tensorflow_serving_says_it(body, message):
    assert error_of(body) == message


@pytest.mark.parametrize("name", [b"1", b"null", b'["a"]'])
def test_the_name_of_a_signature_is_a_string(name):
    assert error_of(b'{"signature_name": ' + name + b"}").endswith("'signature_name' key must be a string value.")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"inputs": ["a"], "instances": ["a"]}, "expecting only one of 'inputs' or 'instances' keys to exist "),
        ({"instances": "a"}, "Expecting 'instances' to be an list/array"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": ["a", {"text": "b"}]}, "Expecting value/list but got object at item 1 of input list"),
        ({"instances": [{"text": "b"}, "a"]}, "Expecting object but got list at item 1 of input list"),
        ({"instances": [1]}, OF_ONE + "JSON Value: 1 Type: Number is not of expected type: string"),
        ({"instances": [True]}, OF_ONE + "JSON Value: true Type: True is not of expected type: string"),
        ({"instances": [None]}, OF_ONE + "JSON Value: null Type: Null is not of expected type: string"),
        ({"instances": [[["a"], "b"]]}, '"b" found at incorrect level: 2 in the JSON DOM. Expected at level: 2'),
        ({"instances": [["a", ["b"]]]}, OF_ONE + "Encountered list at unexpected level: 1 expected < 1"),
        ({"instances": [[["a"], ["b", "c"]]]}, "unexpected size: 2 at level: 1 expected size: 1"),
        ({"instances": [["a"], ["b", "c"]]}, OF_ONE.replace("0", "1") + "Expecting tensor size: 1 but got: 2"),
        ({"instances": [["a"], [["b"]]]}, "Expecting shape [1] but got: [1,1]"),
        (
            {"instances": [{"txt": "a"}]},
            OF_ONE.replace("0", "0 key: txt") + "JSON object: does not have named input: txt",
        ),
        ({"instances": [{"text": "a"}, {}]}, "1 of 'instances' list. JSON object: {} keys must be equal to: text"),
        ({"instances": [{"b64": "?"}]}, OF_ONE + "Unable to base64 decode"),
        ({"inputs": {"txt": ["a"]}}, "Missing named input: text in 'inputs' object."),
        ({"inputs": ["a", ["b"]]}, "Encountered list at unexpected level: 1 expected < 1"),
        ({"inputs": [{"b65": "YQ=="}]}, 'JSON Value: {"b65": "YQ=="} not formatted correctly for base64 data'),
        ({"inputs": ["\ud800"]}, "The surrogate pair in string is invalid."),
    ],
)
def test_a_wrong_body_is_refused_in_the_words_of_tensorflow_serving(body, message):
    assert message in error_of(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"instances": ["a"]}, "instances is a plain list, but expecting list of objects as multiple input"),
        ({"inputs": ["a"]}, "inputs is a plain value/list, but expecting an object as multiple input tensors"),
        ({"instances": [ROW, {"text": "a"}]}, "keys must be equal to: alpha,text,width"),
        ({"instances": [ROW | {"width": 3.0}]}, "JSON Value: 3.0 Type: Number is not of expected type: int32"),
        ({"instances": [ROW | {"width": True}]}, "Type: True is not of expected type: int32"),
        ({"instances": [ROW | {"width": 2**31}]}, "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
        ({"instances": [ROW | {"width": {"b64": "YQ=="}}]}, "Type: Object is not of expected type: int32"),
        ({"instances": [ROW | {"alpha": "1"}]}, 'JSON Value: "1" Type: String is not of expected type: float'),
        ({"instances": [ROW | {"alpha": 2**24}]}, "JSON value: 16777216 to float without loss of precision."),
        ({"instances": [ROW | {"alpha": 1e39}]}, "JSON value: 1e+39 to float without loss of precision."),
    ],
)
def test_of_several_inputs_each_has_its_name_and_type(body, message):
    assert message in error_of(body, OPTIONS)


def test_rows_are_texts_or_objects_and_columns_say_the_same():
    for body, is_rows in (
        ({"instances": ["a", "ö\n"]}, True),
        ({"instances": [{"text": "a"}, {"text": "ö\n"}]}, True),
        ({"inputs": ["a", "ö\n"]}, False),
        ({"inputs": {"text": ["a", "ö\n"]}}, False),
    ):
        inputs, found_rows = read(body)
        assert found_rows == is_rows
        assert {name: (x.dtype, x.tolist()) for name, x in inputs.items()} == {"text": (object, [b"a", b"\xc3\xb6\n"])}


def test_bytes_that_are_not_utf8_and_a_byte_order_mark_pass():
    inputs, _ = read(b'\xef\xbb\xbf{"instances": ["\xff\xc3", "\\ud83d\\ude00"]}')
    assert inputs["text"].tolist() == [b"\xff\xc3", "😀".encode()]


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


def test_one_output_is_bare_and_several_are_objects():
    text, score = strings(b"a", b"\xc3\xb6"), np.float32([0.5, -2])
    assert reply({"text": text}) == {"predictions": ["a", "ö"]}
    assert reply({"text": text}, is_rows=False) == {"outputs": ["a", "ö"]}
    both = {"text": text, "score": score}
    assert reply(both) == {"predictions": [{"text": "a", "score": 0.5}, {"text": "ö", "score": -2.0}]}
    assert reply(both, is_rows=False) == {"outputs": {"text": ["a", "ö"], "score": [0.5, -2.0]}}


def test_outputs_of_any_rank_keep_it():
    texts, cube = strings(b"a", b"b", b"c", b"d", b"e", b"f").reshape(2, 3), np.arange(30).reshape(2, 3, 5) / 2
    assert reply({"t": texts, "c": cube.astype(np.float32)}) == {
        "predictions": [
            {"t": row.tolist(), "c": box.tolist()} for row, box in zip(texts.astype(str), cube, strict=True)
        ]
    }
    assert reply({"x": np.float32(3)}, is_rows=False) == {"outputs": 3.0}


def test_rows_need_one_batch():
    for outputs, message in (
        ({"a": np.zeros(2), "b": np.zeros(3)}, "Tensor name: b has inconsistent batch size: 3 expecting: 2"),
        ({"a": np.float32(2)}, "Tensor name: a has no shape information "),
        ({"a": np.zeros(2, complex)}, "Failed to write JSON value for tensor type: complex128"),
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
    st.sampled_from([TEXT, OPTIONS, {"x": tf.bool}]),
)
def test_any_json_is_read_or_refused(body, dtypes):
    try:
        inputs, _ = read(body, dtypes)
    except ServingError as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.message
    else:
        assert {name: tf.as_dtype(x.dtype) for name, x in inputs.items()} == dtypes
        assert not any(math.prod(x.shape) != x.size for x in inputs.values())
