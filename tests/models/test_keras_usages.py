"""Every usage of a model that Keras' guides show, of our trainer: it works, or is refused by name.

The guides: training and evaluation with the built-in methods, customizing what happens in `fit`, saving and
serialising, writing your own callbacks, transfer learning. Models themselves leave all but their configuration to
Keras, so they are copied, saved and connected here. Nothing is traced, because to trace a graph takes longer than all
else.
"""

import copy
import functools
import json
import pickle
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models.transformer import Transformer
from keras_transformer.training.losses import CrossEntropy
from keras_transformer.training.teacher_forcing import TeacherForcing

V, ROWS, LENGTH, BATCH = 23, 6, 5, 2
IDS = np.random.default_rng(3).integers(4, V, (ROWS, LENGTH))
IDS[::3, 3:] = 0  # padding
X = {"source_ids": IDS, "target_ids": np.pad(IDS, ((0, 0), (1, 0)), constant_values=2)[:, :-1]}
WEIGHTS = np.random.default_rng(5).uniform(0.5, 2, IDS.shape).astype("float32")
SIZES = {"vocabulary_size": V, "d_model": 6}
MEASURES = ["loss", "accuracy", "perplexity", "padding"]


def transformer():
    return Transformer(**SIZES, num_heads=2, d_ff=7, num_layers=1)


def new(**arguments):
    return TeacherForcing(transformer(), **arguments)


def compiled(optimizer="adam", trainer=None, **arguments):
    trainer = trainer or new()
    trainer.compile(optimizer, run_eagerly=True, **arguments)
    return trainer


def fitted(trainer=None, optimizer="adam"):
    trainer = compiled(optimizer, trainer)
    trainer.fit(X, IDS, batch_size=ROWS, verbose=0)
    return trainer


@functools.cache
def shared():
    """A compiled trainer for tests that need no new one."""
    return compiled()


def batches(*parts):
    return tf.data.Dataset.from_tensor_slices((X, IDS, *parts)).batch(BATCH)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return {name: ids[rows] for name, ids in X.items()}, IDS[rows]


