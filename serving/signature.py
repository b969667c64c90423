"""A signature of a SavedModel, which checks the inputs and outputs of a request with TensorFlow Serving's messages."""

import tensorflow as tf
from grpc import StatusCode

from serving.errors import ServingError


class Signature:
    """A SignatureDef, prepared for fast checks of requests.

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
        """Checks the inputs of a request and adds the defaults of missing inputs.

        Args:
            inputs: dict name -> array; strings are bytes objects.

        Returns:
            dict name -> array.

        Raises:
            ServingError: INVALID_ARGUMENT if an input is missing or unknown, if it has a wrong dtype or shape, or if
                the inputs have different numbers of rows.
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
        """Checks the outputs to fetch: tuple of names. None stands for all outputs.

        Raises:
            ServingError: INVALID_ARGUMENT if a name is unknown or repeated.
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
    """Converts a shape to a list of int. None in the list means any size; None as the result means any rank."""
    shape = tensor.tensor_shape
    return None if shape.unknown_rank else [None if dim.size < 0 else dim.size for dim in shape.dim]


def _spelled(dtype):
    """Spells a dtype as TensorFlow's C++ does: float, double, int32, string."""
    return {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)


def _invalid(message):
    return ServingError(StatusCode.INVALID_ARGUMENT, message)
