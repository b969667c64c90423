import contextlib
import math
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import DivergenceError
from keras_transformer.layers.kernels import Dropout
from keras_transformer.training import watchers as module
from keras_transformer.training.checkpoints import load_variables, save_variables
from keras_transformer.training.decide import Plan
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.watchers import HeldSignals, Progress, Recover, SaveState, ShowProgress
from tests import tiny

V = 37


class Ended(Exception):
    """Raised by the program's own handlers, with the number of the signal."""


@pytest.fixture(autouse=True)
def own_handlers():
    """Handlers of the program's own. After a test, those of before are back."""

    def end(number, frame):
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in module.STOP_SIGNALS}
    yield end
    for number, handler in before.items():
        signal.signal(number, handler)


def model(value=0.0):
    """The part of a trainer that callbacks use, with one weight."""
    weight = keras.Variable([value, value + 1], name="weight")
    seed = keras.Variable([5, 7], dtype="int32", trainable=False, name="seed")
    weights = dict.fromkeys(("weights", "trainable_weights"), [weight])
    moment, loss = keras.Variable([value + 2, value + 3], name="moment"), keras.metrics.Mean(name="loss")
    return SimpleNamespace(
        network=SimpleNamespace(**weights, variables=[weight, seed], output_matrix=np.zeros((V, 5))),
        seeds=[],
        optimizer=SimpleNamespace(iterations=keras.Variable(13, dtype="int32")),
        updates=SimpleNamespace(skipped=keras.Variable(0, dtype="int32")),
        resumable_variables=[weight, seed, moment],
        loss_metric=loss,
        metrics_variables=loss.variables,
        averaged=contextlib.nullcontext,
        stop_training=False,
    )


def on(callback, model):
    callback.set_model(model)
    return callback


def test_an_epoch_ends_after_its_last_update_and_a_run_when_it_is_validated_or_has_lost_its_patience():
    plan = Plan(steps_per_epoch=7, last_step=16)
    assert [plan.epoch(step) for step in (0, 1, 6, 7, 8, 14, 15)] == [0, 1, 1, 1, 2, 2, 3]
    assert [step for step in range(1, 17) if plan.ends_epoch(step)] == [7, 14, 16]
    assert [plan.is_over(Progress(16, ended)) for ended in (0, 14, 16, 21)] == [False, False, True, True]
    patient = Plan(steps_per_epoch=5, last_step=1000, patience=3)
    for ended, best_epoch, is_over in ((15, 1, False), (20, 1, True), (25, 3, False), (15, 0, True), (10, 0, False)):
        progress = Progress(step=ended, ended=ended, best_epoch=best_epoch)
        assert patient.is_over(progress) == patient.has_lost_patience(progress) == is_over
        assert not replace(patient, patience=None).is_over(progress)


# Signals.


@pytest.mark.parametrize("number", module.STOP_SIGNALS)
def test_a_signal_waits_for_the_release_and_is_delivered_once_and_a_second_one_at_once(number, capfd, own_handlers):
    signals = HeldSignals()
    signals.hold()
    signals.hold()
    assert all(signal.getsignal(each) != own_handlers for each in module.STOP_SIGNALS)
    signal.raise_signal(number)
    assert signals.arrived == number and capfd.readouterr().err.encode() == module.NOTICE
    with pytest.raises(Ended) as ended:
        signals.release()
    assert ended.value.args == (number,)
    signals.release()
    signals.hold()
    signal.raise_signal(signal.SIGTERM)
    pytest.raises(Ended, signal.raise_signal, number)
    signals.restore()
    assert all(signal.getsignal(each) == own_handlers for each in module.STOP_SIGNALS)


def test_other_threads_hold_nothing_and_an_ignored_signal_stays_ignored(own_handlers):
    """A program that a shell script started in the background ignores Ctrl-C."""
    signals = HeldSignals()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(signals.hold).result()
    assert signal.getsignal(signal.SIGINT) == own_handlers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.hold()
    signal.raise_signal(signal.SIGINT)
    assert signals.arrived is None
    signals.release()


