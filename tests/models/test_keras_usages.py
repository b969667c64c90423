"""Every usage of a model that Keras' guides show, on the models and on their trainer: it works, or is refused by name.

The guides: training and evaluation with the built-in methods, customizing what happens in `fit`, saving and
serialising, writing your own callbacks, distributed training, transfer learning.
"""

import copy
import functools
import json
import math
import pickle
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer
from keras_transformer.training.losses import CrossEntropy
from keras_transformer.training.teacher_forcing import TeacherForcing

V, ROWS, LENGTH, BATCH = 23, 6, 5, 2
IDS = np.random.default_rng(3).integers(4, V, (ROWS, LENGTH))
IDS[::3, 3:] = 0  # padding
X = {"source_ids": IDS, "target_ids": np.pad(IDS, ((0, 0), (1, 0)), constant_values=2)[:, :-1]}
WEIGHTS = np.random.default_rng(5).uniform(0.5, 2, IDS.shape).astype("float32")
SIZES = {"vocabulary_size": V, "d_model": 6}


def transformer():
    return Transformer(**SIZES, num_heads=2, d_ff=7, num_layers=1)


def recurrent():
    return RecurrentNetwork(**SIZES, cell="rnn", attention="dot")


def for_a_model():
    return {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)}


SUBJECTS = {  # function that makes it, arguments of `compile`, measures
    "trainer": (lambda: TeacherForcing(transformer()), dict, ["loss", "accuracy", "perplexity", "padding"]),
    "model": (transformer, for_a_model, ["loss"]),
    "recurrent trainer": (lambda: TeacherForcing(recurrent()), dict, ["loss", "accuracy", "perplexity", "padding"]),
}


class Subject:
    """One of `SUBJECTS`, without graphs: to trace one takes longer than all else here."""

    def __init__(self, name, path):
        self.make, self.arguments, self.measures = SUBJECTS[name]
        self.name = name
        self.is_trainer = "trainer" in name
        self.path = path

    def compiled(self, optimizer="adam", **arguments):
        return self.compile(self.make(), optimizer, **arguments)

    def compile(self, model, optimizer="adam", **arguments):
        model.compile(optimizer, **{**self.arguments(), "run_eagerly": True, **arguments})
        return model

    def fitted(self, **arguments):
        model = self.compiled()
        model.fit(X, IDS, batch_size=ROWS, verbose=0, **arguments)
        return model


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in SUBJECTS if name != "trainer"]


@pytest.fixture(params=["trainer", *SLOW])
def subject(request, tmp_path):
    return Subject(request.param, tmp_path)


@functools.cache
def shared(name):
    """A compiled model for tests that need no new one."""
    return Subject(name, None).compiled()


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


# What `fit`, `evaluate` and `predict` take. Each row: arguments, epochs that are made, updates that are made.

