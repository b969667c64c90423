import contextlib
import functools
import resource
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import FileError
from keras_transformer.training import tensorboard
from keras_transformer.training.tensorboard import EventWriter, forget_after, memory, read_records, write_records
from keras_transformer.training.watchers import Curves, Progress
from tests.training.curves import hparams_tab, read_events
from tests.training.test_watchers import Clock, on

TOKENS_PER_EPOCH = 89
METRICS = {"loss": 3.0, "accuracy": 0.5, "perplexity": 7.0, "padding": 0.125}
VALIDATION = {"val_loss": 5.0, "val_accuracy": 0.75, "val_perplexity": 11.0, "val_bleu": 13.0}


# Event files.


def write_losses(logs, first, last):
    """Writes an event file with a point of the loss 1 / n for the updates n."""
    writer = tf.summary.create_file_writer(str(logs), filename_suffix=f".{first}")
    for step in range(first, last + 1):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", 1 / step)
    with writer.as_default(step=last):
        tf.summary.text("samples", f"after {last}")
    writer.close()


@pytest.fixture
def logs(tmp_path):
    """A directory with two event files, as a run that was stopped after update 5 and went on leaves it."""
    write_losses(tmp_path, 1, 5)
    write_losses(tmp_path, 6, 11)
    return tmp_path


def loss(last):
    return [(step, pytest.approx(1 / step)) for step in range(1, last + 1)]


def found(logs):
    """Points and texts in their order; files made in the same second TensorBoard reads in that of their names."""
    return {name: sorted(points) for name, points in read_events(logs).items()}


@pytest.mark.parametrize("step", [7, 3])
def test_only_points_after_the_update_are_gone_and_may_be_written_once_more(logs, step):
    before = {path.name: path.read_bytes() for path in logs.iterdir()}
    for directory in (logs, logs / "none"):
        forget_after(directory, 11)
    assert {path.name: path.read_bytes() for path in logs.iterdir()} == before
    forget_after(logs, step)
    events = found(logs)
    assert events["loss"] == loss(step) and events.get("samples", []) == ([(5, "after 5")] if step == 7 else [])
    assert all(read_records(path)[1] for path in logs.iterdir()) and len(list(logs.iterdir())) == 2
    write_losses(logs, step + 1, 13)
    assert found(logs)["loss"] == loss(13)


@pytest.mark.parametrize("cut", [1, 3, 30])
def test_a_record_cut_short_is_gone(logs, cut):
    """The last record of the last file is the text, which is longer than the part cut off."""
    (last,) = logs.glob("*.6")
    last.write_bytes(last.read_bytes()[:-cut])
    assert not read_records(last)[1]
    forget_after(logs, 11)
    events = found(logs)
    assert events["loss"] == loss(11) and events["samples"] == [(5, "after 5")]
    assert read_records(last)[1]


def test_a_point_is_on_disk_when_it_has_been_written(tmp_path):
    writer = EventWriter(tmp_path)
    for step in (1, 2, 3):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", 1 / step)
        assert read_events(tmp_path)["loss"] == loss(step)
    writer.close()


