import contextlib
import math
import signal
import threading
import time
from dataclasses import asdict
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import DivergenceError
from keras_transformer.layers.kernels import Dropout
from keras_transformer.training.checkpoints import load_variables, save_variables
from keras_transformer.training.decide import Plan
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.watchers import (
    NOTICE,
    STOP_SIGNALS,
    CountSteps,
    HeldSignals,
    KeepWeights,
    Progress,
    Recover,
    SaveState,
)
from tests import tiny

V = 37


@pytest.fixture(autouse=True)
def handlers():
    """Puts the handlers of signals back after a test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def model(value=0.0):
    """The part of a trainer that callbacks use, with one weight."""
    weight = keras.Variable([value, value + 1], name="weight")
    seed = keras.Variable([5, 7], dtype="int32", trainable=False, name="seed")
    moment = keras.Variable([value + 2, value + 3], name="moment")
    loss_metric = keras.metrics.Mean(name="loss")
    return SimpleNamespace(
        network=SimpleNamespace(weights=[weight], variables=[weight, seed], output_matrix=np.zeros((V, 5))),
        seeds=[],
        optimizer=SimpleNamespace(iterations=keras.Variable(13, dtype="int32")),
        updates=SimpleNamespace(skipped=keras.Variable(0, dtype="int32")),
        resumable_variables=[weight, seed, moment],
        loss_metric=loss_metric,
        metrics_variables=loss_metric.variables,
        averaged=contextlib.nullcontext,
        stop_training=False,
    )


def on(callback, model):
    callback.set_model(model)
    return callback


# Progress.


@pytest.mark.parametrize(("step", "epoch"), [(0, 0), (1, 1), (6, 1), (7, 1), (8, 2), (14, 2), (15, 3)])
def test_epochs_are_counted_from_1(step, epoch):
    assert Plan(steps_per_epoch=7, last_step=21).epoch(step) == epoch


def test_epochs_end_after_their_last_update_and_with_the_run():
    plan = Plan(steps_per_epoch=5, last_step=13)
    assert [step for step in range(1, 14) if plan.ends_epoch(step)] == [5, 10, 13]


@pytest.mark.parametrize(
    ("progress", "is_over"),
    [
        (Progress(step=13, ended=10), False),  # not validated yet
        (Progress(step=13, ended=13), True),
        (Progress(step=17, ended=15), True),  # it has been longer before
        (Progress(), False),
    ],
)
def test_a_run_is_over_when_its_last_update_is_validated(progress, is_over):
    assert Plan(steps_per_epoch=5, last_step=13).is_over(progress) == is_over


@pytest.mark.parametrize(
    ("ended", "best_epoch", "is_over"),
    [(15, 1, False), (20, 1, True), (25, 3, False), (30, 3, True), (15, 0, True), (10, 0, False)],
)
def test_a_run_is_over_when_no_epoch_was_better_for_as_many_as_its_patience(ended, best_epoch, is_over):
    progress = Progress(step=ended, ended=ended, best_epoch=best_epoch)
    plan = Plan(steps_per_epoch=5, last_step=1000, patience=3)
    assert plan.is_over(progress) == plan.has_lost_patience(progress) == is_over
    assert not Plan(steps_per_epoch=5, last_step=1000).is_over(progress)


# Signals.


class Ended(Exception):
    """Raised by the program's own handlers, with the number of the signal."""


@pytest.fixture
def own_handlers(handlers):
    """Handlers of the program's own."""

    def end(number, frame):
        raise Ended(number)

    for number in STOP_SIGNALS:
        signal.signal(number, end)
    return end


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_waits_for_the_release_and_is_then_delivered_once(number, capfd, own_handlers):
    signals = HeldSignals()
    signals.hold()
    signals.hold()
    signal.raise_signal(number)
    assert signals.arrived == number
    assert capfd.readouterr().err.encode() == NOTICE
    with pytest.raises(Ended) as ended:
        signals.release()
    assert ended.value.args == (number,)
    signals.release()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_second_signal_is_delivered_at_once(number, own_handlers):
    signals = HeldSignals()
    signals.hold()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Ended):
        signal.raise_signal(number)


