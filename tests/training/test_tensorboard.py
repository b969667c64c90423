import resource
import sys
import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.training.event_files import EventWriter
from keras_transformer.training.progress import Progress
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from keras_transformer.training import tensorboard
from keras_transformer.training.tensorboard import Profile, TensorBoardCurves, memory, write_hyper_parameters
from tests import tiny
from tests.training.curves import read_events

TOKENS_PER_EPOCH = 89
METRICS = {"loss": 3.0, "accuracy": 0.5, "perplexity": 7.0, "padding": 0.125}
VALIDATION = {"val_loss": 5.0, "val_accuracy": 0.75, "val_perplexity": 11.0, "val_bleu": 13.0}


def on(callback, model):
    callback.set_model(model)
    return callback


# Curves.


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(tensorboard, "memory", lambda: {"resident": 17.0, "gpu_0": 19.0})
    return Clock(monkeypatch)


def curves(path, every, loss_metric=None):
    model = SimpleNamespace(
        optimizer=SimpleNamespace(learning_rate=tf.constant(0.25), gradient_norm=tf.constant(23.0)),
        loss_metric=loss_metric or keras.metrics.Mean(name="loss"),
    )
    writers = {name: EventWriter(path / name) for name in ("train", "validation")}
    return on(TensorBoardCurves(writers, Progress(), TOKENS_PER_EPOCH, every), model)


def begin(callback, epoch, counted=0):
    """An epoch of which so many tokens have been counted before, by a run that was interrupted."""
    callback.model.loss_metric.reset_state()  # as Keras does
    callback.on_epoch_begin(epoch)
    callback.model.loss_metric.update_state(np.ones(counted))


def run_batches(callback, clock, counts, seconds=2.0):
    """Updates of so many tokens that take so many seconds each; the logs after each."""
    all_logs = []
    for batch, tokens in enumerate(counts):
        callback.on_train_batch_begin(batch)
        clock.now += seconds
        callback.model.loss_metric.update_state(np.ones(tokens))
        callback.progress.step += 1
        logs = dict(METRICS)
        callback.on_train_batch_end(batch, logs)
        all_logs.append(logs)
    return all_logs


def test_training_curves_have_a_point_every_few_updates(tmp_path, clock):
    callback = curves(tmp_path, every=3)
    begin(callback, epoch=0)
    run_batches(callback, clock, [5, 7, 12, 13, 17, 18, 23])
    callback.on_epoch_end(0, {**METRICS, **VALIDATION})
    assert read_events(tmp_path / "train") == {
        **{name: [(3, value), (6, value)] for name, value in METRICS.items()},
        "learning_rate": [(3, 0.25), (6, 0.25)],
        "gradient_norm": [(3, 23.0), (6, 23.0)],
        "target_tokens_per_second": [(3, (5 + 7 + 12) / 6), (6, (13 + 17 + 18) / 6)],
        "target_tokens_seen": [(3, 5 + 7 + 12), (6, 5 + 7 + 12 + 13 + 17 + 18)],
        "memory/resident_mib": [(3, 17), (6, 17)],
        "memory/gpu_0_mib": [(3, 19), (6, 19)],
    }


def test_validation_curves_have_a_point_every_epoch(tmp_path, clock):
    callback = curves(tmp_path, every=1000)
    for epoch in range(2):
        begin(callback, epoch)
        run_batches(callback, clock, [5, 7, 11])
        callback.on_epoch_end(epoch, {**METRICS, **VALIDATION})
    assert read_events(tmp_path / "validation") == {
        "loss": [(3, 5.0), (6, 5.0)],
        "accuracy": [(3, 0.75), (6, 0.75)],
        "perplexity": [(3, 11.0), (6, 11.0)],
        "bleu": [(3, 13.0), (6, 13.0)],
    }
    assert not read_events(tmp_path / "train")


def test_the_latest_speed_is_in_every_log_for_the_progress_bar(tmp_path, clock):
    callback = curves(tmp_path, every=2)
    begin(callback, epoch=0)
    without, *with_speed = run_batches(callback, clock, [5, 7, 11], seconds=0.5)
    assert without == METRICS and with_speed == [{**METRICS, "tokens/s": 12}] * 2
    begin(callback, epoch=1)
    assert run_batches(callback, clock, [13]) == [{**METRICS, "tokens/s": (13 + 0) / 2}]
    assert run_batches(callback, clock, [17]) == [{**METRICS, "tokens/s": (13 + 0) / 2}]


def test_time_between_epochs_is_not_counted_as_training(tmp_path, clock):
    callback = curves(tmp_path, every=3)
    begin(callback, epoch=0)
    run_batches(callback, clock, [5, 7])
    clock.now += 1000  # validation
    begin(callback, epoch=1)
    (logs,) = run_batches(callback, clock, [11])
    assert logs["tokens/s"] == 11 / 2


def test_a_resumed_epoch_has_seen_what_was_counted_before_it_was_interrupted(tmp_path, clock):
    callback = curves(tmp_path, every=2)
    begin(callback, epoch=3, counted=31)
    run_batches(callback, clock, [5, 7])
    callback.on_epoch_end(3, VALIDATION)
    events = read_events(tmp_path / "train")
    assert events["target_tokens_seen"] == [(2, 3 * TOKENS_PER_EPOCH + 31 + 5 + 7)]
    assert events["target_tokens_per_second"] == [(2, (5 + 7) / 4)]


