import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.presets import OPTIMIZERS
from keras_transformer.training import updates as module
from keras_transformer.training.updates import Adam, CosineDecay, InverseSquareRoot, LinearDecay, Updates
from tests import tiny

RATE = 0.01
STEPS = 5
SHARES = {1: [1.0], 2: [0.25, 0.75]}  # of every gradient, that each replica gives


def gradients():
    rng = np.random.default_rng(3)
    return [[rng.normal(size=(7, 5)).astype("float32"), rng.normal(size=5).astype("float32")] for _ in range(STEPS)]


def variables():
    return [keras.Variable(tf.fill((7, 5), 0.3), name="matrix"), keras.Variable(tf.fill((5,), -0.2), name="bias")]


def adam():
    return module.make_optimizer("adam", RATE)


def share(strategy, tensors):
    """This replica's share of them."""
    shares = tf.constant(SHARES[strategy.num_replicas_in_sync])
    return [shares[tf.distribute.get_replica_context().replica_id_in_sync_group] * x for x in tensors]


def trainer(make=adam, start=variables, replicas=2, **arguments):
    """The variables, their `Updates`, and a function from gradients to an update: every replica gives its share."""
    strategy = tiny.two_replicas() if replicas == 2 else tf.distribute.get_strategy()
    with strategy.scope():
        trained, updates = start(), Updates(make(), **arguments)
        updates.build(trained)

    def replica_update(step):
        updates.apply([updates.scale_loss(g) for g in share(strategy, step)], tf.constant(11.0), trained)

    @tf.function(autograph=False)
    def update(step):
        strategy.run(replica_update, args=(step,))

    return trained, updates, lambda step: update([tf.constant(g) for g in step])


def updated(steps, make=adam, start=variables, **arguments):
    """The variables and the `Updates` after `steps`, a list of gradients each."""
    trained, updates, update = trainer(make, start, **arguments)
    for step in steps:
        update(step)
    return trained, updates


def updated_by_keras(make, steps):
    """The variables after `steps` of a Keras optimizer itself, and the optimizer."""
    trained, optimizer = variables(), make()
    optimizer.build(trained)
    for step in steps:
        optimizer.apply([tf.constant(g) for g in step], trained)
    return trained, optimizer


def copies(variable):
    """Its values on all replicas."""
    return [value.numpy() for value in getattr(variable.value, "values", [variable.value])]


def value(scalar):
    """The one value that a variable () has on all replicas."""
    (found,) = {x.item() for x in copies(scalar)}
    return found


def assert_equal_on_all_replicas(found, expected, **tolerance):
    for variable, other in zip(found, expected, strict=True):
        for one in copies(variable):
            np.testing.assert_allclose(one, np.asarray(other), **{"rtol": 1e-5, "atol": 1e-7, **tolerance})


# Adam.


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


def test_adam_makes_the_updates_of_the_paper():
    schedule = InverseSquareRoot(0.02, 3)
    trained, _ = updated(gradients(), lambda: module.make_optimizer("adam", schedule))
    assert_equal_on_all_replicas(trained, by_the_paper(lambda t: float(schedule(t - 1))))


