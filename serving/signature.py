"""A signature of a SavedModel: what a request may feed and fetch; the messages are TensorFlow Serving's."""

import tensorflow as tf
from grpc import StatusCode

from serving.errors import ServingError


class Signature:
    """A SignatureDef, prepared so that a request is checked quickly.

    Args:
        definition: SignatureDef.
    """

    def __init__(self, definition):
        self.feeds = {name: tensor.name for name, tensor in definition.inputs.items()}
        self.fetches = {name: tensor.name for name, tensor in definition.outputs.items()}
        self.defaults = {name: tf.make_ndarray(value) for name, value in definition.defaults.items()}
        self._all_outputs = tuple(sorted(self.fetches))
        self._dtypes = {name: tf.dtypes.as_dtype(tensor.dtype) for name, tensor in definition.inputs.items()}
        self._shapes = {name: _shape(tensor) for name, tensor in definition.inputs.items()}
        self._positions = {name: i for i, name in enumerate(sorted(self.feeds, key=self.feeds.get))}
        is_row = {name: bool(shape) and shape[0] is None for name, shape in self._shapes.items()}
        self.batched_inputs = [name for name, has_batch in is_row.items() if has_batch]
        self.is_batched = all(is_row.values())

    def checked_inputs(self, inputs):
        """The arrays that a request feeds, with the defaults of those that it leaves out.

        Args:
            inputs: dict name -> array; strings are bytes in arrays of objects.

        Raises:
            ServingError: INVALID_ARGUMENT if an input is missing or unknown or has another dtype or shape, or if inputs
                have different numbers of rows.
        """
        if inputs.keys() != self.feeds.keys():
            inputs = self._with_defaults(inputs)
        for name, array in inputs.items():
            self._check_dtype(name, array)
            self._check_shape(name, array)
            if array.dtype.kind in "SU":
                inputs = {**inputs, name: array.astype(object)}
        rows = {inputs[name].shape[0] for name in self.batched_inputs}
        if len(rows) > 1:
            sizes = ", ".join(f"{name}: {inputs[name].shape[0]}" for name in sorted(self.batched_inputs))
            raise _invalid(f"inputs must have equal 0th-dimension size. Received: {sizes}")
        return inputs

    def checked_outputs(self, outputs):
        """The names of the outputs to fetch, a tuple; all of them if none are asked for.

        Raises:
            ServingError: INVALID_ARGUMENT if one is unknown or named twice.
        """
        if not outputs:
            return self._all_outputs
        for name in outputs:
            if name not in self.fetches:
                known = ",".join(sorted(self.fetches))
                raise _invalid(
                    f"output tensor alias not found in signature: {name} Outputs expected to be in the set {{{known}}}."
                )
        if len(set(outputs)) < len(outputs):
            twice = next(name for i, name in enumerate(outputs) if name in outputs[:i])
            raise _invalid(f"duplicate output tensor alias: {twice}")
        return tuple(sorted(outputs))

    def _with_defaults(self, inputs):
        extra = inputs.keys() - self.feeds.keys()
        missing = self.feeds.keys() - inputs.keys() - self.defaults.keys()
        if extra or missing:
            sent, known, extra, missing = (",".join(sorted(names)) for names in (inputs, self.feeds, extra, missing))
            raise _invalid(
                f"input size does not match signature: {len(inputs)}!={len(self.feeds)} len({{{sent}}}) != "
                f"len({{{known}}}). Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
            )
        return {**{name: self.defaults[name] for name in self.feeds.keys() - inputs.keys()}, **inputs}

    def _check_dtype(self, name, array):
        expected = self._dtypes[name]
        if array.dtype != expected.as_numpy_dtype and not (expected == tf.string and array.dtype.kind in "SU"):
            received = tf.dtypes.as_dtype(array.dtype)
            raise _invalid(
                f"Expects arg[{self._positions[name]}] to be {_spelled(expected)} but {_spelled(received)} is provided"
            )

    def _check_shape(self, name, array):
        expected = self._shapes[name]
        fits = expected is None or (
            len(expected) == array.ndim
            and all(size is None or size == got for size, got in zip(expected, array.shape, strict=True))
        )
        if not fits:
            shape = tuple("?" if size is None else size for size in expected)
            raise _invalid(f"input {name} must have shape {list(shape)}. Received: shape={list(array.shape)}")


def _shape(tensor):
    """List of int, None where any size will do; None if any rank will do."""
    shape = tensor.tensor_shape
    return None if shape.unknown_rank else [None if dim.size < 0 else dim.size for dim in shape.dim]


def _spelled(dtype):
    """As TensorFlow's C++ spells it: float, double, but int32 and string."""
    return {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)


def _invalid(message):
    return ServingError(StatusCode.INVALID_ARGUMENT, message)
