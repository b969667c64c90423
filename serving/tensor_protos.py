"""TensorProto <-> NumPy array by TensorFlow's rules, without TensorFlow, and safe for untrusted input."""

import math

import numpy as np

from serving.messages import TensorProto

STRING = 7  # DT_STRING
# DT_... -> (dtype, the field for values outside `tensor_content`).
NUMBERS = {
    1: (np.dtype("float32"), "float_val"),
    2: (np.dtype("float64"), "double_val"),
    3: (np.dtype("int32"), "int_val"),
    4: (np.dtype("uint8"), "int_val"),
    5: (np.dtype("int16"), "int_val"),
    6: (np.dtype("int8"), "int_val"),
    9: (np.dtype("int64"), "int64_val"),
    10: (np.dtype("bool"), "bool_val"),
    17: (np.dtype("uint16"), "int_val"),
    19: (np.dtype("float16"), "half_val"),
    22: (np.dtype("uint32"), "uint32_val"),
    23: (np.dtype("uint64"), "uint64_val"),
}
NUMBER_OF = {dtype: number for number, (dtype, _) in NUMBERS.items()}
FIELD_OF = {dtype: field for dtype, field in NUMBERS.values()}
MOST_DIMENSIONS = 32
MOST_FILLED = 2**20  # The most elements that one value may fill.


def to_array(proto):
    """Reads a tensor from its typed field or its `tensor_content`, as TensorFlow does.

    Surplus values are ignored. If values are missing, the last value fills the rest of the shape.

    Args:
        proto: `TensorProto`.

    Returns:
        array of the proto's shape; an object array of bytes for strings.

    Raises:
        ValueError: if the shape, the `tensor_content` or the dtype is invalid, or if more than `MOST_FILLED` values are
            missing. The limit prevents a large allocation for a false shape.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    _check_shape(shape)
    size = math.prod(shape)
    if proto.dtype == STRING:
        values = _strings(proto, size)
    elif proto.dtype in NUMBERS:
        values = _numbers(proto, size)
    else:
        raise ValueError(f"tensors of this dtype are not read. Received: dtype={proto.dtype}")
    return _filled(values[:size], size).reshape(shape)


def _check_shape(shape):
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise ValueError(f"the shape must be one of at most {MOST_DIMENSIONS} dimensions. Received: {shape[:9]}")
    if math.prod(size for size in shape if size) >= 2**60:
        raise ValueError(f"the shape must be one that fits into memory. Received: {shape}")


def _numbers(proto, size):
    dtype, field = NUMBERS[proto.dtype]
    if proto.tensor_content and size:
        _check_content(len(proto.tensor_content) == dtype.itemsize * size, proto)
        return np.frombuffer(proto.tensor_content, dtype)
    values = getattr(proto, field)
    if dtype == np.float16:
        return np.array(values, np.int32).astype(np.uint16).view(dtype)  # The field holds the bits of a float16.
    return np.array(values, np.int32 if field == "int_val" else dtype).astype(dtype)


def _strings(proto, size):
    values = _packed_strings(proto, size) if proto.tensor_content and size else proto.string_val
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _packed_strings(proto, size):
    """Reads strings in TensorFlow's packed form: `size` lengths as varints, then the bytes of all strings."""
    content = proto.tensor_content
    _check_content(size <= len(content), proto)
    lengths, place = [], 0
    for _ in range(size):
        length, place = _varint(proto, place)
        lengths.append(length)
    _check_content(sum(lengths) == len(content) - place, proto)
    ends = place + np.cumsum(lengths)
    return [content[end - length : end] for length, end in zip(lengths, ends, strict=True)]


def _varint(proto, place):
    """Returns the number at `place` of the content, and the place after the number."""
    number = 0
    for index, byte in enumerate(proto.tensor_content[place : place + 5]):
        number |= (byte & 127) << (7 * index)
        if byte < 128:
            return number, place + index + 1
    _check_content(False, proto)


def _check_content(fits, proto):
    if not fits:
        shape = [dim.size for dim in proto.tensor_shape.dim]
        raise ValueError(
            f"`tensor_content` must fill the shape. Received: {len(proto.tensor_content)} bytes for {shape}"
        )


def _filled(values, size):
    missing = size - len(values)
    if not missing:
        return values
    if missing > MOST_FILLED:
        raise ValueError(f"the values must fill the shape. Received: {len(values)} of {size}")
    nothing = b"" if values.dtype == object else 0
    return np.concatenate([values, np.full(missing, values[-1] if len(values) else nothing, values.dtype)])


def to_proto(array, proto=None):
    """Writes an array to the typed fields, which clients of TensorFlow Serving read.

    Args:
        array: array of numbers or bools, or an object array of bytes.
        proto: empty `TensorProto` to write to; a new proto by default.

    Returns:
        the proto.

    Raises:
        ValueError: for any other dtype.
    """
    proto = TensorProto() if proto is None else proto
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    if array.dtype == object:
        proto.dtype = STRING
        proto.string_val.extend(array.ravel().tolist())
    elif array.dtype in NUMBER_OF:
        proto.dtype = NUMBER_OF[array.dtype]
        values = array.view(np.uint16) if array.dtype == np.float16 else array
        getattr(proto, FIELD_OF[array.dtype]).extend(values.ravel().tolist())
    else:
        raise ValueError(f"tensors of this dtype are not written. Received: dtype={array.dtype}")
    return proto
