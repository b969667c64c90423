import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.attention import (
    MultiHeadAttention,
    NoAttention,
    RelativeAttention,
    RotaryAttention,
    attention_weights,
    causal_mask,
    merge_heads,
    padding_mask,
    rotate,
)
from tests import reference
from tests.layers.contract import ATTENTION_WEIGHTS, B, D, H, K, LayerContract, S, T, W, some

CLIP, EVEN = 3, 2 * 7  # a distance that T exceeds, and a width of heads that is not D / H


class TestContract(LayerContract):
    layer_class = MultiHeadAttention
    arguments = {"d_model": D, "num_heads": H, "dropout_rate": 0.3, "d_key": K, "d_value": K}
    arguments |= {"num_key_value_heads": H, "use_bias": True}
    inputs = {"x": "BTD", "memory": "BSD", "attention_mask": "B1TS"}
    output = "BTD"
    weight_count = ATTENTION_WEIGHTS + 4 * D


class TestGroupedContract(TestContract):
    arguments = {"d_model": D, "num_heads": 2 * 5, "dropout_rate": 0.3, "d_key": 3, "d_value": 7}
    arguments |= {"num_key_value_heads": 5, "use_bias": False}
    weight_count = D * 3 * (10 + 5) + D * 7 * (5 + 10)


class TestRelativeContract(TestContract):
    layer_class = RelativeAttention
    arguments = {**TestContract.arguments, "num_key_value_heads": 1, "d_value": 7, "clip": CLIP}
    inputs = {"x": "BTD", "memory": "BTD", "attention_mask": "B1TT"}
    weight_count = D * (K * (H + 1) + 7 * (1 + H)) + (2 * CLIP + 1) * (K + 7) + (H + 1) * K + 7 + D


class TestRotaryContract(TestContract):
    layer_class = RotaryAttention
    arguments = {**TestContract.arguments, "d_key": EVEN, "d_value": 7, "use_bias": False}
    inputs = TestRelativeContract.inputs
    weight_count = 2 * D * H * (EVEN + 7)


def attention(layer_class=MultiHeadAttention, **kwargs):
    layer = layer_class(**{"d_model": D, "num_heads": H, **kwargs})
    layer.build((None, None, D))
    return reference.randomise(layer)


def test_padding_is_hidden_from_every_query():
    mask = padding_mask(tf.constant([[7, 3, 0], [0, 0, 0]]), 0)
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, True, False]]], [[[False, False, False]]]])
    np.testing.assert_array_equal(padding_mask(tf.constant([[7, 3, 0]]), pad_id=3), [[[[True, False, True]]]])


def test_position_t_sees_positions_up_to_t():
    mask = causal_mask(3)
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, False, False], [True, True, False], [True, True, True]]]])
    graph = tf.function(causal_mask, input_signature=[tf.TensorSpec((), "int32")])
    np.testing.assert_array_equal(graph(T), causal_mask(T))


def test_weights_are_the_softmax_of_scaled_products_and_what_is_masked_weighs_nothing():
    q, k, mask = some("queries", "BHTK"), some("keys", "BHSK"), some("attention_mask", "B1TS")
    scores = np.asarray(q, "float64") @ np.asarray(k, "float64").swapaxes(2, 3) / K**0.5
    np.testing.assert_allclose(attention_weights(q, k), reference.softmax(scores), rtol=1e-5)
    weights = np.asarray(attention_weights(q, k, mask))
    assert np.all(weights[~np.broadcast_to(mask, weights.shape)] == 0)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_that_may_attend_to_nothing_gives_finite_numbers(dtype):
    q, k = tf.cast(some("queries", "BHTK"), dtype), tf.cast(some("keys", "BHSK"), dtype)
    weights = attention_weights(q, k, tf.zeros((1, 1, 1, S), "bool"))
    assert weights.dtype == dtype
    assert np.isfinite(np.asarray(tf.cast(weights, "float32"))).all()


def test_float16_products_do_not_overflow():
    q, k = tf.fill((1, 1, 1, K), 100.0), tf.stack([tf.fill((K,), 90.0), tf.fill((K,), 10.0)])[None, None]
    assert 100 * 90 * K > 65504  # the largest float16
    np.testing.assert_array_equal(attention_weights(tf.cast(q, "float16"), tf.cast(k, "float16")), [[[[1.0, 0.0]]]])


def test_a_call_projects_and_attends_to_the_values_with_the_weights():
    layer, x, memory, mask = attention(), some("x", "BTD"), some("memory", "BSD"), some("attention_mask", "B1TS")
    keys, values = layer.project(memory)
    assert keys.shape == values.shape == (B, H, S, K)
    np.testing.assert_array_equal(layer.attend(x, keys, values, mask), layer(x, memory, mask))
    weights = layer.weigh(x, keys, mask)
    assert weights.shape == (B, H, T, S)
    heads = merge_heads(np.asarray(weights) @ np.asarray(values))
    np.testing.assert_allclose(layer.output_projection(heads), layer(x, memory, mask), rtol=1e-5, atol=1e-5)