FIT = {
    "arrays": (lambda: {"x": X, "y": IDS, "batch_size": BATCH, "epochs": 2}, [0, 1], 6),
    "tensors": (lambda: {"x": {name: tf.constant(ids) for name, ids in X.items()}, "y": tf.constant(IDS)}, [0], 1),
    "inputs in a list": (lambda: {"x": list(X.values()), "y": IDS}, [0], 1),
    "weights of tokens": (lambda: {"x": X, "y": IDS, "sample_weight": WEIGHTS}, [0], 1),
    "a dataset with weights": (lambda: {"x": batches(WEIGHTS)}, [0], 3),
    "an endless dataset": (lambda: {"x": batches().repeat(), "steps_per_epoch": 2, "epochs": 2}, [0, 1], 4),
    "a dataset in parts": (lambda: {"x": batches(), "steps_per_epoch": 1, "epochs": 3}, [0, 1, 2], 3),
    "a PyDataset": (lambda: {"x": Batches(), "epochs": 2}, [0, 1], 6),
    "a generator": (lambda: {"x": generator(), "steps_per_epoch": 2}, [0], 2),
    "a later epoch": (lambda: {"x": X, "y": IDS, "initial_epoch": 2, "epochs": 4}, [2, 3], 2),
    "a split": (lambda: {"x": X, "y": IDS, "validation_split": 1 / 3}, [0], 1),
    "validation arrays": (lambda: {"x": X, "y": IDS, "validation_data": (X, IDS), "validation_batch_size": 4}, [0], 1),
    "validation weights": (lambda: {"x": X, "y": IDS, "validation_data": (X, IDS, WEIGHTS)}, [0], 1),
    "a validation dataset": (lambda: {"x": X, "y": IDS, "validation_data": batches()}, [0], 1),
    "steps of validation": (
        lambda: {"x": X, "y": IDS, "validation_data": batches(), "validation_steps": 2, "epochs": 2},
        [0, 1],
        2,
    ),
    "an endless validation dataset": (
        lambda: {"x": X, "y": IDS, "validation_data": batches().repeat(), "validation_steps": 2, "epochs": 2},
        [0, 1],
        2,
    ),
    "a validation generator": (
        lambda: {"x": X, "y": IDS, "validation_data": generator(), "validation_steps": 2},
        [0],
        1,
    ),
    "a validation PyDataset": (lambda: {"x": X, "y": IDS, "validation_data": Batches()}, [0], 1),
}


OFTEN = ("arrays", "a dataset in parts", "a generator", "steps of validation")


@pytest.mark.parametrize(
    "name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in FIT if name not in OFTEN)]
)
def test_fit_takes_what_keras_takes(subject, name):
    make, epochs, updates = FIT[name]
    arguments, model = make(), shared(subject.name)
    before = int(model.optimizer.iterations)
    history = model.fit(**arguments, verbose=0)
    validated = [f"val_{measure}" for measure in subject.measures] if "valid" in str(arguments) else []
    assert set(history.history) == {*subject.measures, *validated} and history.epoch == epochs
    assert all(len(values) == len(epochs) and np.isfinite(values).all() for values in history.history.values())
    assert int(model.optimizer.iterations) - before == updates


@pytest.mark.parametrize(("frequency", "times"), [(2, 1), ([1, 3], 2)])
def test_validation_is_as_frequent_as_asked(subject, frequency, times):
    history = shared(subject.name).fit(
        X, IDS, batch_size=ROWS, epochs=3, validation_data=(X, IDS), validation_freq=frequency, verbose=0
    )
    assert len(history.history["val_loss"]) == times


def test_evaluate_predict_and_single_batches_agree(subject):
    model = shared(subject.name)
    before = int(model.optimizer.iterations)
    expected = model.evaluate(X, IDS, batch_size=BATCH, verbose=0, return_dict=True)
    assert set(expected) == set(subject.measures) == set(model.metrics_names) | {"loss"}
    values = [expected[metric.name] for metric in model.metrics] if subject.is_trainer else [expected["loss"]]
    for data in ((batches(),), (Batches(),), (X, IDS, BATCH)):
        found = model.evaluate(*data, verbose=0)
        assert (found if subject.is_trainer else [found]) == pytest.approx(values, rel=1e-5)
    assert np.isfinite(model.evaluate(batches().repeat(), None, None, 0, None, 2)).all()
    assert model.test_on_batch(X, IDS, return_dict=True)["loss"] == pytest.approx(expected["loss"], rel=0.2)
    assert predictions(model).shape == (ROWS, LENGTH, V)
    for data, steps, rows in ((batches(), None, ROWS), (batches(), 2, 2 * BATCH), (Batches(), None, ROWS)):
        np.testing.assert_allclose(model.predict(data, steps=steps, verbose=0), predictions(model)[:rows], atol=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(X), predictions(model), atol=1e-6)
    assert int(model.optimizer.iterations) == before


