"""JSON bodies of the REST API <-> arrays, with TensorFlow Serving's rules for values and statuses.

Python's parser holds Python's global lock until it has read a whole document. So a process of its own reads a large
body, which can have 50 million values. The process ends after one body, so the system has its memory back.
"""

import base64
import io
import itertools
import json
import math
import pickle
import re
import subprocess
import sys
from json.decoder import WHITESPACE
from pathlib import Path

import numpy as np
from grpc import StatusCode

from serving.errors import ServingError, invalid
from serving.messages import CHUNK, DEFAULT_SIGNATURE, NUMBERS, STRING

SHORT = 2**20  # Bytes that the server itself parses, in some hundredths of a second. A process takes longer to start.
MOST_VALUES = 50_000  # of a short document
MOST_HOLDERS = 2**22  # Lists, objects and members of a document. More would take gigabytes.
DEEPEST = 31  # Dimensions of a row: with that of the batch, as many as a tensor of TensorFlow's Python API has.
# What Python's parser reads in another way: numbers beyond 64 bits, halves of surrogate pairs, Inf, -NaN.
UNUSUAL = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{300}|\\u[dD]|Inf|-NaN")
WORDS = re.compile(r'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|$)|\bInf\b|-NaN', re.DOTALL)  # A string, or a number in letters.
PYTHONS = {"Inf": "Infinity", "-NaN": "NaN"}
# An escape. The group holds the first half of a surrogate pair without the second half, or the reverse.
ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)", re.DOTALL)
BASE64 = re.compile("([A-Za-z0-9+/]*)([=.]*)")
FLOATS, BOOL = (1, 2), 10  # DT_FLOAT, DT_DOUBLE and DT_BOOL.
INTEGERS = {  # TensorFlow Serving checks small integers as int32, and keeps the low bits.
    **dict.fromkeys((3, 4, 5, 6), np.iinfo("int32")),
    **{9: np.iinfo("int64"), 22: np.iinfo("uint32"), 23: np.iinfo("uint64")},
}


def parse(body):
    """Parses the body of a request, bytes: a dict whose "signature_name", if any, is a string.

    NaN, Inf and Infinity are numbers. Of members with equal names, the first counts. Bytes that are not UTF-8 become
    surrogates. All text after the document is ignored. Raises ServingError: INVALID_ARGUMENT.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty.")
    text, decoder = body.decode("utf-8", "surrogateescape"), DECODER
    if UNUSUAL.search(text):
        text, decoder = WORDS.sub(lambda word: PYTHONS.get(word[0], word[0]), text), CAREFUL_DECODER
    try:
        document, end = decoder.raw_decode(text, WHITESPACE.match(text, text.startswith("\ufeff")).end())
    except RecursionError:
        raise invalid("JSON Parse error: The document is nested too deeply.") from None
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if decoder is CAREFUL_DECODER and any(escape[1] for escape in ESCAPE.finditer(text, 0, end)):
        raise invalid("JSON Parse error: A string has half of a surrogate pair.")
    if not isinstance(document, dict):
        raise invalid("The document must be an object.")
    if not isinstance(document.get("signature_name", ""), str):
        raise invalid("'signature_name' key must be a string value.")
    return document


def is_short(body):
    """Returns whether the server itself parses a body. Text may have many commas, but seldom so many."""
    return len(body) <= SHORT and sum(map(body.count, (b",", b"[", b"{", b":"))) <= MOST_VALUES


def _first_of_each(pairs):
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


def _integer(digits):
    return int(digits) if len(digits) <= 20 else _float(digits)


def _float(digits):
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"A number is too big: {digits[:20]}")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_first_of_each)
CAREFUL_DECODER = json.JSONDecoder(object_pairs_hook=_first_of_each, parse_int=_integer, parse_float=_float)


def read_request(document, signatures):
    """Makes tensors of "instances" (rows) or "inputs" (columns) of a document; see `parse`.

    `signatures` is a dict, name -> dict, input -> number of the dtype (DT_...). Returns (name of the signature; dict
    input -> np.ndarray, with bytes objects for a string input; whether the request has rows). Raises ServingError:
    INVALID_ARGUMENT; UNIMPLEMENTED for other dtypes.
    """
    name = document.get("signature_name") or DEFAULT_SIGNATURE
    if name not in signatures:
        raise invalid(f'Serving signature name: "{name}" not found in signature def')
    if not (inputs := signatures[name]):
        raise invalid("The signature has no inputs.")
    if ("instances" in document) == ("inputs" in document):
        raise invalid("A request must have only one of 'inputs' and 'instances'.")
    if "inputs" in document:
        return name, _read_columns(document["inputs"], inputs), False
    if not isinstance(rows := document["instances"], list) or not rows:
        raise invalid("'instances' must be a list with at least one row.")
    try:
        return name, _read_rows(rows, inputs), True
    except ServingError as error:
        raise invalid(f"'instances': {error.message}") from None


def _read_columns(columns, inputs):
    if not _is_record(columns):
        columns = dict.fromkeys(inputs, columns) if len(inputs) == 1 else {}
    if not inputs.keys() <= columns.keys():
        raise invalid(f"'inputs' must be an object with the keys {', '.join(sorted(inputs))}.")
    return {name: _tensor(name, columns[name], dtype, DEEPEST) for name, dtype in inputs.items()}


def _read_rows(rows, inputs):
    if len(inputs) == 1 and not _is_record(rows[0]):
        ((name, dtype),) = inputs.items()
        return {name: _tensor(name, rows, dtype, DEEPEST + 1)}
    for number, row in enumerate(rows):
        if not _is_record(row) or row.keys() != inputs.keys():
            raise invalid(f"row {number} must be an object with the keys {', '.join(sorted(inputs))}, like all rows.")
    columns = {name: [row[name] for row in rows] for name in inputs}
    return {name: _tensor(name, columns[name], dtype, DEEPEST + 1) for name, dtype in inputs.items()}


def _is_base64(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _is_record(value):  # An object with named tensors.
    return isinstance(value, dict) and not _is_base64(value)


def _tensor(name, value, dtype, deepest):
    """Makes an array of nested lists. The first lists give the shape, and all others must have it."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > deepest:
        raise invalid(f"input {name} has more than {deepest} dimensions.")
    if dtype not in (STRING, BOOL, *FLOATS, *INTEGERS) and 0 not in shape and not isinstance(first, dict):
        raise ServingError(StatusCode.UNIMPLEMENTED, f"JSON has no values for the dtype of input {name}.")
    elements = [value]
    for size in shape:
        if any(not isinstance(each, list) or len(each) != size for each in elements):
            raise invalid(f"input {name} must have lists of equal lengths, here {size}.")
        elements = list(itertools.chain.from_iterable(elements))
    if dtype == STRING:
        array = np.empty(len(elements), object)
        array[:] = [_string(name, element) for element in elements]
        return array.reshape(shape)
    _check_numbers(name, elements, dtype)
    dtype = NUMBERS[dtype][0] if dtype in NUMBERS else np.dtype(object)
    kind = "int64" if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
    with np.errstate(over="ignore"):  # A number beyond float32 becomes infinite.
        return np.array(elements, kind).astype(dtype).reshape(shape)