def test_dropout_falls_on_the_attention_weights():
    layer, x, memory = attention(dropout_rate=0.5), some("x", "BTD"), some("memory", "BSD")
    seen = []
    layer.dropout.call = lambda weights, training=False: seen.append((weights.shape, training)) or weights
    layer(x, memory, training=True)
    assert seen == [((B, H, T, S), True)]


@pytest.mark.parametrize(
    ("num_heads", "groups", "d_key", "d_value", "axes"),
    [
        (H, H, K, None, "BHTS"),
        (6, 2, 5, 17, "B1TS"),
        (6, 3, 5, None, "B11S"),
        (6, 1, 3, 17, "11TS"),
        (6, 6, 7, 5, "B1TS"),
        (1, 1, 3, None, "B1TS"),
    ],
)
def test_attention_of_any_number_and_width_of_heads_with_any_mask_that_broadcasts(
    num_heads, groups, d_key, d_value, axes
):
    layer = attention(num_heads=num_heads, num_key_value_heads=groups, d_key=d_key, d_value=d_value)
    x, memory, mask = some("x", "BTD"), some("memory", "BSD"), some("mask", axes)
    wide = np.asarray(x, "float64"), np.asarray(memory, "float64")
    expected = reference.multi_head_attention(reference.weights_of(layer), *wide, num_heads, np.asarray(mask))
    np.testing.assert_allclose(layer(x, memory, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)
    widths = d_key, d_value or d_key
    assert [t.shape for t in layer.project(memory)] == [(B, groups, S, width) for width in widths]
    assert [t.shape for t in layer.empty_cache(B)] == [(B, groups, 0, width) for width in widths]


# Self-attention that knows positions

PLACED = pytest.mark.parametrize(
    ("layer_class", "arguments"),
    [
        (MultiHeadAttention, {}),
        (RelativeAttention, {"clip": CLIP}),
        (RelativeAttention, {"clip": CLIP, "num_heads": 6, "num_key_value_heads": 2, "d_key": 5, "d_value": 7}),
        (RotaryAttention, {"d_key": EVEN}),
        (RotaryAttention, {"num_heads": 6, "num_key_value_heads": 2, "d_key": EVEN}),
    ],
    ids=["no positions", "relative", "relative, grouped", "rotary", "rotary, grouped"],
)


@PLACED
def test_self_attention_of_the_papers(layer_class, arguments):
    layer, x, num_heads = attention(layer_class, **arguments), some("x", "BTD"), arguments.get("num_heads", H)
    wide, rotary = np.asarray(x, "float64"), layer_class is RotaryAttention
    for mask in (some("mask", axes) for axes in ("B1TT", "11TT", "B11T")):
        expected = reference.multi_head_attention(
            reference.weights_of(layer), wide, wide, num_heads, np.asarray(mask), rotary
        )
        np.testing.assert_allclose(layer(x, x, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)


@PLACED
def test_steps_are_the_full_pass_of_each_hypothesis(layer_class, arguments):
    """W sequences of each row are read side by side: key j is at position j // W, of hypothesis j % W."""
    layer, x = attention(layer_class, **arguments), np.random.default_rng(3).normal(size=(B, W, T, D)).astype("float32")
    cache, steps = layer.empty_cache(B), []
    for t in range(T):
        history = np.tile(np.eye(W, dtype=bool), t + 1)[None, None]
        output, cache = layer.step(tf.constant(x[:, :, t]), t, cache, history)
        steps.append(output)
    for w in range(W):
        full = layer(x[:, w], x[:, w], causal_mask(T))
        np.testing.assert_allclose(tf.stack(steps, axis=2)[:, w], full, rtol=1e-5, atol=1e-5)


def test_a_turn_keeps_far_positions_apart_in_half_precision():
    heads = tf.ones((1, 1, 2, EVEN), "bfloat16")
    near, far = np.asarray(tf.cast(rotate(heads, tf.constant([1030, 1031])), "float32"))[0, 0]
    expected = reference.turned(np.ones((1032, EVEN)))
    np.testing.assert_allclose(near, expected[1030], atol=0.02)
    np.testing.assert_allclose(far, expected[1031], atol=0.02)


def test_no_attention_gives_zeros_and_a_gradient_of_0_or_the_bias_of_its_output():
    layer, x, memory = NoAttention(), tf.Variable(some("x", "BTD")), some("memory", "BSD")
    with tf.GradientTape() as tape:
        outputs = [layer(x, memory), layer.attend(x, *layer.project(x)), layer.step(x, 0, ())[0]]
        total = sum(map(tf.reduce_sum, outputs))
    assert all(output.shape == x.shape and not np.any(output) for output in outputs)
    assert not np.any(tape.gradient(total, x)) and layer.empty_cache(B) == layer.step(x, 0, ())[1] == ()
    biased = NoAttention(use_bias=True)
    biased.build((None, None, D))
    biased.output_bias.assign(np.arange(D) / 7)
    for found in (biased(x, memory), biased.step(x, 0, ())[0]):
        np.testing.assert_allclose(found, np.broadcast_to(np.arange(D) / 7, x.shape), rtol=1e-6)
