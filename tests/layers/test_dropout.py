import math

import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.layers.dropout import Dropout

from tests.layers.contract import B, D, LayerContract, T

SHAPE = (97, 101, 13)
SIZE = math.prod(SHAPE)


class TestContract(LayerContract):
    layer_class = Dropout
    arguments = {"rate": 0.3, "seed": 23}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = 0


def dropped(layer, shape=SHAPE):
    """Where ones come out as zeros."""
    return np.asarray(layer(tf.ones(shape), training=True)) == 0


def sigmas(share, expected, samples):
    """How many standard deviations of the binomial distribution a share is off."""
    return abs(share - expected) / math.sqrt(expected * (1 - expected) / samples)


@pytest.mark.parametrize("training", [False, None])
def test_outside_training_nothing_changes(training):
    x = tf.random.stateless_normal((B, T, D), (1, 2))
    np.testing.assert_array_equal(Dropout(0.5)(x, training=training), x)


@pytest.mark.parametrize("rate", [0, 0.0, 0.001])
def test_a_rate_that_rounds_to_nothing_drops_nothing(rate):
    assert not dropped(Dropout(rate)).any()


@pytest.mark.parametrize(("rate", "levels"), [(0.1, 26), (0.3, 77), (0.5, 128), (0.9, 230)])
def test_share_dropped_is_the_rate_in_256ths(rate, levels):
    assert sigmas(dropped(Dropout(rate, seed=3)).mean(), levels / 256, SIZE) < 5


@pytest.mark.parametrize(("rate", "levels"), [(0.1, 26), (0.3, 77), (0.5, 128), (0.9, 230)])
def test_what_is_kept_is_scaled_by_the_rounded_rate(rate, levels):
    x = tf.random.stateless_uniform(SHAPE, (1, 2), minval=1.0, maxval=2.0)
    y = np.asarray(Dropout(rate, seed=3)(x, training=True))
    np.testing.assert_allclose(y[y != 0], np.asarray(x)[y != 0] * 256 / (256 - levels), rtol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_expectation_is_the_input(rate):
    y = np.asarray(Dropout(rate, seed=3)(tf.ones(SHAPE), training=True), "float64")
    assert abs(y.mean() - 1) < 5 * y.std() / math.sqrt(SIZE)


def test_a_rate_next_to_one_keeps_a_little():
    y = Dropout(0.999, seed=3)(tf.ones(SHAPE), training=True)
    assert np.isfinite(y).all() and 0 < np.mean(y != 0) < 0.01


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 13, 16, 64, 1313])
def test_activations_are_dropped_independently(lag):
    flat = dropped(Dropout(0.3, seed=3)).ravel()
    assert sigmas(np.mean(flat[lag:] & flat[:-lag]), (77 / 256) ** 2, SIZE - lag) < 5


def test_same_seed_same_mask():
    np.testing.assert_array_equal(dropped(Dropout(0.5, seed=3)), dropped(Dropout(0.5, seed=3)))


def test_other_seed_other_mask():
    differing = dropped(Dropout(0.5, seed=3)) != dropped(Dropout(0.5, seed=5))
    assert sigmas(differing.mean(), 0.5, SIZE) < 5


def test_layers_without_a_seed_have_masks_of_their_own():
    differing = dropped(Dropout(0.5)) != dropped(Dropout(0.5))
    assert sigmas(differing.mean(), 0.5, SIZE) < 5


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_every_call_draws_a_new_mask(compiled):
    layer, x = Dropout(0.5, seed=3), tf.ones(SHAPE)
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
    y = Dropout(0.1, seed=3, dtype=f"mixed_{dtype}")(tf.ones(SHAPE, dtype), training=True)
    assert y.dtype == dtype
    assert sigmas(np.mean(np.asarray(tf.cast(y, "float32")) == 0), 26 / 256, SIZE) < 5


@pytest.mark.parametrize("shape", [(1,), (63,), (64,), (65,), (2, 0, 3)])
def test_any_size_and_shape(shape):
    assert dropped(Dropout(0.5), shape).shape == shape


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match=rf"`rate` must be in \[0, 1\)\. Received: rate={rate}$"):
        Dropout(rate)
