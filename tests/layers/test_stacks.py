import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.stacks import (
    ACTIVATIONS,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    PostNorm,
    PreNorm,
)
from tests import reference
from tests.layers.contract import (
    ATTENTION_WEIGHTS,
    FEED_FORWARD_WEIGHTS,
    NORM_WEIGHTS,
    B,
    D,
    F,
    H,
    K,
    LayerContract,
    S,
    T,
    W,
    some,
)

N = 2
SHAPE = {"d_model": D, "num_heads": H, "d_ff": F}
RATES = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "feed_forward_dropout_rate": 0.1}
VARIANT = {"d_key": 7, "num_key_value_heads": 1, "d_value": 11, "positions": "relative", "relative_clip": 5}
VARIANT |= {"attention_bias": True, "activation": "gelu", "layer_norm_epsilon": 1e-3}
VARIANT_ATTENTION_WEIGHTS = D * (7 + 11) * (H + 1) + 7 * (H + 1) + 11 + D
VARIANT_ENCODER_LAYER_WEIGHTS = (
    VARIANT_ATTENTION_WEIGHTS + (7 + 11) * (2 * 5 + 1) + FEED_FORWARD_WEIGHTS + 2 * NORM_WEIGHTS
)
VARIANT_DECODER_LAYER_WEIGHTS = VARIANT_ENCODER_LAYER_WEIGHTS + VARIANT_ATTENTION_WEIGHTS + NORM_WEIGHTS
ENCODER_LAYER_WEIGHTS = ATTENTION_WEIGHTS + FEED_FORWARD_WEIGHTS + 2 * NORM_WEIGHTS
DECODER_LAYER_WEIGHTS = 2 * ATTENTION_WEIGHTS + FEED_FORWARD_WEIGHTS + 3 * NORM_WEIGHTS
RESIDUALS = pytest.mark.parametrize("residual", [reference.post_norm, reference.pre_norm])


# Residual connections


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
def test_the_norm_has_the_epsilon_that_is_given(layer_class):
    layer = layer_class(0.0, 0.1)
    layer.build((None, None, D))
    x = np.asarray(some("x", "BTD"))
    found = layer.enter(x) if layer_class is PreNorm else layer(x, 0 * x)
    weights = {**reference.part(reference.weights_of(layer), "norm"), "@epsilon": 0.1}
    expected = reference.layer_norm(weights, x.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_post_norm_hands_the_sublayer_x_itself():
    x = some("x", "BTD")
    assert residual_connection(PostNorm).enter(x) is x


def test_pre_norm_leaves_the_residual_path_alone():
    x = some("x", "BTD")
    np.testing.assert_array_equal(residual_connection(PreNorm)(x, np.zeros(x.shape, "float32")), x)


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


# Feed-forward network


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


def test_feed_forward_is_equation_2():
    layer, x = feed_forward(), some("x", "BTD")
    expected = reference.feed_forward(reference.weights_of(layer), np.asarray(x, "float64"))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_other_activations_take_the_place_of_the_relu(activation):
    layer, x = feed_forward(activation=activation), 3 * some("x", "BTD")  # far enough for the approximations to differ
    weights = {**reference.weights_of(layer), "@activation": activation}
    expected = reference.feed_forward(weights, np.asarray(x, "float64"))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=2e-5)
    others = [reference.feed_forward({**weights, "@activation": a}, np.asarray(x, "float64")) for a in ACTIVATIONS]
    assert sum(np.allclose(layer(x), other, rtol=1e-5, atol=2e-5) for other in others) == 1


def test_the_gelu_is_the_exact_one():
    """Values of 1 / 2 (1 + erf(x / sqrt(2))) x from a table; the approximation with tanh gives 0.8412 and -0.1588."""
    np.testing.assert_allclose(ACTIVATIONS["gelu"](tf.constant([1.0, -1.0])), [0.841345, -0.158655], atol=1e-6)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="`activation` must be one of relu, gelu, .*silu. Received: activation='elu'$"):
        FeedForward(D, F, activation="elu")


def test_feed_forward_treats_every_position_by_itself():
    layer, x = feed_forward(), np.asarray(some("x", "BTD"))
    changed = x.copy()
    changed[:, 3] += 1.0
    unchanged = np.arange(T) != 3
    before, after = np.asarray(layer(x)), np.asarray(layer(changed))
    np.testing.assert_allclose(after[:, unchanged], before[:, unchanged], atol=1e-6)
    assert np.all(np.abs(after[:, 3] - before[:, 3]).max(axis=-1) > 0.01)


def test_dropout_falls_on_the_inner_activations():
    layer, x = feed_forward(dropout_rate=0.5), some("x", "BTD")
    seen = []
    layer.dropout.call = lambda inner, training=False: seen.append((inner.shape, training)) or inner
    layer(x, training=True)
    assert seen == [((B, T, F), True)]


