import contextlib
import functools
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.encoded import encode_pairs
from keras_transformer.data.pipeline import make_batch
from keras_transformer.errors import FileError
from keras_transformer.tokenizer import shift_right
from keras_transformer.training import tensorboard
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.tensorboard import (
    AlignmentPictures,
    EventWriter,
    forget_after,
    heat_map,
    memory,
    read_records,
    write_records,
)
from keras_transformer.training.watchers import Curves, Progress
from tests import reference, tiny
from tests.training.curves import hparams_tab, read_events

TOKENS_PER_EPOCH = 89
METRICS = {"loss": 3.0, "accuracy": 0.5, "perplexity": 7.0, "padding": 0.125}
VALIDATION = {"val_loss": 5.0, "val_accuracy": 0.75, "val_perplexity": 11.0, "val_bleu": 13.0}


def on(callback, model):
    callback.set_model(model)
    return callback


# Event files.


@pytest.fixture
def logs(tmp_path):
    """A directory with two event files, as a run that was stopped after update 5 and went on leaves it."""
    for first, last in ((1, 5), (6, 11)):
        writer = tf.summary.create_file_writer(str(tmp_path), filename_suffix=f".{first}")
        for step in range(first, last + 1):
            with writer.as_default(step=step):
                tf.summary.scalar("loss", 1 / step)
        with writer.as_default(step=last):
            tf.summary.text("samples", f"after {last}")
        writer.close()
    return tmp_path


def loss(last):
    return [(step, pytest.approx(1 / step)) for step in range(1, last + 1)]


def found(logs):
    """Points and texts in their order; files made in the same second TensorBoard reads in that of their names."""
    return {name: sorted(points) for name, points in read_events(logs).items()}


def contents(logs):
    return {path.name: path.read_bytes() for path in logs.iterdir()}


@pytest.mark.parametrize("step", [7, 3])
def test_points_after_the_update_are_gone_and_the_others_stay(logs, step):
    forget_after(logs, step)
    events = found(logs)
    assert events["loss"] == loss(step)
    assert events.get("samples", []) == ([(5, "after 5")] if step == 7 else [])
    assert all(read_records(path)[1] for path in logs.iterdir()) and len(list(logs.iterdir())) == 2


def test_where_there_is_nothing_to_forget_nothing_changes(logs, tmp_path):
    before = contents(logs)
    forget_after(logs, 11)
    assert contents(logs) == before
    forget_after(tmp_path / "none", 0)


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


def test_points_written_once_more_are_there_once(logs):
    forget_after(logs, 7)
    writer = tf.summary.create_file_writer(str(logs), filename_suffix=".8")
    for step in range(8, 14):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", 1 / step)
    writer.close()
    assert found(logs)["loss"] == loss(13)


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


class BareBoard(tensorboard.Board):
    """A `Board` that writes no settings."""

    def __init__(self, path):
        self.train, self.validation = (EventWriter(path / name) for name in ("train", "validation"))


