"""TensorFlow Serving's gRPC messages, and the tensors in them, without TensorFlow and safe for untrusted input.

The generated modules import modules of `tensorflow.core`. A normal import would also run `tensorflow` itself, which
takes seconds and half a gigabyte. This module puts an empty package with the same path in the place of `tensorflow`.
"""

import contextlib
import importlib.util
import itertools
import math
import re
import sys
import types

import ml_dtypes
import numpy as np


@contextlib.contextmanager
def _without_starting_tensorflow():
    """Allows imports of modules inside `tensorflow` without running `tensorflow` itself."""
    if "tensorflow" in sys.modules:
        yield
        return
    package = types.ModuleType("tensorflow")
    package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


with _without_starting_tensorflow():
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2  # noqa: F401
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse  # noqa: F401

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
STRING = 7  # DT_STRING
# DT_... -> (dtype, the field for values outside `tensor_content`).
NUMBERS = {
    1: (np.dtype("float32"), "float_val"),
    2: (np.dtype("float64"), "double_val"),
    3: (np.dtype("int32"), "int_val"),
    4: (np.dtype("uint8"), "int_val"),
    5: (np.dtype("int16"), "int_val"),
    6: (np.dtype("int8"), "int_val"),
    8: (np.dtype("complex64"), "scomplex_val"),
    9: (np.dtype("int64"), "int64_val"),
    10: (np.dtype("bool"), "bool_val"),
    14: (np.dtype(ml_dtypes.bfloat16), "half_val"),
    17: (np.dtype("uint16"), "int_val"),
    18: (np.dtype("complex128"), "dcomplex_val"),
    19: (np.dtype("float16"), "half_val"),
    22: (np.dtype("uint32"), "uint32_val"),
    23: (np.dtype("uint64"), "uint64_val"),
}
NUMBER_OF = {dtype: number for number, (dtype, _) in NUMBERS.items()}
# Fields that hold a value in another form: the bits of a half, and the real and imaginary part of a complex number.
FORMS = {"half_val": np.dtype("uint16"), "scomplex_val": np.dtype("float32"), "dcomplex_val": np.dtype("float64")}
VARINT = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f]")
MOST_DIMENSIONS = 32
MOST_FILLED = 2**20  # The most elements that one value may fill.
CHUNK = 2**16  # Values that are converted at once. Other threads can run between two chunks.


def to_array(proto):
    """Reads a `TensorProto` as TensorFlow does: surplus values are ignored, the last value stands for missing ones.

    Returns:
        array of the proto's shape; an object array of bytes for strings.

    Raises:
        ValueError: if the shape, the `tensor_content` or the dtype is invalid, or if more than `MOST_FILLED` values are
            missing. The limit prevents a large allocation for a false shape.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise ValueError(f"the shape must be one of at most {MOST_DIMENSIONS} dimensions. Received: {shape[:9]}")
    if math.prod(size for size in shape if size) >= 2**60:
        raise ValueError(f"the shape must be one that fits into memory. Received: {shape}")
    if proto.dtype != STRING and proto.dtype not in NUMBERS:
        raise ValueError(f"tensors of this dtype are not read. Received: dtype={proto.dtype}")
    size = math.prod(shape)
    values = joined(_strings(proto, size), object) if proto.dtype == STRING else _numbers(proto, size)
    missing = size - len(values)
    if missing > MOST_FILLED:
        raise ValueError(f"the values must fill the shape. Received: {len(values)} of {size}")
    if missing > 0:
        last = values[-1] if len(values) else b"" if values.dtype == object else 0
        values = np.concatenate([values, np.full(missing, last, values.dtype)])
    return values[:size].reshape(shape)


def joined(values, dtype):
    """Makes an array (N,) of a sequence, in chunks."""
    chunks = [np.empty(0, dtype)]
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        chunks.append(np.empty(len(part), dtype))
        chunks[-1][:] = part
    return np.concatenate(chunks)


def _numbers(proto, size):
    dtype, field = NUMBERS[proto.dtype]
    if proto.tensor_content and size:
        _check_content(len(proto.tensor_content) == dtype.itemsize * size, proto)
        return np.frombuffer(proto.tensor_content, dtype)
    values = getattr(proto, field)
    if field in FORMS:
        count = len(values) // (2 if "complex" in field else 1)
        wide = np.int64 if field == "half_val" else FORMS[field]
        return joined(values, wide).astype(FORMS[field]).view(dtype)[:count]
    return joined(values, np.int64 if field == "int_val" else dtype).astype(dtype)


def _strings(proto, size):
    """Returns the strings. Their packed form is `size` lengths as varints, then the bytes of all strings."""
    content, place, lengths = proto.tensor_content, 0, []
    if not content or not size:
        return proto.string_val
    for _ in range(size):
        varint = VARINT.match(content, place)
        _check_content(varint, proto)
        lengths.append(sum((byte & 127) << (7 * index) for index, byte in enumerate(varint[0])))
        place = varint.end()
    _check_content(sum(lengths) == len(content) - place, proto)
    ends = itertools.accumulate(lengths, initial=place)
    return [content[start : start + length] for start, length in zip(ends, lengths, strict=False)]


def _check_content(fits, proto):
    if not fits:
        shape = [dim.size for dim in proto.tensor_shape.dim]
        raise ValueError(
            f"`tensor_content` must fill the shape. Received: {len(proto.tensor_content)} bytes for {shape}"
        )


def to_proto(array, proto, as_content=False):
    """Writes an array of numbers, bools or bytes to the typed fields of an empty `TensorProto`.

    With `as_content`, writes numbers to `tensor_content` instead. Raises ValueError for any other dtype.
    """
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    if array.dtype == object:
        proto.dtype, field, values = STRING, "string_val", array.ravel()
    elif array.dtype in NUMBER_OF:
        proto.dtype = NUMBER_OF[array.dtype]
        field, values = NUMBERS[proto.dtype][1], np.ascontiguousarray(array).ravel()
        values = values.view(FORMS.get(field, array.dtype))
    else:
        raise ValueError(f"tensors of this dtype are not written. Received: dtype={array.dtype}")
    if as_content and array.dtype != object:
        proto.tensor_content = values.tobytes()
        return
    for start in range(0, len(values), CHUNK):
        getattr(proto, field).extend(values[start : start + CHUNK].tolist())