def plan(steps_per_epoch=1000, last_step=10_000):
    return Plan(steps_per_epoch, last_step)


def keep_weights(path, average_epochs=3, best_by="bleu", progress=None, patience=None):
    return on(
        module.KeepWeights(RunDirectory(path), progress or Progress(), average_epochs, patience, best_by), model()
    )


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


@pytest.mark.parametrize(
    ("average", "epochs", "patience", "kept"),
    [
        (3, 5, None, {3, 4, 5}),
        (None, 1, None, {1}),  # without a number, the last fifth
        (None, 9, None, {9}),
        (None, 10, None, {9, 10}),
        (3, 18, 5, {14, 15, 16, 17, 18}),  # with patience, also those around the best one, 15
        (3, 15, 5, {13, 14, 15}),
        (None, 29, 20, {14, 15, 16, *range(25, 30)}),
    ],
)
def test_the_weights_of_the_epochs_that_may_be_averaged_are_kept(tmp_path, average, epochs, patience, kept):
    keep = keep_weights(tmp_path, average_epochs=average, patience=patience)
    train(keep, [-abs(epoch - 15) for epoch in range(1, epochs + 1)])
    assert [weight_in(path)[0] for path in keep.run.epochs()] == sorted(kept)
    averaged = [epoch for epoch in sorted(kept) if not patience or abs(epoch - 15) <= 1 or epochs == 15]
    best = {"best": 15} if patience else {}
    assert keep.run.epochs_to_average(average, **best) == [keep.run.epoch(number) for number in averaged]


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
def test_the_best_weights_are_those_that_validated_best_after_a_resumption_too(
    tmp_path, best_by, bleus, losses, best, epoch
):
    first = keep_weights(tmp_path, best_by=best_by)
    train(first, bleus[:2], losses)
    resumed = keep_weights(tmp_path, best_by=best_by, progress=first.progress)
    train(resumed, bleus[2:], losses and losses[2:], first_epoch=2)
    assert (resumed.progress.best, resumed.progress.best_epoch) == (best, epoch)
    assert weight_in(resumed.run.best) == [epoch, epoch]


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


def test_within_an_epoch_a_state_is_saved_every_few_minutes_unless_updates_are_skipped(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, "monotonic")
    save, found = save_state(tmp_path / "some", steps_per_epoch=1000, minutes=2), []
    for _ in range(7):
        clock.now += 50
        found.append(update(save))
    assert found == [None, None, 3, 3, 3, 6, 6] and save.saved_step == 6
    save, found = save_state(tmp_path / "always", steps_per_epoch=5, minutes=0), []
    for skipped in (0, 1, 2, 0, 1):
        save.model.updates.skipped.assign(skipped)
        found.append(update(save))
    assert found == [1, 1, 1, 4, 5]  # the epoch ends with 5
    assert load(save.run.previous) == (Progress(4, metrics={"loss/total": 4.0, "loss/count": 4.0}), [4.0, 4.0])


def test_an_epoch_is_saved_before_it_is_validated_and_after(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=3, last_step=5)
    assert [update(save, loss) for loss in (2.0, 3.0, 7.0)] == [None, None, 3]
    assert load(save.run.last)[0] == Progress(3, ended=0, metrics={"loss/total": 12.0, "loss/count": 3.0})
    save.model.loss_metric.reset_state()  # as validation does
    save.progress.best, save.progress.best_epoch = 11.0, 1
    save.on_epoch_end(0, {})
    assert load(save.run.last)[0] == Progress(3, ended=3, best=11.0, best_epoch=1) and not save.model.stop_training
    # An end in the middle of an epoch keeps its metrics for a longer run.
    assert [update(save, loss) for loss in (2.0, 5.0)] == [3, 5]
    save.model.loss_metric.reset_state()
    save.on_epoch_end(1, {})
    assert load(save.run.last)[0] == Progress(5, 5, 11.0, 1, {"loss/total": 7.0, "loss/count": 2.0})
    assert save.model.stop_training  # the run is over


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
    save.progress.metrics["gone/total"] = 1.0
    on(module.CountSteps(save.progress, plan()), save.model).on_epoch_begin(0)
    assert {v.path: float(v.value.read_value()) for v in loss_metric.variables} == expected