def curves(path, every, loss_metric=None):
    model = SimpleNamespace(
        optimizer=SimpleNamespace(learning_rate=tf.constant(0.25)),
        updates=SimpleNamespace(gradient_norm=tf.constant(23.0)),
        loss_metric=loss_metric or keras.metrics.Mean(name="loss"),
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


def test_a_resumed_epoch_has_seen_the_tokens_counted_before_its_interruption(tmp_path, clock):
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


SETTINGS = {"preset": "tiny", "d_model": 26, "dropout_rate": 0.25, "pre_norm": True, "max_steps": None}


def board(logs, settings, *bleus):
    """The event files of a run, with a value of the validation curve for every update."""
    opened = tensorboard.Board(logs, 1, 1, settings)
    for step, value in enumerate(bleus, start=1):
        opened.write_validation(step, {"val_bleu": value})
    opened.close()


def test_hyper_parameters_stand_beside_the_latest_validation_measures(tmp_path):
    for run, d_model, bleus in (("one", 26, [3.0, 7.0]), ("two", 34, [11.0, 5.0])):
        board(tmp_path / run / "logs", {**SETTINGS, "d_model": d_model}, *bleus)
    shown = {"preset": "tiny", "dropout_rate": 0.25, "pre_norm": True}
    found = sorted(hparams_tab(tmp_path), key=lambda row: row[0]["d_model"])
    assert found == [({**shown, "d_model": 26}, {"bleu": 7}), ({**shown, "d_model": 34}, {"bleu": 5})]
    assert hparams_tab(tmp_path / "one" / "logs") == found[:1]  # of one run alone, as of many


def test_settings_that_a_resumed_run_has_changed_are_shown_as_they_are_now(tmp_path):
    for epochs, bleus in ((2, [3.0]), (5, [3.0, 11.0])):
        board(tmp_path, {"epochs": epochs}, *bleus)
    assert hparams_tab(tmp_path) == [({"epochs": 5}, {"bleu": 11})]


def test_settings_that_the_tab_cannot_show_are_shown_as_text(tmp_path):
    """Such as decisions of a run: a list of directions, a tokenization for each language."""
    board(tmp_path, {"directions": ["en-de"], "tokenize": {"de": "13a"}, "none": None}, 11.0)
    assert hparams_tab(tmp_path) == [({"directions": "['en-de']", "tokenize": "{'de': '13a'}"}, {"bleu": 11})]


# Pictures of alignment.

T, S = 3, 5
PIECES, SOURCE_PIECES = ["▁ein", "s", "</s>"], ["▁o", "ne", "▁", "<0xE2>", "\\t"]


def one_hot(row, column, weight=1.0):
    alignment = np.zeros((T, S))
    alignment[row, column] = weight
    return alignment


def marked(row, column):
    """First and last row and column of pixels that a cell's weight changes, and the picture's values there."""
    picture = heat_map(one_hot(row, column), SOURCE_PIECES, PIECES)
    different = (picture != heat_map(np.zeros((T, S)), SOURCE_PIECES, PIECES)).any(axis=-1)
    (rows, columns) = np.nonzero(different)
    box = np.array([rows.min(), rows.max(), columns.min(), columns.max()])
    return box, picture[box[0] + 3 : box[1] - 2, box[2] + 3 : box[3] - 2]


def test_rows_are_pieces_and_columns_source_pieces():
    first, _ = marked(0, 0)
    height, width = first[1] - first[0] + 1, first[3] - first[2] + 1
    assert height == pytest.approx(width, abs=2)
    for row, column in ((1, 0), (0, 1), (2, 4)):
        box, _ = marked(row, column)
        moved = np.array([row * height, row * height, column * width, column * width])
        np.testing.assert_allclose(box - first, moved, atol=1 + 0.5 * max(row, column))


def test_nothing_is_white_and_all_is_black():
    _, inside = marked(1, 2)
    assert inside.size and inside.max() == 0
    picture = heat_map(one_hot(1, 2, 0.0), SOURCE_PIECES, PIECES)
    box, _ = marked(1, 2)
    assert picture[box[0] + 3 : box[1] - 2, box[2] + 3 : box[3] - 2].min() == 255


def test_pictures_are_modest_and_of_bytes():
    picture = heat_map(np.full((40, 40), 0.025), ["▁piece"] * 40, ["▁piece"] * 40)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3 and max(picture.shape) < 800


@pytest.mark.parametrize("labels", [SOURCE_PIECES, PIECES])
def test_labels_are_drawn(labels):
    picture = heat_map(np.zeros((T, S)), SOURCE_PIECES, PIECES)
    changed = [label.replace("s", "M").replace("ne", "MM") for label in labels]
    arguments = (changed, PIECES) if labels is SOURCE_PIECES else (SOURCE_PIECES, changed)
    assert (heat_map(np.zeros((T, S)), *arguments) != picture).any()


def test_any_piece_can_be_drawn():
    """TeX, which matplotlib would typeset or refuse, and characters that its font lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heat_map(np.zeros((T, S)), ["$x^{$", "$", "中文", "👩", "\\frac"], ["שלום", "x" * 16, "%$^$"])


def batch(count=4):
    """(source_ids, labels)."""
    with tempfile.TemporaryDirectory() as directory:
        encoded = encode_pairs(tiny.pairs(7), tiny.tokenizer(), tiny.tokenizer(), 31, Path(directory))
        return make_batch(encoded, np.arange(count))


@functools.cache  # no test changes its weights
def transformer(seed=0):
    return tiny.transformer(seed)


def pictures_by_numpy(source_ids, labels, transformer, most=31):
    weights, target_ids = reference.weights_of(transformer), shift_right(labels).numpy()
    alignments = reference.alignment(weights, source_ids, target_ids, num_heads=2, residual=reference.post_norm)
    for alignment, source_row, row in zip(alignments, source_ids, labels, strict=True):
        source_pieces, pieces = (tiny.tokenizer().visible_pieces(ids[ids > 0])[:most] for ids in (source_row, row))
        yield heat_map(alignment[: len(pieces), : len(source_pieces)], source_pieces, pieces)


def draw(directory, trainer, source_ids, labels, step=0, tokenizers=None):
    """Writes the pictures of an epoch's end."""
    writer = EventWriter(directory)
    tokenizers = tokenizers or (tiny.tokenizer(), tiny.tokenizer())
    pictures = AlignmentPictures(source_ids, labels, tokenizers, writer, Progress(step=step))
    pictures(trainer, {})
    writer.close()


@pytest.mark.parametrize("strategy", [tf.distribute.get_strategy, tiny.two_replicas])
def test_the_alignment_of_each_pair_is_drawn_at_the_end_of_an_epoch(tmp_path, strategy):
    with strategy().scope():
        network = tiny.transformer()
    draw(tmp_path, SimpleNamespace(network=network, averaged=contextlib.nullcontext), *batch(), step=17)
    events, expected = read_events(tmp_path), list(pictures_by_numpy(*batch(), transformer()))
    assert list(events) == [f"alignment/{number}" for number in range(1, 5)]
    for ((step, found),), picture in zip(events.values(), expected, strict=True):
        assert step == 17 and found.shape == picture.shape
        np.testing.assert_allclose(found.astype(int), picture, atol=2)
    assert len({picture.tobytes() for picture in expected}) == 4


def test_the_averaged_weights_are_drawn_where_there_are_any(tmp_path):
    trainer = TeacherForcing(tiny.transformer(), ema_decay=0.5)
    trainer.compile("adam")
    for average, weight in zip(trainer.updates.averages, transformer(seed=5).weights, strict=True):
        average.assign(weight)
    draw(tmp_path, trainer, *batch())
    found = [picture.astype(int) for ((_, picture),) in read_events(tmp_path).values()]
    averaged, raw = (list(pictures_by_numpy(*batch(), model)) for model in (transformer(seed=5), transformer()))
    for picture, expected in zip(found, averaged, strict=True):
        np.testing.assert_allclose(picture, expected, atol=2)
    assert max(np.abs(picture - other).max() for picture, other in zip(found, raw, strict=True)) > 20


def test_of_long_sentences_the_first_pieces_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "MOST_PIECES", 3)
    network = transformer()
    draw(tmp_path, SimpleNamespace(network=network, averaged=contextlib.nullcontext), *batch(1))
    ((_, found),) = read_events(tmp_path)["alignment/1"]
    (picture,) = pictures_by_numpy(*batch(1), network, most=3)
    np.testing.assert_allclose(found.astype(int), picture, atol=2)


def test_each_side_is_written_in_the_pieces_of_its_own_tokenizer(tmp_path):
    shared, other = tiny.tokenizer(), SimpleNamespace(visible_pieces=lambda ids: ["x" * 23 for _ in ids])
    for name, tokenizers in {"shared": (shared, shared), "source": (other, shared), "target": (shared, other)}.items():
        model = SimpleNamespace(network=transformer(), averaged=contextlib.nullcontext)
        draw(tmp_path / name, model, *batch(1), tokenizers=tokenizers)
    shapes = {name: read_events(tmp_path / name)["alignment/1"][0][1].shape for name in ("shared", "source", "target")}
    assert shapes["source"][0] > shapes["shared"][0] and shapes["source"][1] == shapes["shared"][1]  # columns
    assert shapes["target"][1] > shapes["shared"][1] and shapes["target"][0] == shapes["shared"][0]  # rows