def _check_numbers(name, elements, dtype):
    kinds, limits = {*map(type, elements)}, INTEGERS.get(dtype)
    if limits and kinds == {int}:
        fits = limits.min <= min(elements) and max(elements) <= limits.max
    else:
        fits = kinds <= ({int, float} if dtype in FLOATS else {bool} if dtype == BOOL else set())
    if not fits:
        raise invalid(f"input {name} must have values of its dtype, {NUMBERS[dtype][0] if dtype in NUMBERS else dtype}")


def _string(name, value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not _is_base64(value):
        raise invalid(f'input {name} must have strings or {{"b64": "..."}}')
    match = BASE64.fullmatch(re.sub(r"\s", "", value["b64"], flags=re.ASCII))
    missing = match and -len(match[1]) % 4
    if not match or missing == 3 or len(match[2]) not in (0, missing):
        raise invalid(f"input {name} has a string that is not base64.")
    return base64.b64decode(match[1] + "=" * missing)


def write_tensors(outputs, is_rows):
    """Writes the body of a reply, bytes. `outputs` is a dict name -> array, `is_rows` whether the request had rows.

    A float has six digits, or more if six do not restore the value. The bytes of a string are written as they are, even
    if they are not UTF-8. An output named `*_bytes` is base64.
    """
    outputs = {name: np.asarray(array) for name, array in outputs.items()}
    if is_rows and (any(array.ndim == 0 for array in outputs.values()) or len({*map(len, outputs.values())}) > 1):
        raise invalid("The outputs have no common number of rows: ask with 'inputs' in place of 'instances'.")
    columns = [_elements(name, array, first=int(is_rows)) for name, array in outputs.items()]
    if len(outputs) > 1:
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in outputs]
        records = [f"{{{', '.join(map(str.__add__, names, row))}}}" for row in zip(*columns, strict=True)]
    else:
        (records,) = columns
    reply = f'{{"predictions": [{", ".join(records)}]}}' if is_rows else f'{{"outputs": {records[0]}}}'
    return reply.encode("utf-8", "surrogateescape")


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
        raise invalid(f"JSON has no values for output {name} of dtype {array.dtype.name}.")
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


def read_large(body, signatures, timeout_s=math.inf):
    """Reads the body of a predict request as `read_request` does, within `timeout_s` seconds.

    Raises ServingError as `parse` and `read_request` do; RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED.
    """
    if sum(map(body.count, (b"[", b"{", b":"))) > MOST_HOLDERS:
        message = f"A document may have {MOST_HOLDERS} lists, objects and members."
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, message)
    command, limit = [sys.executable, "-m", "serving.json_tensors"], None if timeout_s == math.inf else timeout_s
    how = {"cwd": Path(__file__).parents[1], "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        data = pickle.dumps((body, signatures))
        done = subprocess.run(command, input=data, timeout=limit, start_new_session=True, **how)
    except subprocess.TimeoutExpired:
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out reading the JSON document.") from None
    if done.returncode:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "The JSON document takes too much memory.")
    stream = io.BytesIO(done.stdout)
    error, name, shapes, is_rows = pickle.load(stream)
    if error:
        raise ServingError(StatusCode[error[0]], error[1])
    return name, {key: _load(stream, shape) for key, shape in shapes.items()}, is_rows


def _load(stream, shape):
    """Reads an array in chunks. Other threads can run between two chunks."""
    chunks = [pickle.load(stream) for _ in range(0, max(1, math.prod(shape)), CHUNK)]
    return np.concatenate(chunks).reshape(shape)


def main():
    """Reads a body and signatures from standard input, and writes what `read_large` returns, in pickles."""
    body, signatures = pickle.load(sys.stdin.buffer)
    try:
        name, inputs, is_rows = read_request(parse(body), signatures)
    except ServingError as error:
        pickle.dump(((error.code.name, error.message), None, None, None), sys.stdout.buffer)
        return
    pickle.dump((None, name, {key: array.shape for key, array in inputs.items()}, is_rows), sys.stdout.buffer)
    for array in inputs.values():
        flat = array.ravel()
        for start in range(0, max(1, len(flat)), CHUNK):
            pickle.dump(flat[start : start + CHUNK], sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
