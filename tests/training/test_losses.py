import math

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.losses import token_losses

N, V = 7, 11
SMOOTHING = pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7])


def batch():
    rng = np.random.default_rng(3)
    return rng.integers(0, V, N).astype("int32"), (2 * rng.normal(size=(N, V))).astype("float32")


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def smoothed_targets(labels, label_smoothing):
    return (1 - label_smoothing) * np.eye(V)[labels] + label_smoothing / V


def gradient_of(labels, logits, label_smoothing, weights):
    """Of the weighted sum of the smoothed losses."""
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(token_losses(labels, logits, label_smoothing)[0] * weights)
    return tape.gradient(total, logits)


def test_losses_by_hand():
    logits = np.log([[2.0, 3.0, 5.0], [1.0, 8.0, 1.0]]).astype("float32")  # probabilities .2 .3 .5 and .1 .8 .1
    smoothed, cross_entropy = token_losses(tf.constant([1, 0]), logits, 0.3)
    np.testing.assert_allclose(cross_entropy, [-math.log(0.3), -math.log(0.1)], rtol=1e-6)
    by_hand = [  # targets .1 .8 .1 and .8 .1 .1
        -(0.1 * math.log(0.2) + 0.8 * math.log(0.3) + 0.1 * math.log(0.5)),
        -(0.8 * math.log(0.1) + 0.1 * math.log(0.8) + 0.1 * math.log(0.1)),
    ]
    np.testing.assert_allclose(smoothed, by_hand, rtol=1e-6)


@SMOOTHING
def test_losses_are_cross_entropies_with_the_smoothed_and_the_plain_target(label_smoothing):
    labels, logits = batch()
    smoothed, cross_entropy = token_losses(labels, logits, label_smoothing)
    log_probs = log_softmax(logits)
    np.testing.assert_allclose(
        smoothed, -(smoothed_targets(labels, label_smoothing) * log_probs).sum(axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(cross_entropy, -log_probs[np.arange(N), labels], rtol=1e-5)


def test_without_smoothing_both_losses_are_one():
    smoothed, cross_entropy = token_losses(*batch())
    np.testing.assert_array_equal(smoothed, cross_entropy)


@SMOOTHING
def test_gradient_is_that_of_the_naive_loss(label_smoothing):
    labels, logits = batch()
    weights = np.random.default_rng(5).random(N).astype("float32")  # every token has its own, some of them 0
    weights[2] = 0
    naive_logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(naive_logits)
        targets = tf.constant(smoothed_targets(labels, label_smoothing), "float32")
        total = tf.reduce_sum(-tf.reduce_sum(targets * tf.nn.log_softmax(naive_logits), axis=1) * weights)
    gradient = gradient_of(labels, logits, label_smoothing, weights)
    np.testing.assert_allclose(gradient, tape.gradient(total, naive_logits), atol=1e-6)
    assert not np.any(gradient[2])


@SMOOTHING
def test_gradient_is_the_slope_of_the_loss(label_smoothing):
    labels, logits = batch()
    weights, h = np.ones(N, "float32"), 1 / 32
    slopes = np.zeros((N, V))
    for v in range(V):  # tokens do not touch each other's losses, so that all are moved at once
        step = h * np.eye(V, dtype="float32")[v]
        above, _ = token_losses(labels, logits + step, label_smoothing)
        below, _ = token_losses(labels, logits - step, label_smoothing)
        slopes[:, v] = (above - below) / (2 * h)
    np.testing.assert_allclose(gradient_of(labels, logits, label_smoothing, weights), slopes, atol=3e-4)


def test_plain_cross_entropy_carries_no_gradient():
    labels, logits = batch()
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        smoothed, cross_entropy = token_losses(labels, logits, 0.1)
        total = tf.reduce_sum(smoothed) + 1000 * tf.reduce_sum(cross_entropy)
    np.testing.assert_array_equal(tape.gradient(total, logits), gradient_of(labels, logits.numpy(), 0.1, np.ones(N)))


def test_a_graph_of_unknown_batch_computes_the_same():
    labels, logits = batch()
    graph = tf.function(
        lambda labels, logits, weights: gradient_of(labels, logits, 0.1, weights),
        input_signature=[
            tf.TensorSpec([None], "int32"),
            tf.TensorSpec([None, V], "float32"),
            tf.TensorSpec([None], "float32"),
        ],
    )
    weights = np.ones(N, "float32")
    np.testing.assert_allclose(graph(labels, logits, weights), gradient_of(labels, logits, 0.1, weights), atol=1e-6)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_extreme_logits_give_finite_losses_and_gradients(size, label):
    logits = np.array([[-size, size, 0.0]], "float32")
    smoothed, cross_entropy = token_losses(tf.constant([label]), logits, 0.1)
    gradient = gradient_of(tf.constant([label]), logits, 0.1, np.ones(1, "float32"))
    assert np.isfinite(smoothed).all() and np.isfinite(cross_entropy).all()
    np.testing.assert_allclose(gradient, [np.eye(3)[1] - 0.9 * np.eye(3)[label] - 0.1 / 3], atol=1e-6)


def test_a_token_that_is_certain_costs_nothing_and_an_impossible_one_much():
    certain = np.array([[0.0, 1000.0]], "float32")
    assert token_losses(tf.constant([1]), certain)[1][0] == 0
    assert token_losses(tf.constant([0]), certain)[1][0] > 80
