import math
from dataclasses import asdict
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from keras_transformer.training.callbacks import (
    CountSteps,
    KeepCheckpoints,
    Progress,
    ValidationBleu,
    resumable_variables,
)
from keras_transformer.training.checkpoints import RunDirectory, load_variables
from tests.training.curves import read_events


def model(value=0.0):
    """What callbacks need of a trainer, with one weight."""
    transformer_weight = keras.Variable([value, value + 1], name="weight")
    seed = keras.Variable([5, 7], dtype="int32", trainable=False, name="seed")
    moment = keras.Variable([value + 2, value + 3], name="moment")
    return SimpleNamespace(
        transformer=SimpleNamespace(weights=[transformer_weight], variables=[transformer_weight, seed]),
        optimizer=SimpleNamespace(variables=[moment]),
        stop_training=False,
    )


def on(callback, model):
    callback.set_model(model)
    return callback


# Counting.


def test_updates_are_counted_on_from_where_the_run_stands():
    progress = Progress(step=11)
    count = on(CountSteps(progress, max_steps=100), model())
    for batch in range(3):
        count.on_train_batch_end(batch)
    assert progress.step == 14 and not count.model.stop_training


def test_training_stops_after_the_last_step():
    progress = Progress(step=11)
    count = on(CountSteps(progress, max_steps=13), model())
    count.on_train_batch_end(0)
    assert not count.model.stop_training
    count.on_train_batch_end(1)
    assert count.model.stop_training and progress.step == 13


# Validation BLEU.

PAIRS = [(f"source {n}", f"reference {n}") for n in range(7)]


def validation_bleu(log_dir, pairs=PAIRS, translate=lambda texts: [text.upper() for text in texts]):
    """The callback, and what its score function was called with."""
    scored = []

    def score(translations, references):
        scored.append((translations, references))
        return 12.5

    return ValidationBleu(translate, score, pairs, tf.summary.create_file_writer(str(log_dir))), scored


def test_translations_of_the_sources_are_scored_against_the_references(tmp_path):
    bleu, scored = validation_bleu(tmp_path)
    logs = {"val_loss": 3.0}
    bleu.on_epoch_end(2, logs)
    assert logs == {"val_loss": 3.0, "val_bleu": 12.5}
    assert scored == [([f"SOURCE {n}" for n in range(7)], [f"reference {n}" for n in range(7)])]


def test_the_first_translations_are_shown_as_a_table(tmp_path):
    bleu, _ = validation_bleu(tmp_path, [("a|b", "c | d"), *PAIRS])
    bleu.on_epoch_end(2, {})
    bleu.writer.close()
    ((_, table),) = read_events(tmp_path)["samples"]
    header, line, *rows = table.splitlines()
    assert header == "| source | reference | translation |" and line == "|---|---|---|"
    assert rows[:2] == ["| a/b | c / d | A/B |", "| source 0 | reference 0 | SOURCE 0 |"]
    assert len(rows) == 5


def test_fewer_sentences_than_the_table_has_room_for_are_enough(tmp_path):
    bleu, scored = validation_bleu(tmp_path, PAIRS[:2])
    bleu.on_epoch_end(0, {})
    bleu.writer.close()
    assert scored == [(["SOURCE 0", "SOURCE 1"], ["reference 0", "reference 1"])]
    assert len(read_events(tmp_path)["samples"][0][1].splitlines()) == 4


# Checkpoints.


def keep_checkpoints(path, average_epochs=3, best_by="bleu", progress=None):
    return on(KeepCheckpoints(RunDirectory(path), progress or Progress(), average_epochs, best_by), model())


def train(keep, bleus, losses=None, first_epoch=0):
    """Epochs that end with these measures, and with the weight at the number of the epoch, counted from 1."""
    for epoch, bleu in enumerate(bleus, first_epoch):
        keep.model.transformer.weights[0].assign([epoch + 1, epoch + 1])
        loss = losses[epoch - first_epoch] if losses else 1.0
        keep.on_epoch_end(epoch, {"val_bleu": bleu, "val_loss": loss})


def weight_in(path):
    other = model()
    load_variables(path, other.transformer.weights)
    return other.transformer.weights[0].numpy().tolist()


def test_the_weights_of_the_last_epochs_are_kept(tmp_path):
    keep = keep_checkpoints(tmp_path, average_epochs=3)
    train(keep, [1.0, 2.0])
    assert keep.run.epochs() == [keep.run.epoch(1), keep.run.epoch(2)]
    train(keep, [3.0, 4.0, 5.0], first_epoch=2)
    assert keep.run.epochs() == [keep.run.epoch(3), keep.run.epoch(4), keep.run.epoch(5)]
    assert [weight_in(path) for path in keep.run.epochs()] == [[3, 3], [4, 4], [5, 5]]


@pytest.mark.parametrize(
    ("best_by", "bleus", "losses", "best", "epoch"),
    [
        ("bleu", [7.0, 11.0, 5.0, 10.0], [4.0, 3.0, 2.0, 1.0], 11.0, 2),
        ("loss", [7.0, 11.0, 5.0, 10.0], [4.0, 3.0, 1.0, 2.0], -1.0, 3),
        ("bleu", [0.0, 0.0, 0.0], None, 0.0, 1),  # the first of equals
        ("bleu", [3.0, math.nan, 2.0], None, 3.0, 1),
        ("loss", [3.0, 3.0, 3.0], [math.nan, 5.0, math.nan], -5.0, 2),
    ],
)
def test_the_best_weights_are_those_that_validated_best(tmp_path, best_by, bleus, losses, best, epoch):
    keep = keep_checkpoints(tmp_path, best_by=best_by)
    train(keep, bleus, losses)
    assert (keep.progress.best, keep.progress.best_epoch) == (best, epoch)
    assert weight_in(keep.run.best) == [epoch, epoch]


def test_a_resumed_run_keeps_the_best_of_before(tmp_path):
    train(keep_checkpoints(tmp_path), [11.0])
    resumed = keep_checkpoints(tmp_path, progress=Progress(best=11.0, best_epoch=1))
    train(resumed, [7.0], first_epoch=1)
    assert weight_in(resumed.run.best) == [1, 1]
    train(resumed, [13.0], first_epoch=2)
    assert weight_in(resumed.run.best) == [3, 3]


def test_all_that_resuming_needs_is_saved_after_every_epoch(tmp_path):
    keep = keep_checkpoints(tmp_path, progress=Progress(step=17))
    train(keep, [11.0])
    other = model(value=31.0)
    other.transformer.variables[1].assign([0, 0])
    assert Progress(**load_variables(keep.run.last, resumable_variables(other))) == Progress(17, 11.0, 1)
    found = [variable.numpy().tolist() for variable in resumable_variables(other)]
    assert found == [[1.0, 1.0], [5, 7], [2.0, 3.0]]  # weight, seed, moment


def test_progress_before_the_first_validation_survives(tmp_path):
    keep = keep_checkpoints(tmp_path, progress=Progress(step=3))
    keep.save_state()
    assert Progress(**load_variables(keep.run.last, resumable_variables(model()))) == Progress(3, -math.inf, 0)
    assert asdict(Progress()) == {"step": 0, "best": -math.inf, "best_epoch": 0}
