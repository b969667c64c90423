import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.training.optimizer import Adam

from keras_transformer.training import optimizer as optimizer_module
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


def test_slices_of_a_gradient_count_as_often_as_they_come():
    slices = tf.IndexedSlices(tf.ones((3, 5)), tf.constant([1, 4, 1]), dense_shape=tf.constant([7, 5]))
    optimizer, (matrix, _) = Adam(0.01, **SETTINGS), variables()
    optimizer.build([matrix])
    optimizer.apply([slices], [matrix])
    moments = optimizer.momentums[0].numpy()
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


# Gradients that nothing can be learned from.


@pytest.fixture(params=["one device", "two replicas"])
def strategy(request):
    return tf.distribute.get_strategy() if request.param == "one device" else tiny.two_replicas()


def trained_by(strategy, steps, optimizer_arguments):
    """The variables and the optimizer after `steps`, lists of gradients, every replica giving an equal share."""
    with strategy.scope():
        trained, optimizer = variables(), Adam(0.01, **optimizer_arguments)
        optimizer.build(trained)

    def replica_update(step):
        optimizer.apply([optimizer.scale_loss(g / strategy.num_replicas_in_sync) for g in step], trained)

    @tf.function
    def update(step):
        strategy.run(replica_update, args=(step,))

    for step in steps:
        update([tf.constant(g) for g in step])
    return trained, optimizer


def copies(variable):
    """Its values on all replicas."""
    return [value.numpy() for value in getattr(variable.value, "values", [variable.value])]


def value(scalar):
    """The one value that a variable () has on all replicas."""
    (found,) = {x.item() for x in copies(scalar)}
    return found


def broken(element):
    (matrix, bias), *_ = gradients()
    bias[3] = element
    return [matrix, bias]


@pytest.mark.parametrize("element", [np.nan, np.inf, -np.inf])
def test_a_broken_gradient_changes_no_weight_and_no_moment(strategy, element):
    steps = gradients()
    before, optimizer_before = trained_by(strategy, steps[:3], SETTINGS)
    after, optimizer_after = trained_by(strategy, [*steps[:3], broken(element), broken(element)], SETTINGS)
    for one, other in zip(
        [*before, *optimizer_before.momentums, *optimizer_before.velocities],
        [*after, *optimizer_after.momentums, *optimizer_after.velocities],
        strict=True,
    ):
        for x, y in zip(copies(one), copies(other), strict=True):
            np.testing.assert_array_equal(x, y)
    assert (value(optimizer_before.skipped), value(optimizer_after.skipped)) == (0, 2)
    assert value(optimizer_after.iterations) == 5


def test_after_a_broken_gradient_training_goes_on(strategy):
    first, *others = gradients()
    trained, optimizer = trained_by(strategy, [broken(np.nan), first], SETTINGS)
    for variable, start, g in zip(trained, variables(), first, strict=True):
        for found in copies(variable):
            assert np.isfinite(found).all()
            assert (np.sign(start.numpy() - found) == np.sign(g)).all()
    assert value(optimizer.skipped) == 0


def test_the_norm_of_a_gradient_is_that_of_all_its_elements(strategy):
    *_, last = steps = gradients()
    _, optimizer = trained_by(strategy, steps, {**SETTINGS, "scale_losses": True})
    expected = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in last))
    assert value(optimizer.gradient_norm) == pytest.approx(expected, rel=1e-6)


def test_scaled_losses_give_the_same_updates(strategy):
    trained, _ = trained_by(strategy, gradients(), {**SETTINGS, "scale_losses": True})
    for variable, expected in zip(trained, by_the_paper(lambda t: 0.01), strict=True):
        for found in copies(variable):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_overflow_halves_the_loss_scale_and_a_long_time_without_doubles_it(strategy, monkeypatch):
    monkeypatch.setattr(optimizer_module, "GROWTH_STEPS", 3)
    sound, overflow = gradients()[0], broken(np.inf)
    scales = {1: [overflow], 2: [overflow, overflow], 3: [sound] * 2, 4: [sound] * 3, 5: [sound] * 5 + [overflow]}
    scales[6] = [sound, sound, overflow, sound, sound]  # never three in a row
    found = {
        name: value(trained_by(strategy, steps, {**SETTINGS, "scale_losses": True})[1].loss_scale)
        for name, steps in scales.items()
    }
    assert {name: scale / 2**15 for name, scale in found.items()} == {1: 0.5, 2: 0.25, 3: 1, 4: 2, 5: 1, 6: 0.5}


# Averages.


def test_averages_follow_the_weights(strategy):
    decay, steps = 0.3, gradients()
    averages = [variable.numpy().astype("float64") for variable in variables()]
    for t in range(1, STEPS + 1):
        d = min(decay, (1 + t) / (10 + t))
        trained, _ = trained_by(strategy, steps[:t], SETTINGS)
        averages = [d * a + (1 - d) * copies(variable)[0] for a, variable in zip(averages, trained, strict=True)]
    assert {t: (1 + t) / (10 + t) < decay for t in (1, STEPS)} == {1: True, STEPS: False}  # both cases are met
    _, optimizer = trained_by(strategy, steps, {**SETTINGS, "ema_decay": decay})
    for average, expected in zip(optimizer.averages, averages, strict=True):
        for found in copies(average):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_broken_gradient_leaves_the_averages(strategy):
    settings = {**SETTINGS, "ema_decay": 0.9}
    _, before = trained_by(strategy, gradients(), settings)
    _, after = trained_by(strategy, [*gradients(), broken(np.nan)], settings)
    for one, other in zip(before.averages, after.averages, strict=True):
        np.testing.assert_array_equal(copies(one), copies(other))


def test_an_optimizer_comes_back_from_its_config():
    settings = {"beta_1": 0.7, "beta_2": 0.8, "epsilon": 1e-3, "ema_decay": 0.6, "scale_losses": True, "name": "other"}
    optimizer = Adam(InverseSquareRoot(0.02, 3), **settings)
    back = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert isinstance(back, Adam)
    assert {name: getattr(back, name) for name in settings} == settings
    assert float(back._learning_rate(1)) == float(optimizer._learning_rate(1))
