"""JSON bodies of the REST API <-> arrays, with TensorFlow Serving's rules and messages."""

import json
import math

import numpy as np
import tensorflow as tf

from serving.errors import ServingError
from serving.json_elements import invalid, is_base64, plain, quote, reader

DEEPEST = 32  # Dimensions of a tensor.

# Message of Python's parser -> message of TensorFlow Serving's parser.
PARSE_ERRORS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Illegal trailing comma before end of array": "Invalid value.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting ',' delimiter": "Missing a comma or a closing bracket after a value.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Extra data": "The document root must not be followed by other values.",
}


def parse(body):
    """Parses the body of a request.

    Args:
        body: bytes. NaN and Infinity are numbers. Bytes that are not UTF-8 stay unchanged, as in TensorFlow Serving.

    Returns:
        dict. If the dict has a "signature_name", the value is a str.

    Raises:
        ServingError: INVALID_ARGUMENT, if the body is not a JSON object or the signature name is not a string.
    """
    text = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        if not text or text.isspace():
            raise invalid("JSON Parse error: The document is empty") from None
        reason = PARSE_ERRORS.get(error.msg, error.msg)
        offset = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        raise invalid(f"JSON Parse error: {reason} at offset: {offset}") from None
    except RecursionError:
        raise invalid("JSON Parse error: Nested too deeply.") from None
    except ValueError:  # The number has more digits than Python converts.
        raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {quote(document)} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        problem = "not formatted correctly. 'signature_name' key must be a string value."
        raise invalid(f"JSON Value: {quote(document)} {problem}")
    return document


def read_tensors(document, inputs):
    """Makes tensors of "instances" (rows) or "inputs" (columns) of a request.

    Args:
        document: dict, see `parse`.
        inputs: mapping, name -> TensorInfo, of a SignatureDef.

    Returns:
        (dict name -> np.ndarray, with bytes objects for a string input; whether the request has rows).

    Raises:
        ServingError: INVALID_ARGUMENT, if the tensors do not fit the signature.
    """
    is_rows = "instances" in document
    if not is_rows and "inputs" not in document:
        raise invalid("Missing 'inputs' or 'instances' key")
    if is_rows and "inputs" in document:
        problem = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        raise invalid(f"JSON Value: {quote(document)} {problem}")
    if not is_rows:
        return _read_columns(document["inputs"], inputs), False
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {quote(document)} Expecting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {quote(document)} No values in 'instances' array")
    return _read_rows(rows, inputs), True


def write_tensors(outputs, is_rows):
    """Writes the body of a reply.

    A float has the fewest digits that restore the same value in its precision; other values are NaN, Infinity and
    -Infinity. A string is text, with U+FFFD for bytes that are not UTF-8. An output named `*_bytes` is base64.

    Args:
        outputs: dict name -> np.ndarray; for rows, all with the same first dimension.
        is_rows: whether the request had rows.

    Returns:
        bytes.

    Raises:
        ServingError: INVALID_ARGUMENT, if the outputs do not fit rows or JSON.
    """
    values = {name: plain(name, np.asarray(array)) for name, array in outputs.items()}
    if is_rows:
        _check_batch(outputs)
    if len(values) == 1:
        (reply,) = values.values()
    elif is_rows:
        reply = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    else:
        reply = values
    return _ENCODER.encode({"predictions" if is_rows else "outputs": reply}).encode("utf-8")


def _finite(text):
    """Writes a JSON number with a point or an exponent."""
    number = float(text)
    if math.isinf(number):
        raise ValueError
    return number


_DECODER = json.JSONDecoder(parse_float=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _read_columns(columns, inputs):
    if not _is_record(columns):
        if len(inputs) > 1:
            problem = "expecting an object as multiple input tensors required as per tensorinfo_map"
            raise invalid(f"inputs is a plain value/list, but {problem}")
        columns = dict.fromkeys(inputs, columns)
    tensors = {}
    for name, info in inputs.items():
        if name not in columns:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        tensor = _Tensor(info.dtype)
        tensors[name] = tensor.array(tensor.fill(columns[name]))
    return tensors


def _read_rows(rows, inputs):
    are_records = _is_record(rows[0])
    if not are_records and len(inputs) > 1:
        problem = "expecting list of objects as multiple input tensors required as per tensorinfo_map"
        raise invalid(f"instances is a plain list, but {problem}")
    tensors = {name: _Tensor(info.dtype) for name, info in inputs.items()}
    for number, row in enumerate(rows):
        if _is_record(row) != are_records:
            wanted, found = ("object", "list") if are_records else ("value/list", "object")
            raise invalid(f"Expecting {wanted} but got {found} at item {number} of input list")
        for name, value in row.items() if are_records else ((name, row) for name in inputs):
            try:
                if name not in tensors:
                    raise invalid(f"JSON object: does not have named input: {name}")
                tensors[name].add_row(value)
            except ServingError as error:
                element = f"{number} key: {name}" if are_records else number
                raise invalid(
                    f"Failed to process element: {element} of 'instances' list. "
                    f"Error: {error.code.name}: {error.message}"
                ) from None
        if are_records and len(row) != len(inputs):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: {quote(row)} "
                f"keys must be equal to: {','.join(sorted(inputs))}"
            )
    return {name: tensor.array((len(rows), *tensor.shape)) for name, tensor in tensors.items()}


def _is_record(value):
    """Returns whether a value is an object with named tensors."""
    return isinstance(value, dict) and not is_base64(value)


class _Tensor:
    """A tensor built from nested lists, row by row or at once."""

    def __init__(self, dtype):
        self.shape = None  # The shape of a row.
        self._dtype = dtype
        self._values = []
        self._read = reader(dtype)

    def add_row(self, value):
        before = len(self._values)
        shape = self.fill(value)
        if self.shape is None:
            self.shape = shape
        elif math.prod(self.shape) != len(self._values) - before:
            raise invalid(f"Expecting tensor size: {math.prod(self.shape)} but got: {len(self._values) - before}")
        elif self.shape != shape:
            raise invalid(f"Expecting shape {_written(self.shape)} but got: {_written(shape)}")

    def fill(self, value):
        """Appends the elements of nested lists, and returns the shape of the first lists."""
        shape, first = [], value
        while isinstance(first, list):
            shape.append(len(first))
            first = first[0] if first else None
        if len(shape) > DEEPEST:
            raise invalid(f"Encountered list at unexpected level: {DEEPEST} expected < {DEEPEST}")
        self._fill(value, tuple(shape), 0)
        return tuple(shape)

    def _fill(self, value, shape, level):
        rank = len(shape)
        if not isinstance(value, list):
            if level != rank:
                problem = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {rank}"
                raise invalid(f"JSON Value: {quote(value)} {problem}")
            self._values.append(self._read(value))
            return
        if level >= rank:
            raise invalid(f"Encountered list at unexpected level: {level} expected < {rank}")
        if len(value) != shape[level]:
            problem = f"unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
            raise invalid(f"Encountered list at {problem}")
        for element in value:
            self._fill(element, shape, level + 1)

    def array(self, shape):
        return np.array(self._values, tf.dtypes.as_dtype(self._dtype).as_numpy_dtype).reshape(shape)


def _written(shape):
    return f"[{','.join(map(str, shape))}]"


def _check_batch(outputs):
    batch_size = None
    for name, array in outputs.items():
        if np.ndim(array) == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if batch_size not in (None, len(array)):
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch_size}")
        batch_size = len(array)
