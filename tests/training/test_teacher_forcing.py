import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import pipeline
from keras_transformer.layers.kernels import Dropout
from keras_transformer.training import losses, teacher_forcing
from keras_transformer.training.losses import LOSSES, CrossEntropy, TokenLoss, token_losses
from keras_transformer.training.teacher_forcing import TeacherForcing, vary_seeds
from keras_transformer.training.updates import Adam
from tests import reference, tiny

V = 37
SOURCE_LENGTHS = [3, 5, 2, 7, 4, 6, 5, 1, 3, 7, 4, 2, 6]
TARGET_LENGTHS = [1, 1, 2, 11, 1, 10, 9, 7, 8, 4, 6, 5, 2]
EPS = 0.13
PER_TOKEN = ("loss", "accuracy", "perplexity")
METRICS = (*PER_TOKEN, "padding")


def pairs():
    return tiny.encoded_pairs(SOURCE_LENGTHS, TARGET_LENGTHS, V)


def trainer(optimizer=None, accumulate_steps=1, clip_norm=None, ema_decay=None, **arguments):
    arguments = {"vocabulary_size": V, "dropout_rate": 0.0, **arguments}
    trainer = TeacherForcing(tiny.transformer(**arguments), accumulate_steps, clip_norm, ema_decay)
    trainer.compile(optimizer or keras.optimizers.SGD(1.0), CrossEntropy(EPS))
    return trainer


@functools.cache
def shared():
    """A trainer for tests that leave its weights as they are."""
    return trainer()


def make_batch(rows):
    """A batch of `pairs` as `fit` sees it, in NumPy, and the weights of its tokens: 0 on padding."""
    batch = pipeline.teacher_forced(*pipeline.make_batch(pairs(), np.array(rows)))
    inputs, labels = tf.nest.map_structure(np.asarray, batch)
    return inputs, labels, (labels != 0).astype("float32")


def values(variables):
    return [variable.numpy() for variable in variables]


def gradients(trainer, batch):
    """Of the loss, read off one plain step of gradient descent, which is taken back."""
    before = values(trainer.network.trainable_variables)
    trainer.train_step(tf.nest.map_structure(tf.constant, batch))
    after = values(trainer.network.trainable_variables)
    for variable, value in zip(trainer.network.trainable_variables, before, strict=True):
        variable.assign(value)
    return [x - y for x, y in zip(before, after, strict=True)]


def figures(trainer):
    """Loss, accuracy, perplexity and padding so far."""
    return {name: float(value) for name, value in trainer.get_metrics_result().items()}


def measured(step, batch):
    """`figures` after one call of a step."""
    step(tf.nest.map_structure(tf.constant, batch))
    return figures(step.__self__)


def by_numpy(trainer, batches):
    """Loss, accuracy and perplexity of batches, token by token; and the share of padding."""
    weights = reference.weights_of(trainer.network)
    losses, hits, cross_entropies = [], [], []
    ids = np.concatenate([ids.ravel() for inputs, _, _ in batches for ids in inputs.values()])
    for inputs, labels, token_weights in batches:
        logits = reference.transformer(weights, **inputs, num_heads=2, residual=reference.post_norm)
        for row, column in zip(*np.nonzero(token_weights), strict=True):
            log_probs = logits[row, column] - np.logaddexp.reduce(logits[row, column])
            label = labels[row, column]
            losses.append(-(1 - EPS) * log_probs[label] - EPS * log_probs.mean())
            hits.append(log_probs.argmax() == label)
            cross_entropies.append(-log_probs[label])
    perplexity = np.exp(np.mean(cross_entropies))
    return {"loss": np.mean(losses), "accuracy": np.mean(hits), "perplexity": perplexity, "padding": np.mean(ids == 0)}


def some_right(batch, trainer):
    """The batch with every third label replaced by the model's best guess, for an accuracy between 0 and 1."""
    inputs, labels, weights = batch
    best = np.argmax(trainer.network(inputs), axis=-1).astype("int32")
    columns = np.arange(labels.size).reshape(labels.shape)
    return inputs, np.where(columns % 3 == 0, best, labels), weights


def test_loss_accuracy_and_perplexity_are_means_over_the_real_target_tokens():
    """The loss alone has label smoothing. A training step measures before it updates."""
    model = shared()
    model.reset_metrics()
    rows = [range(0, 7), range(7, 12), [12]]  # unequal batches: the mean of their means would be another
    batches = [some_right(make_batch(r), model) for r in rows]
    expected = by_numpy(model, batches)
    assert 0.2 < expected["accuracy"] < 0.5
    for batch in batches:
        logs = measured(model.test_step, batch)
    assert logs == pytest.approx(expected, rel=1e-5)
    assert float(model.loss_metric.count) == sum(TARGET_LENGTHS) + len(TARGET_LENGTHS)  # with eos
    model.reset_metrics()
    expected = by_numpy(model, batches[:1])
    gradients(model, batches[0])
    assert figures(model) == pytest.approx(expected, rel=1e-5)


