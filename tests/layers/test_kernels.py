import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.kernels import Dropout, LayerNormalization, Linear, hide, layer_norm
from tests import reference
from tests.layers.contract import NORM_WEIGHTS, B, D, F, H, LayerContract, S, T, some

LARGE = (97, 101, 13)
SIZE = math.prod(LARGE)


def test_hidden_scores_have_no_share_are_finite_and_the_others_stay():
    scores, mask = some("scores", "BHTS"), np.broadcast_to(some("mask", "B11S"), (B, H, T, S))
    hidden = np.asarray(hide(scores, mask))
    np.testing.assert_array_equal(hidden[mask], np.asarray(scores)[mask])
    assert np.all(reference.softmax(hidden)[~mask] == 0)
    assert np.isfinite(hide(scores, tf.zeros((1, 1, 1, S), "bool"))).all()


@pytest.mark.parametrize("axes", ["BD", "BTD", "BHTD"])
def test_linear_is_the_product_with_its_kernel_at_every_position(axes):
    layer, x = Linear(F, activation="relu", bias_initializer="ones"), some("x", axes)
    output = layer(x)
    expected = np.maximum(np.asarray(x) @ np.asarray(layer.kernel) + np.asarray(layer.bias), 0)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_the_graph_of_linear_has_one_product_and_looks_up_no_shapes_that_are_known():
    layer = Linear(F)
    layer.build((None, T, D))
    graph = (
        tf.function(layer, input_signature=[tf.TensorSpec([None, T, D])], autograph=False).get_concrete_function().graph
    )
    ops = [op.type for op in graph.get_operations()]
    assert ops.count("MatMul") == 1
    assert not {"Shape", "Prod", "Pack", "ConcatV2"} & set(ops)


class TestLayerNormalizationContract(LayerContract):
    layer_class = LayerNormalization
    arguments = {"epsilon": 1e-3}
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
    expected = reference.layer_norm({"gamma": gamma, "beta": beta, "@epsilon": 0.1}, x)
    np.testing.assert_allclose(layer_norm(x.astype("float32"), gamma, beta, 0.1), expected, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(("axes", "size"), [("TD", 1.0), ("BTD", 1e-3), ("BHTD", 1.0)])
def test_gradients_are_those_of_automatic_differentiation(axes, size):
    gamma, beta = gain_and_bias()
    x = size * np.asarray(some("x", axes), "float64")
    upstream = np.asarray(some("upstream", axes), "float64")
    expected = gradients(naive, x, gamma.astype("float64"), beta.astype("float64"), upstream)
    found = gradients(functools.partial(layer_norm, epsilon=1e-6), x.astype("float32"), gamma, beta, upstream)
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


class TestDropoutContract(LayerContract):
    layer_class = Dropout
    arguments = {"rate": 0.3, "seed": 23}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = 0


def dropped(layer, shape=LARGE):
    """Where ones come out as zeros."""
    return np.asarray(layer(tf.ones(shape), training=True)) == 0


def sigmas(share, expected, samples):
    """How many standard deviations of the binomial distribution a share is off."""
    return abs(share - expected) / math.sqrt(expected * (1 - expected) / samples)


def test_outside_training_and_at_a_rate_of_0_nothing_changes():
    x = tf.random.stateless_normal((B, T, D), (1, 2))
    for rate, training in ((0.5, False), (0.5, None), (0, True), (0.0, True)):
        np.testing.assert_array_equal(Dropout(rate)(x, training=training), x)


@pytest.mark.parametrize(("rate", "levels"), [(0.001, 1), (0.1, 26), (0.3, 77), (0.5, 128), (0.9, 230), (0.999, 255)])
def test_the_share_dropped_is_the_rate_in_256ths_and_what_is_kept_is_scaled_by_it(rate, levels):
    x = tf.random.stateless_uniform(LARGE, (1, 2), minval=1.0, maxval=2.0)
    y = np.asarray(Dropout(rate, seed=3)(x, training=True))
    assert sigmas(np.mean(y == 0), levels / 256, SIZE) < 5
    np.testing.assert_allclose(y[y != 0], np.asarray(x)[y != 0] * 256 / (256 - levels), rtol=1e-6)


def test_activations_are_dropped_independently():
    flat = dropped(Dropout(0.3, seed=3)).ravel()
    for lag in (1, 2, 3, 4, 13, 16, 64, 1313):
        assert sigmas(np.mean(flat[lag:] & flat[:-lag]), (77 / 256) ** 2, SIZE - lag) < 5


def test_the_same_seed_has_the_same_mask_and_any_other_layer_another():
    mask = dropped(Dropout(0.5, seed=3))
    np.testing.assert_array_equal(dropped(Dropout(0.5, seed=3)), mask)
    for one, other in ((mask, dropped(Dropout(0.5, seed=5))), (dropped(Dropout(0.5)), dropped(Dropout(0.5)))):
        assert sigmas((one != other).mean(), 0.5, SIZE) < 5


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_every_call_draws_a_new_mask(compiled):
    layer, x = Dropout(0.5, seed=3), tf.ones(LARGE)
    call = tf.function(lambda x: layer(x, training=True)) if compiled else lambda x: layer(x, training=True)
    differing = np.asarray(call(x) != call(x))
    assert sigmas(differing.mean(), 0.5, SIZE) < 5


def test_gradient_is_zero_where_dropped_and_scaled_where_kept():
    layer, x = Dropout(0.3, seed=3), tf.random.stateless_uniform((B, T, D), (1, 2), minval=1.0, maxval=2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    gradient, kept = np.asarray(tape.gradient(y, x)), np.asarray(y) != 0
    assert kept.any() and not kept.all()
    np.testing.assert_allclose(gradient, np.where(kept, 256 / (256 - 77), 0.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_drops_the_same_share(dtype):
    y = Dropout(0.1, seed=3, dtype=f"mixed_{dtype}")(tf.ones(LARGE, dtype), training=True)
    assert y.dtype == dtype
    assert sigmas(np.mean(np.asarray(tf.cast(y, "float32")) == 0), 26 / 256, SIZE) < 5


def test_any_size_and_shape():
    for shape in ((1,), (63,), (64,), (65,), (2, 0, 3)):
        assert dropped(Dropout(0.5), shape).shape == shape