def test_slices_of_a_gradient_count_as_often_as_they_come_in_the_fused_adam_too():
    slices = tf.IndexedSlices(tf.ones((3, 5)), tf.constant([1, 4, 1]), dense_shape=tf.constant([7, 5]))
    found = []
    for make, gradient in ((Adam, slices), (keras.optimizers.Adam, tf.convert_to_tensor(slices))):
        trained, optimizer = updated_by_keras(lambda: make(RATE, weight_decay=0.3), gradients())  # noqa: B023
        optimizer.apply([gradient, tf.zeros(5)], trained)
        found.append([variable.numpy() for variable in (*trained, *optimizer.variables)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


# Any optimizer.


NEW = hasattr(keras.optimizers, "MultiOptimizer")  # Keras 3.12, the last one for Python 3.10, has two classes less
SUPPORTED = f"Adadelta Adafactor Adagrad Adam Adamax AdamW Ftrl Lamb Lion RMSprop SGD {'ScheduleFreeAdamW' * NEW}"
SUPPORTED, REFUSED = SUPPORTED.split(), ["LossScaleOptimizer", "Muon", "Nadam", *["MultiOptimizer"] * NEW]


def test_every_optimizer_of_keras_is_either_supported_or_refused():
    classes = {name: x for name, x in vars(keras.optimizers).items() if isinstance(x, type)}
    found = {name for name, x in classes.items() if issubclass(x, keras.optimizers.Optimizer)}
    assert found == {*SUPPORTED, *REFUSED, "Optimizer"} and {*OPTIMIZERS} <= {name.lower() for name in SUPPORTED}


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_supported_optimizer_updates_by_the_sum_of_gradients_as_keras_does(name):
    """Those of the config on two replicas, with the arguments of the config."""
    configured = name.lower() in OPTIMIZERS
    rate = {"learning_rate": RATE} if configured else {}
    keras_optimizer = functools.partial(getattr(keras.optimizers, name), **rate, **OPTIMIZERS.get(name.lower(), {}))
    make = functools.partial(module.make_optimizer, name.lower(), RATE) if configured else keras_optimizer
    trained, updates = updated(gradients(), make, replicas=1 + configured)
    expected, optimizer = updated_by_keras(keras_optimizer, gradients())
    assert_equal_on_all_replicas(trained, expected)
    if configured:
        assert_equal_on_all_replicas(updates.optimizer.variables, optimizer.variables)
    assert all((x.numpy() != y.numpy()).any() for x, y in zip(expected, variables(), strict=True))


def test_an_optimizer_with_updates_or_options_of_its_own_is_refused_by_name():
    inner = {"LossScaleOptimizer": [adam()], "MultiOptimizer": [[adam(), adam()]]}
    for name in REFUSED:
        optimizer = getattr(keras.optimizers, name)(*inner.get(name, []))
        with pytest.raises(ValueError, match=f"the optimizer {name} is not supported: it has its own `"):
            Updates(optimizer)
    for name in module.INSTEAD:
        received = {"use_ema": True, "gradient_accumulation_steps": 3}.get(name, 7.0)
        optimizer = keras.optimizers.SGD(RATE, **{name: received})
        with pytest.raises(ValueError, match=f"`{name}` of the optimizer is not supported: use .* Received: {name}="):
            Updates(optimizer)


def test_a_gradient_above_the_limit_is_scaled_by_the_norm_over_all_weights():
    """Of (3, 0) and (0, 4) the norm is 5, so that a limit of 2 leaves two fifths."""
    steps = [[np.array([3.0, 0.0], "float32"), np.array([0.0, 4.0], "float32")]]
    for limit, weights in {2.0: [[1 - 1.2, 1], [1, 1 - 1.6]], 5.0: [[-2, 1], [1, -3]]}.items():
        start = lambda: [keras.Variable([1.0, 1.0], name=name) for name in ("one", "other")]  # noqa: E731
        trained, updates = updated(steps, lambda: keras.optimizers.SGD(1.0), start, clip_norm=limit)
        assert_equal_on_all_replicas(trained, weights, rtol=1e-6)
        assert value(updates.gradient_norm) == pytest.approx(5.0)  # before it is scaled


def broken(element):
    (matrix, bias), *_ = gradients()
    bias[3] = element
    return [matrix, bias]


@pytest.mark.parametrize(("replicas", "name", "element"), [(1, "adam", np.nan), (2, "lion", np.inf)])
def test_a_broken_gradient_changes_no_weight_no_moment_and_no_average_and_training_goes_on(replicas, name, element):
    arguments = {"replicas": replicas, "ema_decay": 0.9, "clip_norm": 3.0}
    trained, updates, update = trainer(lambda: module.make_optimizer(name, RATE), **arguments)
    for step in gradients()[:3]:
        update(step)
    kept = [*trained, *updates.averages, *updates.optimizer.variables[1:]]
    before = [np.array(copies(x)) for x in kept]
    assert len(kept) > 2 * 2 + 2 and value(updates.skipped) == 0
    assert updates.optimizer.variables[0] is updates.optimizer.iterations
    for _ in range(2):
        update(broken(element))
    for x, values in zip(kept, before, strict=True):
        np.testing.assert_array_equal(copies(x), values, err_msg=x.path)
    assert (value(updates.skipped), value(updates.optimizer.iterations)) == (2, 5)
    update(gradients()[0])
    for variable, values in zip(trained, before, strict=False):
        assert np.isfinite(copies(variable)).all() and (copies(variable) != values).all()
    assert value(updates.skipped) == 0


def test_scaled_losses_give_the_same_updates_and_an_overflow_halves_the_scale_and_a_long_time_without_doubles_it(
    monkeypatch,
):
    monkeypatch.setattr(module, "GROWTH_STEPS", 3)
    *_, last = steps = gradients()
    trained, updates, update = trainer(scale_losses=True)
    scales = []

    def run(steps):
        for step in steps:
            update(step)
            scales.append(value(updates.loss_scale) / 2**15)

    run(steps)
    assert_equal_on_all_replicas(trained, by_the_paper(lambda t: RATE))
    norm = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in last))  # over all elements
    assert value(updates.gradient_norm) == pytest.approx(norm, rel=1e-6)
    run([broken(np.inf)] * 2 + [last] * 5 + [broken(np.inf)] + [last] * 3)
    assert scales == [1, 1, 2, 2, 2] + [1, 0.5] + [0.5, 0.5, 1, 1, 1] + [0.5] + [0.5, 0.5, 1]


