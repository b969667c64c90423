import functools

import numpy as np
import pytest
from keras_transformer.layers.encoder import Encoder, EncoderLayer

from tests import reference
from tests.layers.contract import (
    ATTENTION_WEIGHTS,
    FEED_FORWARD_WEIGHTS,
    NORM_WEIGHTS,
    SIZES,
    B,
    D,
    F,
    H,
    LayerContract,
    S,
    some,
)

N = 2
SHAPE = {"d_model": D, "num_heads": H, "d_ff": F}
RATES = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "feed_forward_dropout_rate": 0.1}
LAYER_WEIGHTS = ATTENTION_WEIGHTS + FEED_FORWARD_WEIGHTS + 2 * NORM_WEIGHTS
RESIDUALS = pytest.mark.parametrize("residual", [reference.post_norm, reference.pre_norm])


class TestEncoderLayerContract(LayerContract):
    layer_class = EncoderLayer
    arguments = {**SHAPE, **RATES, "pre_norm": True}
    inputs = {"x": "BSD", "attention_mask": "B11S"}
    output = "BSD"
    weight_count = LAYER_WEIGHTS


class TestEncoderContract(TestEncoderLayerContract):
    layer_class = Encoder
    arguments = {**SHAPE, **RATES, "pre_norm": True, "num_layers": N}
    weight_count = N * LAYER_WEIGHTS + NORM_WEIGHTS


@functools.cache  # no test changes its weights
def made(layer_class, residual=reference.post_norm, **kwargs):
    layer = layer_class(**SHAPE, pre_norm=residual is reference.pre_norm, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


@RESIDUALS
def test_encoder_layer(residual):
    layer, x, mask = made(EncoderLayer, residual), some("x", "BSD"), some("attention_mask", "B1SS")
    expected = reference.encoder_layer(
        reference.weights_of(layer), np.asarray(x, "float64"), H, residual, np.asarray(mask)
    )
    np.testing.assert_allclose(layer(x, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_encoder(residual):
    layer, x, mask = made(Encoder, residual, num_layers=N), some("x", "BSD"), some("attention_mask", "B11S")
    expected = reference.encoder(reference.weights_of(layer), np.asarray(x, "float64"), H, residual, np.asarray(mask))
    np.testing.assert_allclose(layer(x, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_post_norm_encoder_is_its_layers_and_no_more(num_layers):
    layer = made(Encoder, num_layers=num_layers)
    assert [inner.name for inner in layer.layers] == [f"layer_{i}" for i in range(num_layers)]
    assert layer.count_params() == num_layers * LAYER_WEIGHTS


@RESIDUALS
def test_what_is_masked_changes_nothing_that_is_not(residual):
    layer, x = made(Encoder, residual, num_layers=N), np.asarray(some("x", "BSD"))
    changed = x.copy()
    changed[:, -3:] = np.random.default_rng(7).normal(size=(B, 3, D))
    mask = (np.arange(S) < S - 3)[None, None, None]
    masked = np.asarray(layer(changed, mask))[:, :-3]
    np.testing.assert_allclose(masked, np.asarray(layer(x, mask))[:, :-3], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(masked, layer(x[:, :-3]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", RATES)
def test_every_dropout_rate_counts_in_training_only(rate):
    layer, plain = made(Encoder, num_layers=1, **{rate: 0.5}), made(Encoder, num_layers=1)
    x = some("x", "BSD")
    np.testing.assert_array_equal(layer(x), plain(x))
    assert np.abs(np.asarray(layer(x, training=True)) - np.asarray(plain(x))).max() > 0.1
    np.testing.assert_array_equal(plain(x, training=True), plain(x))


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=rf"num_heads=3, d_model={SIZES['D']}$"):
        Encoder(num_layers=N, d_model=D, num_heads=3, d_ff=F)