@pytest.mark.parametrize("end", ["release", "restore"])
def test_afterwards_signals_have_their_old_handlers(end, own_handlers):
    signals = HeldSignals()
    signals.hold()
    assert all(signal.getsignal(number) != own_handlers for number in STOP_SIGNALS)
    getattr(signals, end)()
    assert all(signal.getsignal(number) == own_handlers for number in STOP_SIGNALS)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)


def test_an_ignored_signal_stays_ignored():
    """As Ctrl-C is by a program that a shell script started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals = HeldSignals()
    signals.hold()
    signal.raise_signal(signal.SIGINT)
    assert signals.arrived is None
    signals.release()


def test_outside_of_the_main_thread_nothing_is_held(own_handlers):
    signals, found = HeldSignals(), []

    def hold():
        signals.hold()
        found.append(signal.getsignal(signal.SIGINT))
        signals.release()

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert found == [own_handlers]


# Counting.


def plan(steps_per_epoch=1000, last_step=10_000, patience=None):
    return Plan(steps_per_epoch, last_step, patience)


def test_updates_are_counted_on_from_where_the_run_stands():
    progress = Progress(step=11)
    count = on(CountSteps(progress, plan(last_step=100)), model())
    for batch in range(3):
        count.on_train_batch_end(batch)
    assert progress.step == 14 and not count.model.stop_training


def test_training_stops_after_the_last_step():
    progress = Progress(step=11)
    count = on(CountSteps(progress, plan(last_step=13)), model())
    count.on_train_batch_end(0)
    assert not count.model.stop_training
    count.on_train_batch_end(1)
    assert count.model.stop_training and progress.step == 13


def test_metrics_of_an_interrupted_epoch_are_those_of_the_whole_epoch():
    progress = Progress(step=11, metrics={"loss/total": 2 * 3.0 + 5 * 7.0, "loss/count": 2.0 + 5.0, "gone/total": 1.0})
    count = on(CountSteps(progress, plan()), model())
    count.on_epoch_begin(0)
    count.model.loss_metric.update_state([13.0], sample_weight=[11.0])
    assert float(count.model.loss_metric.result()) == pytest.approx((2 * 3 + 5 * 7 + 11 * 13) / (2 + 5 + 11))


# Weights.


def keep_weights(path, average_epochs=3, best_by="bleu", progress=None, patience=None):
    return on(KeepWeights(RunDirectory(path), progress or Progress(), average_epochs, patience, best_by), model())


def train(keep, bleus, losses=None, first_epoch=0):
    """Epochs that end with these measures, and with the weight at the number of the epoch, counted from 1."""
    for epoch, bleu in enumerate(bleus, first_epoch):
        keep.model.network.weights[0].assign([epoch + 1, epoch + 1])
        loss = losses[epoch - first_epoch] if losses else 1.0
        keep.on_epoch_end(epoch, {"val_bleu": bleu, "val_loss": loss})


def weight_in(path):
    other = model()
    load_variables(path, other.network.weights)
    return other.network.weights[0].numpy().tolist()


def test_the_weights_of_the_last_epochs_are_kept(tmp_path):
    keep = keep_weights(tmp_path, average_epochs=3)
    train(keep, [1.0, 2.0])
    assert keep.run.epochs() == [keep.run.epoch(1), keep.run.epoch(2)]
    train(keep, [3.0, 4.0, 5.0], first_epoch=2)
    assert keep.run.epochs() == [keep.run.epoch(3), keep.run.epoch(4), keep.run.epoch(5)]
    assert [weight_in(path) for path in keep.run.epochs()] == [[3, 3], [4, 4], [5, 5]]


@pytest.mark.parametrize(("epochs", "kept"), [(1, [1]), (9, [9]), (10, [9, 10]), (16, [14, 15, 16])])
def test_without_a_number_the_last_fifth_of_the_epochs_is_averaged(tmp_path, epochs, kept):
    keep = keep_weights(tmp_path, average_epochs=None)
    train(keep, range(epochs))
    assert [weight_in(path)[0] for path in keep.run.epochs()] == kept
    assert keep.run.epochs_to_average(None) == keep.run.epochs()


def test_without_a_number_and_with_patience_a_fifth_of_the_best_epochs_number_is_averaged_around_it(tmp_path):
    keep = keep_weights(tmp_path, average_epochs=None, patience=20)
    train(keep, [*range(15), *range(14)])  # the best is epoch 15: three around it, and five of 29 at the end
    assert [weight_in(path)[0] for path in keep.run.epochs()] == [14, 15, 16, 25, 26, 27, 28, 29]
    assert keep.run.epochs_to_average(None, best=15) == [keep.run.epoch(number) for number in (14, 15, 16)]


@pytest.mark.parametrize(
    ("best_by", "bleus", "losses", "best", "epoch"),
    [
        ("bleu", [7.0, 11.0, 5.0, 10.0], [4.0, 3.0, 2.0, 1.0], 11.0, 2),
        ("loss", [7.0, 11.0, 5.0, 10.0], [4.0, 3.0, 1.0, 2.0], -1.0, 3),
        ("bleu", [3.0, 3.0, 3.0], None, 3.0, 1),  # the first of equals
        ("bleu", [0.0, 0.0, 0.0], None, 0.0, 3),  # a BLEU of 0 compares nothing
        ("bleu", [3.0, math.nan, 2.0], None, 3.0, 1),
        ("loss", [3.0, 3.0, 3.0], [math.nan, 5.0, math.nan], -5.0, 2),
    ],
)
def test_the_best_weights_are_those_that_validated_best(tmp_path, best_by, bleus, losses, best, epoch):
    keep = keep_weights(tmp_path, best_by=best_by)
    train(keep, bleus, losses)
    assert (keep.progress.best, keep.progress.best_epoch) == (best, epoch)
    assert weight_in(keep.run.best) == [epoch, epoch]


def test_with_patience_the_epochs_around_the_best_are_kept_as_well(tmp_path):
    keep = keep_weights(tmp_path, average_epochs=3, patience=5)
    train(keep, [1.0, 2.0, 3.0, 9.0, 8.0, 7.0, 6.0, 5.0])
    assert [weight_in(path)[0] for path in keep.run.epochs()] == [3, 4, 5, 6, 7, 8]
    assert keep.run.epochs_to_average(3, best=4) == [keep.run.epoch(number) for number in (3, 4, 5)]
    train(keep, [10.0], first_epoch=8)  # the best is the last: there are none after it
    assert (
        keep.run.epochs_to_average(3, best=9) == [keep.run.epoch(number) for number in (7, 8, 9)] == keep.run.epochs()
    )


def test_a_resumed_run_keeps_the_best_of_before(tmp_path):
    train(keep_weights(tmp_path), [11.0])
    resumed = keep_weights(tmp_path, progress=Progress(best=11.0, best_epoch=1))
    train(resumed, [7.0], first_epoch=1)
    assert weight_in(resumed.run.best) == [1, 1]
    train(resumed, [13.0], first_epoch=2)
    assert weight_in(resumed.run.best) == [3, 3]


# State.


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch, name="perf_counter"):
        self.now = 1000.0
        monkeypatch.setattr(time, name, lambda: self.now)


def save_state(path, steps_per_epoch=5, minutes=math.inf, progress=None, examine=None, **plan_arguments):
    run, progress = RunDirectory(path), progress or Progress()
    plan_ = plan(steps_per_epoch, **plan_arguments)
    return on(SaveState(run, progress, plan_, minutes, HeldSignals(), examine or (lambda: None)), model())


def update(save, loss=1.0):
    """One update of a token with this loss; the weight becomes the number of updates. Returns the saved number."""
    save.on_train_batch_begin(0)
    save.progress.step += 1
    save.model.network.weights[0].assign([save.progress.step] * 2)
    save.model.loss_metric.update_state([loss])
    save.on_train_batch_end(0)
    return saved(save)


def saved(save):
    """The number of updates in last.npz; None without it."""
    if not save.run.last.exists():
        return None
    progress, weight = load(save.run.last)
    assert weight == [progress.step] * 2
    return progress.step


def load(path):
    """Progress and weight."""
    other = model()
    progress = Progress.of(load_variables(path, other.resumable_variables))
    return progress, other.network.weights[0].numpy().tolist()


def test_all_that_resuming_needs_is_saved(tmp_path):
    save = save_state(tmp_path, progress=Progress(17, 13, 11.0, 1, {"loss/total": 3.0}))
    save.save()
    other = model(value=31.0)
    other.network.variables[1].assign([0, 0])
    assert Progress.of(load_variables(save.run.last, other.resumable_variables)) == save.progress
    found = [variable.numpy().tolist() for variable in other.resumable_variables]
    assert found == [[0.0, 1.0], [5, 7], [2.0, 3.0]]  # weight, seed, moment


def test_progress_before_the_first_validation_survives(tmp_path):
    save = save_state(tmp_path, progress=Progress(step=3))
    save.save()
    assert load(save.run.last)[0] == Progress(3, 0, -math.inf, 0, {})


def test_within_an_epoch_a_state_is_saved_every_few_minutes(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, "monotonic")
    save = save_state(tmp_path, steps_per_epoch=1000, minutes=2)
    found = []
    for _ in range(7):
        clock.now += 50
        found.append(update(save))
    assert found == [None, None, 3, 3, 3, 6, 6]
    assert save.saved_step == 6


def test_zero_minutes_save_after_every_update(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1000, minutes=0)
    assert [update(save) for _ in range(3)] == [1, 2, 3]
    assert load(save.run.previous) == (Progress(2, metrics={"loss/total": 2.0, "loss/count": 2.0}), [2.0, 2.0])


def test_while_updates_are_skipped_the_last_sound_state_stays(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=5, minutes=0)
    found = []
    for skipped in (0, 1, 2, 0, 1):
        save.model.updates.skipped.assign(skipped)
        found.append(update(save))
    assert found == [1, 1, 1, 4, 5]  # the epoch ends with 5


def test_an_epoch_is_saved_before_it_is_validated_and_after(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=3)
    assert [update(save, loss) for loss in (2.0, 3.0, 7.0)] == [None, None, 3]
    assert load(save.run.last)[0] == Progress(3, ended=0, metrics={"loss/total": 12.0, "loss/count": 3.0})
    save.model.loss_metric.reset_state()  # as validation does
    save.progress.best, save.progress.best_epoch = 11.0, 1
    save.on_epoch_end(0, {})
    assert load(save.run.last)[0] == Progress(3, ended=3, best=11.0, best_epoch=1)
    assert [update(save) for _ in range(3)] == [3, 3, 6]


def test_an_end_in_the_middle_of_an_epoch_keeps_its_metrics_for_a_longer_run(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=5, last_step=2)
    assert [update(save, loss) for loss in (2.0, 5.0)] == [None, 2]
    save.model.loss_metric.reset_state()
    save.on_epoch_end(0, {})
    assert load(save.run.last)[0] == Progress(2, ended=2, metrics={"loss/total": 7.0, "loss/count": 2.0})


def test_metrics_of_replicas_are_saved_added_up_and_come_back(tmp_path):
    with tiny.two_replicas().scope():
        loss_metric = keras.metrics.Mean(name="loss")
    save = save_state(tmp_path, minutes=0)
    save.model.metrics_variables = loss_metric.variables
    tiny.two_replicas().run(tf.function(lambda: loss_metric.update_state(tf.fill([7], 3.0))))
    update(save)
    expected = {"loss/total": 2 * 7 * 3.0, "loss/count": 2 * 7.0}
    assert load(save.run.last)[0].metrics == expected
    loss_metric.reset_state()
    count = on(CountSteps(save.progress, plan()), save.model)
    count.on_epoch_begin(0)
    assert {v.path: float(v.value.read_value()) for v in loss_metric.variables} == expected


def test_training_stops_when_patience_is_lost(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1, patience=2, progress=Progress(best=7.0, best_epoch=1))
    stopped = []
    for epoch in range(3):
        update(save)
        save.on_epoch_end(epoch, {})
        stopped.append(save.model.stop_training)
    assert stopped == [False, False, True]


def test_a_signal_within_an_update_is_delivered_when_the_update_is_saved(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1000)
    update(save)
    save.on_train_batch_begin(0)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        update(save)
    assert saved(save) == 2


def test_all_workers_save_when_one_of_them_has_to(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1000)
    save.anywhere = lambda is_due, must_stop: (save.progress.step == 2, must_stop)
    assert [update(save) for _ in range(3)] == [None, 2, 2]


def test_when_another_worker_is_stopped_this_one_saves_and_stops_as_if_by_the_same_signal(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1000)
    save.anywhere = lambda is_due, must_stop: (is_due, True)
    save.on_train_batch_begin(0)
    with pytest.raises(SystemExit) as stopped:
        update(save)
    assert stopped.value.code == 143 and saved(save) == 1


def test_a_signal_while_an_epoch_is_validated_is_delivered_at_once(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=2)
    update(save)
    assert update(save) == 2
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


# Recovery.

SAVED, LATER = [3.0, 5.0], [7.0, 11.0]


def recover(path, is_saved=True):
    """The callback at the begin of an epoch, of a run that saved its weights after update 13 and changed them since."""
    run, trainer = RunDirectory(path), model()
    (weight,) = trainer.network.weights
    weight.assign(SAVED)
    if is_saved:
        save_variables(run.last, trainer.resumable_variables, asdict(Progress(step=13)))
    weight.assign(LATER)
    callback = on(Recover(run, Progress(step=17)), trainer)
    callback.on_epoch_begin(0)
    return callback


def update_of_five(callback, loss=2.0, skipped=0, is_examined=True):
    """An update of five tokens of this loss. Returns the weights after it."""
    callback.progress.step += 1
    callback.model.loss_metric.update_state([loss] * 5)
    callback.model.updates.skipped.assign(skipped)
    callback.on_train_batch_end(0)
    if is_examined:
        callback.examine()
    return callback.model.network.variables[0].numpy().tolist()


def test_sound_updates_are_left_alone(tmp_path, capsys):
    callback = recover(tmp_path, is_saved=False)
    for loss in (1.99 * math.log(V), 3.0, 0.0):
        assert update_of_five(callback, loss) == LATER
    assert capsys.readouterr().out == ""


def test_a_skipped_update_is_printed(tmp_path, capsys):
    assert update_of_five(recover(tmp_path), skipped=1) == LATER
    assert capsys.readouterr().out == "skipped     update 18: its gradient is not finite\n"


def test_after_several_skipped_in_a_row_the_saved_weights_come_back(tmp_path, capsys):
    callback = recover(tmp_path)
    assert [update_of_five(callback, skipped=n) for n in (1, 2, 3, 4)] == [LATER] * 4
    assert update_of_five(callback, skipped=5) == SAVED
    assert "went back   to the weights of update 13: the gradients of 5 updates" in capsys.readouterr().out
    assert callback.progress.step == 22 == int(callback.model.optimizer.iterations)  # data and learning rate go on


def test_when_the_loss_of_one_update_explodes_the_saved_weights_come_back(tmp_path, capsys):
    callback = recover(tmp_path)
    for _ in range(100):  # the mean of the epoch stays low
        update_of_five(callback)
    assert update_of_five(callback, 2.01 * math.log(V)) == SAVED
    assert "the loss has exploded to 7.3" in capsys.readouterr().out


def test_an_epoch_begins_with_the_sums_of_an_interrupted_one(tmp_path):
    callback = recover(tmp_path)
    callback.model.loss_metric.update_state([1000.0])
    callback.on_epoch_begin(1)
    assert update_of_five(callback) == LATER


def test_an_update_without_a_token_that_counts_is_no_explosion(tmp_path):
    callback = recover(tmp_path)
    callback.on_train_batch_end(0)
    assert callback.model.network.variables[0].numpy().tolist() == LATER


def test_the_seeds_of_every_replica_go_on_from_where_they_are(tmp_path):
    """The file holds those of the first replica of the worker that saved it."""
    callback = recover(tmp_path, is_saved=False)
    with tiny.two_replicas().scope():
        (seeds,) = Dropout(0.5, seed=3).variables
    callback.model.seeds.append(seeds)
    callback.model.resumable_variables.append(seeds)
    save_variables(callback.run.last, callback.model.resumable_variables, asdict(Progress(step=13)))
    for state, value in zip(seeds.value.values, ([7, 17], [8, 19]), strict=True):
        state.assign(value)
    update_of_five(callback, loss=100.0)
    assert [state.numpy().tolist() for state in seeds.value.values] == [[7, 17], [8, 19]]


def test_without_a_checkpoint_it_gives_up_with_advice(tmp_path):
    with pytest.raises(DivergenceError, match="update 18: the loss has exploded .*nothing has been saved yet.*`peak"):
        update_of_five(recover(tmp_path, is_saved=False), loss=100.0)


def test_the_fourth_time_it_gives_up(tmp_path):
    callback = recover(tmp_path)
    assert [update_of_five(callback, loss=100.0) for _ in range(3)] == [SAVED] * 3
    with pytest.raises(DivergenceError, match="update 21: the loss has exploded to 100.0, again. Try a lower `peak"):
        update_of_five(callback, loss=100.0)


# Values stay on the device between two examinations.


@pytest.fixture
def readings(monkeypatch):
    """How many values have been read from tensors so far, a list of one number."""
    count, numpy_of = [0], type(tf.constant(0)).__float__

    def read(tensor):
        count[0] += 1
        return numpy_of(tensor)

    monkeypatch.setattr(type(tf.constant(0)), "__float__", read)
    return count


def test_updates_are_examined_ten_at_a_time(tmp_path, readings):
    callback, found = recover(tmp_path), []
    for _ in range(23):  # from update 18 on
        before = readings[0]
        update_of_five(callback, is_examined=False)
        found.append(readings[0] > before)
    assert [18 + n for n, is_read in enumerate(found) if is_read] == [20, 30, 40]


@pytest.mark.parametrize(
    ("updates", "line"),
    [
        ([{}, {"loss": 100.0}, {}, {"loss": 100.0}, {}, {}], "update 13: the loss has exploded to 100.0"),
        ([{"skipped": n} for n in (1, 2, 3, 4, 5, 6)], "update 13: the gradients of 5 updates in a row"),
    ],
    ids=["explosion", "skipped"],
)
def test_what_has_broken_an_update_is_found_later_and_once(tmp_path, capsys, updates, line):
    callback, sound = recover(tmp_path), {}
    updates = [*[sound] * 4, *updates, *[sound] * 5]  # from 18 on; 20 and 30 are examined
    weights = [update_of_five(callback, **update, is_examined=False) for update in updates]
    assert weights == [LATER] * 12 + [SAVED] * 3
    out = capsys.readouterr().out
    assert out.count("went back") == 1 and line in out
    assert update_of_five(callback) == SAVED and "went back" not in capsys.readouterr().out


def test_every_skipped_update_is_printed_even_if_sound_ones_follow(tmp_path, capsys):
    callback = recover(tmp_path)
    for skipped in (0, 1, 2, 0, 1, 0):
        update_of_five(callback, skipped=skipped, is_examined=False)
    callback.examine()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"skipped     update {n}" for n in (19, 20, 22)]


@pytest.mark.parametrize("why", ["the epoch ends", "time is up", "a signal has come"])
def test_an_explosion_that_has_not_been_noticed_yet_is_never_saved(tmp_path, why):
    callback = recover(tmp_path)
    signals = SimpleNamespace(arrived=signal.SIGTERM if why == "a signal has come" else None, release=lambda: None)
    minutes, plan_ = 0 if why == "time is up" else math.inf, plan(19 if why == "the epoch ends" else 1000)
    save = SaveState(callback.run, callback.progress, plan_, minutes, signals, callback.examine)
    on(save, callback.model)
    for loss in (2.0, 100.0):  # updates 18 and 19
        update_of_five(callback, loss, is_examined=False)
    save.on_train_batch_end(0)
    assert load(callback.run.last)[1] == SAVED