def test_averages_follow_the_weights_and_change_no_update():
    decay = 0.3
    averages = [variable.numpy().astype("float64") for variable in variables()]
    without, _, update = trainer()
    for t, step in enumerate(gradients(), start=1):
        d = min(decay, (1 + t) / (10 + t))
        update(step)
        averages = [d * a + (1 - d) * copies(variable)[0] for a, variable in zip(averages, without, strict=True)]
    assert {t: (1 + t) / (10 + t) < decay for t in (1, STEPS)} == {1: True, STEPS: False}  # both cases are met
    trained, updates = updated(gradients(), ema_decay=decay)
    assert_equal_on_all_replicas(updates.averages, averages)
    for one, other in zip(without, trained, strict=True):
        np.testing.assert_array_equal(copies(one), copies(other))


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tiny.two_replicas])
def test_batches_are_weighted_by_their_tokens_and_their_sums_start_again(strategy):
    """One update of SGD(1) is the gradient itself: (3 a + 5 b + 2 c) / 10. The second one is that of d, e and f."""
    tokens, batches = [3.0, 5.0, 2.0, 7.0, 1.0, 11.0], [*gradients(), gradients()[0]]
    strategy = strategy()
    with strategy.scope():
        trained, updates = variables(), Updates(keras.optimizers.SGD(1.0), accumulate_steps=3)
        updates.build(trained)

    def replica(batch, count, is_last):
        gradient = share(strategy, batch)
        updates.apply(gradient, count, trained) if is_last else updates.add(gradient, count)

    @tf.function(autograph=False)
    def run(batch, count, is_last):
        strategy.run(replica, args=(batch, count, is_last))

    expected = [variable.numpy().astype("float64") for variable in trained]
    for number, (batch, count) in enumerate(zip(batches, tokens, strict=True), start=1):
        run([tf.constant(g) for g in batch], tf.constant(count), number % 3 == 0)
        of_update = tokens[:3] if number <= 3 else tokens[3:]
        expected = [x - count / sum(of_update) * g for x, g in zip(expected, batch, strict=True)]
        if number % 3 == 0:
            assert_equal_on_all_replicas(trained, expected)
    assert value(updates.optimizer.iterations) == 2