def test_a_signal_waits_until_its_update_is_saved_and_not_while_an_epoch_is_validated(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=3)
    update(save)
    save.on_train_batch_begin(0)
    signal.raise_signal(signal.SIGINT)
    pytest.raises(Ended, update, save)
    assert saved(save) == 2 and update(save) == 3
    pytest.raises(Ended, signal.raise_signal, signal.SIGINT)


def test_a_worker_saves_and_stops_when_another_one_has_to(tmp_path):
    save = save_state(tmp_path, steps_per_epoch=1000)
    save.anywhere = lambda is_due, must_stop: (save.progress.step == 2, must_stop)
    assert [update(save) for _ in range(3)] == [None, 2, 2]
    save.anywhere = lambda is_due, must_stop: (is_due, True)
    save.on_train_batch_begin(0)
    with pytest.raises(SystemExit) as stopped:  # as if by the same signal
        update(save)
    assert stopped.value.code == 143 and saved(save) == 4


# Recovery.

SAVED, LATER = [3.0, 5.0], [7.0, 11.0]


EXPLODED = {"loss": 2.01 * math.log(V)}  # of one update: the mean of an epoch stays low


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


def test_sound_updates_are_left_alone_and_every_skipped_one_is_printed(tmp_path, capsys):
    callback = recover(tmp_path, is_saved=False)
    callback.on_train_batch_end(0)  # without a token that counts
    for loss in (1.99 * math.log(V), 3.0, 0.0):
        assert update_of_five(callback, loss) == LATER
    callback.model.loss_metric.update_state([1000.0])  # the sum of an interrupted epoch
    callback.on_epoch_begin(1)
    assert update_of_five(callback) == LATER and capsys.readouterr().out == ""
    for skipped in (0, 1, 2, 0, 1, 0):  # from 22 on
        update_of_five(callback, skipped=skipped, is_examined=False)
    callback.examine()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"skipped     update {n}: its gradient is not finite" for n in (23, 24, 26)]


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


def test_the_fourth_time_or_without_a_checkpoint_it_gives_up_with_advice(tmp_path):
    callback = recover(tmp_path / "run")
    assert [update_of_five(callback, loss=100.0) for _ in range(3)] == [SAVED] * 3
    with pytest.raises(DivergenceError, match="update 21: the loss has exploded to 100.0, again. Try a lower `peak"):
        update_of_five(callback, loss=100.0)
    with pytest.raises(DivergenceError, match="update 18: the loss has exploded .*nothing has been saved yet.*`peak"):
        update_of_five(recover(tmp_path / "other", is_saved=False), loss=100.0)


@pytest.mark.parametrize(
    ("updates", "line"),
    [
        ([{}, EXPLODED, {}, EXPLODED, {}, {}], "update 13: the loss has exploded to 7.3"),
        ([{"skipped": n} for n in (1, 2, 3, 4, 5, 6)], "update 13: the gradients of 5 updates in a row"),
    ],
    ids=["explosion", "skipped"],
)
def test_what_has_broken_an_update_is_found_later_and_once(tmp_path, capsys, updates, line):
    callback, sound = recover(tmp_path), {}
    updates = [*[sound] * 4, *updates, *[sound] * 5]  # from 18 on; 20 and 30 are examined
    weights = [update_of_five(callback, **update, is_examined=False) for update in updates]
    assert weights == [LATER] * 12 + [SAVED] * 3
    assert int(callback.model.optimizer.iterations) == 30  # data and learning rate go on
    out = capsys.readouterr().out
    assert out.count("went back") == 1 and line in out
    assert update_of_five(callback) == SAVED and "went back" not in capsys.readouterr().out


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


# What is shown.

TRAINED = {"loss": 3.25, "accuracy": 0.5, "perplexity": 7.0, "padding": 0.125, "tokens/s": 13000.0}
VALIDATED = {"val_loss": 5.5, "val_accuracy": 0.25, "val_perplexity": 11.0, "val_bleu": 17.0}


