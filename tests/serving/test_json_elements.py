import base64
import struct

import grpc
import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving.json_tensors import write_tensors
from tests.serving.test_json_tensors import error_of, read, reply, strings


def test_a_type_that_json_has_no_values_for_is_unimplemented():
    message = error_of({"inputs": [1]}, {"x": tf.float16}, grpc.StatusCode.UNIMPLEMENTED)
    assert message == "Conversion of JSON Value: 1 to type: half"


def test_a_message_repeats_only_the_beginning_of_a_long_value():
    assert len(error_of({"instances": 5 * "x", "more": 100_000 * "y"})) < 400
    assert len(error_of({"instances": {str(number): number for number in range(10_000)}})) < 400


def test_base64_stands_for_any_bytes():
    raw = bytes(range(251))
    whole = base64.b64encode(raw).decode()
    for text in (whole, whole.rstrip("="), "\n".join([whole[:7], whole[7:]])):
        assert read({"instances": [{"b64": text}, "a"]})[0]["text"].tolist() == [raw, b"a"]
        assert read({"inputs": {"text": [{"b64": text}]}})[0]["text"].tolist() == [raw]


@given(
    hnp.arrays(st.sampled_from([np.int32, np.int64, np.float32, np.float64, np.bool_, np.uint8]), hnp.array_shapes())
)
def test_numbers_survive_the_way_out_and_back_in(array):
    if array.size:
        for is_rows, key, back in ((True, "predictions", "instances"), (False, "outputs", "inputs")):
            body = {back: reply({"x": array}, is_rows)[key]}
            inputs, _ = read(body, {"x": tf.as_dtype(array.dtype)})
            np.testing.assert_array_equal(inputs["x"], array, strict=True)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_has_no_noise_digits(number):
    written = write_tensors({"x": np.float32([number])}, True).decode()
    digits = written.removeprefix('{"predictions": [').removesuffix("]}")
    significant = digits.lower().split("e")[0].replace(".", "").lstrip("-0").rstrip("0")
    assert struct.pack("f", float(digits)) == struct.pack("f", number)
    assert len(significant) <= 9
    assert "." in digits or "e" in digits


def test_what_is_not_finite_is_written_as_tensorflow_serving_does():
    written = write_tensors({"x": np.float32([np.nan, np.inf, -np.inf, 0.1])}, True)
    assert written == b'{"predictions": [NaN, Infinity, -Infinity, 0.1]}'


def test_outputs_named_bytes_are_base64_and_other_bytes_become_valid_text():
    assert reply({"raw_bytes": strings(b"\xff\x00")}) == {"predictions": [{"b64": "/wA="}]}
    assert reply({"raw": strings(b"\xff\x00")}) == {"predictions": ["\ufffd\x00"]}
