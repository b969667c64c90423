"""SimCut and R-Drop: the loss and its gradient as their equations say, by float64 and automatic differentiation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.training import TeacherForcing
from keras_transformer.training.losses import CrossEntropy, RDrop, SimCut, make_loss
from tests import tiny

N, V, D = 7, 11, 5
LOSSES = {
    "simcut": (SimCut(0.1, weight=3.0), lambda cross, kl: cross[0] + 3.0 * kl[0]),
    "r_drop": (RDrop(0.1, weight=5.0), lambda cross, kl: (cross[0] + cross[1] + 5.0 * (kl[0] + kl[1]) / 2) / 2),
}


def by_the_equations(passes, matrix, bias, labels, combine):
    """The loss of every token, in the dtype of its arguments, of TensorFlow's own operations."""
    log_probs = [tf.nn.log_softmax(tf.matmul(states, matrix, transpose_b=True) + bias) for states in passes]
    targets = 0.9 * tf.one_hot(labels, V, dtype=matrix.dtype) + 0.1 / V
    cross = [-tf.reduce_sum(targets * each, axis=-1) for each in log_probs]
    p, q = log_probs
    kl = [tf.reduce_sum(tf.exp(one) * (one - other), axis=-1) for one, other in ((p, q), (q, p))]
    return combine(cross, kl), combine([0.0, 0.0], kl)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.05), ("float16", 0.01)])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_the_equations(name, dtype, tolerance):
    rng = np.random.default_rng(3)
    loss, combine = LOSSES[name]
    labels, weights = tf.constant(rng.integers(0, V, N), tf.int32), rng.random(N)
    arrays = [*rng.normal(size=(2, N, D)), rng.normal(size=(V, D)), rng.normal(size=V)]
    exact = [tf.constant(array, tf.float64) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(exact)
        total, divergence = by_the_equations(exact[:2], *exact[2:], labels, combine)
        expected = tf.reduce_sum(total * weights)
    *passes, matrix, bias = [tf.cast(x, dtype) for x in exact[:2]] + [tf.cast(x, tf.float32) for x in exact[2:]]
    with tf.GradientTape() as fused:
        fused.watch([*passes, matrix, bias])
        found, measures = loss.of_tokens(passes, matrix, labels, bias)
        objective = tf.reduce_sum(found * weights.astype("float32"))
    np.testing.assert_allclose(found, total, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(measures["divergence"], divergence, rtol=5 * tolerance, atol=tolerance)
    gradients = fused.gradient(objective, [*passes, matrix, bias])
    for one, other in zip(gradients, tape.gradient(expected, exact), strict=True):
        np.testing.assert_allclose(tf.cast(one, tf.float64), other, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_two_equal_passes_have_no_divergence_and_certain_tokens_are_finite(name):
    loss, _ = LOSSES[name]
    matrix, labels = tf.constant(np.eye(V), tf.float32), tf.constant([0, 1])
    sure = tf.constant(1e4 * np.eye(V)[[0, 1]], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(sure)
        found, measures = loss.of_tokens([sure, sure], matrix, labels)
    assert not np.any(measures["divergence"])
    assert np.isfinite(tape.gradient(found, sure)).all()
    found, measures = loss.of_tokens([sure, tf.reverse(sure, [0])], matrix, labels)
    assert np.isfinite(found).all() and (measures["divergence"].numpy() > 10).all()


def test_cut_tokens_have_no_vector_and_the_first_of_the_target_stays():
    seen = []
    inputs = {"source_ids": tf.constant([[5, 6, 7, 0]] * 50), "target_ids": tf.constant([[2, 5, 6, 0]] * 50)}
    loss = SimCut(cut_rate=0.3)
    loss.run(lambda ids, training: seen.append(ids), inputs)
    whole, cut = seen
    assert whole is inputs
    for name, ids in inputs.items():
        np.testing.assert_array_equal(abs(cut[name]), ids)
    assert (cut["target_ids"][:, 0].numpy() == 2).all()
    drawn = np.concatenate([cut["source_ids"][:, :3], cut["target_ids"][:, 1:3]], axis=1) < 0
    assert 0.2 < drawn.mean() < 0.4
    model = tiny.transformer(vocabulary_size=V, dropout_rate=0.0)
    embedding = model.source_embedding
    vectors = embedding(tf.constant([[5, -6]]), training=True)
    np.testing.assert_array_equal(vectors[0, 0], embedding(tf.constant([[5]]))[0, 0])
    assert not np.any(vectors[0, 1])


def test_validation_measures_cross_entropy_alone():
    rng = np.random.default_rng(5)
    states, matrix = (tf.constant(rng.normal(size=size), tf.float32) for size in ((N, D), (V, D)))
    labels = tf.constant(rng.integers(0, V, N), tf.int32)
    expected, _ = CrossEntropy(0.1).of_tokens([states], matrix, labels)
    for loss, _ in LOSSES.values():
        found, measures = loss.of_tokens([states], matrix, labels)
        np.testing.assert_array_equal(found, expected)
        assert set(measures) == {"accuracy", "perplexity"}


@pytest.mark.parametrize("loss", [SimCut(0.2, 2.0, 0.3), RDrop(0.2, 2.0)])
def test_a_trainer_learns_with_it_and_is_saved_with_its_seeds(loss, tmp_path):
    trainer = TeacherForcing(tiny.transformer(vocabulary_size=V, dropout_rate=0.1))
    trainer.compile(keras.optimizers.Adam(0.01), loss=loss)
    ids = np.random.default_rng(7).integers(4, V, size=(13, 5)).astype("int32")
    shifted = np.concatenate([np.full((13, 1), 2), ids[:, :-1]], axis=1).astype("int32")
    data = ({"source_ids": ids, "target_ids": shifted}, ids)
    history = trainer.fit(*data, epochs=9, batch_size=13, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] and history["divergence"][-1] > 0
    assert all(any(seed is kept for kept in trainer.resumable_variables) for seed in loss.seeds)
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert loaded.token_loss.get_config() == loss.get_config()
    for seed, again in zip(trainer.seeds, loaded.seeds, strict=True):
        np.testing.assert_array_equal(seed, again)


def test_the_settings_choose_the_loss():
    assert type(make_loss(Config())) is CrossEntropy
    assert make_loss(Config(consistency="simcut")).get_config() == {
        **{"label_smoothing": 0.1, "weight": 3.0, "cut_rate": 0.05}
    }
    loss = make_loss(Config(consistency="r_drop", consistency_weight=2.0, label_smoothing=0.2))
    assert loss.get_config() == {"label_smoothing": 0.2, "weight": 2.0}
    for wrong in ({"weight": -1.0}, {"cut_rate": 1.0}):
        with pytest.raises(ValueError, match=f"Received: {next(iter(wrong))}"):
            SimCut(**wrong)
