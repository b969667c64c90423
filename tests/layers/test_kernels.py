import functools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.kernels import Dropout, LayerNormalization, Linear, layer_norm, spread
from tests import reference
from tests.layers.contract import NORM_WEIGHTS, D, F, LayerContract, T, some

ROOT = Path(__file__).parents[2]
LARGE = (97, 101, 13)
SIZE = math.prod(LARGE)


ALONE = """
import sys
for name in "yaml sentencepiece tensorflow_text matplotlib babel sacrebleu keras_transformer.config".split():
    sys.modules[name] = None  # an import of it fails
import keras_transformer as kt, keras_transformer.recurrent.stacks
print(kt.layers.MultiHeadAttention(num_heads=2, d_key=3, d_model=5).d_key)
print(*sorted(name for name in sys.modules if name.startswith("keras_transformer.") and name.count(".") == 1))
"""


def test_layers_need_nothing_but_keras():
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[0] == "3", done.stderr
    assert done.stdout.splitlines()[1].split()[1:] == ["keras_transformer.layers", "keras_transformer.recurrent"]


def test_the_graph_of_linear_has_one_product_and_looks_up_no_shapes_that_are_known():
    layer = Linear(F)
    layer.build((None, T, D))
    function = tf.function(layer, input_signature=[tf.TensorSpec([None, T, D])], autograph=False)
    ops = [op.type for op in function.get_concrete_function().graph.get_operations()]
    assert ops.count("MatMul") == 1 and not {"Shape", "Prod", "Pack", "ConcatV2"} & set(ops)


@pytest.mark.parametrize(("width", "wider"), [(F, F), (512, 528), (2048, 2064)])
def test_a_spread_kernel_gives_the_same_products(width, wider):
    layer, x = Linear(width), some("x", "BTD")
    expected, layer.laid_out = layer(x), spread(layer.kernel)
    assert layer.laid_out.shape == (D, wider) and spread(tf.zeros((D, width), "bfloat16")).shape == (D, width)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


class TestLayerNormalizationContract(LayerContract):
    layer_class, arguments = LayerNormalization, {"epsilon": 1e-3}
    inputs, output = {"x": "BTD"}, "BTD"
    weight_count = NORM_WEIGHTS


def gain_and_bias():
    rng = np.random.default_rng(5)
    return rng.normal(1, 0.3, D).astype("float32"), rng.normal(0, 0.3, D).astype("float32")


@pytest.mark.parametrize("size", [100.0, 1.0, 1e-3], ids=["large", "unit", "small enough for epsilon to count"])
def test_rows_are_normalised_as_in_the_paper(size):
    gamma, beta = gain_and_bias()
    x = size * np.asarray(some("x", "BTD"), "float64") + size
    for epsilon in (1e-6, 0.1):
        expected = reference.layer_norm({"gamma": gamma, "beta": beta, "@epsilon": epsilon}, x)
        found = layer_norm(x.astype("float32"), gamma, beta, epsilon)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    found = layer_norm(np.full((2, 3, D), 1e4, "float32"), gamma, beta)  # rows of equal numbers
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
    layer_class, arguments = Dropout, {"rate": 0.3, "seed": 23}
    inputs, output = {"x": "BTD"}, "BTD"
    weight_count = 0


def dropped(layer, shape=LARGE, dtype="float32"):
    """Where ones come out as zeros."""
    return np.asarray(layer(tf.ones(shape, dtype), training=True) == 0)


def sigmas(share, expected, samples=SIZE):
    """How many standard deviations of the binomial distribution a share is off."""
    return abs(share - expected) / math.sqrt(expected * (1 - expected) / samples)


def test_outside_training_and_at_a_rate_of_0_nothing_changes_and_any_shape_stays():
    x = some("x", "BTD")
    for rate, training in ((0.5, False), (0.5, None), (0, True), (0.0, True)):
        np.testing.assert_array_equal(Dropout(rate)(x, training=training), x)
    for shape in ((1,), (63,), (65,), (2, 0, 3)):
        assert dropped(Dropout(0.5), shape).shape == shape


@pytest.mark.parametrize(("rate", "levels"), [(0.001, 1), (0.1, 26), (0.5, 128), (0.999, 255)])
def test_the_share_dropped_is_the_rate_in_256ths_and_what_is_kept_is_scaled_by_it_as_its_gradient_is(rate, levels):
    layer, x = Dropout(rate, seed=3), tf.random.stateless_uniform(LARGE, (1, 2), minval=1.0, maxval=2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    is_kept = np.asarray(y) != 0
    assert sigmas(np.mean(is_kept), 1 - levels / 256) < 5
    scale = np.where(is_kept, 256 / (256 - levels), 0.0)
    np.testing.assert_allclose(y, np.asarray(x) * scale, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(y, x), scale, rtol=1e-6)
    for dtype in ("bfloat16", "float16"):
        assert sigmas(dropped(Dropout(rate, dtype=f"mixed_{dtype}"), dtype=dtype).mean(), levels / 256) < 5


def test_activations_calls_and_layers_are_dropped_independently_and_the_same_seed_has_the_same_mask():
    flat = dropped(Dropout(0.3, seed=3)).ravel()
    for lag in (1, 2, 3, 4, 13, 16, 64, 1313):
        assert sigmas(np.mean(flat[lag:] & flat[:-lag]), (77 / 256) ** 2, SIZE - lag) < 5
    layer, unseeded = Dropout(0.5, seed=3), Dropout(0.5)
    graph = tf.function(lambda: unseeded(tf.ones(LARGE), training=True) == 0)
    masks = [dropped(layer), dropped(layer), dropped(Dropout(0.5, seed=5)), dropped(Dropout(0.5)), graph(), graph()]
    np.testing.assert_array_equal(dropped(Dropout(0.5, seed=3)), masks[0])
    for one, other in zip(masks, masks[1:], strict=False):
        assert sigmas(np.mean(one != other), 0.5) < 5
