"""What every layer promises, whatever it computes: one harness, inherited by one test class per layer.

Every size is another prime, so that no transposed axis passes by accident; d_model is the product of two of them.
"""

import copy
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.reference import randomise

H, W, B, T, S, K, F, V = 2, 3, 5, 7, 11, 13, 17, 19
D = H * K
SIZES = {"1": 1, "B": B, "D": D, "F": F, "H": H, "K": K, "S": S, "T": T, "V": V}
UNKNOWN = "BST"  # what a batch decides

ATTENTION_WEIGHTS = 4 * D * D
FEED_FORWARD_WEIGHTS = D * F + F + F * D + D
NORM_WEIGHTS = 2 * D


def some(name, axes):
    """An input with the shape that the letters spell: ids, a mask or activations, by its name."""
    rng = np.random.default_rng(len(name))
    shape = [SIZES[axis] for axis in axes]
    if name == "ids":
        return tf.constant(rng.integers(0, V, shape), "int32")
    if name.endswith("mask"):
        mask = rng.random(shape) < 0.5
        mask[..., 0] = True  # everyone sees something
        return tf.constant(mask)
    return tf.constant(rng.normal(size=shape), "float32")


def known(axes):
    """The shape as far as it is known before there is a batch."""
    return tuple(None if axis in UNKNOWN else SIZES[axis] for axis in axes)


class LayerContract:
    """Inherit as `class TestContract(LayerContract)` and say which layer.

    layer_class, arguments: how to make one; give every argument a value that is not its default.
    inputs: call arguments in order, each with the letters of its shape, e.g. {"x": "BTD"}.
    output: letters of the output's shape.
    weight_count: numbers in all weights.
    output_dtype: None = the compute dtype.
    """

    arguments = {}
    config_keys = None  # None = those of `arguments`
    output_dtype = None

    def make(self, **kwargs):
        return self.layer_class(**self.arguments, **kwargs)

    def tensors(self):
        return [some(name, axes) for name, axes in self.inputs.items()]

    def built(self, **kwargs):
        layer = self.make(**kwargs)
        layer.build(known(next(iter(self.inputs.values()))))
        return randomise(layer)

    def test_config_holds_exactly_the_arguments_and_makes_the_same_layer_again(self):
        layer = self.make(name="some", dtype="mixed_bfloat16")
        config = layer.get_config()
        assert set(config) - {"name", "trainable", "dtype"} == set(self.config_keys or self.arguments)
        assert {name: config[name] for name in self.arguments} == self.arguments and config["name"] == "some"
        assert all(hasattr(layer, name) for name in self.config_keys or self.arguments)
        serialised = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        untouched = copy.deepcopy(serialised)
        twin = keras.saving.deserialize_keras_object(serialised)
        assert serialised == untouched and serialised["registered_name"].startswith("keras_transformer>")
        assert type(twin) is self.layer_class and twin.get_config() == config
        for each in (layer, twin):
            each.build(known(next(iter(self.inputs.values()))))
            randomise(each)
        np.testing.assert_array_equal(twin(*self.tensors()), layer(*self.tensors()))

    def test_weights_need_no_call(self):
        built, called = self.make(name="some"), self.make(name="some")
        built.build(known(next(iter(self.inputs.values()))))
        output = called(*self.tensors())
        weights = [(w.path, w.shape) for w in built.weights]
        assert weights == [(w.path, w.shape) for w in called.weights] and built.count_params() == self.weight_count
        built.set_weights(called.get_weights())
        np.testing.assert_array_equal(built(*self.tensors()), output)  # nothing is random unless training
        assert weights == [(w.path, w.shape) for w in built.weights]

    def test_output_has_its_shape_which_is_known_before_there_is_a_batch(self):
        tensors = self.tensors()
        output = self.built()(*tensors)
        assert tuple(output.shape) == tuple(SIZES[axis] for axis in self.output)
        assert getattr(output, "_keras_mask", None) is None
        pairs = zip(self.inputs.values(), tensors, strict=True)
        symbol = self.make()(*(keras.KerasTensor(known(axes), tensor.dtype.name) for axes, tensor in pairs))
        assert tuple(symbol.shape) == known(self.output) and symbol.dtype == output.dtype.name

    def test_graph_of_unknown_batch_and_length_is_eager(self):
        layer, tensors = self.built(), self.tensors()
        specs = [tf.TensorSpec(known(axes), t.dtype) for axes, t in zip(self.inputs.values(), tensors, strict=True)]
        graph = tf.function(lambda *tensors: layer(*tensors), input_signature=specs, autograph=False)
        np.testing.assert_allclose(graph(*tensors), layer(*tensors), rtol=1e-5, atol=1e-6)
        first_row = [t[:1] for t in tensors]
        np.testing.assert_allclose(graph(*first_row), layer(*tensors)[:1], rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
    def test_mixed_precision_computes_in_half_and_keeps_float32_weights(self, policy):
        half = policy.removeprefix("mixed_")
        layer, full = self.built(dtype=policy), self.built()
        output = layer(*self.tensors())
        assert output.dtype.name == (self.output_dtype or half)
        assert {weight.dtype for weight in layer.weights} <= {"float32"}
        assert {inner.compute_dtype for inner in layer._flatten_layers()} == {half}
        np.testing.assert_allclose(tf.cast(output, "float32"), full(*self.tensors()), rtol=0.05, atol=0.1)