def test_padding_changes_neither_loss_nor_gradients():
    """Added rows have no source token and no target token."""
    model, batch = shared(), make_batch(range(5))
    (inputs, labels, weights), longer, wider = batch, ((0, 3), (0, 7)), ((0, 3), (0, 2))
    inputs = {"source_ids": np.pad(inputs["source_ids"], wider), "target_ids": np.pad(inputs["target_ids"], longer)}
    more = inputs, np.pad(labels, longer), np.pad(weights, longer)
    model.reset_metrics()
    logs = measured(model.test_step, batch)
    model.reset_metrics()
    logs_of_more = measured(model.test_step, more)
    for name in PER_TOKEN:
        assert logs_of_more[name] == pytest.approx(logs[name], rel=1e-5)
    for one, other in zip(gradients(model, batch), gradients(model, more), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_dropout_is_in_training_and_not_in_evaluation():
    model, batch = trainer(dropout_rate=0.5), make_batch(range(5))
    expected = by_numpy(model, [batch])["loss"]
    assert measured(model.test_step, batch)["loss"] == pytest.approx(expected, rel=1e-5)
    model.reset_metrics()
    assert abs(measured(model.train_step, batch)["loss"] - expected) > 0.01


def test_half_precision_learns_the_same_to_its_precision():
    batch = make_batch(range(5))
    expected = gradients(shared(), batch)
    size = np.sqrt(sum((x**2).sum() for x in expected))
    for policy in ("mixed_bfloat16", "mixed_float16"):
        found = gradients(trainer(dtype=policy), batch)
        difference = np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(expected, found, strict=True)))
        assert 0 < difference < 0.1 * size


# Replicas.

BATCHES = {  # rows are dealt out to the replicas in turn
    "odd number of rows": [9, 7, 0, 12, 11],
    "even": [0, 3, 1, 5, 2, 6],
    "shares of very different numbers of tokens": [0, 3, 1, 5, 4, 6, 2, 8],
    "as different the other way round": [3, 0, 5, 1, 6, 4, 8, 2],
    "one row, none for the second replica": [8],
    "after it": [10, 1, 12],
}


