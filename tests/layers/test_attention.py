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
    rotate,
)
from keras_transformer.layers.recurrence import SSRU
from tests import reference
from tests.layers.contract import ATTENTION_WEIGHTS, B, D, H, K, LayerContract, T, W, some

CLIP, EVEN = 3, 2 * 7  # a distance that T exceeds, and a width of heads that is not D / H


class TestContract(LayerContract):
    layer_class = MultiHeadAttention
    arguments = {"d_model": D, "num_heads": H, "dropout_rate": 0.3, "d_key": K, "d_value": K}
    arguments |= {"num_key_value_heads": H, "use_bias": True}
    inputs, output = {"x": "BTD", "memory": "BSD", "attention_mask": "B1TS"}, "BTD"
    weight_count = ATTENTION_WEIGHTS + 4 * D


class TestRelativeContract(TestContract):
    layer_class = RelativeAttention
    arguments = {**TestContract.arguments, "num_key_value_heads": 1, "d_value": 7, "clip": CLIP}
    inputs = {"x": "BTD", "memory": "BTD", "attention_mask": "B1TT"}
    weight_count = D * (K * (H + 1) + 7 * (1 + H)) + (2 * CLIP + 1) * (K + 7) + (H + 1) * K + 7 + D


class TestRotaryContract(TestContract):
    layer_class = RotaryAttention
    arguments = {**TestContract.arguments, "d_key": EVEN, "d_value": 7, "use_bias": False}
    inputs, weight_count = TestRelativeContract.inputs, 2 * D * H * (EVEN + 7)


class TestSSRUContract(LayerContract):
    layer_class, arguments = SSRU, {"d_model": D}
    inputs, output = {"x": "BTD"}, "BTD"
    weight_count = 2 * D * D + D


def test_float16_products_do_not_overflow():
    q, k = tf.fill((1, 1, 1, K), 100.0), tf.stack([tf.fill((K,), 90.0), tf.fill((K,), 10.0)])[None, None]
    assert 100 * 90 * K > 65504  # the largest float16
    np.testing.assert_array_equal(attention_weights(tf.cast(q, "float16"), tf.cast(k, "float16")), [[[[1.0, 0.0]]]])


def made(layer_class, arguments):
    layer = layer_class(**{"d_model": D, "num_heads": H, **arguments})
    layer.build((None, None, D))
    return reference.randomise(layer)


GROUPED = {"num_heads": 6, "num_key_value_heads": 2}
PLACED = [  # self-attention, with positions but the first
    (MultiHeadAttention, {}),
    (RelativeAttention, {"clip": CLIP}),
    (RelativeAttention, {"clip": CLIP, **GROUPED, "d_key": 5, "d_value": 7}),
    (RotaryAttention, {"d_key": EVEN}),
    (RotaryAttention, {**GROUPED, "d_key": EVEN}),
]


@pytest.mark.parametrize(
    ("layer_class", "arguments", "masks"),
    [
        (MultiHeadAttention, {"d_key": K}, "BHTS"),
        (MultiHeadAttention, {**GROUPED, "d_key": 5, "d_value": 17}, "B1TS"),
        (MultiHeadAttention, {"num_heads": 6, "num_key_value_heads": 1, "d_key": 3, "d_value": 17}, "11TS"),
        (MultiHeadAttention, {"num_heads": 1, "d_key": 3}, "B11S"),
        *((*placed, "B1TT 11TT B11T") for placed in PLACED),
    ],
)
def test_attention_is_that_of_the_papers_for_any_heads_and_any_mask_that_broadcasts(layer_class, arguments, masks):
    layer, x = made(layer_class, arguments), some("x", "BTD")
    memory = some("memory", "BSD") if masks.endswith("S") else x
    weights, wide = reference.weights_of(layer), [np.asarray(tensor, "float64") for tensor in (x, memory)]
    for mask in (some("mask", axes) for axes in masks.split()):
        how = layer.num_heads, np.asarray(mask), layer_class is RotaryAttention
        expected = reference.multi_head_attention(weights, *wide, *how)
        np.testing.assert_allclose(layer(x, memory, attention_mask=mask), expected, rtol=1e-5, atol=1e-5)
    shapes = [(layer.num_key_value_heads, width) for width in (layer.d_key, layer.d_value)]
    assert [t.shape for t in layer.project(memory)] == [(B, heads, memory.shape[1], width) for heads, width in shapes]
    assert [t.shape for t in layer.empty_cache(B)] == [(B, heads, 0, width) for heads, width in shapes]


@pytest.mark.parametrize(("layer_class", "arguments"), PLACED)
def test_steps_are_the_full_pass_of_each_hypothesis(layer_class, arguments):
    """W sequences of each row are read side by side: key j is at position j // W, of hypothesis j % W."""
    layer, x = made(layer_class, arguments), np.random.default_rng(3).normal(size=(B, W, T, D)).astype("float32")
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
    found = np.asarray(tf.cast(rotate(heads, tf.constant([1030, 1031])), "float32"))[0, 0]
    np.testing.assert_allclose(found, reference.turned(np.ones((1032, EVEN)))[1030:], atol=0.02)


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
