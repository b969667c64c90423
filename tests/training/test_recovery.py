import math
from dataclasses import asdict
from types import SimpleNamespace

import keras
import pytest
from keras_transformer.layers.dropout import Dropout
from keras_transformer.training.progress import Progress
from keras_transformer.training.recovery import DivergenceError, Recover

from keras_transformer.training.callbacks import resumable_variables
from keras_transformer.training.checkpoints import RunDirectory, save_variables
from tests import tiny

V = 37
SAVED, LATER = [3.0, 5.0], [7.0, 11.0]


def recover(path, is_saved=True):
    """The callback at the begin of an epoch, of a run that saved its weights after update 13 and changed them since."""
    weight = keras.Variable(SAVED, name="weight")
    model = SimpleNamespace(
        transformer=SimpleNamespace(vocabulary_size=V, variables=[weight]),
        optimizer=SimpleNamespace(skipped=keras.Variable(0, dtype="int32"), variables=[]),
        loss_metric=keras.metrics.Mean(name="loss"),
    )
    run = RunDirectory(path)
    if is_saved:
        save_variables(run.last, resumable_variables(model), asdict(Progress(step=13)))
    weight.assign(LATER)
    callback = Recover(run, Progress(step=17))
    callback.set_model(model)
    callback.on_epoch_begin(0)
    return callback


def update(callback, loss=2.0, skipped=0):
    """An update of five tokens of this loss. Returns the weights after it."""
    callback.progress.step += 1
    callback.model.loss_metric.update_state([loss] * 5)
    callback.model.optimizer.skipped.assign(skipped)
    callback.on_train_batch_end(0)
    return callback.model.transformer.variables[0].numpy().tolist()


def test_sound_updates_are_left_alone(tmp_path, capsys):
    callback = recover(tmp_path, is_saved=False)
    for loss in (1.99 * math.log(V), 3.0, 0.0):
        assert update(callback, loss) == LATER
    assert capsys.readouterr().out == ""


def test_a_skipped_update_is_said(tmp_path, capsys):
    assert update(recover(tmp_path), skipped=1) == LATER
    assert capsys.readouterr().out == "\nskipped     update 18: its gradient is not finite\n"


def test_after_several_skipped_in_a_row_the_saved_weights_come_back(tmp_path, capsys):
    callback = recover(tmp_path)
    assert [update(callback, skipped=n) for n in (1, 2, 3, 4)] == [LATER] * 4
    assert update(callback, skipped=5) == SAVED
    assert "went back   to the weights of update 13: the gradients of 5 updates" in capsys.readouterr().out
    assert callback.progress.step == 22  # the data goes on


def test_when_the_loss_of_one_update_explodes_the_saved_weights_come_back(tmp_path, capsys):
    callback = recover(tmp_path)
    for _ in range(100):  # the mean of the epoch stays low
        update(callback)
    assert update(callback, 2.01 * math.log(V)) == SAVED
    assert "the loss has exploded to 7.3" in capsys.readouterr().out


def test_an_epoch_begins_with_the_sums_of_an_interrupted_one(tmp_path):
    callback = recover(tmp_path)
    callback.model.loss_metric.update_state([1000.0])
    callback.on_epoch_begin(1)
    assert update(callback) == LATER


def test_an_update_without_a_token_that_counts_is_no_explosion(tmp_path):
    callback = recover(tmp_path)
    callback.on_train_batch_end(0)
    assert callback.model.transformer.variables[0].numpy().tolist() == LATER


def test_the_seeds_of_every_replica_go_on_from_where_they_are(tmp_path):
    """The file holds those of the first replica of the worker that saved it."""
    callback = recover(tmp_path, is_saved=False)
    with tiny.two_replicas().scope():
        (seeds,) = Dropout(0.5, seed=3).variables
    callback.model.transformer.variables.append(seeds)
    save_variables(callback.run.last, resumable_variables(callback.model), asdict(Progress(step=13)))
    for state, value in zip(seeds.value.values, ([7, 17], [8, 19]), strict=True):
        state.assign(value)
    update(callback, loss=100.0)
    assert [state.numpy().tolist() for state in seeds.value.values] == [[7, 17], [8, 19]]


def test_without_a_checkpoint_it_gives_up_with_advice(tmp_path):
    with pytest.raises(DivergenceError, match="update 18: the loss has exploded .*nothing has been saved yet.*--peak"):
        update(recover(tmp_path, is_saved=False), loss=100.0)


def test_the_fourth_time_it_gives_up(tmp_path):
    callback = recover(tmp_path)
    assert [update(callback, loss=100.0) for _ in range(3)] == [SAVED] * 3
    with pytest.raises(DivergenceError, match="update 21: the loss has exploded to 100.0, again. Try a lower --peak"):
        update(callback, loss=100.0)
