import functools

import numpy as np
import pytest

from keras_transformer.layers.kernels import Dropout
from keras_transformer.layers.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, PostNorm, PreNorm
from tests import reference
from tests.layers.contract import FEED_FORWARD_WEIGHTS, NORM_WEIGHTS, B, D, F, H, LayerContract, S, T, some

SHAPE = {"d_model": D, "num_heads": H, "d_ff": F}
RATES = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "feed_forward_dropout_rate": 0.1}
VARIANT = {"d_key": 7, "num_key_value_heads": 1, "d_value": 11, "positions": "relative", "relative_clip": 5}
VARIANT |= {"attention_bias": True, "activation": "gelu", "layer_norm_epsilon": 1e-3}
VARIANT_ATTENTION_WEIGHTS = D * (7 + 11) * (H + 1) + 7 * (H + 1) + 11 + D
VARIANT_ENCODER_LAYER_WEIGHTS = (
    VARIANT_ATTENTION_WEIGHTS + (7 + 11) * (2 * 5 + 1) + FEED_FORWARD_WEIGHTS + 2 * NORM_WEIGHTS
)
VARIANT_DECODER_LAYER_WEIGHTS = VARIANT_ENCODER_LAYER_WEIGHTS + VARIANT_ATTENTION_WEIGHTS + NORM_WEIGHTS


class TestPostNormContract(LayerContract):
    layer_class, arguments = PostNorm, {"dropout_rate": 0.3, "layer_norm_epsilon": 1e-3}
    inputs, output = {"x": "BTD", "update": "BTD"}, "BTD"
    weight_count = NORM_WEIGHTS


class TestPreNormContract(TestPostNormContract):
    layer_class = PreNorm


class TestFeedForwardContract(LayerContract):
    layer_class = FeedForward
    arguments = {"d_model": D, "d_ff": F, "dropout_rate": 0.3, "activation": "silu"}
    inputs, output = {"x": "BTD"}, "BTD"
    weight_count = FEED_FORWARD_WEIGHTS


class TestEncoderContract(LayerContract):
    layer_class = Encoder
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_layers": 1, "heads": [[H]]}
    inputs, output = {"x": "BSD", "attention_mask": "B11S"}, "BSD"
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS + NORM_WEIGHTS


class TestEncoderLayerContract(TestEncoderContract):
    layer_class, arguments = EncoderLayer, {**SHAPE, **RATES, **VARIANT, "pre_norm": True}
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS


class TestDecoderLayerContract(LayerContract):
    layer_class = DecoderLayer
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_cross_heads": H, "autoregression": "attention"}
    inputs = {"x": "BTD", "memory": "BSD", "attention_mask": "11TT", "source_mask": "B11S"}
    output, weight_count = "BTD", VARIANT_DECODER_LAYER_WEIGHTS


class TestDecoderContract(LayerContract):
    layer_class = Decoder
    arguments = {**TestDecoderLayerContract.arguments, "num_layers": 1, "heads": [[H, H]], "guided_alignment": 0.1}
    inputs, output = {"x": "BTD", "memory": "BSD", "source_mask": "B11S"}, "BTD"
    weight_count = VARIANT_DECODER_LAYER_WEIGHTS + NORM_WEIGHTS


# The equations of the layers and of their residual connections: tests/models/test_transformer.py.


@functools.cache  # no test changes its weights
def decoder(residual, num_layers, **kwargs):
    layer = Decoder(num_layers, **SHAPE, pre_norm=residual is reference.pre_norm, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


@pytest.mark.parametrize(
    ("num_layers", "residual", "is_guided"),
    [
        (1, reference.post_norm, False),
        (3, reference.pre_norm, False),
        *((num_layers, reference.pre_norm, True) for num_layers in (1, 2, 4)),
    ],
)
def test_alignment_is_what_sure_heads_attend_to_or_after_guided_alignment_the_first_head_of_the_last_layer_but_one(
    num_layers, residual, is_guided
):
    layer = decoder(residual, num_layers, guided_alignment=0.1 * is_guided)
    x, memory, mask = some("x", "BTD"), some("memory", "BSD"), some("source_mask", "B11S")
    output, alignment = layer.align(x, memory, mask)
    np.testing.assert_allclose(output, layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    wide = np.asarray(x, "float64"), np.asarray(memory, "float64")
    how = H, residual, np.asarray(mask), is_guided
    expected = reference.decoder_alignment(reference.weights_of(layer), *wide, *how)
    np.testing.assert_allclose(alignment, expected, rtol=1e-5, atol=1e-5)


def test_every_dropout_has_its_place_and_its_rate_and_is_told_of_training():
    encoder, stack, seen = Encoder(1, **SHAPE, **RATES), Decoder(1, **SHAPE, **RATES), []
    for part in (*encoder._flatten_layers(), *stack._flatten_layers()):
        if isinstance(part, Dropout):
            part.call = lambda x, training=False, rate=part.rate: seen.append((rate, x.shape, training)) or x
    encoder(some("x", "BTD"), training=True)
    stack(some("x", "BTD"), some("memory", "BSD"), training=True)
    weights, update, inner = (0.2, (B, H, T, T), True), (0.3, (B, T, D), True), (0.1, (B, T, F), True)
    to_memory = (0.2, (B, H, T, S), True)
    assert seen == [*(weights, update, inner, update), *(weights, update, to_memory, update, inner, update)]


@pytest.mark.parametrize("layer_class", [PostNorm, PreNorm])
def test_dropout_falls_on_the_update_and_not_on_the_residual(layer_class):
    layer, x, update = layer_class(0.5), some("x", "BTD"), some("update", "BTD")
    layer.dropout.call = lambda update, training=False: 0.0 * update
    np.testing.assert_array_equal(layer(x, update, training=True), layer(x, 0.0 * update))