class AfterEveryBatch(keras.callbacks.Callback):
    """Remembers metrics and weights after every step."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        tokens = float(keras.ops.convert_to_numpy(self.model.loss_metric.count))
        weights = values(self.model.network.trainable_variables)
        self.steps.append({"metrics": figures(self.model), "tokens": tokens, "weights": weights})


def fitted(strategy, plan, monkeypatch, accumulate_steps=1):
    """The figures after every update of `fit` on batches of these rows, and its history."""
    for name in ("plan_batches", "plan_epoch"):
        monkeypatch.setattr(pipeline, name, lambda *_, **__: [np.array(rows) for rows in plan])
    with strategy.scope():
        model = trainer(keras.optimizers.SGD(0.05, momentum=0.9), accumulate_steps)
    after_every_update = AfterEveryBatch()
    batches = pipeline.Undivided(pipeline.training_batches(pairs(), 1000, seed=1))
    how = {"steps_per_epoch": len(plan) // accumulate_steps, "shuffle": False, "verbose": 0}
    how["validation_data"] = pipeline.Undivided(pipeline.evaluation_batches(pairs(), 1000))
    result = model.fit(batches, validation_steps=len(plan), callbacks=[after_every_update], **how)
    return after_every_update.steps, result.history


def test_two_replicas_update_and_validate_as_one_device_does_and_count_every_token_once(monkeypatch):
    (one, logs), (two, logs_of_two) = (
        fitted(strategy, BATCHES.values(), monkeypatch)
        for strategy in (tf.distribute.get_strategy(), tiny.two_replicas())
    )
    start, tokens = values(trainer().network.trainable_variables), 0
    for (name, rows), expected, found in zip(BATCHES.items(), one, two, strict=True):
        for x, y in zip(found["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5, err_msg=name)
        assert max(np.abs(x - y).max() for x, y in zip(start, expected["weights"], strict=True)) > 1e-3
        assert set(expected["metrics"]) == set(METRICS)
        assert found["metrics"] == pytest.approx(expected["metrics"], rel=1e-5), name
        start, tokens = expected["weights"], tokens + sum(TARGET_LENGTHS[row] + 1 for row in rows)
        assert expected["tokens"] == found["tokens"] == tokens
    assert {*logs} == {*METRICS, *(f"val_{name}" for name in METRICS)} == {*logs_of_two}
    for name, value in logs.items():
        assert logs_of_two[name] == pytest.approx(value, rel=1e-5)


@pytest.mark.slow
def test_batches_accumulated_on_two_replicas_update_as_one_large_batch(monkeypatch):
    parts = [[9, 7, 0, 12], [11], [3, 5], [1, 8, 2], [4, 10], [6]]
    wholes = [sum(parts[:3], []), sum(parts[3:], [])]
    one_by_one, _ = fitted(tiny.two_replicas(), parts, monkeypatch, accumulate_steps=3)
    at_once, _ = fitted(tf.distribute.get_strategy(), wholes, monkeypatch)
    for found, expected in zip(one_by_one, at_once, strict=True):
        for name in PER_TOKEN:
            assert found["metrics"][name] == pytest.approx(expected["metrics"][name], rel=1e-5)
        assert found["tokens"] == expected["tokens"]
        for x, y in zip(found["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_a_broken_batch_leaves_weights_and_figures_as_they_were(monkeypatch):
    model, batch = trainer(Adam(0.01), ema_decay=0.9), make_batch([3, 5])
    before = measured(model.train_step, batch)
    weights = values([*model.network.variables, *model.updates.averages])

    def overflowing(*arguments):
        smoothed, *others = token_losses(*arguments)
        return np.inf * smoothed, *others

    monkeypatch.setattr(losses, "token_losses", overflowing)
    assert measured(model.train_step, batch) == before
    for before, after in zip(weights, values([*model.network.variables, *model.updates.averages]), strict=True):
        np.testing.assert_array_equal(before, after)
    assert int(model.updates.skipped) == 1


def fit(model, updates, rows=BATCHES["even"]):
    """Updates on one batch over and over; the losses."""
    batch = tf.data.Dataset.from_tensors(make_batch(rows)).repeat()
    return model.fit(batch, epochs=updates, steps_per_epoch=1, shuffle=False, verbose=0).history["loss"]


def test_a_debugger_can_step_through_an_update_that_runs_eagerly(monkeypatch):
    """With an optimizer of Keras by its name."""
    eager, inner = [], teacher_forcing.sum_weights
    monkeypatch.setattr(
        teacher_forcing, "sum_weights", lambda weights: eager.append(tf.executing_eagerly()) or inner(weights)
    )
    expected, found = trainer("sgd"), trainer()
    found.compile("sgd", run_eagerly=True)
    expected.compile("sgd")
    losses = [fit(model, 2) for model in (expected, found)]
    assert eager == [False, True, True]  # traced once
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and losses[0][1] < losses[0][0]


@pytest.mark.slow
def test_a_trainer_that_is_saved_and_loaded_goes_on_as_the_one_that_was_not(tmp_path):
    arguments = {"ema_decay": 0.7, "accumulate_steps": 2, "clip_norm": 0.5, "dropout_rate": 0.3}
    model = trainer(Adam(0.01), **arguments, dtype="mixed_float16")
    fit(model, 2)
    model.save(tmp_path / "trainer.keras")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    settings = ("accumulate_steps", "clip_norm", "ema_decay")
    assert loaded.token_loss.label_smoothing == EPS
    assert [getattr(loaded, name) for name in settings] == [getattr(model, name) for name in settings]
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    start = values(model.network.weights)
    fit(model, 2)
    fit(loaded, 2)
    assert int(loaded.optimizer.iterations) == 4 and len(loaded.resumable_variables) == len(model.resumable_variables)
    for found, expected in zip(loaded.resumable_variables, model.resumable_variables, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=expected.path)
    assert max(np.abs(x - y.numpy()).max() for x, y in zip(start, model.network.weights, strict=True)) > 1e-3


def test_the_weights_are_their_averages_only_where_they_are_measured():
    model = trainer(ema_decay=0.9)
    model.compile(Adam(0.1), CrossEntropy(EPS), run_eagerly=True)  # for speed
    fit(model, 3)
    weights = values(model.network.trainable_variables)
    with model.averaged():
        for found, average in zip(model.network.trainable_variables, model.updates.averages, strict=True):
            np.testing.assert_array_equal(found.numpy(), average.numpy())
        expected = by_numpy(model, [make_batch(range(7))])["loss"]
    for found, weight in zip(model.network.trainable_variables, weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), weight)
    assert abs(by_numpy(model, [make_batch(range(7))])["loss"] - expected) > 0.01
    measures = model.evaluate(tf.data.Dataset.from_tensors(make_batch(range(7))), return_dict=True, verbose=0)
    assert measures["loss"] == pytest.approx(expected, rel=1e-5)


class Agreement(TokenLoss):
    """Cross-entropy of the first pass, and how far a second pass is from it (R-Drop with a difference of states)."""

    passes, measures = 2, {"distance": keras.metrics.Mean}

    def of_tokens(self, passes, output_matrix, labels):
        cross_entropy, _, _ = token_losses(passes[0], output_matrix, labels)
        distance = tf.reduce_sum((passes[0] - passes[-1]) ** 2, axis=-1)
        return cross_entropy + 0.5 * distance, {"distance": distance}


def test_a_loss_of_two_passes_is_one_class_and_one_line_in_a_table(monkeypatch):
    monkeypatch.setitem(LOSSES, "agreement", Agreement)
    model = TeacherForcing(tiny.transformer(vocabulary_size=V, dropout_rate=0.3))
    model.compile(keras.optimizers.SGD(1.0), loss="agreement")
    batch = tf.nest.map_structure(tf.constant, make_batch(range(7)))
    seeds, start = values(model.seeds), values(model.network.trainable_variables)
    logs, after = measured(model.train_step, batch), values(model.network.trainable_variables)
    for variable, value in zip([*model.seeds, *model.network.trainable_variables], [*seeds, *start], strict=True):
        variable.assign(value)  # the same dropout again

    inputs, labels, weights = batch
    with tf.GradientTape() as tape:  # by Keras' own functions, padding and all
        one, other = (model.states(inputs, training=True) for _ in range(2))
        logits = tf.matmul(one, model.network.output_matrix, transpose_b=True)
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        distance = tf.reduce_sum((one - other) ** 2, axis=-1)
        loss = tf.reduce_sum(weights * (cross_entropy + 0.5 * distance)) / tf.reduce_sum(weights)
    gradients = tape.gradient(loss, model.network.trainable_variables)
    assert set(logs) == {"loss", "distance", "padding"} and logs["distance"] > 1e-3
    assert logs["loss"] == pytest.approx(float(loss), rel=1e-5)
    for before, now, gradient in zip(start, after, gradients, strict=True):
        np.testing.assert_allclose(before - now, tf.convert_to_tensor(gradient), atol=2e-6)
    assert measured(model.test_step, batch)["distance"] < logs["distance"]  # one pass, which agrees with itself


def test_scheduled_sampling_replaces_a_share_of_the_target_tokens_by_the_predictions_of_the_position_before():
    network, (inputs, _, _) = tiny.transformer(vocabulary_size=V, dropout_rate=0.0), make_batch(range(13))
    trainer = TeacherForcing(network, scheduled_sampling_rate=0.25)
    before, predicted = inputs["target_ids"], network(inputs).numpy().argmax(axis=-1)
    inputs = tf.nest.map_structure(tf.constant, inputs)
    mix = tf.function(lambda: trainer.mix_targets(inputs)["target_ids"])
    after = mix().numpy()
    changed = before != after
    assert changed.any() and not changed[:, 0].any() and not changed[before == 0].any()  # bos and padding stay
    np.testing.assert_array_equal(after[:, 1:][changed[:, 1:]], predicted[:, :-1][changed[:, 1:]])
    matrix = network.output_matrix
    matrix.assign(matrix * 0.0)  # the prediction is token 0, never a true one
    draws = np.array([mix().numpy()[:, 1:][before[:, 1:] != 0] == 0 for _ in range(200)])
    assert abs(draws.mean() - 0.25) < 5 * (0.25 * 0.75 / draws.size) ** 0.5
    assert not np.array_equal(draws[0], draws[1])  # anew every time
    without = TeacherForcing(network)  # draws nothing
    assert without.coins is None and len(trainer.seeds) == len(without.seeds) + 1


def test_every_replica_drops_other_positions():
    with tiny.two_replicas().scope():
        dropout = Dropout(0.5, seed=3)
    alone = Dropout(0.5, seed=3)
    vary_seeds([*dropout.variables, *alone.variables])
    drop = tf.function(lambda: tiny.two_replicas().run(lambda: dropout(tf.ones((7, 11)), training=True)).values)
    masks = []
    for _ in range(2):
        first, second = (mask.numpy() for mask in drop())
        np.testing.assert_array_equal(first, alone(np.ones((7, 11), "float32"), training=True))
        masks += [first, second]
    for one, other in itertools.combinations(masks, 2):
        assert 0.2 < (one == other).mean() < 0.8  # independent coins agree half the time


def test_replicas_of_other_workers_have_other_seeds_and_keep_them_when_a_checkpoint_of_these_is_loaded():
    def states_after(first_replica, first_state=(7, 11)):
        with tiny.two_replicas().scope():
            dropout = Dropout(0.5, seed=3)
        (variable,) = dropout.variables
        variable.assign(first_state)
        vary_seeds([variable], first_replica)
        return [state.numpy().tolist() for state in variable.value.values]

    assert states_after(0) + states_after(2) == [[7, 11], [8, 11], [9, 11], [10, 11]]
    assert states_after(0, first_state=states_after(2)[0]) == states_after(2)
