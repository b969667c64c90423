"""JSON bodies of the REST API <-> arrays, with TensorFlow Serving's rules and messages."""

import base64
import contextlib
import json
import math
import re

import numpy as np
from grpc import StatusCode
from tensorflow.core.framework import types_pb2

from serving.errors import ServingError, invalid
from serving.messages import CHUNK, NUMBERS, joined

DEEPEST = 31  # Dimensions of a row: with that of the batch, as many as a tensor of TensorFlow's Python API has.
BASE64 = re.compile("([A-Za-z0-9+/]*)([=.]*)")
ESCAPES = {code: f"\\u{code:04X}" for code in range(32)}
ESCAPES |= {ord(char): f"\\{letter}" for char, letter in zip('\b\f\n\r\t"\\', 'bfnrt"\\', strict=True)}
LONGEST_QUOTE = 256  # Bytes of the request after which an error message stops to repeat it.
FLOATS = {types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE}
INTEGERS = {  # TensorFlow Serving checks small integers as int32, and keeps the low bits.
    **dict.fromkeys((types_pb2.DT_INT8, types_pb2.DT_INT16, types_pb2.DT_INT32, types_pb2.DT_UINT8), np.iinfo("int32")),
    **{types_pb2.DT_INT64: np.iinfo("int64"), types_pb2.DT_UINT32: np.iinfo("uint32")},
    types_pb2.DT_UINT64: np.iinfo("uint64"),
}


def check_document(document):
    """Raises ServingError unless a document is an object whose "signature_name", if any, is a string."""
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {quote(document)} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        problem = "not formatted correctly. 'signature_name' key must be a string value."
        raise invalid(f"JSON Value: {quote(document)} {problem}")


def read_tensors(document, inputs):
    """Makes tensors of "instances" (rows) or "inputs" (columns) of a request.

    Args:
        document: dict, see `check_document`.
        inputs: mapping, name -> TensorInfo, of a SignatureDef.

    Returns:
        (dict name -> np.ndarray, with bytes objects for a string input; whether the request has rows).
    """
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {document.get('signature_name') or 'DEFAULT'}")
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
    if not isinstance(rows[0], dict) and len(inputs) > 1:
        problem = "expecting list of objects as multiple input tensors required as per tensorinfo_map"
        raise invalid(f"instances is a plain list, but {problem}")
    are_records, first_input = _is_record(rows[0]), next(iter(inputs))
    if not are_records:
        with contextlib.suppress(ServingError):  # Below, the error names the row.
            return _read_columns(rows, {first_input: inputs[first_input]})
    tensors = {name: _Tensor(info.dtype) for name, info in inputs.items() if are_records or name == first_input}
    for number, row in enumerate(rows):
        if _is_record(row) != are_records:
            wanted, found = ("object", "list") if are_records else ("value/list", "object")
            raise invalid(f"Expecting {wanted} but got {found} at item {number} of input list")
        for name, value in row.items() if are_records else ((first_input, row),):
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