def generator():
    while True:
        yield from (Batches()[index] for index in range(ROWS // BATCH))


def predictions(model):
    return np.asarray(model({name: tf.constant(ids) for name, ids in X.items()}))


def is_same(one, other):
    np.testing.assert_allclose(predictions(one), predictions(other), atol=1e-6)
    return one is not other


# Training and evaluation. Each row: arguments of `fit`, epochs that are made, updates that are made.

ARRAYS = {"x": X, "y": IDS}
FIT = {
    "arrays": ({**ARRAYS, "batch_size": 4, "epochs": 2, "validation_data": (X, IDS, WEIGHTS)}, [0, 1], 4),
    "lists": ({"x": list(X.values()), "y": IDS, "sample_weight": WEIGHTS, "validation_split": 1 / 3}, [0], 1),
    "endless datasets": (
        {"x": batches(WEIGHTS).repeat(), "steps_per_epoch": 1, "epochs": 2}
        | {"validation_data": batches().repeat(), "validation_steps": 2},
        [0, 1],
        2,
    ),
    "a PyDataset": ({"x": Batches(), "validation_data": Batches(), "initial_epoch": 1, "epochs": 2}, [1], 3),
    "a generator": ({"x": generator(), "steps_per_epoch": 2}, [0], 2),
}


@pytest.mark.parametrize(("arguments", "epochs", "updates"), FIT.values(), ids=FIT)
def test_fit_takes_what_keras_takes(arguments, epochs, updates):
    trainer = shared()
    before, history = int(trainer.optimizer.iterations), trainer.fit(**arguments, verbose=0)
    validated = [f"val_{measure}" for measure in MEASURES] if "valid" in str(arguments) else []
    assert set(history.history) == {*MEASURES, *validated} and history.epoch == epochs
    assert all(len(values) == len(epochs) and np.isfinite(values).all() for values in history.history.values())
    assert int(trainer.optimizer.iterations) - before == updates


def test_evaluate_predict_and_single_batches_agree():
    trainer = shared()
    before = int(trainer.optimizer.iterations)
    expected = trainer.evaluate(X, IDS, batch_size=BATCH, verbose=0, return_dict=True)
    assert set(expected) == set(MEASURES) == set(trainer.metrics_names)
    for data in ((batches(),), (Batches(),), (X, IDS, BATCH)):
        values = [expected[metric.name] for metric in trainer.metrics]
        assert trainer.evaluate(*data, verbose=0) == pytest.approx(values, rel=1e-5)
    assert np.isfinite(trainer.evaluate(batches().repeat(), steps=2, verbose=0)).all()
    assert trainer.test_on_batch(X, IDS, return_dict=True)["loss"] == pytest.approx(expected["loss"], rel=0.2)
    assert predictions(trainer).shape == (ROWS, LENGTH, V)
    np.testing.assert_allclose(trainer.predict(Batches(), verbose=0), predictions(trainer), rtol=1e-5, atol=1e-6)
    assert int(trainer.optimizer.iterations) == before


class StopEarly(keras.callbacks.Callback):
    """Stops each of the loops after its first batch, and puts the weights back as the guide's early stopping does."""

    def __init__(self):
        super().__init__()
        self.told, self.tests = set(), 0

    def __getattribute__(self, name):
        if name.startswith("on_"):
            self.told.add(name)
        return super().__getattribute__(name)

    def on_train_begin(self, logs=None):
        self.start = self.model.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = np.isfinite(logs["loss"])

    def on_test_batch_end(self, batch, logs=None):
        self.model.stop_evaluating = True
        self.tests += 1

    def on_train_end(self, logs=None):
        self.model.set_weights(self.start)


def test_a_callback_is_told_of_everything_and_can_stop_a_loop_and_set_the_weights():
    trainer, stop = shared(), StopEarly()
    start, updates = trainer.get_weights(), int(trainer.optimizer.iterations)
    trainer.fit(batches(), epochs=3, validation_data=batches(), verbose=0, callbacks=[stop])
    assert int(trainer.optimizer.iterations) == updates + 1 and stop.tests == 1
    for found, expected in zip(trainer.get_weights(), start, strict=True):
        np.testing.assert_array_equal(found, expected)
    trainer.evaluate(batches().repeat(), steps=3, verbose=0, callbacks=[stop])
    assert stop.tests == 2
    trainer.predict(batches(), verbose=0, callbacks=[stop])
    loops = [f"{loop}{part}" for loop in ("train", "test", "predict") for part in ("", "_batch")]
    assert {f"on_{loop}_{end}" for loop in [*loops, "epoch"] for end in ("begin", "end")} <= stop.told


@pytest.mark.slow
def test_callbacks_of_keras_monitor_save_and_log(tmp_path):
    trainer, callbacks = compiled(keras.optimizers.Adam(0.5)), keras.callbacks
    used = [
        callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras", monitor="val_loss"),
        callbacks.ModelCheckpoint(tmp_path / "best.weights.h5", save_best_only=True, save_weights_only=True),
        callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        callbacks.ReduceLROnPlateau(patience=1, min_delta=100.0),
        callbacks.CSVLogger(tmp_path / "log.csv"),
        callbacks.EarlyStopping(min_delta=100.0, patience=2, restore_best_weights=True),
    ]
    how = {"batch_size": ROWS, "epochs": 4, "validation_data": (X, IDS), "verbose": 0}
    assert trainer.fit(X, IDS, **how, callbacks=used).epoch == [0, 1, 2]  # the third is no better than the first by 100
    assert float(trainer.optimizer.learning_rate) == pytest.approx(0.5 / 2 / 2 / 10 / 2 / 10)
    assert (tmp_path / "log.csv").read_text().count("\n") == 4
    assert is_same(keras.models.load_model(tmp_path / "1.keras"), trainer)  # the weights of the best epoch are back
    best = compiled()
    best.load_weights(tmp_path / "best.weights.h5")
    assert np.isfinite(predictions(best)).all()


def test_a_compiled_trainer_is_saved_whole_and_goes_on(tmp_path):
    trainer, other = fitted(), new()
    trainer.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert is_same(loaded, trainer)
    loaded.run_eagerly = True
    loaded.fit(X, IDS, batch_size=ROWS, verbose=0)
    assert int(loaded.optimizer.iterations) == 2
    without = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert is_same(compiled("sgd", without), trainer)
    trainer.save_weights(tmp_path / "of.weights.h5")
    other.load_weights(tmp_path / "of.weights.h5")  # is not compiled
    assert is_same(other, trainer)


@pytest.mark.slow
def test_a_model_is_copied():
    model = new(accumulate_steps=3)
    config = json.dumps(model.get_config())
    of_json = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    for other in (of_json, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert json.dumps(model.get_config()) == json.dumps(other.get_config()) == config
        other.set_weights(model.get_weights())
        assert is_same(other, model) and type(other) is type(model)
        assert not {id(variable) for variable in other.variables} & {id(variable) for variable in model.variables}


@pytest.mark.slow
def test_what_is_exported_is_the_network(tmp_path):
    shared().export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    found = loaded.serve({name: tf.constant(ids, tf.int32) for name, ids in X.items()})
    np.testing.assert_allclose(found, predictions(shared()), atol=1e-5)


def test_training_changes_no_list_of_weights_and_a_second_compile_leaves_nothing_of_the_first(tmp_path):
    trainer, lines = new(), []
    paths, count = [weight.path for weight in trainer.weights], trainer.count_params()
    variables = len(fitted(trainer).variables)
    assert [weight.path for weight in trainer.weights] == paths and trainer.count_params() == count
    trainer.summary(print_fn=lambda text, **_: lines.append(text), expand_nested=True)
    assert f"{count:,}" in "".join(lines)
    fitted(trainer, keras.optimizers.SGD(0.1))
    assert len(trainer.variables) == variables and int(trainer.optimizer.iterations) == 1
    trainer.save(tmp_path / "model.keras")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert is_same(keras.models.load_model(tmp_path / "model.keras"), trainer)
    assert not [warning for warning in caught if "optimizer" in str(warning.message)]


# Transfer learning.


@pytest.mark.slow
def test_a_frozen_part_stays_is_saved_and_thawed_and_learns(tmp_path):
    """As with Keras, nothing is frozen after loading, and the optimizer begins anew."""
    trainer = new()
    encoder = trainer.network.encoder
    encoder.trainable, before = False, encoder.get_weights()
    fitted(trainer)
    changes = [np.abs(weight - value).max() for weight, value in zip(encoder.weights, before, strict=True)]
    assert not any(changes)
    trainer.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert is_same(loaded, trainer) and loaded.trainable_variables
    assert np.isfinite(compiled(trainer=loaded).train_on_batch(X, IDS)).all()
    encoder.trainable = True
    fitted(trainer)
    assert np.any(encoder.get_weights()[0] != before[0])


@pytest.mark.slow
def test_a_model_is_a_part_of_another(tmp_path):
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in X}
    whole = keras.Model(inputs, keras.layers.Dense(3)(new()(inputs)))
    whole.save(tmp_path / "whole.keras")
    assert is_same(keras.models.load_model(tmp_path / "whole.keras"), whole)
    assert predictions(whole).shape == (ROWS, LENGTH, 3)


def test_compile_takes_what_keras_takes_and_a_rate_that_is_set_is_the_rate():
    compiled(metrics=[], auto_scale_loss=True)
    compiled(metrics=None, loss_weights=None, weighted_metrics=None)
    compiled(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)))
    trainer = compiled({"class_name": "adam", "config": {"learning_rate": 0.1}})
    trainer.optimizer.learning_rate = 0.25
    assert np.isfinite(trainer.train_on_batch(X, IDS)).all() and float(trainer.optimizer.learning_rate) == 0.25


