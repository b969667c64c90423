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
    matmul_groups,
    merge_heads,
    padding_mask,
    rotate,
    split_heads,
)
from tests import reference
from tests.layers.contract import ATTENTION_WEIGHTS, B, D, H, K, LayerContract, S, T, W, some

CLIP, EVEN = 3, 2 * 7  # a distance that T exceeds, and a width of heads that is not D / H


class TestContract(LayerContract):
    layer_class = MultiHeadAttention
    arguments = {
        "d_model": D, "num_heads": H, "dropout_rate": 0.3, "d_key": K, "num_key_value_heads": H, "d_value": K,
        "use_bias": True,
    }  # fmt: skip
    inputs = {"x": "BTD", "memory": "BSD", "attention_mask": "B1TS"}
    output = "BTD"
    weight_count = ATTENTION_WEIGHTS + 4 * D


class TestGroupedContract(TestContract):
    arguments = {
        "d_model": D,
        "num_heads": 2 * 5,
        "dropout_rate": 0.3,
        "d_key": 3,
        "num_key_value_heads": 5,
        "d_value": 7,
        "use_bias": False,
    }
    weight_count = D * 3 * (10 + 5) + D * 7 * (5 + 10)


class TestRelativeContract(TestContract):
    layer_class = RelativeAttention
    arguments = {
        "d_model": D,
        "num_heads": H,
        "dropout_rate": 0.3,
        "d_key": K,
        "num_key_value_heads": 1,
        "d_value": 7,
        "use_bias": True,
        "clip": CLIP,
    }
    inputs = {"x": "BTD", "memory": "BTD", "attention_mask": "B1TT"}
    weight_count = D * (K * (H + 1) + 7 * (1 + H)) + (2 * CLIP + 1) * (K + 7) + (H + 1) * K + 7 + D


class TestRotaryContract(TestContract):
    layer_class = RotaryAttention
    arguments = {
        "d_model": D,
        "num_heads": H,
        "dropout_rate": 0.3,
        "d_key": EVEN,
        "num_key_value_heads": H,
        "d_value": 7,
        "use_bias": False,
    }
    inputs = TestRelativeContract.inputs
    weight_count = 2 * D * H * (EVEN + 7)


def attention(layer_class=MultiHeadAttention, **kwargs):
    layer = layer_class(**{"d_model": D, "num_heads": H, **kwargs})
    layer.build((None, None, D))
    return reference.randomise(layer)


def expected(layer, x, memory, mask=True):
    x, memory = np.asarray(x, "float64"), np.asarray(memory, "float64")
    return reference.multi_head_attention(reference.weights_of(layer), x, memory, H, np.asarray(mask))


def test_padding_is_hidden_from_every_query():
    mask = padding_mask(tf.constant([[7, 3, 0], [5, 0, 0]]), 0)
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, True, False]]], [[[True, False, False]]]])


def test_a_row_of_padding_only_is_hidden_altogether():
    assert not np.any(padding_mask(tf.zeros((2, 3), "int32"), 0))


def test_the_id_of_padding_can_be_another():
    np.testing.assert_array_equal(padding_mask(tf.constant([[7, 3, 0]]), pad_id=3), [[[[True, False, True]]]])


def test_position_t_sees_positions_up_to_t():
    mask = causal_mask(3)
    assert mask.dtype == tf.bool
    np.testing.assert_array_equal(mask, [[[[True, False, False], [True, True, False], [True, True, True]]]])


def test_length_may_be_a_tensor():
    graph = tf.function(lambda length: causal_mask(length), input_signature=[tf.TensorSpec((), "int32")])
    np.testing.assert_array_equal(graph(T), causal_mask(T))


def test_masks_together_hide_what_either_hides():
    ids = tf.constant([[7, 3, 0, 5, 0]])
    both = np.asarray(padding_mask(ids, 0) & causal_mask(5))
    for t in range(5):
        for s in range(5):
            assert both[0, 0, t, s] == (s <= t and s not in (2, 4))


def test_weights_are_the_softmax_of_scaled_products():
    q, k = some("queries", "BHTK"), some("keys", "BHSK")
    weights = np.asarray(attention_weights(q, k))
    assert weights.shape == (B, H, T, S)
    for b in range(B):
        for h in range(H):
            scores = np.asarray(q[b, h], "float64") @ np.asarray(k[b, h], "float64").T / K**0.5
            np.testing.assert_allclose(weights[b, h], reference.softmax(scores), rtol=1e-5)