# Encoder


class TestEncoderLayerContract(LayerContract):
    layer_class = EncoderLayer
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True}
    inputs = {"x": "BSD", "attention_mask": "B11S"}
    output = "BSD"
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS


class TestEncoderContract(TestEncoderLayerContract):
    layer_class = Encoder
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_layers": 1, "heads": [[H]]}
    weight_count = VARIANT_ENCODER_LAYER_WEIGHTS + NORM_WEIGHTS


@functools.cache  # no test changes its weights
def made(layer_class, residual=reference.post_norm, **kwargs):
    layer = layer_class(**SHAPE, pre_norm=residual is reference.pre_norm, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


def float64(*tensors):
    return [np.asarray(tensor, "float64") for tensor in tensors]


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
    assert layer.count_params() == num_layers * ENCODER_LAYER_WEIGHTS


@RESIDUALS
def test_masked_positions_change_no_other_output_of_an_encoder(residual):
    layer, x = made(Encoder, residual, num_layers=N), np.asarray(some("x", "BSD"))
    changed = x.copy()
    changed[:, -3:] = np.random.default_rng(7).normal(size=(B, 3, D))
    mask = (np.arange(S) < S - 3)[None, None, None]
    masked = np.asarray(layer(changed, mask))[:, :-3]
    np.testing.assert_allclose(masked, np.asarray(layer(x, mask))[:, :-3], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(masked, layer(x[:, :-3]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", RATES)
def test_every_dropout_rate_of_an_encoder_counts_in_training_only(rate):
    layer, plain = made(Encoder, num_layers=1, **{rate: 0.5}), made(Encoder, num_layers=1)
    x = some("x", "BSD")
    np.testing.assert_array_equal(layer(x), plain(x))
    assert np.abs(np.asarray(layer(x, training=True)) - np.asarray(plain(x))).max() > 0.1
    np.testing.assert_array_equal(plain(x, training=True), plain(x))


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=rf"num_heads=3, d_model={D}$"):
        Encoder(num_layers=N, d_model=D, num_heads=3, d_ff=F)


# Decoder


class TestDecoderLayerContract(LayerContract):
    layer_class = DecoderLayer
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_cross_heads": H}
    inputs = {"x": "BTD", "memory": "BSD", "attention_mask": "11TT", "source_mask": "B11S"}
    output = "BTD"
    weight_count = VARIANT_DECODER_LAYER_WEIGHTS


class TestDecoderContract(LayerContract):
    layer_class = Decoder
    arguments = {**SHAPE, **RATES, **VARIANT, "pre_norm": True, "num_layers": 1}
    arguments |= {"heads": [[H, H]], "num_cross_heads": H}
    inputs = {"x": "BTD", "memory": "BSD", "source_mask": "B11S"}
    output = "BTD"
    weight_count = VARIANT_DECODER_LAYER_WEIGHTS + NORM_WEIGHTS


def decoder(residual=reference.post_norm, num_layers=N, **kwargs):
    return made(Decoder, residual, num_layers=num_layers, **kwargs)


@RESIDUALS
def test_decoder_layer(residual):
    layer, x, memory = made(DecoderLayer, residual), some("x", "BTD"), some("memory", "BSD")
    mask, source_mask = some("attention_mask", "B1TT"), some("source_mask", "B11S")
    expected = reference.decoder_layer(
        reference.weights_of(layer), *float64(x, memory), H, residual, np.asarray(mask), np.asarray(source_mask)
    )
    output = layer(x, memory, attention_mask=mask, source_mask=source_mask)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_decoder(residual):
    layer, x, memory, mask = decoder(residual), some("x", "BTD"), some("memory", "BSD"), some("source_mask", "B11S")
    expected = reference.decoder(reference.weights_of(layer), *float64(x, memory), H, residual, np.asarray(mask))
    np.testing.assert_allclose(layer(x, memory, source_mask=mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("num_layers", "residual"), [(1, reference.post_norm), (3, reference.pre_norm)])
def test_alignment_is_what_the_heads_after_the_first_layer_attend_to_where_they_are_sure(num_layers, residual):
    layer, x, memory = decoder(residual, num_layers), some("x", "BTD"), some("memory", "BSD")
    mask = some("source_mask", "B11S")
    arguments = reference.weights_of(layer), *float64(x, memory), H, residual, np.asarray(mask)
    output, alignment = layer.align(x, memory, mask)
    np.testing.assert_allclose(output, layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    assert alignment.shape == (B, T, S)
    np.testing.assert_allclose(alignment, reference.decoder_alignment(*arguments), rtol=1e-5, atol=1e-5)


@RESIDUALS
def test_future_positions_do_not_change_past_outputs(residual):
    layer, x, memory = decoder(residual), np.asarray(some("x", "BTD")), some("memory", "BSD")
    before = np.asarray(layer(x, memory))
    for changed_from in range(1, T):
        changed = x.copy()
        changed[:, changed_from:] = np.random.default_rng(7).normal(size=(B, T - changed_from, D))
        after = np.asarray(layer(changed, memory))
        np.testing.assert_allclose(after[:, :changed_from], before[:, :changed_from], rtol=1e-6, atol=1e-6)
        assert np.abs(after[:, changed_from:] - before[:, changed_from:]).max(axis=-1).min() > 0.01


def test_masked_memory_changes_no_output_of_a_decoder():
    layer, x, memory = decoder(), some("x", "BTD"), np.asarray(some("memory", "BSD"))
    changed = memory.copy()
    changed[:, -3:] = 100.0
    mask = (np.arange(S) < S - 3)[None, None, None]
    output = layer(x, changed, mask)
    np.testing.assert_allclose(output, layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(output, layer(x, memory[:, :-3]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_post_norm_decoder_is_its_layers_and_no_more(num_layers):
    layer = decoder(num_layers=num_layers)
    assert [inner.name for inner in layer.layers] == [f"layer_{i}" for i in range(num_layers)]
    assert layer.count_params() == num_layers * DECODER_LAYER_WEIGHTS


@pytest.mark.parametrize("rate", RATES)
def test_every_dropout_rate_of_a_decoder_counts_in_training_only(rate):
    layer, plain = decoder(num_layers=1, **{rate: 0.5}), decoder(num_layers=1)
    inputs = some("x", "BTD"), some("memory", "BSD")
    np.testing.assert_array_equal(layer(*inputs), plain(*inputs))
    assert np.abs(np.asarray(layer(*inputs, training=True)) - np.asarray(plain(*inputs))).max() > 0.1
    np.testing.assert_array_equal(plain(*inputs, training=True), plain(*inputs))


def test_every_dropout_of_a_layer_has_its_rate_and_is_told_of_training():
    layer = DecoderLayer(**SHAPE, **RATES)
    blocks = [
        *(layer.self_attention, layer.self_attention_residual),
        *(layer.cross_attention, layer.cross_attention_residual),
        *(layer.feed_forward, layer.feed_forward_residual),
    ]
    seen = []
    for block in blocks:
        block.dropout.call = lambda x, training=False, rate=block.dropout.rate: seen.append((rate, training)) or x
    layer(some("x", "BTD"), some("memory", "BSD"), training=True)
    assert seen == [(rate, True) for rate in (0.2, 0.3, 0.2, 0.3, 0.1, 0.3)]


def own(positions):
    """History bool (B, W, positions * W) of hypotheses that each read the same slot at every position."""
    return np.broadcast_to(np.tile(np.eye(W, dtype=bool), positions), (B, W, positions * W))


def test_the_cache_holds_memory_once_and_what_every_hypothesis_read():
    layer = decoder()
    projected, cache = layer.project(some("memory", "BSD")), layer.empty_cache(B)
    assert [[tuple(t.shape) for t in pair] for pair in projected] == [[(B, H, S, K)] * 2] * N
    assert [[tuple(t.shape) for t in pair] for pair in cache] == [[(B, H, 0, K)] * 2] * N
    for positions in (1, 2):
        _, cache = layer.step(tf.ones((B, W, D)), positions - 1, own(positions), cache, projected)
        assert [[tuple(t.shape) for t in pair] for pair in cache] == [[(B, H, positions * W, K)] * 2] * N


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_cache_is_kept_in_the_compute_dtype(policy):
    layer = decoder(dtype=policy)
    projected, cache = layer.project(some("memory", "BSD")), layer.empty_cache(B)
    x, grown = layer.step(tf.ones((B, W, D), layer.compute_dtype), 0, own(1), cache, projected)
    dtypes = {tensor.dtype.name for tensor in tf.nest.flatten((x, cache, grown, projected))}
    assert dtypes == {policy.removeprefix("mixed_")}


@RESIDUALS
def test_steps_of_different_hypotheses_are_the_full_pass_of_each(residual):
    layer, memory, mask = decoder(residual), some("memory", "BSD"), some("source_mask", "B11S")
    hypotheses = tf.random.stateless_normal((B, W, T, D), (1, 2))
    projected, cache = layer.project(memory), layer.empty_cache(B)
    steps = []
    for t in range(T):
        output, cache = layer.step(hypotheses[:, :, t], t, own(t + 1), cache, projected, mask)
        steps.append(output)
    for w in range(W):
        full = layer(hypotheses[:, w], memory, source_mask=mask)
        np.testing.assert_allclose(tf.stack(steps, axis=2)[:, w], full, rtol=1e-5, atol=1e-5)