@pytest.mark.slow
def test_an_update_can_be_made_on_a_single_batch(subject):
    model, other = subject.compiled("sgd"), subject.compiled("sgd")
    other.set_weights(model.get_weights())
    seeds = [(to, source.numpy()) for to, source in zip(other.variables, model.variables, strict=True)]
    for variable, value in seeds:
        variable.assign(value)
    measures = model.train_on_batch(X, IDS, return_dict=True)
    losses = other.fit(X, IDS, batch_size=ROWS, shuffle=False, verbose=0).history["loss"]
    assert measures["loss"] == pytest.approx(losses[0], rel=1e-5) and is_same(model, other)
    assert np.isfinite(model.train_on_batch(X, IDS, sample_weight=WEIGHTS)).all()
    assert int(model.optimizer.iterations) == 2


# Callbacks.


class Noted(keras.callbacks.Callback):
    """Notes every call, as the guide of callbacks does."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            self.calls.append(name)
        return super().__getattribute__(name)


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise InterruptedError


class StopEarly(keras.callbacks.Callback):
    """Stops each of the loops after its first batch, and puts the weights back as the guide's early stopping does."""

    def on_train_begin(self, logs=None):
        self.start, self.losses = self.model.get_weights(), []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        self.model.stop_training = True

    def on_test_batch_end(self, batch, logs=None):
        self.model.stop_evaluating = True
        self.tests = getattr(self, "tests", 0) + 1

    def on_train_end(self, logs=None):
        self.model.set_weights(self.start)


def test_a_callback_is_told_of_everything(subject):
    model, noted = shared(subject.name), Noted()
    model.fit(batches(), validation_data=batches(), verbose=0, callbacks=[noted])
    model.predict(batches(), verbose=0, callbacks=[noted])
    loops = {f"on_{loop}_{end}" for loop in ("train", "test", "predict") for end in ("begin", "end")}
    loops |= {f"on_{loop}_batch_{end}" for loop in ("train", "test", "predict") for end in ("begin", "end")}
    assert loops | {"on_epoch_begin", "on_epoch_end"} <= set(noted.calls)


def test_a_callback_can_stop_a_loop_and_set_the_weights(subject):
    model, stop = shared(subject.name), StopEarly()
    start = model.get_weights()
    assert len(model.fit(batches(), epochs=3, verbose=0, callbacks=[stop]).epoch) == len(stop.losses) == 1
    for found, expected in zip(model.get_weights(), start, strict=True):
        np.testing.assert_array_equal(found, expected)
    for data, steps in ((batches(), None), (batches().repeat(), 3)):
        stop.tests = 0
        model.evaluate(data, steps=steps, verbose=0, callbacks=[stop])
        assert stop.tests == 1


@pytest.mark.slow
def test_callbacks_of_keras_monitor_save_and_log(subject):
    path, callbacks = subject.path, keras.callbacks
    model = subject.compiled(keras.optimizers.Adam(0.5))
    history = model.fit(
        X,
        IDS,
        batch_size=ROWS,
        epochs=4,
        validation_data=(X, IDS),
        verbose=0,
        callbacks=[
            callbacks.ModelCheckpoint(path / "{epoch}.keras", monitor="val_loss"),
            callbacks.ModelCheckpoint(path / "best.weights.h5", save_best_only=True, save_weights_only=True),
            callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
            callbacks.ReduceLROnPlateau(patience=1, min_delta=100.0),
            callbacks.CSVLogger(path / "log.csv"),
            callbacks.TensorBoard(path / "curves", histogram_freq=1, update_freq=1),
            callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs["loss"]),
            callbacks.TerminateOnNaN(),
            callbacks.EarlyStopping(min_delta=100.0, patience=2, restore_best_weights=True),
        ],
    )
    assert history.epoch == [0, 1, 2]  # the third is no better than the first by 100
    assert float(model.optimizer.learning_rate) == pytest.approx(0.5 / 2 / 2 / 10 / 2 / 10)
    assert (path / "log.csv").read_text().count("\n") == 4 and any((path / "curves").rglob("*tfevents*"))
    assert is_same(keras.models.load_model(path / "1.keras"), model)  # the weights of the best epoch are back
    best = subject.compiled()
    best.load_weights(path / "best.weights.h5")
    assert np.isfinite(predictions(best)).all()


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_from_its_backup(subject):
    arguments = {"x": X, "y": IDS, "batch_size": BATCH, "epochs": 3, "verbose": 0}
    with pytest.raises(InterruptedError):
        subject.compiled().fit(
            **arguments, callbacks=[keras.callbacks.BackupAndRestore(subject.path / "backup"), Interrupt()]
        )
    model = subject.compiled()
    history = model.fit(**arguments, callbacks=[keras.callbacks.BackupAndRestore(subject.path / "backup")])
    assert history.epoch == [1, 2] and int(model.optimizer.iterations) == 9