# What is refused.

OF_THE_OPTIMIZER = {
    **{"gradient_accumulation_steps": 2, "use_ema": True, "loss_scale_factor": 2.0},
    **{"clipnorm": 1.0, "clipvalue": 0.5, "global_clipnorm": 1.0},
}
OF_COMPILE = {
    **{"metrics": ["accuracy"], "weighted_metrics": ["accuracy"], "loss_weights": [1.0]},
    **{"steps_per_execution": 2, "jit_compile": True, "auto_scale_loss": False},
}
REFUSED = [  # arguments of `compile`
    *(
        ({"optimizer": keras.optimizers.Adam(**{name: value})}, f"`{name}` of the optimizer is not supported: use ")
        for name, value in OF_THE_OPTIMIZER.items()
    ),
    *(({name: value}, f"leave {name}=.* out") for name, value in OF_COMPILE.items()),
    ({"optimizer": "nadam"}, "the optimizer Nadam is not supported"),
    ({"optimizer": "adamm"}, "Could not interpret optimizer identifier: adamm"),
    ({"loss": "mse"}, "`loss` must be a `TokenLoss`"),
]
REFUSED_LATER = [  # message, is it compiled, usage
    ("must call `compile", False, lambda trainer: trainer.fit(X, IDS)),
    ("must call `compile", False, lambda trainer: trainer.evaluate(X, IDS)),
    ("must call `compile", False, lambda trainer: trainer.evaluate(batches().repeat(), steps=1)),
    ("must call `compile", False, lambda trainer: trainer.train_on_batch(X, IDS)),
    ("`class_weight` has no meaning", True, lambda trainer: trainer.fit(X, IDS, class_weight={5: 2.0})),
    ("`class_weight`", True, lambda trainer: trainer.train_on_batch(X, IDS, class_weight={5: 2.0})),
    ("there are no labels", True, lambda trainer: trainer.fit(X, verbose=0)),
    ("there are no labels", True, lambda trainer: trainer.train_on_batch(X)),
]