@contextlib.contextmanager
def no_room():
    """No file may grow beyond 300 bytes. Afterwards pytest can write its own again."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_of_the_system_that_names_the_place(tmp_path):
    writer = EventWriter(tmp_path)
    with no_room(), pytest.raises(FileError, match=f"^cannot write {tmp_path}: File too large$"):
        for step in range(1, 11):
            with writer.as_default(step=step):
                tf.summary.scalar("loss", 1 / step)
    with no_room(), pytest.raises(FileError, match=f"^cannot write {tmp_path / 'some'}: File too large$"):
        write_records(tmp_path / "some", [b"record"] * 100)


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(tensorboard, "memory", lambda: {"resident": 17.0, "gpu_0": 19.0})
    return Clock(monkeypatch)


class BareBoard(tensorboard.Board):
    """A `Board` that writes no settings."""

    def __init__(self, path):
        self.train, self.validation = (EventWriter(path / name) for name in ("train", "validation"))


def curves(path, every):
    model = SimpleNamespace(
        optimizer=SimpleNamespace(learning_rate=tf.constant(0.25)),
        updates=SimpleNamespace(gradient_norm=tf.constant(23.0)),
        loss_metric=keras.metrics.Mean(name="loss"),
    )
    return on(Curves(functools.cache(lambda: BareBoard(path)), Progress(), TOKENS_PER_EPOCH, every), model)


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


def test_training_curves_have_a_point_every_few_updates_and_validation_curves_one_every_epoch(tmp_path, clock):
    callback = curves(tmp_path, every=3)
    begin(callback, epoch=0)
    run_batches(callback, clock, [5, 7, 12, 13, 17])
    callback.on_epoch_end(0, {**METRICS, **VALIDATION})
    begin(callback, epoch=1, counted=31)
    run_batches(callback, clock, [18, 23])
    callback.on_epoch_end(1, {**METRICS, **VALIDATION})
    validation = {name.removeprefix("val_"): [(5, value), (7, value)] for name, value in VALIDATION.items()}
    assert read_events(tmp_path / "validation") == validation
    events = read_events(tmp_path / "train")
    assert events.pop("target_tokens_per_second") == [(3, (5 + 7 + 12) / 6), (6, 18 / 2)]
    assert events == {
        **{name: [(3, value), (6, value)] for name, value in METRICS.items()},
        "learning_rate": [(3, 0.25), (6, 0.25)],
        "gradient_norm": [(3, 23.0), (6, 23.0)],
        "target_tokens_seen": [(3, 5 + 7 + 12), (6, TOKENS_PER_EPOCH + 31 + 18)],
        "memory/resident_mib": [(3, 17), (6, 17)],
        "memory/gpu_0_mib": [(3, 19), (6, 19)],
    }


def test_the_latest_speed_is_in_every_log_for_the_progress_bar(tmp_path, clock):
    callback = curves(tmp_path, every=2)
    begin(callback, epoch=0)
    without, *with_speed = run_batches(callback, clock, [5, 7, 11], seconds=0.5)
    assert without == METRICS and with_speed == [{**METRICS, "tokens/s": 12}] * 2
    clock.now += 1000  # validation, which is not counted as training
    begin(callback, epoch=1)
    assert run_batches(callback, clock, [13]) == [{**METRICS, "tokens/s": (13 + 0) / 2}]
    assert run_batches(callback, clock, [17]) == [{**METRICS, "tokens/s": (13 + 0) / 2}]


def test_memory_is_in_mebibytes_and_that_of_a_gpu_is_the_most_that_it_had_to_hold(monkeypatch):
    used = {"GPU:0": {"current": 2**20, "peak": 3 * 2**20}, "GPU:1": {"current": 0, "peak": 5 * 2**20}}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: list(used) if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", used.__getitem__)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    found = memory()
    assert 0.1 * most < found.pop("resident") < 1.05 * most and found == {"gpu_0": 3, "gpu_1": 5}


SETTINGS = {"preset": "tiny", "dropout_rate": 0.25, "pre_norm": True, "max_steps": None}


def board(logs, settings, *bleus):
    """The event files of a run, with a value of the validation curve for every update."""
    opened = tensorboard.Board(logs, 1, 1, settings)
    for step, value in enumerate(bleus, start=1):
        opened.write_validation(step, {"val_bleu": value})
    opened.close()


def test_settings_stand_beside_the_latest_measures_as_a_resumed_run_has_them_now(tmp_path):
    decided = {"directions": ["en-de"], "tokenize": {"de": "13a"}, "none": None}
    for run, epochs, bleus in (("one", 2, [3.0]), ("one", 5, [3.0, 11.0]), ("two", 7, [7.0, 5.0])):
        board(tmp_path / run / "logs", {**SETTINGS, "epochs": epochs, **decided}, *bleus)
    shown = {"preset": "tiny", "dropout_rate": 0.25, "pre_norm": True}
    shown |= {"directions": "['en-de']", "tokenize": "{'de': '13a'}"}  # as text: the tab has no other way
    found = sorted(hparams_tab(tmp_path), key=lambda row: row[0]["epochs"])
    assert found == [({**shown, "epochs": 5}, {"bleu": 11}), ({**shown, "epochs": 7}, {"bleu": 5})]
    assert hparams_tab(tmp_path / "one" / "logs") == found[:1]  # of one run alone, as of many