# Saving.


def test_a_compiled_model_is_saved_whole_and_goes_on(subject):
    model = subject.fitted()
    model.save(subject.path / "model.keras")
    loaded = keras.models.load_model(subject.path / "model.keras")
    assert is_same(loaded, model)
    loaded.run_eagerly = True
    loaded.fit(X, IDS, batch_size=ROWS, verbose=0)
    assert int(loaded.optimizer.iterations) == 2
    without = keras.models.load_model(subject.path / "model.keras", compile=False)
    assert is_same(subject.compile(without, "sgd"), model)


COPIES = {
    "load_model": lambda model, path: model.save(path / "m.keras") or keras.models.load_model(path / "m.keras"),
    "from_config": lambda model, path: type(model).from_config(model.get_config()),
    "from JSON": lambda model, path: keras.models.model_from_json(model.to_json()),
    "an object of JSON": lambda model, path: keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    ),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", COPIES)
def test_a_model_is_copied_before_it_is_compiled_and_afterwards(subject, how):
    model = shared(subject.name) if how in ("pickle", "from JSON") else subject.make()
    config = json.dumps(model.get_config())
    other = COPIES[how](model, subject.path)
    assert json.dumps(model.get_config()) == config
    assert [weight.shape for weight in other.get_weights()] == [weight.shape for weight in model.get_weights()]
    other.set_weights(model.get_weights())
    assert is_same(other, model)
    assert not {id(variable) for variable in other.variables} & {id(variable) for variable in model.variables}
    assert type(other) is type(model)


@pytest.mark.slow
@pytest.mark.parametrize(("is_from", "is_to"), [(True, True), (True, False), (False, True)])
def test_weights_are_saved_and_loaded_whichever_model_is_compiled(subject, is_from, is_to):
    model, other = ((subject.fitted if flag else subject.make)() for flag in (is_from, is_to))
    model.save_weights(subject.path / "of.weights.h5")
    other.load_weights(subject.path / "of.weights.h5")
    assert is_same(other, model)


@pytest.mark.slow
def test_what_is_exported_is_the_network(subject):
    model = shared(subject.name)
    model.export(subject.path / "exported", verbose=False)
    loaded = tf.saved_model.load(str(subject.path / "exported"))
    found = loaded.serve({name: tf.constant(ids, tf.int32) for name, ids in X.items()})
    np.testing.assert_allclose(found, predictions(model), atol=1e-5)


@pytest.mark.slow
def test_a_second_compile_leaves_nothing_of_the_first(subject):
    model = subject.fitted()
    count = len(model.variables)
    subject.compile(model, keras.optimizers.SGD(0.1))
    model.fit(X, IDS, batch_size=ROWS, verbose=0)
    assert len(model.variables) == count and int(model.optimizer.iterations) == 1
    model.save(subject.path / "model.keras")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = keras.models.load_model(subject.path / "model.keras")
    assert is_same(loaded, model) and not [warning for warning in caught if "optimizer" in str(warning.message)]


