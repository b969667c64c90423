import math

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.losses import largest, token_losses

N, V, D = 7, 11, 5
SMOOTHING = pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])


def batch():
    """labels, states and matrix, whose product are logits of about 2."""
    rng = np.random.default_rng(3)
    labels, states, matrix = rng.integers(0, V, N), rng.normal(size=(N, D)), rng.normal(size=(V, D))
    return labels.astype("int32"), states.astype("float32"), matrix.astype("float32")


def losses(labels, states, matrix, label_smoothing=0.0):
    return token_losses(states, matrix, labels, label_smoothing)


def losses_of_logits(logits, labels, label_smoothing=0.0):
    """With the unit matrix for an embedding, the states are the logits."""
    return token_losses(logits, np.eye(logits.shape[1], dtype="float32"), tf.constant(labels), label_smoothing)


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def smoothed_targets(labels, label_smoothing):
    return (1 - label_smoothing) * np.eye(V)[labels] + label_smoothing / V


def gradients_of(labels, states, matrix, label_smoothing, weights):
    """Of the weighted sum of the smoothed losses, with respect to states and matrix."""
    states, matrix = tf.convert_to_tensor(states), tf.convert_to_tensor(matrix)
    with tf.GradientTape() as tape:
        tape.watch([states, matrix])
        total = tf.reduce_sum(token_losses(states, matrix, labels, label_smoothing)[0] * weights)
    return tape.gradient(total, [states, matrix])


# Losses.


def test_losses_by_hand():
    logits = np.log([[2.0, 3.0, 5.0], [1.0, 8.0, 1.0]]).astype("float32")  # probabilities .2 .3 .5 and .1 .8 .1
    smoothed, cross_entropy, is_right = losses_of_logits(logits, [1, 1], 0.3)
    np.testing.assert_allclose(cross_entropy, [-math.log(0.3), -math.log(0.8)], rtol=1e-6)
    by_hand = [  # targets .1 .8 .1
        -(0.1 * math.log(0.2) + 0.8 * math.log(0.3) + 0.1 * math.log(0.5)),
        -(0.1 * math.log(0.1) + 0.8 * math.log(0.8) + 0.1 * math.log(0.1)),
    ]
    np.testing.assert_allclose(smoothed, by_hand, rtol=1e-6)
    np.testing.assert_array_equal(is_right, [False, True])


@SMOOTHING
def test_losses_are_cross_entropies_with_the_smoothed_and_the_plain_target(label_smoothing):
    labels, states, matrix = batch()
    smoothed, cross_entropy, is_right = losses(labels, states, matrix, label_smoothing)
    log_probs = log_softmax(states @ matrix.T)
    expected = -(smoothed_targets(labels, label_smoothing) * log_probs).sum(axis=1)
    np.testing.assert_allclose(smoothed, expected, rtol=1e-5)
    np.testing.assert_allclose(cross_entropy, -log_probs[np.arange(N), labels], rtol=1e-5)
    np.testing.assert_array_equal(is_right, log_probs.argmax(axis=1) == labels)


def test_without_smoothing_both_losses_are_one():
    smoothed, cross_entropy, _ = losses(*batch())
    np.testing.assert_array_equal(smoothed, cross_entropy)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_largest_probability_of_a_row(dtype):
    rows = np.random.default_rng(3).dirichlet([0.02] * V, size=50)  # from 1 down to nothing
    probabilities = tf.cast(tf.constant(rows), dtype)
    found = largest(probabilities)
    assert found.dtype == dtype
    np.testing.assert_array_equal(tf.cast(found, "float32"), tf.reduce_max(tf.cast(probabilities, "float32"), axis=-1))


# Gradients.