def test_speed_of_replicas_is_of_all_their_tokens(tmp_path, clock):
    with tiny.two_replicas().scope():
        loss_metric = keras.metrics.Mean(name="loss")
    callback = curves(tmp_path, every=1, loss_metric=loss_metric)
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    tiny.two_replicas().run(tf.function(lambda: loss_metric.update_state(tf.ones(7))))
    clock.now += 4
    callback.progress.step = 1
    logs = dict(METRICS)
    callback.on_train_batch_end(0, logs)
    assert logs["tokens/s"] == 2 * 7 / 4


# Memory.


def test_resident_memory_is_in_mebibytes():
    array = np.ones(2**26)  # 512 MiB
    resident = memory()["resident"]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    assert array.nbytes / 2**20 < resident < 1.05 * most
    del array
    assert resident - memory()["resident"] == pytest.approx(512, abs=64)


def test_memory_of_a_gpu_is_the_most_that_it_had_to_hold(monkeypatch):
    used = {"GPU:0": {"current": 2**20, "peak": 3 * 2**20}, "GPU:1": {"current": 0, "peak": 5 * 2**20}}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: list(used) if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", used.__getitem__)
    found = memory()
    assert found.pop("resident") > 0
    assert found == {"gpu_0": 3, "gpu_1": 5}


# Hyper-parameters.


def hparams_tab(logs):
    """What TensorBoard's HParams tab makes of a directory: [(settings, {(group, tag): latest value})]."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logs))
    multiplexer.Reload()
    context = TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(logs)), logdir=str(logs))
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=api_pb2.Status.values(), aggregation_type=api_pb2.AGGREGATION_AVG
    )
    handler = list_session_groups.Handler(RequestContext(), backend_context.Context(context), "", request)
    return [
        (
            {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()},
            {metric.name.tag: metric.value for metric in group.metric_values},
        )
        for group in handler.run().session_groups
    ]


def write_validation(directory, **values):
    writer = tf.summary.create_file_writer(str(directory))
    with writer.as_default():
        for step, value in enumerate(values.pop("bleu"), start=1):
            tf.summary.scalar("bleu", value, step=step)
    writer.close()


SETTINGS = {"preset": "tiny", "d_model": 26, "dropout_rate": 0.25, "pre_norm": True, "max_steps": None}


def test_hyper_parameters_stand_beside_the_latest_validation_measures(tmp_path):
    for run, d_model, bleus in (("one", 26, [3.0, 7.0]), ("two", 34, [11.0, 5.0])):
        validation = tmp_path / run / "logs" / "validation"
        write_hyper_parameters(validation, {**SETTINGS, "d_model": d_model})
        write_validation(validation, bleu=bleus)
    shown = {"preset": "tiny", "dropout_rate": 0.25, "pre_norm": True}
    found = sorted(hparams_tab(tmp_path), key=lambda row: row[0]["d_model"])
    assert found == [({**shown, "d_model": 26}, {"bleu": 7}), ({**shown, "d_model": 34}, {"bleu": 5})]
    assert hparams_tab(tmp_path / "one" / "logs") == found[:1]  # of one run alone, as of many


def test_settings_that_a_resumed_run_has_changed_are_shown_as_they_are_now(tmp_path):
    for epochs, bleus in ((2, [3.0]), (5, [3.0, 11.0])):
        write_hyper_parameters(tmp_path / "validation", {"epochs": epochs})
        write_validation(tmp_path / "validation", bleu=bleus)
    assert hparams_tab(tmp_path) == [({"epochs": 5}, {"bleu": 11})]


# Profile.


@pytest.mark.parametrize(
    ("first", "batches", "start", "stop", "expected"),
    [
        (0, 11, 3, 5, [("start", 3), ("stop", 5)]),
        (0, 11, 0, 1, [("start", 0), ("stop", 1)]),
        (4, 11, 3, 7, [("start", 4), ("stop", 7)]),  # resumed in between
        (7, 11, 3, 7, []),  # resumed behind
        (0, 5, 3, 7, [("start", 3), ("stop", 5)]),  # training ends before
        (0, 2, 3, 7, []),
    ],
)
def test_the_profiler_runs_between_the_two_updates(monkeypatch, tmp_path, first, batches, start, stop, expected):
    progress, calls = Progress(step=first), []
    profiler = SimpleNamespace(
        start=lambda directory: calls.append(("start", progress.step)),
        stop=lambda: calls.append(("stop", progress.step)),
    )
    monkeypatch.setattr(tf.profiler, "experimental", profiler)
    profile = Profile(tmp_path, progress, start, stop)
    for batch in range(batches - first):
        profile.on_train_batch_begin(batch)
        progress.step += 1
        profile.on_train_batch_end(batch)
    profile.on_train_end()
    assert calls == expected


def test_a_profile_holds_what_happened_between_the_two_updates(tmp_path):
    progress = Progress()
    profile = Profile(tmp_path, progress, 1, 2)
    for batch in range(3):
        profile.on_train_batch_begin(batch)
        with tf.profiler.experimental.Trace(f"update_{batch}_of_this_test"):
            tf.ones((7, 5)) @ tf.ones((5, 3))
        progress.step += 1
        profile.on_train_batch_end(batch)
    (written,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    contents = written.read_bytes()
    assert [f"update_{batch}_of_this_test".encode() in contents for batch in range(3)] == [False, True, False]
