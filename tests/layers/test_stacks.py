import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, PostNorm, PreNorm
from tests import reference
from tests.layers.contract import FEED_FORWARD_WEIGHTS, NORM_WEIGHTS, B, D, F, H, LayerContract, S, T, W, some

SHAPE = {"d_model": D, "num_heads": H, "d_ff": F}
RATES = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "feed_forward_dropout_rate": 0.1}
VARIANT = {"d_key": 7, "num_key_value_heads": 1, "d_value": 11, "positions": "relative", "relative_clip": 5}
VARIANT |= {"attention_bias": True, "activation": "gelu", "layer_norm_epsilon": 1e-3}
VARIANT_ATTENTION_WEIGHTS = D * (7 + 11) * (H + 1) + 7 * (H + 1) + 11 + D
VARIANT_ENCODER_LAYER_WEIGHTS = (
    VARIANT_ATTENTION_WEIGHTS + (7 + 11) * (2 * 5 + 1) + FEED_FORWARD_WEIGHTS + 2 * NORM_WEIGHTS
)
VARIANT_DECODER_LAYER_WEIGHTS = VARIANT_ENCODER_LAYER_WEIGHTS + VARIANT_ATTENTION_WEIGHTS + NORM_WEIGHTS


class ResidualContract(LayerContract):
    arguments = {"dropout_rate": 0.3, "layer_norm_epsilon": 1e-3}
    inputs = {"x": "BTD", "update": "BTD"}
    output = "BTD"
    weight_count = NORM_WEIGHTS


class TestPostNormContract(ResidualContract):
    layer_class = PostNorm


class TestPreNormContract(ResidualContract):
    layer_class = PreNorm


def residual_connection(layer_class, dropout_rate=0.0):
    layer = layer_class(dropout_rate)
    layer.build((None, None, D))
    return reference.randomise(layer)


@pytest.mark.parametrize(
    ("layer_class", "expected"), [(PostNorm, reference.post_norm), (PreNorm, reference.pre_norm)], ids=["post", "pre"]
)
@pytest.mark.parametrize("size", [1.0, 1e-3], ids=["unit", "small enough for epsilon to count"])
def test_residual_connection(layer_class, expected, size):
    layer, x = residual_connection(layer_class), size * np.asarray(some("x", "BTD"), "float64")

    def sublayer(h):
        return 0.7 * h[..., ::-1]

    entering = np.asarray(layer.enter(x.astype("float32")))
    np.testing.assert_allclose(
        layer(x.astype("float32"), sublayer(entering)),
        expected(reference.weights_of(layer), x, sublayer),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("layer_class", [PostNorm, PreNorm])
def test_dropout_falls_on_the_update_and_not_on_the_residual(layer_class):
    layer, x, update = residual_connection(layer_class, 0.5), some("x", "BTD"), some("update", "BTD")
    seen = []

    def nothing_left(update, training=False):
        seen.append(training)
        return 0.0 * update

    layer.dropout.call = nothing_left
    np.testing.assert_array_equal(layer(x, update, training=True), layer(x, 0.0 * update))
    assert seen == [True, False]


class TestFeedForwardContract(LayerContract):
    layer_class = FeedForward
    arguments = {"d_model": D, "d_ff": F, "dropout_rate": 0.3, "activation": "silu"}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = FEED_FORWARD_WEIGHTS


def feed_forward(**kwargs):
    layer = FeedForward(D, F, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="`activation` must be one of relu, gelu, .*silu. Received: activation='elu'$"):
        FeedForward(D, F, activation="elu")


def test_dropout_falls_on_the_inner_activations():
    layer, x = feed_forward(dropout_rate=0.5), some("x", "BTD")
    seen = []
    layer.dropout.call = lambda inner, training=False: seen.append((inner.shape, training)) or inner
    layer(x, training=True)
    assert seen == [((B, T, F), True)]


class TestEncoderContract(LayerContract):
    layer_class = Encoder
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_layers": 1, "heads": [[H]]}
    inputs = {"x": "BSD", "attention_mask": "B11S"}
    output = "BSD"
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS + NORM_WEIGHTS


class TestEncoderLayerContract(TestEncoderContract):
    layer_class = EncoderLayer
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True}
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS


@functools.cache  # no test changes its weights
def made(layer_class, residual=reference.post_norm, **kwargs):
    layer = layer_class(**SHAPE, pre_norm=residual is reference.pre_norm, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


def float64(*tensors):
    return [np.asarray(tensor, "float64") for tensor in tensors]


@pytest.mark.parametrize("rate", RATES)
def test_every_dropout_rate_of_an_encoder_counts_in_training_only(rate):
    layer, plain = made(Encoder, num_layers=1, **{rate: 0.5}), made(Encoder, num_layers=1)
    x = some("x", "BSD")
    np.testing.assert_array_equal(layer(x), plain(x))
    assert np.abs(np.asarray(layer(x, training=True)) - np.asarray(plain(x))).max() > 0.1
    np.testing.assert_array_equal(plain(x, training=True), plain(x))


class TestDecoderLayerContract(LayerContract):
    layer_class = DecoderLayer
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_cross_heads": H, "autoregression": "attention"}
    inputs = {"x": "BTD", "memory": "BSD", "attention_mask": "11TT", "source_mask": "B11S"}
    output = "BTD"
    weight_count = VARIANT_DECODER_LAYER_WEIGHTS


class TestDecoderContract(LayerContract):
    layer_class = Decoder
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_layers": 1}
    arguments |= {"heads": [[H, H]], "num_cross_heads": H, "guided_alignment": 0.1, "autoregression": "attention"}
    inputs = {"x": "BTD", "memory": "BSD", "source_mask": "B11S"}
    output = "BTD"
    weight_count = VARIANT_DECODER_LAYER_WEIGHTS + NORM_WEIGHTS


def decoder(residual=reference.post_norm, num_layers=1, **kwargs):
    return made(Decoder, residual, num_layers=num_layers, **kwargs)


@pytest.mark.parametrize(("num_layers", "residual"), [(1, reference.post_norm), (3, reference.pre_norm)])
def test_alignment_is_what_the_heads_after_the_first_layer_attend_to_where_they_are_sure(num_layers, residual):
    layer, x, memory = decoder(residual, num_layers), some("x", "BTD"), some("memory", "BSD")
    mask = some("source_mask", "B11S")
    arguments = reference.weights_of(layer), *float64(x, memory), H, residual, np.asarray(mask)
    output, alignment = layer.align(x, memory, mask)
    np.testing.assert_allclose(output, layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    assert alignment.shape == (B, T, S)
    np.testing.assert_allclose(alignment, reference.decoder_alignment(*arguments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_guided_alignment_is_what_the_first_head_of_the_last_layer_but_one_attends_to(num_layers):
    layer = decoder(reference.pre_norm, num_layers, guided_alignment=0.1)
    x, memory, mask = some("x", "BTD"), some("memory", "BSD"), some("source_mask", "B11S")
    arguments = reference.weights_of(layer), *float64(x, memory), H, reference.pre_norm, np.asarray(mask)
    output, alignment = layer.align(x, memory, mask)
    np.testing.assert_allclose(output, layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(alignment, reference.decoder_alignment(*arguments, True), rtol=1e-5, atol=1e-5)


def test_every_dropout_of_a_decoder_has_its_rate_and_is_told_of_training():
    stack = Decoder(1, **SHAPE, **RATES)
    (layer,), seen = stack.layers, []
    for block in (
        *(layer.self_attention, layer.self_attention_residual),
        *(layer.cross_attention, layer.cross_attention_residual),
        *(layer.feed_forward, layer.feed_forward_residual),
    ):
        block.dropout.call = lambda x, training=False, rate=block.dropout.rate: seen.append((rate, training)) or x
    stack(some("x", "BTD"), some("memory", "BSD"), training=True)
    assert seen == [(rate, True) for rate in (0.2, 0.3, 0.2, 0.3, 0.1, 0.3)]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_cache_is_kept_in_the_compute_dtype(policy):
    layer, history = decoder(dtype=policy), np.broadcast_to(np.eye(W, dtype=bool), (B, W, W))
    projected, cache = layer.project(some("memory", "BSD")), layer.empty_cache(B)
    x, grown = layer.step(tf.ones((B, W, D), layer.compute_dtype), 0, history, cache, projected)
    dtypes = {tensor.dtype.name for tensor in tf.nest.flatten((x, cache, grown, projected))}
    assert dtypes == {policy.removeprefix("mixed_")}