def test_compiling_and_training_changes_no_weight_list_and_no_count(subject):
    model = subject.make()
    before = [(weight.path, tuple(weight.shape)) for weight in model.weights]
    count, lines = model.count_params(), []
    subject.compile(model).fit(X, IDS, batch_size=ROWS, verbose=0)
    assert [(weight.path, tuple(weight.shape)) for weight in model.weights] == before
    model.summary(print_fn=lambda text, **_: lines.append(text), expand_nested=True)
    assert model.count_params() == count and f"{count:,}" in "".join(lines)


# Transfer learning.


def network_of(model):
    return getattr(model, "network", model)


@pytest.mark.slow
def test_a_frozen_part_stays_and_a_thawed_one_learns(subject):
    model = subject.make()
    encoder = network_of(model).encoder
    encoder.trainable = False
    before = [weight.numpy() for weight in encoder.weights]
    subject.compile(model).fit(X, IDS, batch_size=ROWS, verbose=0)
    assert all(np.array_equal(weight, value) for weight, value in zip(encoder.weights, before, strict=True))
    encoder.trainable = True
    subject.compile(model).fit(X, IDS, batch_size=ROWS, verbose=0)
    assert not all(np.array_equal(weight, value) for weight, value in zip(encoder.weights, before, strict=True))


@pytest.mark.slow
def test_a_model_with_a_frozen_part_is_saved_and_goes_on(subject):
    """As with Keras, nothing is frozen after loading, and the optimizer begins anew."""
    model = subject.make()
    network_of(model).encoder.trainable = False
    subject.compile(model).fit(X, IDS, batch_size=ROWS, verbose=0)
    model.save(subject.path / "model.keras")
    loaded = keras.models.load_model(subject.path / "model.keras")
    assert is_same(loaded, model) and loaded.trainable_variables
    assert np.isfinite(subject.compile(loaded).train_on_batch(X, IDS)).all()


@pytest.mark.slow
def test_a_model_is_a_part_of_another(subject):
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in X}
    whole = keras.Model(inputs, keras.layers.Dense(3)(subject.make()(inputs)))
    whole.save(subject.path / "whole.keras")
    assert is_same(keras.models.load_model(subject.path / "whole.keras"), whole)
    assert predictions(whole).shape == (ROWS, LENGTH, 3)


@pytest.mark.slow
def test_a_step_of_ones_own_is_what_fit_calls(subject):
    """As the guide of customizing `fit` does, with the step of the class above."""
    base, made = type(subject.make()), []

    class Own(base):
        def train_step(self, data):
            made.append("update")
            return super().train_step(data)

        def test_step(self, data):
            made.append("test")
            return super().test_step(data)

    model = subject.make()
    own = subject.compile(Own.from_config(model.get_config()))
    own.fit(X, IDS, batch_size=ROWS, validation_data=(X, IDS), verbose=0)
    assert made == ["update", "test"]


@pytest.mark.slow
def test_a_strategy_trains_and_evaluates_as_in_the_guide(subject):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = subject.compiled(jit_compile=False, run_eagerly=False)
    history = model.fit(batches(), validation_data=batches(), verbose=0).history
    assert np.isfinite([history["loss"], history["val_loss"]]).all()


# Compiling.

COMPILED = {
    "no metric": {"metrics": []},
    "nothing": {"metrics": None, "loss_weights": None, "weighted_metrics": None},
    "scaled losses": {"auto_scale_loss": True},
    "a dict": {"optimizer": {"class_name": "adam", "config": {"learning_rate": 0.1}}},
    "a name": {"optimizer": "rmsprop"},
    "a schedule": {"optimizer": keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))},
}


@pytest.mark.parametrize("name", COMPILED)
def test_compile_takes_what_keras_takes(subject, name):
    arguments = {"optimizer": "adam", **COMPILED[name]}
    if isinstance(arguments["optimizer"], keras.optimizers.Optimizer):
        arguments["optimizer"] = keras.optimizers.deserialize(keras.optimizers.serialize(arguments["optimizer"]))
    model = subject.compiled(**arguments)
    assert math.isfinite(model.train_on_batch(X, IDS, return_dict=True)["loss"])