@SMOOTHING
def test_gradients_are_those_of_the_naive_loss(label_smoothing):
    labels, states, matrix = batch()
    weights = np.random.default_rng(5).random(N).astype("float32")  # every token has its own, one of them 0
    weights[2] = 0
    variables = [tf.constant(states, "float64"), tf.constant(matrix, "float64")]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        log_probs = tf.nn.log_softmax(tf.matmul(*variables, transpose_b=True))
        total = tf.reduce_sum(-tf.reduce_sum(smoothed_targets(labels, label_smoothing) * log_probs, axis=1) * weights)
    found = gradients_of(labels, states, matrix, label_smoothing, weights)
    for one, other in zip(found, tape.gradient(total, variables), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert not np.any(found[0][2])


@SMOOTHING
def test_gradient_is_the_slope_of_the_loss(label_smoothing):
    labels, states, matrix = batch()
    weights, h = np.ones(N, "float32"), 1 / 32
    slopes = np.zeros((N, D))
    for d in range(D):  # tokens do not touch each other's losses, so that all are moved at once
        step = h * np.eye(D, dtype="float32")[d]
        above, _, _ = losses(labels, states + step, matrix, label_smoothing)
        below, _, _ = losses(labels, states - step, matrix, label_smoothing)
        slopes[:, d] = (above - below) / (2 * h)
    np.testing.assert_allclose(gradients_of(labels, states, matrix, label_smoothing, weights)[0], slopes, atol=3e-4)


@SMOOTHING
def test_a_bias_is_part_of_the_logits_and_learns(label_smoothing):
    """A column of the matrix for a state that is always 1 is a bias."""
    labels, states, matrix = batch()
    bias, weights = (
        tf.constant(np.random.default_rng(7).normal(size=V), "float32"),
        np.arange(1, N + 1, dtype="float32"),
    )
    wide = np.append(states, np.ones((N, 1), "float32"), axis=1), np.append(matrix, bias[:, None], axis=1)
    expected = losses(labels, *wide, label_smoothing)
    variables = [tf.constant(states), tf.constant(matrix), bias]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        found = token_losses(*variables[:2], labels, label_smoothing, variables[2])
        total = tf.reduce_sum(found[0] * weights)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    d_states, d_matrix = (np.asarray(x) for x in gradients_of(labels, *wide, label_smoothing, weights))
    expected = [d_states[:, :-1], d_matrix[:, :-1], d_matrix[:, -1]]
    for one, other in zip(tape.gradient(total, variables), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_only_the_smoothed_loss_carries_a_gradient():
    labels, states, matrix = batch()
    inputs = [tf.constant(states), tf.constant(matrix)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        smoothed, cross_entropy, is_right = losses(labels, *inputs, 0.1)
        total = tf.reduce_sum(smoothed) + 1000 * tf.reduce_sum(cross_entropy + tf.cast(is_right, "float32"))
    for one, other in zip(tape.gradient(total, inputs), gradients_of(labels, *inputs, 0.1, np.ones(N)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_graph_of_unknown_batch_computes_the_same():
    labels, states, matrix = batch()
    graph = tf.function(
        lambda labels, states, weights: gradients_of(labels, states, matrix, 0.1, weights),
        input_signature=[
            tf.TensorSpec([None], "int32"),
            tf.TensorSpec([None, D], "float32"),
            tf.TensorSpec([None], "float32"),
        ],
    )
    weights = np.ones(N, "float32")
    for one, other in zip(
        graph(labels, states, weights), gradients_of(labels, states, matrix, 0.1, weights), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_comes_close(dtype):
    labels, states, matrix = batch()
    half, weights = tf.cast(states, dtype), np.ones(N, "float32")
    smoothed, cross_entropy, _ = losses(labels, half, matrix, 0.1)
    assert smoothed.dtype == cross_entropy.dtype == "float32"
    for one, other in zip((smoothed, cross_entropy), losses(labels, states, matrix, 0.1), strict=False):
        np.testing.assert_allclose(one, other, atol=0.05)
    found = gradients_of(labels, half, matrix, 0.1, weights)
    assert [gradient.dtype for gradient in found] == [dtype, "float32"]
    for one, other in zip(found, gradients_of(labels, states, matrix, 0.1, weights), strict=True):
        np.testing.assert_allclose(tf.cast(one, "float32"), other, atol=0.05)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_extreme_logits_give_finite_losses_and_gradients(size, label):
    logits = np.array([[-size, size, 0.0]], "float32")
    smoothed, cross_entropy, is_right = losses_of_logits(logits, [label], 0.1)
    gradient, _ = gradients_of(tf.constant([label]), logits, np.eye(3, dtype="float32"), 0.1, np.ones(1, "float32"))
    assert np.isfinite(smoothed).all() and np.isfinite(cross_entropy).all()
    assert is_right[0] == (label == 1)
    np.testing.assert_allclose(gradient, [np.eye(3)[1] - 0.9 * np.eye(3)[label] - 0.1 / 3], atol=1e-6)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 80), ("bfloat16", 80), ("float16", 16)])
def test_a_token_that_is_certain_costs_nothing_and_an_impossible_one_much(dtype, most):
    certain = tf.constant([[0.0, 1000.0]], dtype)
    assert losses_of_logits(certain, [1])[1][0] == 0
    assert most < losses_of_logits(certain, [0])[1][0] < np.inf