def test_what_a_trainer_refuses_it_refuses_by_name_in_one_line():
    uses = [(message, False, lambda trainer, given=given: trainer.compile(**given)) for given, message in REFUSED]
    never_compiled = new()
    for message, is_compiled, use in REFUSED_LATER + uses:
        with pytest.raises(ValueError, match=message) as caught:
            use(shared() if is_compiled else never_compiled)
        assert "\n" not in str(caught.value)


def test_a_network_without_a_trainable_layer_is_evaluated_and_not_trained():
    trainer = new()
    trainer.trainable = False
    compiled(trainer=trainer, loss=CrossEntropy())
    assert np.isfinite(trainer.evaluate(X, IDS, verbose=0)[0])
    with pytest.raises(ValueError, match="nothing to train: every layer of the network has trainable=False"):
        trainer.fit(X, IDS, verbose=0)


# What a trainer does besides.


@pytest.mark.slow
def test_batches_that_are_accumulated_over_the_end_of_an_epoch_are_no_cause_for_a_warning():
    for data, updates in (
        ({**ARRAYS, "batch_size": BATCH, "epochs": 2}, 3),  # three batches an epoch
        ({"x": batches(), "epochs": 4, "steps_per_epoch": 1}, 4),
        ({**ARRAYS, "batch_size": ROWS, "epochs": 5}, 2),  # one batch an epoch
    ):
        trainer = compiled("sgd", new(accumulate_steps=2))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "(?s).*ran out of data")
            trainer.fit(**data, verbose=0)
        assert int(trainer.optimizer.iterations) == updates
    with pytest.warns(UserWarning, match="ran out of data"):  # a generator that ends too soon still is
        trainer.fit((Batches()[index] for index in range(3)), steps_per_epoch=3, verbose=0)


def test_single_batches_make_an_update_when_there_are_enough():
    trainer, updates = compiled("sgd", new(accumulate_steps=2)), []
    for weights in (None, WEIGHTS, None, WEIGHTS, None):
        assert np.isfinite(trainer.train_on_batch(X, IDS, sample_weight=weights)).all()
        updates.append(int(trainer.optimizer.iterations))
    assert updates == [0, 1, 1, 2, 2]


@pytest.mark.slow
def test_averages_begin_with_weights_that_are_loaded(tmp_path):
    plain, averaging = new(), new(ema_decay=0.9)
    plain.save_weights(tmp_path / "of.weights.h5")
    for trainer in (plain, averaging):
        compiled("sgd", trainer)
    averaging.load_weights(tmp_path / "of.weights.h5")
    assert averaging.evaluate(X, IDS, verbose=0) == pytest.approx(plain.evaluate(X, IDS, verbose=0), rel=1e-5)


@pytest.mark.slow
def test_weights_of_pairs_are_those_of_their_tokens_and_padding_weighs_nothing():
    trainer, of_pairs = shared(), np.arange(1.0, ROWS + 1)

    def measure(weights=None):
        return trainer.evaluate(X, IDS, sample_weight=weights, verbose=0)

    expected = measure(np.where(IDS == 0, 0, of_pairs[:, None]))
    assert measure(of_pairs) == pytest.approx(expected, rel=1e-6)
    assert measure()[0] != pytest.approx(expected[0], rel=1e-4)
    assert measure() == pytest.approx(measure(np.ones(IDS.shape)), rel=1e-6)
