"""TensorFlow Serving's gRPC messages, and the tensors in them, without TensorFlow and safe for untrusted input.

The generated modules import `tensorflow.core`. To run `tensorflow` itself takes seconds and half a gigabyte, so an
empty package with the same path is in its place during the imports.
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
    if "tensorflow" in sys.modules:
        yield
        return
    package = types.ModuleType("tensorflow")
    if not (found := importlib.util.find_spec("tensorflow")):
        missing = "the messages of TensorFlow Serving are missing: pip install tensorflow-serving-api"
        raise ModuleNotFoundError(missing, name="tensorflow")
    package.__path__ = found.submodule_search_locations
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


with _without_starting_tensorflow():
    from tensorflow.core.protobuf.config_pb2 import ConfigProto  # noqa: F401
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_management_pb2  # noqa: F401
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse  # noqa: F401

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
DEFAULT_SIGNATURE = "serving_default"
STRING = 7  # DT_STRING
FIELDS = {  # The field for values outside `tensor_content` -> DT_... -> dtype.
    "float_val": {1: "float32"},
    "double_val": {2: "float64"},
    "int_val": {3: "int32", 4: "uint8", 5: "int16", 6: "int8", 17: "uint16"},
    **{"scomplex_val": {8: "complex64"}, "dcomplex_val": {18: "complex128"}},
    **{"int64_val": {9: "int64"}, "uint32_val": {22: "uint32"}, "uint64_val": {23: "uint64"}},
    **{"bool_val": {10: "bool"}, "half_val": {14: ml_dtypes.bfloat16, 19: "float16"}},
}
NUMBERS = {number: (np.dtype(name), field) for field, names in FIELDS.items() for number, name in names.items()}
NUMBER_OF = {dtype: number for number, (dtype, _) in NUMBERS.items()}
# Fields that hold a value in another form: the bits of a half, and the real and imaginary part of a complex number.
FORMS = {"half_val": np.dtype("uint16"), "scomplex_val": np.dtype("float32"), "dcomplex_val": np.dtype("float64")}
VARINT = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f]")
MOST_DIMENSIONS = 32
MOST_FILLED = 2**20  # The most elements that one value may fill.
CHUNK = 2**14  # Values that are converted at once. Other threads can run between two chunks.


def to_array(proto):
    """Reads a `TensorProto` as TensorFlow does: surplus values are ignored, the last value stands for missing ones.

    Returns an array of the proto's shape; an object array of bytes for strings. Raises ValueError for any mistake, and
    if more than `MOST_FILLED` values are missing: that prevents a large allocation for a false shape.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    is_large = len(shape) > MOST_DIMENSIONS or math.prod(size for size in shape if size) >= 2**60
    if is_large or any(size < 0 for size in shape):
        raise ValueError(f"the shape must have at most {MOST_DIMENSIONS} dimensions, and fit into memory")
    if proto.dtype != STRING and proto.dtype not in NUMBERS:
        raise ValueError(f"tensors of this dtype are not read. Received: dtype={proto.dtype}")
    size = math.prod(shape)
    values = joined(_strings(proto, size), object) if proto.dtype == STRING else _numbers(proto, size)
    if (missing := size - len(values)) > MOST_FILLED:
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
        raise ValueError(f"`tensor_content` must fill the shape. Received: {len(proto.tensor_content)} bytes")


def to_proto(array, proto):
    """Writes an array of numbers, bools or bytes to the fields of an empty `TensorProto`. Raises ValueError."""
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
    for start in range(0, len(values), CHUNK):
        getattr(proto, field).extend(values[start : start + CHUNK].tolist())