def test_two_keys_by_hand():
    query, keys = tf.constant([[[[2.0, 0.0, 0.0, 0.0]]]]), tf.constant([[[[3.0, 5.0, 7.0, 11.0], [1.0, 13.0, 0, 0]]]])
    ratio = np.exp((2 * 3 - 2 * 1) / 4**0.5)
    np.testing.assert_allclose(attention_weights(query, keys)[0, 0, 0], [ratio / (1 + ratio), 1 / (1 + ratio)])


def test_what_is_masked_weighs_nothing_and_the_rest_sums_to_one():
    mask = some("attention_mask", "B1TS")
    weights = np.asarray(attention_weights(some("queries", "BHTK"), some("keys", "BHSK"), mask))
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


def test_head_h_has_columns_of_its_own():
    x = some("x", "BTD")
    heads = np.asarray(split_heads(x, H))
    assert heads.shape == (B, H, T, K)
    for h in range(H):
        np.testing.assert_array_equal(heads[:, h], np.asarray(x)[..., h * K : (h + 1) * K])
    np.testing.assert_array_equal(merge_heads(heads), x)


def test_multi_head_attention():
    layer, x, memory = attention(), some("x", "BTD"), some("memory", "BSD")
    np.testing.assert_allclose(layer(x, memory), expected(layer, x, memory), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", ["B1TS", "B11S", "11TS", "BHTS"])
def test_masks_of_every_shape_that_broadcasts(axes):
    layer, x, memory, mask = attention(), some("x", "BTD"), some("memory", "BSD"), some("mask", axes)
    output = layer(x, memory, attention_mask=mask)
    np.testing.assert_allclose(output, expected(layer, x, memory, mask), rtol=1e-5, atol=1e-5)


def test_self_attention():
    layer, x = attention(), some("x", "BTD")
    np.testing.assert_allclose(layer(x, x), expected(layer, x, x), rtol=1e-5, atol=1e-5)


def test_masked_memory_changes_nothing():
    layer, x, memory = attention(), some("x", "BTD"), np.asarray(some("memory", "BSD"))
    changed = memory.copy()
    changed[:, -3:] = 100.0
    mask = (np.arange(S) < S - 3)[None, None, None]
    np.testing.assert_allclose(layer(x, changed, mask), layer(x, memory, mask), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(layer(x, changed, mask), layer(x, memory[:, :-3]), rtol=1e-5, atol=1e-5)


def test_project_then_attend_is_the_call():
    layer, x, memory, mask = attention(), some("x", "BTD"), some("memory", "BSD"), some("attention_mask", "B1TS")
    keys, values = layer.project(memory)
    assert keys.shape == values.shape == (B, H, S, K)
    np.testing.assert_array_equal(layer.attend(x, keys, values, mask), layer(x, memory, mask))


def test_weights_are_what_the_values_are_attended_to_with():
    layer, x, memory, mask = attention(), some("x", "BTD"), some("memory", "BSD"), some("attention_mask", "B1TS")
    keys, values = layer.project(memory)
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


@pytest.mark.parametrize("num_heads", [3, 53])
def test_heads_that_do_not_divide_the_width_are_refused(num_heads):
    message = rf"`num_heads` must divide `d_model`\. Received: num_heads={num_heads}, d_model={D}$"
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(D, num_heads)


# Heads of another width, and heads that share keys and values


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (6, 3), (6, 1), (6, 6)])
def test_heads_in_a_row_share_the_matrix_of_their_group(heads, groups):
    rng = np.random.default_rng(3)
    x, matrices = rng.normal(size=(B, heads, T, K)), rng.normal(size=(B, groups, K, S))
    expected = [x[:, h] @ matrices[:, h * groups // heads] for h in range(heads)]
    np.testing.assert_allclose(matmul_groups(x, matrices), np.stack(expected, axis=1), rtol=1e-10)


@pytest.mark.parametrize("d_value", [None, 17])
@pytest.mark.parametrize(("num_heads", "groups", "d_key"), [(6, 2, 5), (6, 1, 3), (6, 6, 7), (1, 1, 3)])
def test_attention_of_any_number_and_width_of_heads(num_heads, groups, d_key, d_value):
    layer = attention(num_heads=num_heads, num_key_value_heads=groups, d_key=d_key, d_value=d_value)
    x, memory, mask = some("x", "BTD"), some("memory", "BSD"), some("attention_mask", "B1TS")
    wide = np.asarray(x, "float64"), np.asarray(memory, "float64")
    expected = reference.multi_head_attention(reference.weights_of(layer), *wide, num_heads, np.asarray(mask))
    np.testing.assert_allclose(layer(x, memory, mask), expected, rtol=1e-5, atol=1e-5)
    widths = d_key, d_value or d_key
    assert [t.shape for t in layer.project(memory)] == [(B, groups, S, width) for width in widths]
    assert [t.shape for t in layer.empty_cache(B)] == [(B, groups, 0, width) for width in widths]


@pytest.mark.parametrize("groups", [4, 5, 12])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused(groups):
    message = rf"`num_key_value_heads` must divide `num_heads`\. Received: num_key_value_heads={groups}, num_heads=6$"
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(D, 6, d_key=5, num_key_value_heads=groups)


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
@pytest.mark.parametrize("axes", ["B1TT", "11TT", "B11T"])
def test_self_attention_of_the_papers(layer_class, arguments, axes):
    layer, x, mask = attention(layer_class, **arguments), some("x", "BTD"), some("mask", axes)
    wide, num_heads = np.asarray(x, "float64"), arguments.get("num_heads", H)
    rotary = layer_class is RotaryAttention
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


@pytest.mark.parametrize("layer_class", [RelativeAttention, RotaryAttention])
def test_only_distances_count(layer_class):
    """Of a longer text, whose first positions are hidden, the rest has the outputs that it has alone."""
    layer, x = attention(layer_class, d_key=EVEN), some("x", "BTD")
    longer = tf.concat([some("before", "BSD"), x], axis=1)
    mask = (np.arange(S + T) >= S)[None, None, None]
    np.testing.assert_allclose(layer(longer, longer, mask)[:, S:], layer(x, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_class", [RelativeAttention, RotaryAttention])
def test_the_order_of_the_keys_counts(layer_class):
    layer, x = attention(layer_class, d_key=EVEN), np.asarray(some("x", "BTD"))
    reversed_outputs = np.asarray(layer(x[:, ::-1], x[:, ::-1]))[:, ::-1]
    assert np.abs(reversed_outputs - layer(x, x)).max(axis=-1).min() > 1e-3


def test_distances_past_the_clip_are_alike():
    """Swapping two keys that both are further than k before the last query does not change its output."""
    layer, x = attention(RelativeAttention, clip=CLIP), np.asarray(some("x", "BTD"))
    swapped = x[:, [1, 0, *range(2, T)]]
    assert T - 1 - 1 > CLIP
    before, after = np.asarray(layer(x, x)), np.asarray(layer(swapped, swapped))
    np.testing.assert_allclose(after[:, -1], before[:, -1], rtol=1e-5, atol=1e-5)
    assert np.abs(after[:, 2] - before[:, 2]).max() > 1e-3


def test_turned_pairs_are_complex_numbers_times_a_power_of_their_position():
    heads = np.random.default_rng(3).normal(size=(B, H, T, EVEN)).astype("float32")
    found = rotate(heads, tf.range(T))
    for b in range(B):
        for h in range(H):
            np.testing.assert_allclose(found[b, h], reference.turned(heads[b, h]), rtol=1e-5, atol=1e-5)


def test_a_turn_keeps_far_positions_apart_in_half_precision():
    heads = tf.ones((1, 1, 2, EVEN), "bfloat16")
    near, far = np.asarray(tf.cast(rotate(heads, tf.constant([1030, 1031])), "float32"))[0, 0]
    expected = reference.turned(np.ones((1032, EVEN)))
    np.testing.assert_allclose(near, expected[1030], atol=0.02)
    np.testing.assert_allclose(far, expected[1031], atol=0.02)


def test_an_odd_width_of_heads_cannot_be_turned():
    with pytest.raises(ValueError, match=r"`d_key` must be even: .* Received: d_key=13$"):
        RotaryAttention(d_model=D, num_heads=H)


def test_no_attention_of_an_attention_with_biases_gives_that_of_the_output():
    layer, x = NoAttention(use_bias=True), some("x", "BTD")
    layer.build((None, None, D))
    layer.output_bias.assign(np.arange(D) / 7)
    for found in (layer(x, some("memory", "BSD")), layer.step(x, 0, ())[0]):
        np.testing.assert_allclose(found, np.broadcast_to(np.arange(D) / 7, x.shape), rtol=1e-6)


def test_no_attention_gives_zeros_and_a_gradient_of_0():
    layer, x = NoAttention(), tf.Variable(some("x", "BTD"))
    with tf.GradientTape() as tape:
        outputs = [layer(x, some("memory", "BSD")), layer.attend(x, *layer.project(x)), layer.step(x, 0, ())[0]]
        total = sum(map(tf.reduce_sum, outputs))
    assert all(output.shape == x.shape and not np.any(output) for output in outputs)
    assert not np.any(tape.gradient(total, x)) and layer.empty_cache(B) == layer.step(x, 0, ())[1] == ()