def show(monkeypatch, plan, step=0, epoch=0, seconds=2, **others):
    """Shows the rest of an epoch from update `step` on, of `seconds` an update and 9 seconds of validation."""
    clock, progress = Clock(monkeypatch, "monotonic"), Progress(step=step)
    shown = ShowProgress(progress, plan)
    shown.on_epoch_begin(epoch)
    for _ in range(min((epoch + 1) * plan.steps_per_epoch, plan.last_step) - step):
        progress.step += 1
        clock.now += seconds
        shown.on_train_batch_end(0, TRAINED)
    clock.now += 9
    shown.on_epoch_end(epoch, {**TRAINED, **VALIDATED, **others})


def test_an_epoch_is_a_line_with_its_measures_and_its_time_and_so_is_every_other_corpus(monkeypatch, capsys):
    others = {"loss/files:a/b": 6.5, "accuracy/files:a/b": 0.125, "bleu/files:a/b": 3.0, "loss/cldr:x-y": 1.0}
    others = {f"val_{name}": value for name, value in others.items()}
    show(monkeypatch, Plan(steps_per_epoch=7, last_step=21), step=7, epoch=1, **others)
    measures = "loss 3.250, accuracy 50.0%, perplexity 7.00; "
    measures += "validation: loss 5.500, accuracy 25.0%, perplexity 11.00, BLEU 17.0; 14 s and 9 s"
    rest = "            files:a/b: loss 6.500, accuracy 12.5%, BLEU 3.0\n            cldr:x-y: loss 1.000\n"
    assert capsys.readouterr() == (f"epoch 2/3   {measures}\n{rest}", "")


def test_a_long_epoch_is_a_line_every_half_minute_without_colours_and_carriage_returns(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # as in a process that has run no notebook
    show(monkeypatch, Plan(steps_per_epoch=50, last_step=100), step=0, seconds=2)
    out, err = capsys.readouterr()
    assert err == "" and not re.search("[\\r\\x08\\x1b]", out)
    *lines, _ = out.splitlines()
    assert lines == [f"epoch 1/2   update {done} of 50, loss 3.250, 13,000 tokens/s" for done in (15, 30, 45)]


@pytest.mark.parametrize(
    ("plan", "step", "epoch", "seconds", "name", "total", "first", "read"),
    [
        (Plan(steps_per_epoch=7, last_step=4), 0, 0, 2, "epoch 1/1", 4, 1, [1, 2, 3, 4]),  # --max_steps
        (Plan(steps_per_epoch=7, last_step=18), 9, 1, 2, "epoch 2/3", 7, 3, [3, 4, 5, 6, 7]),  # resumed
        (Plan(steps_per_epoch=7, last_step=18), 14, 2, 2, "epoch 3/3", 4, 1, [1, 2, 3, 4]),
        (Plan(steps_per_epoch=14, last_step=14), 0, 0, 0.25, "epoch 1/1", 14, 1, [4, 8, 12]),
    ],
)
def test_a_bar_counts_to_the_updates_that_are_made_and_reads_the_loss_at_most_once_a_second(
    monkeypatch, capsys, plan, step, epoch, seconds, name, total, first, read
):
    """A float of the logs is a tensor on a GPU, and to format it is to wait for the GPU."""
    monkeypatch.setattr(module, "is_watched", lambda: True)
    bars, reads = [], []

    class Bar(module.tqdm):
        def set_postfix_str(self, text, refresh):
            reads.append((self.n + 1, text))

        def update(self, n=1):
            super().update(n)
            bars.append((self.desc.removesuffix(": "), self.n, self.total))

    monkeypatch.setattr(module, "tqdm", Bar)
    show(monkeypatch, plan, step, epoch, seconds)
    assert bars == [(name, n, total) for n in range(first, total + 1)]
    assert reads == [(n, "loss 3.250, 13,000 tokens/s") for n in read]
    assert re.match(f"{name} ", capsys.readouterr().out)
