"""The losses and their gradients as their equations say, by float64 and automatic differentiation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.training import TeacherForcing, losses
from keras_transformer.training.losses import CrossEntropy, GuidedAlignment, RDrop, SimCut, make_loss
from tests import tiny

N, V, D = 7, 11, 5
LOSSES = {
    "cross_entropy": (CrossEntropy(0.0), lambda cross, kl: cross[0]),
    "smoothed": (CrossEntropy(0.3), lambda cross, kl: cross[0]),
    "simcut": (SimCut(0.1, weight=3.0), lambda cross, kl: cross[0] + 3.0 * kl[0]),
    "r_drop": (RDrop(0.1, weight=5.0), lambda cross, kl: (cross[0] + cross[1] + 5.0 * (kl[0] + kl[1]) / 2) / 2),
}
TOLERANCES = {"float32": (1e-5, 1e-6, 1e-4), "bfloat16": (0.05, 0.05, 0.5), "float16": (0.01, 0.05, 0.1)}


def by_the_equations(loss, combine, passes, matrix, bias, labels):
    """Loss, divergence and plain cross-entropy of every token, in the dtype of the arguments."""
    log_probs = [tf.nn.log_softmax(tf.matmul(states, matrix, transpose_b=True) + bias) for states in passes]
    true = tf.one_hot(labels, V, dtype=matrix.dtype)
    targets = (1 - loss.label_smoothing) * true + loss.label_smoothing / V
    cross = [-tf.reduce_sum(targets * each, axis=-1) for each in log_probs]
    p, q = log_probs[0], log_probs[-1]
    kl = [tf.reduce_sum(tf.exp(one) * (one - other), axis=-1) for one, other in ((p, q), (q, p))]
    return combine(cross, kl), combine([0.0, 0.0], kl), -tf.reduce_sum(true * p, axis=-1)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_the_equations(name, dtype):
    rng, (tolerance, *of_gradients) = np.random.default_rng(3), TOLERANCES[dtype]
    loss, combine = LOSSES[name]
    labels, weights = tf.constant(rng.integers(0, V, N), tf.int32), rng.random(N)
    weights[2] = 0
    arrays = [*rng.normal(size=(loss.passes, N, D)), rng.normal(size=(V, D)), rng.normal(size=V)]
    exact = [tf.constant(array, tf.float64) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(exact)
        total, divergence, cross_entropy = by_the_equations(loss, combine, exact[:-2], *exact[-2:], labels)
        expected = tf.reduce_sum(total * weights)
    *passes, matrix, bias = [tf.cast(x, dtype) for x in exact[:-2]] + [tf.cast(x, tf.float32) for x in exact[-2:]]
    with tf.GradientTape() as fused:
        fused.watch([*passes, matrix, bias])
        found, measures = loss.of_tokens(passes, matrix, labels, bias)
        objective = tf.reduce_sum(found * weights.astype("float32"))
    assert found.dtype == measures["perplexity"].dtype == "float32"
    np.testing.assert_allclose(found, total, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(measures["perplexity"], cross_entropy, rtol=tolerance, atol=tolerance)
    if loss.passes == 2:
        np.testing.assert_allclose(measures["divergence"], divergence, rtol=5 * tolerance, atol=tolerance)
    if dtype == "float32":
        best = tf.argmax(tf.matmul(passes[0], matrix, transpose_b=True) + bias, axis=-1)
        np.testing.assert_array_equal(measures["accuracy"], best.numpy() == labels.numpy())
    gradients = fused.gradient(objective, [*passes, matrix, bias])
    assert [gradient.dtype for gradient in gradients] == [dtype] * loss.passes + ["float32"] * 2
    assert not np.any(tf.cast(gradients[0][2], tf.float32))
    for one, other in zip(gradients, tape.gradient(expected, exact), strict=True):
        atol = of_gradients[loss.passes - 1]
        np.testing.assert_allclose(tf.cast(one, tf.float64), other, rtol=tolerance, atol=atol)


def losses_of_logits(logits, labels, label_smoothing=0.0):
    """With the unit matrix for an embedding, the states are the logits."""
    return losses.token_losses(logits, np.eye(logits.shape[1], dtype="float32"), tf.constant(labels), label_smoothing)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 80), ("bfloat16", 80), ("float16", 16)])
def test_a_certain_token_costs_nothing_and_an_impossible_one_much_and_the_largest_of_a_row_is_found(dtype, most):
    certain = tf.constant([[0.0, 1000.0]], dtype)
    assert losses_of_logits(certain, [1])[1][0] == 0 and most < losses_of_logits(certain, [0])[1][0] < np.inf
    rows = np.random.default_rng(3).dirichlet([0.02] * V, size=50)  # from 1 down to nothing
    probabilities = tf.cast(tf.constant(rows), dtype)
    found = losses.largest(probabilities)
    assert found.dtype == dtype
    np.testing.assert_array_equal(tf.cast(found, "float32"), tf.reduce_max(tf.cast(probabilities, "float32"), axis=-1))


@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_extreme_logits_give_finite_losses_and_gradients(size):
    logits = np.array([[-size, size, 0.0]], "float32")
    for label in range(3):
        states = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(states)
            smoothed, cross_entropy, is_right = losses_of_logits(states, [label], 0.1)
            total = smoothed + 1000 * (cross_entropy + tf.cast(is_right, "float32"))  # which carry no gradient
        gradient = tape.gradient(total, states)
        assert np.isfinite(smoothed).all() and np.isfinite(cross_entropy).all() and is_right[0] == (label == 1)
        np.testing.assert_allclose(gradient, [np.eye(3)[1] - 0.9 * np.eye(3)[label] - 0.1 / 3], atol=1e-6)


@pytest.mark.parametrize("name", ["simcut", "r_drop"])
def test_two_equal_passes_have_no_divergence_and_validation_has_one_and_certain_tokens_are_finite(name):
    loss, _ = LOSSES[name]
    matrix, labels = tf.constant(np.eye(V), tf.float32), tf.constant([0, 1])
    sure = tf.constant(1e4 * np.eye(V)[[0, 1]], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(sure)
        found, measures = loss.of_tokens([sure, sure], matrix, labels)
    assert not np.any(measures["divergence"]) and np.isfinite(tape.gradient(found, sure)).all()
    alone, measures = loss.of_tokens([sure], matrix, labels)
    np.testing.assert_array_equal(alone, CrossEntropy(0.1).of_tokens([sure], matrix, labels)[0])
    assert set(measures) == {"accuracy", "perplexity"}
    found, measures = loss.of_tokens([sure, tf.reverse(sure, [0])], matrix, labels)
    assert np.isfinite(found).all() and (measures["divergence"].numpy() > 10).all()


def test_cut_tokens_have_no_vector_and_the_first_of_each_side_stays():
    seen = []
    inputs = {"source_ids": tf.constant([[5, 6, 7, 0]] * 50), "target_ids": tf.constant([[2, 5, 6, 0]] * 50)}
    SimCut(cut_rate=0.3).run(lambda ids, training: seen.append(ids), inputs)
    whole, cut = seen
    assert whole is inputs
    for name, ids in inputs.items():
        np.testing.assert_array_equal(abs(cut[name]), ids)
    assert [{*ids[:, 0].numpy()} for ids in cut.values()] == [{5}, {2}]  # the source may begin with a tag
    drawn = np.concatenate([cut["source_ids"][:, 1:3], cut["target_ids"][:, 1:3]], axis=1) < 0
    assert 0.2 < drawn.mean() < 0.4
    embedding = tiny.transformer(vocabulary_size=V, dropout_rate=0.0).source_embedding
    vectors = embedding(tf.constant([[5, -6]]), training=True)
    np.testing.assert_array_equal(vectors[0, 0], embedding(tf.constant([[5]]))[0, 0])
    assert not np.any(vectors[0, 1])


@pytest.mark.parametrize(("loss", "run_eagerly"), [(SimCut(0.2, 2.0, 0.3), False), (RDrop(0.2, 2.0), True)])
def test_a_trainer_learns_with_it_and_is_saved_with_its_seeds(loss, run_eagerly, tmp_path):
    trainer = TeacherForcing(tiny.transformer(vocabulary_size=V, dropout_rate=0.1))
    trainer.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=run_eagerly)
    ids = np.random.default_rng(7).integers(4, V, size=(13, 5)).astype("int32")
    shifted = np.concatenate([np.full((13, 1), 2), ids[:, :-1]], axis=1).astype("int32")
    data = ({"source_ids": ids, "target_ids": shifted}, ids)
    history = trainer.fit(*data, epochs=4, batch_size=13, verbose=0, validation_data=data).history
    assert history["loss"][-1] < history["loss"][0] and history["divergence"][-1] > 0
    names = ["loss", "accuracy", "perplexity", "padding"]  # of validation, which has one pass and no divergence
    assert {name for name in history if name.startswith("val_")} == {f"val_{name}" for name in names}
    assert all(any(seed is kept for kept in trainer.resumable_variables) for seed in loss.seeds)
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert loaded.token_loss.get_config() == loss.get_config()
    for seed, again in zip(trainer.seeds, loaded.seeds, strict=True):
        np.testing.assert_array_equal(seed, again)


def test_guided_alignment_adds_the_cross_entropy_of_its_links():
    rng, loss = np.random.default_rng(7), GuidedAlignment(0.1, weight=0.7)
    states, matrix = rng.normal(size=(N, D)).astype("float32"), rng.normal(size=(V, D)).astype("float32")
    labels = tf.constant(rng.integers(0, V, N), tf.int32)
    alignment = rng.dirichlet(np.ones(3), N).astype("float32")
    links = np.zeros((N, 3), "float32")
    links[0, 1], links[4, :2] = 1, 0.5  # all others have no link
    plain, _ = CrossEntropy(0.1).of_tokens([tf.constant(states)], tf.constant(matrix), labels)
    given = [tf.constant(array) for array in (states, alignment, links)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        found, measures = loss.of_tokens(given, tf.constant(matrix), labels)
    more = np.zeros(N)
    more[0], more[4] = -np.log(alignment[0, 1]), -np.log(alignment[4, :2]).mean()
    np.testing.assert_allclose(found, plain + 0.7 * more, rtol=1e-4)
    np.testing.assert_allclose(measures["alignment"], more, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(tape.gradient(found, given[1]), -0.7 * links / (alignment + 1e-6), rtol=1e-4)
    alone, measures = loss.of_tokens(given[:1], tf.constant(matrix), labels)  # validation
    np.testing.assert_allclose(alone, plain)
    assert "alignment" not in measures
    with pytest.raises(ValueError, match='needs "links" in the inputs'):
        loss.run(None, {"source_ids": [[7]], "target_ids": [[2]]})


def test_the_settings_choose_the_loss():
    assert type(make_loss(Config())) is CrossEntropy
    loss = make_loss(Config(consistency="simcut"))
    assert loss.get_config() == {"label_smoothing": 0.1, "weight": 3.0, "cut_rate": 0.05}
    loss = make_loss(Config(consistency="r_drop", consistency_weight=2.0, label_smoothing=0.2))
    assert loss.get_config() == {"label_smoothing": 0.2, "weight": 2.0}
    for wrong in ({"weight": -1.0}, {"cut_rate": 1.0}):
        with pytest.raises(ValueError, match=f"Received: {next(iter(wrong))}"):
            SimCut(**wrong)