def test_updates_resumed_from_their_variables_go_on_exactly():
    arguments = {"ema_decay": 0.7, "scale_losses": True, "make": lambda: module.make_optimizer("adamw", RATE)}
    (whole, expected, update_whole), (resumed, again, update) = trainer(**arguments), trainer(**arguments)
    for step in gradients()[:3]:
        update_whole(step)
    one, other = [*resumed, *again.resumable_variables], [*whole, *expected.resumable_variables]
    for variable, saved in zip(one, other, strict=True):
        variable.assign(copies(saved)[0])
    for step in gradients()[3:]:
        update_whole(step)
        update(step)
    for variable, saved in zip(one, other, strict=True):
        np.testing.assert_array_equal(copies(variable), copies(saved), err_msg=saved.path)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weight_decay_takes_its_share_of_every_weight(name):
    """With a gradient of 0, decay is all that an update does: w (1 - rate * decay)."""
    weight = keras.Variable([3.0, -5.0])
    optimizer = module.make_optimizer(name, 0.01, weight_decay=0.5)
    optimizer.apply([tf.zeros(2)], [weight])
    np.testing.assert_allclose(weight.numpy(), np.array([3.0, -5.0]) * (1 - 0.01 * 0.5), rtol=1e-5)


# Schedules.

D_MODEL, WARMUP = 514, 4001


def test_the_paper_s_peak_gives_equation_3():
    """Keras counts updates from 0, the paper from 1."""
    schedule = module.make_schedule("inverse_square_root", module.paper_peak_rate(D_MODEL, WARMUP), WARMUP, 60)
    for n in (1, 2, WARMUP // 2, WARMUP - 1, WARMUP, WARMUP + 1, 4 * WARMUP, 10**6):
        expected = D_MODEL**-0.5 * min(n**-0.5, n * WARMUP**-1.5)
        assert float(schedule(n - 1)) == pytest.approx(expected, rel=1e-6)
    assert float(InverseSquareRoot(peak_rate=0.3, warmup_steps=1)(0)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    "schedule", [InverseSquareRoot(0.7, 13), LinearDecay(0.7, 13, 60), CosineDecay(0.7, 13, 60)], ids=type
)
def test_config_makes_the_same_schedule_and_optimizer_again(schedule):
    optimizer = Adam(schedule, beta_1=0.7, beta_2=0.8, epsilon=1e-3, name="other")
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(twin) is Adam and twin.get_config() == optimizer.get_config()
    assert (twin.beta_1, twin.beta_2, twin.epsilon, twin.name) == (0.7, 0.8, 1e-3, "other")
    again = twin._learning_rate
    assert type(again) is type(schedule) and float(again(40)) == float(schedule(40))
    end = {} if type(schedule) is InverseSquareRoot else {"last_step": 60}
    assert again.get_config() == schedule.get_config() == {"peak_rate": 0.7, "warmup_steps": 13, **end}


def numpy_rate(name, n, peak, warmup, last):
    if n <= warmup:
        return peak * n / warmup
    done = (n - warmup) / (last + 1 - warmup)
    return peak * (1 - done if name == "linear" else np.cos(np.pi * done / 2) ** 2)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_linear_and_cosine_rise_to_the_peak_and_reach_0_after_the_last_update(name):
    schedule = module.make_schedule(name, 0.7, 13, 60)
    rates = [float(schedule(n - 1)) for n in range(1, 62)]
    np.testing.assert_allclose(rates, [numpy_rate(name, n, 0.7, 13, 60) for n in range(1, 62)], atol=1e-7)
    assert rates[12] == pytest.approx(0.7) and rates[59] > 0 and rates[60] == pytest.approx(0, abs=1e-7)
    assert float(schedule(200)) == pytest.approx(0, abs=1e-7)  # a step that should not be never gets a negative rate
    in_the_warm_up = module.make_schedule(name, 0.5, 10, 4)  # of a run that ends in it
    assert [float(in_the_warm_up(n)) for n in range(4)] == pytest.approx([0.05, 0.1, 0.15, 0.2])
