import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training.optimizer import Adam
from keras_transformer.training.schedules import InverseSquareRoot
from tests import tiny

SETTINGS = {"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-9}
STEPS = 5


def gradients():
    rng = np.random.default_rng(3)
    return [[rng.normal(size=(7, 5)).astype("float32"), rng.normal(size=5).astype("float32")] for _ in range(STEPS)]


def variables():
    return [keras.Variable(tf.fill((7, 5), 0.3), name="matrix"), keras.Variable(tf.fill((5,), -0.2), name="bias")]


def by_the_paper(rate):
    """Algorithm 1 of Kingma and Ba (2015), number by number in float64; epsilon is lost beside sqrt(v)."""
    values = [variable.numpy().astype("float64") for variable in variables()]
    m, v = [0 * x for x in values], [0 * x for x in values]
    for t, step in enumerate(gradients(), start=1):
        for i, g in enumerate(step):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.98 * v[i] + 0.02 * g.astype("float64") ** 2
            values[i] = values[i] - rate(t) * (m[i] / (1 - 0.9**t)) / (np.sqrt(v[i] / (1 - 0.98**t)) + 1e-9)
    return values


def train(optimizer, steps):
    trained = variables()
    optimizer.build(trained)
    for step in steps:
        optimizer.apply([tf.constant(g) for g in step], trained)
    return trained, optimizer


@pytest.mark.parametrize("rate", [0.01, InverseSquareRoot(0.02, 3)], ids=["constant", "schedule"])
def test_updates_are_those_of_the_paper(rate):
    trained, _ = train(Adam(rate, **SETTINGS), gradients())
    by_paper = by_the_paper(lambda t: rate if isinstance(rate, float) else float(rate(t - 1)))
    for found, expected in zip(trained, by_paper, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_all_state_is_that_of_keras():
    found, optimizer = train(Adam(0.01, **SETTINGS, name="adam"), gradients())
    expected, of_keras = train(keras.optimizers.Adam(0.01, **SETTINGS, name="adam"), gradients())
    assert [v.path for v in optimizer.variables] == [v.path for v in of_keras.variables]
    for one, other in zip([*found, *optimizer.variables], [*expected, *of_keras.variables], strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-7)


def test_slices_of_a_gradient_count_as_often_as_they_come():
    slices = tf.IndexedSlices(tf.ones((3, 5)), tf.constant([1, 4, 1]), dense_shape=tf.constant([7, 5]))
    optimizer, (matrix, _) = Adam(0.01, **SETTINGS), variables()
    optimizer.build([matrix])
    optimizer.apply([slices], [matrix])
    moments = optimizer._momentums[0].numpy()
    np.testing.assert_allclose(moments[:, 0], [0, 0.2, 0, 0, 0.1, 0, 0], rtol=1e-6)


def test_every_replica_takes_the_sum_of_all_gradients():
    strategy = tiny.two_replicas()
    with strategy.scope():
        trained, optimizer = variables(), Adam(0.01, **SETTINGS)
        optimizer.build(trained)

    @tf.function
    def update(step):
        strategy.run(lambda: optimizer.apply([0.5 * g for g in step], trained))

    for step in gradients():
        update([tf.constant(g) for g in step])
    for variable, expected in zip(trained, by_the_paper(lambda t: 0.01), strict=True):
        replicas = variable.value.values
        assert len(replicas) == 2
        for replica in replicas:
            np.testing.assert_allclose(replica.numpy(), expected, rtol=1e-5)