@pytest.mark.slow
def test_a_rate_that_is_set_is_the_rate(subject):
    model = subject.compiled()
    model.optimizer.learning_rate = 0.25
    model.train_on_batch(X, IDS)
    assert float(model.optimizer.learning_rate) == 0.25


# What is refused.

OF_THE_OPTIMIZER = {
    "gradient_accumulation_steps": 2,
    "use_ema": True,
    "clipnorm": 1.0,
    "clipvalue": 0.5,
    "global_clipnorm": 1.0,
    "loss_scale_factor": 2.0,
}
REFUSED = {
    **{
        name: (
            lambda trainer, name=name, value=value: trainer.compile(keras.optimizers.Adam(**{name: value})),
            f"`{name}` of the optimizer is not supported: use ",
        )
        for name, value in OF_THE_OPTIMIZER.items()
    },
    "Nadam": (lambda trainer: trainer.compile("nadam"), "the optimizer Nadam is not supported"),
    "an unknown optimizer": (
        lambda trainer: trainer.compile("adamm"),
        "Could not interpret optimizer identifier: adamm",
    ),
    "a loss of Keras": (lambda trainer: trainer.compile(loss="mse"), "`loss` must be a `TokenLoss`"),
    "metrics": (lambda trainer: trainer.compile(metrics=["accuracy"]), "leave metrics=.* out"),
    "weighted_metrics": (
        lambda trainer: trainer.compile(weighted_metrics=["accuracy"]),
        "leave weighted_metrics=.* out",
    ),
    "loss_weights": (lambda trainer: trainer.compile(loss_weights=[1.0]), "leave loss_weights=.* out"),
    "steps_per_execution": (lambda trainer: trainer.compile(steps_per_execution=2), "leave steps_per_execution=2 out"),
    "jit_compile": (lambda trainer: trainer.compile(jit_compile=True), "leave jit_compile=True out"),
    "auto_scale_loss": (lambda trainer: trainer.compile(auto_scale_loss=False), "leave auto_scale_loss=False out"),
    "no compile, fit": (lambda trainer: trainer.fit(X, IDS), "must call `compile"),
    "no compile, evaluate": (lambda trainer: trainer.evaluate(X, IDS), "must call `compile"),
    "no compile, endless": (lambda trainer: trainer.evaluate(batches().repeat(), steps=1), "must call `compile"),
    "no compile, batch": (lambda trainer: trainer.train_on_batch(X, IDS), "must call `compile"),
}
REFUSED_LATER = {
    "class_weight": (lambda trainer: trainer.fit(X, IDS, class_weight={5: 2.0}), "`class_weight` has no meaning"),
    "class_weight of a batch": (
        lambda trainer: trainer.train_on_batch(X, IDS, class_weight={5: 2.0}),
        "`class_weight`",
    ),
    "no labels": (lambda trainer: trainer.fit(X, verbose=0), "there are no labels"),
    "no labels of a batch": (lambda trainer: trainer.train_on_batch(X), "there are no labels"),
}


@pytest.fixture(scope="module")
def network():
    return transformer()


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_LATER])
def test_what_a_trainer_refuses_it_refuses_by_name_in_one_line(network, name):
    trainer = TeacherForcing(network)
    if name in REFUSED_LATER:
        trainer.compile("adam", run_eagerly=True)
    use, message = {**REFUSED, **REFUSED_LATER}[name]
    with pytest.raises(ValueError, match=message) as caught:
        use(trainer)
    assert "\n" not in str(caught.value)


def test_a_network_without_a_trainable_layer_is_evaluated_and_not_trained(network):
    trainer = TeacherForcing(transformer())
    trainer.trainable = False
    trainer.compile("adam", CrossEntropy(), run_eagerly=True)
    assert math.isfinite(trainer.evaluate(X, IDS, verbose=0)[0])
    with pytest.raises(ValueError, match="nothing to train: every layer of the network has trainable=False"):
        trainer.fit(X, IDS, verbose=0)


