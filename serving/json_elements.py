"""One element of a tensor <-> one JSON value, for each dtype that TensorFlow Serving supports in JSON."""

import base64
import functools
import json
import math
from itertools import islice

import numpy as np
from grpc import StatusCode
from tensorflow.core.framework import types_pb2

from serving.errors import ServingError

LONGEST_QUOTE = 200  # Characters of the request that an error message repeats.
FLOATS = {types_pb2.DT_FLOAT: np.finfo(np.float32), types_pb2.DT_DOUBLE: np.finfo(np.float64)}
INTEGERS = {
    getattr(types_pb2, f"DT_{name.upper()}"): np.iinfo(name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
}

_QUOTER = json.JSONEncoder()


def invalid(message):
    """Returns the error of an invalid request."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def quote(value):
    """Returns the beginning of a value of the request, for an error message."""
    text, chunks = "", _QUOTER.iterencode(value)
    while len(text) <= LONGEST_QUOTE and (chunk := "".join(islice(chunks, 1))):
        text += chunk
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "..."


def is_base64(value):
    """Returns whether a JSON object stands for bytes."""
    return len(value) == 1 and isinstance(value.get("b64"), str)


@functools.cache
def reader(dtype):
    """Returns the function that reads elements of a dtype.

    Args:
        dtype: int, a `types_pb2.DataType`.

    Returns:
        function from a JSON value (no list) to bytes, bool, int or float. The function raises ServingError:
        INVALID_ARGUMENT for a wrong type or range, UNIMPLEMENTED for a dtype that JSON does not support.
    """

    def unfit(value):
        return invalid(
            f"JSON Value: {quote(value)} Type: {_json_type(value)} is not of expected type: {_type_name(dtype)}"
        )

    def read_string(value):
        if isinstance(value, str):
            return _to_bytes(value)
        if isinstance(value, dict):
            return _decode_base64(value)
        raise unfit(value)

    def read_boolean(value):
        if not isinstance(value, bool):
            raise unfit(value)
        return value

    def read_integer(value):
        if type(value) is not int or not limits.min <= value <= limits.max:
            raise unfit(value)
        return value

    def read_float(value):
        if type(value) not in (int, float):
            raise unfit(value)
        if not _fits(value, limits):
            target = _type_name(dtype)
            raise invalid(f"Cannot convert JSON value: {quote(value)} to {target} without loss of precision.")
        return value

    def refuse(value):
        message = f"Conversion of JSON Value: {quote(value)} to type: {_type_name(dtype)}"
        raise ServingError(StatusCode.UNIMPLEMENTED, message)

    if dtype in FLOATS:
        limits = FLOATS[dtype]
        return read_float
    if dtype in INTEGERS:
        limits = INTEGERS[dtype]
        return read_integer
    return {types_pb2.DT_STRING: read_string, types_pb2.DT_BOOL: read_boolean}.get(dtype, refuse)


def _fits(number, limits):
    """Returns whether a float dtype holds a number: exactly for an int, without overflow for a float."""
    if isinstance(number, int):
        return abs(number) < 2 ** (limits.nmant + 1)
    return not math.isfinite(number) or abs(number) <= float(limits.max) * (1 + float(limits.eps) / 4)


def _to_bytes(text):
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from None


def _decode_base64(value):
    if not is_base64(value):
        raise invalid(f"JSON Value: {quote(value)} not formatted correctly for base64 data")
    text = "".join(value["b64"].split())
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise invalid("Unable to base64 decode") from None


def _json_type(value):
    names = {type(None): "Null", bool: str(value), dict: "Object", list: "Array", str: "String"}
    return names.get(type(value), "Number")


def _type_name(dtype):
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def plain(name, array):
    """Converts an output to JSON values: nested lists of str, float, int and bool.

    Args:
        name: str, the name of the output.
        array: np.ndarray.

    Raises:
        ServingError: INVALID_ARGUMENT for a dtype that JSON does not support.
    """
    if array.dtype.kind in "biu" or array.dtype == np.float64:
        return array.tolist()
    flat = np.empty(array.size, object)
    if array.dtype in (np.float32, np.float16):
        flat[:] = [float(digits) for digits in array.ravel().astype("U")]
    elif array.dtype.kind in "OS" and name.endswith("_bytes"):
        flat[:] = [{"b64": base64.b64encode(element).decode("ascii")} for element in array.ravel()]
    elif array.dtype.kind in "OS":
        flat[:] = [element.decode("utf-8", "replace") for element in array.ravel()]
    else:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")
    return flat.reshape(array.shape).tolist()
