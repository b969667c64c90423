import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.layers.normalization import LayerNormalization, layer_norm

from tests import reference
from tests.layers.contract import NORM_WEIGHTS, D, LayerContract, some


class TestLayerNormalizationContract(LayerContract):
    layer_class = LayerNormalization
    config_keys = ("activity_regularizer", "autocast")  # what Keras says of a layer without arguments
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = NORM_WEIGHTS


def gain_and_bias():
    rng = np.random.default_rng(5)
    return rng.normal(1, 0.3, D).astype("float32"), rng.normal(0, 0.3, D).astype("float32")


@pytest.mark.parametrize("size", [100.0, 1.0, 1e-3], ids=["large", "unit", "small enough for epsilon to count"])
def test_rows_are_normalised_as_in_the_paper(size):
    gamma, beta = gain_and_bias()
    x = size * np.asarray(some("x", "BTD"), "float64") + size
    expected = reference.layer_norm({"gamma": gamma, "beta": beta}, x)
    np.testing.assert_allclose(layer_norm(x.astype("float32"), gamma, beta), expected, rtol=1e-4, atol=1e-4)


def test_a_row_of_equal_numbers_becomes_the_bias():
    gamma, beta = gain_and_bias()
    found = layer_norm(np.full((2, 3, D), 1e4, "float32"), gamma, beta)
    np.testing.assert_allclose(found, np.broadcast_to(beta, (2, 3, D)), atol=1e-5)


def gradients(function, x, gamma, beta, upstream):
    arguments = [tf.constant(value) for value in (x, gamma, beta)]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments)
    return tape.gradient(y, arguments, output_gradients=tf.constant(upstream, y.dtype))


def naive(x, gamma, beta):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-6) * gamma + beta


@pytest.mark.parametrize("axes", ["TD", "BTD", "BHTD"])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_gradients_are_those_of_automatic_differentiation(axes, size):
    gamma, beta = gain_and_bias()
    x = size * np.asarray(some("x", axes), "float64")
    upstream = np.asarray(some("upstream", axes), "float64")
    expected = gradients(naive, x, gamma.astype("float64"), beta.astype("float64"), upstream)
    found = gradients(layer_norm, x.astype("float32"), gamma, beta, upstream)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 / size)
        assert np.abs(other).max() > 0.1


def test_half_precision_is_normalised_in_float32():
    """A mean of bfloat16 numbers in bfloat16 would be off by percents."""
    gamma, beta = gain_and_bias()
    x = tf.cast(100 + some("x", "BTD"), "bfloat16")
    found = layer_norm(x, gamma, beta)
    assert found.dtype == "bfloat16"
    expected = reference.layer_norm({"gamma": gamma, "beta": beta}, np.asarray(tf.cast(x, "float64")))
    np.testing.assert_allclose(tf.cast(found, "float32"), expected, rtol=0.01, atol=0.01)