def _is_base64(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_record(value):
    """Returns whether a value is an object with named tensors."""
    return isinstance(value, dict) and not _is_base64(value)


class _Tensor:
    """A tensor built from nested lists, row by row or at once."""

    def __init__(self, dtype):
        self.shape = None  # Of a row.
        self._dtype = dtype
        self._elements = []

    def add_row(self, value):
        before = len(self._elements)
        shape = self.fill(value)
        added = len(self._elements) - before
        self.shape = shape if self.shape is None else self.shape
        if math.prod(self.shape) != added:
            raise invalid(f"Expecting tensor size: {math.prod(self.shape)} but got: {added}")
        if self.shape != shape:
            raise invalid(f"Expecting shape {_written(self.shape)} but got: {_written(shape)}")

    def fill(self, value):
        """Appends the elements of nested lists, and returns the shape of the first lists."""
        shape, first = [], value
        while isinstance(first, list):
            shape.append(len(first))
            first = first[0] if first else None
        if len(shape) > DEEPEST:
            raise invalid(f"Encountered list at unexpected level: {DEEPEST} expected < {DEEPEST}")
        self._fill(value, shape, 0)
        return tuple(shape)

    def _fill(self, value, shape, level):
        rank = len(shape)
        if not isinstance(value, list):
            if level != rank:
                problem = f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {rank}"
                raise invalid(f"JSON Value: {quote(value)} {problem}")
            self._elements.append(_read(value, self._dtype))
            return
        if level >= rank:
            raise invalid(f"Encountered list at unexpected level: {level} expected < {rank}")
        if len(value) != shape[level]:
            problem = f"unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
            raise invalid(f"Encountered list at {problem}")
        for start in range(0, len(value), CHUNK):
            part = value[start : start + CHUNK]
            if level == rank - 1 and _are_plain(part, self._dtype):
                self._elements += part
                continue
            for element in part:
                self._fill(element, shape, level + 1)

    def array(self, shape):
        if self._dtype == types_pb2.DT_STRING:
            return joined(self._elements, object).reshape(shape)
        dtype = NUMBERS[self._dtype][0] if self._dtype in NUMBERS else object
        kind = "int64" if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
        with np.errstate(over="ignore"):  # A number beyond float32 becomes infinite.
            return joined(self._elements, kind).astype(dtype).reshape(shape)


def _written(shape):
    return f"[{','.join(map(str, shape))}]"


def _are_plain(values, dtype):
    """Returns whether all values are numbers that a tensor of numbers takes as they are. A fast check."""
    if dtype in FLOATS:
        return {*map(type, values)} <= {int, float}
    if dtype in INTEGERS and {*map(type, values)} == {int}:
        return INTEGERS[dtype].min <= min(values) and max(values) <= INTEGERS[dtype].max
    return False


def _read(value, dtype):
    """Returns an element of a tensor, from a JSON value that is no list."""
    if dtype == types_pb2.DT_STRING and isinstance(value, dict):
        return _decode_base64(value)
    if dtype == types_pb2.DT_STRING and isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if _are_plain([value], dtype) or (dtype == types_pb2.DT_BOOL and isinstance(value, bool)):
        return value
    if isinstance(value, dict) or dtype in {*FLOATS, *INTEGERS, types_pb2.DT_STRING, types_pb2.DT_BOOL}:
        names = {type(None): "Null", bool: str(value), dict: "Object", str: "String"}
        type_name = names.get(type(value), "Number")
        raise invalid(f"JSON Value: {quote(value)} Type: {type_name} is not of expected type: {_type_name(dtype)}")
    message = f"Conversion of JSON Value: {quote(value)} to type: {_type_name(dtype)}"
    raise ServingError(StatusCode.UNIMPLEMENTED, message)


def _decode_base64(value):
    if not _is_base64(value):
        raise invalid(f"JSON Value: {quote(value)} not formatted correctly for base64 data")
    match = BASE64.fullmatch(re.sub(r"\s", "", value["b64"], flags=re.ASCII))
    missing = match and -len(match[1]) % 4
    if not match or missing == 3 or len(match[2]) not in (0, missing):
        raise invalid("Unable to base64 decode")
    return base64.b64decode(match[1] + "=" * missing)


def _type_name(dtype):
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def quote(value):
    """Returns the beginning of a value of the request as TensorFlow Serving's messages write it."""
    written = ""
    for piece in _pieces(value, "\n"):
        if piece is None:
            break
        written += piece
        # Each level has a character, so no recursion is deeper.
        if len(written.encode("utf-8", "replace")) >= LONGEST_QUOTE:
            break
    return written


def _pieces(value, indent, before=""):
    """Yields `before` and a value, in pieces. `indent` begins a line at the value's level. None ends the quote."""
    if isinstance(value, dict):
        yield before + "{"
        for count, (name, member) in enumerate(value.items()):
            yield f"{',' if count else ''}{indent}    {_plain(name)}"
            yield from _pieces(member, indent + "    ", ": ")
        yield f"{indent}}}" if value else "}"
    elif isinstance(value, list):
        yield before + "["
        for count, element in enumerate(value):
            yield from _pieces(element, indent + "    ", ", " if count else "")
        yield "]"
    else:
        text = _plain(value)
        yield before + (text or "")
        yield text and ""


def _plain(value):
    """Writes a value as RapidJSON does: None for NaN and infinity, which its writer does not know."""
    if isinstance(value, str):
        return f'"{value[:LONGEST_QUOTE].translate(ESCAPES)}"'
    if isinstance(value, bool) or value is None or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return json.dumps(value)
    if not math.isfinite(value := float(value)):
        return None
    if value and not 1e-6 <= abs(value) < 1e21:
        return np.format_float_scientific(value, trim="-", exp_digits=1).replace("+", "")
    return np.format_float_positional(value, trim="0")


def write_tensors(outputs, is_rows):
    """Writes the body of a reply, bytes. `outputs` is a dict name -> array, `is_rows` whether the request had rows.

    A float has six digits, or more if six do not restore the value. The bytes of a string are written as they are, even
    if they are not UTF-8. An output named `*_bytes` is base64.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    if is_rows:
        _check_batch(outputs)
    outputs = {name: np.asarray(array) for name, array in outputs.items()}
    columns = [_elements(name, array, first=int(is_rows)) for name, array in outputs.items()]
    if len(outputs) > 1:
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in outputs]
        records = [f"{{{', '.join(map(str.__add__, names, row))}}}" for row in zip(*columns, strict=True)]
    else:
        (records,) = columns
    reply = f'{{"predictions": [{", ".join(records)}]}}' if is_rows else f'{{"outputs": {records[0]}}}'
    return reply.encode("utf-8", "surrogateescape")


def _check_batch(outputs):
    batch_size = None
    for name, array in outputs.items():
        if np.ndim(array) == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if batch_size not in (None, len(array)):
            raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch_size}")
        batch_size = len(array)


def _elements(name, array, first):
    """Writes an array as a list of str, one for each index of the first `first` dimensions (0: one for the array)."""
    flat, texts = array.reshape(-1), []
    for start in range(0, flat.size, CHUNK):  # Other threads can run between two chunks.
        texts += _texts(name, flat[start : start + CHUNK])
    for axis in range(array.ndim - 1, first - 1, -1):
        size, count = array.shape[axis], math.prod(array.shape[:axis])
        texts = [f"[{', '.join(texts[size * i : size * (i + 1)])}]" for i in range(count)]
    return texts


def _texts(name, array):
    """Writes each element of an array (N,) as JSON: list of str."""
    if array.dtype in (np.float32, np.float64):
        return _decimals(array)
    if array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype != np.uint16):
        return [str(value).lower() for value in array.tolist()]
    if array.dtype.kind not in "OS":
        names = {"float16": "half"}
        raise invalid(f"Failed to write JSON value for tensor type: {names.get(array.dtype.name, array.dtype.name)}")
    if name.endswith("_bytes"):
        return [f'{{"b64": "{base64.b64encode(value).decode("ascii")}"}}' for value in array]
    return [json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False) for value in array]


def _decimals(array):
    """Writes floats as TensorFlow Serving does: 9e+06, 0.5, 3.0, NaN."""
    values = array.tolist()
    texts = [f"{value:.6g}" for value in values]
    digits = 9 if array.dtype == np.float32 else 17
    for place in np.flatnonzero(np.array(texts).astype(array.dtype) != array):
        texts[place] = f"{values[place]:.{digits}g}"
    others = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [others.get(text) or (text if "." in text or "e" in text else f"{text}.0") for text in texts]