# What a trainer does besides.


@pytest.mark.slow
def test_a_trainer_is_cloned():
    trainer = TeacherForcing(transformer(), accumulate_steps=3)
    clone = keras.models.clone_model(trainer)
    clone.set_weights(trainer.get_weights())
    assert is_same(clone, trainer) and clone.accumulate_steps == 3


def accumulating(steps=2):
    trainer = TeacherForcing(transformer(), accumulate_steps=steps)
    trainer.compile("sgd", run_eagerly=True)
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "updates"),
    [
        (lambda: {"x": X, "y": IDS, "batch_size": BATCH, "epochs": 2}, 3),  # three batches an epoch
        (lambda: {"x": batches(), "epochs": 3}, 4),
        (lambda: {"x": Batches(), "epochs": 2}, 3),
        (lambda: {"x": batches(), "epochs": 4, "steps_per_epoch": 1}, 4),
        (lambda: {"x": batches().repeat(), "epochs": 2, "steps_per_epoch": 2}, 4),
        (lambda: {"x": X, "y": IDS, "batch_size": ROWS, "epochs": 5}, 2),  # one batch an epoch
    ],
)
def test_batches_that_are_accumulated_over_the_end_of_an_epoch_are_no_cause_for_a_warning(data, updates):
    trainer = accumulating()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(**data(), verbose=0)
    assert int(trainer.optimizer.iterations) == updates
    assert not [warning for warning in caught if "ran out of data" in str(warning.message)]


@pytest.mark.slow
def test_averages_begin_with_weights_that_are_loaded(tmp_path):
    plain, averaging = TeacherForcing(transformer()), TeacherForcing(transformer(), ema_decay=0.9)
    plain.save_weights(tmp_path / "of.weights.h5")
    for trainer in (plain, averaging):
        trainer.compile("sgd", run_eagerly=True)
    averaging.load_weights(tmp_path / "of.weights.h5")
    expected = plain.evaluate(X, IDS, verbose=0)
    assert averaging.evaluate(X, IDS, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_a_generator_that_ends_too_soon_is_still_a_cause_for_a_warning():
    with pytest.warns(UserWarning, match="ran out of data"):
        accumulating().fit((Batches()[index] for index in range(3)), steps_per_epoch=3, verbose=0)


def test_single_batches_make_an_update_when_there_are_enough():
    trainer, updates = accumulating(), []
    for _ in range(5):
        assert np.isfinite(trainer.train_on_batch(X, IDS)).all()
        updates.append(int(trainer.optimizer.iterations))
    assert updates == [0, 1, 1, 2, 2]


@pytest.mark.slow
def test_weights_of_pairs_are_those_of_their_tokens_and_padding_weighs_nothing():
    trainer = TeacherForcing(transformer())
    trainer.compile("sgd", run_eagerly=True)
    of_pairs = np.arange(1.0, ROWS + 1)
    of_tokens = np.where(IDS == 0, 0, of_pairs[:, None])
    expected = trainer.evaluate(X, IDS, sample_weight=of_tokens, verbose=0)
    assert trainer.evaluate(X, IDS, sample_weight=of_pairs, verbose=0) == pytest.approx(expected, rel=1e-6)
    assert trainer.evaluate(X, IDS, verbose=0)[0] != pytest.approx(expected[0], rel=1e-4)
    ones = trainer.evaluate(X, IDS, sample_weight=np.ones(IDS.shape), verbose=0)
    assert trainer.evaluate(X, IDS, verbose=0) == pytest.approx(ones, rel=1e-6)


@pytest.mark.slow
def test_batches_of_equal_shape_share_a_graph():
    trainer, traced = TeacherForcing(transformer()), []
    inner = trainer.train_step
    trainer.train_step = lambda batch: traced.append(1) or inner(batch)
    trainer.compile("sgd")
    for _ in range(3):
        trainer.train_on_batch(X, IDS)
    assert len(traced) == 1
