import errno
import json
import math
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import pipeline
from keras_transformer.errors import CheckpointError, DamagedCheckpoint
from keras_transformer.training.checkpoints import (
    RunDirectory,
    average_variables,
    load_each,
    load_last,
    load_variables,
    save_variables,
    write_atomically,
)
from keras_transformer.training.teacher_forcing import TeacherForcing
from tests import tiny

SHAPES = {"embedding": (7, 5), "kernel": (5, 3), "bias": (3,), "seed": (2,)}


def variables(seed=0, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    made = [keras.Variable(rng.normal(size=shape), dtype="float32", name=name) for name, shape in shapes.items()]
    return [*made, keras.Variable(seed, dtype="int32", trainable=False, name="iteration")]


def values(variables):
    return [variable.numpy() for variable in variables]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# Round trip.


def test_variables_come_back_as_they_were(tmp_path):
    saved, loaded = variables(3), variables(5)
    save_variables(tmp_path / "some.npz", saved)
    assert load_variables(tmp_path / "some.npz", loaded) is None
    assert_equal(values(loaded), values(saved))


def test_progress_comes_back_as_it_was(tmp_path):
    progress = {"step": 7, "best": -math.inf, "best_epoch": 0, "text": "größer"}
    save_variables(tmp_path / "some.npz", variables(), progress)
    assert load_variables(tmp_path / "some.npz", variables()) == progress
    save_variables(tmp_path / "some.npz", variables(), {"step": 8})
    assert load_variables(tmp_path / "some.npz", variables()) == {"step": 8}


def trainer(**arguments):
    model = TeacherForcing(tiny.transformer(dropout_rate=0.3, **arguments), ema_decay=0.7)
    model.compile(keras.optimizers.Adam(0.01, name="adam"))
    return model


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    """The next update needs weights, averages, the optimizer's moments and count, and the seeds of dropout."""
    encoded = tiny.encoded_pairs([3, 5, 2], [2, 7, 4], tiny.VOCABULARY)
    batch = pipeline.teacher_forced(*map(tf.constant, pipeline.make_batch(encoded, np.arange(3))))
    first, second = trainer(seed=1), trainer(seed=2)
    for _ in range(2):
        first.train_step(batch)
    save_variables(tmp_path / "last.npz", first.resumable_variables)
    load_variables(tmp_path / "last.npz", second.resumable_variables)
    assert int(second.optimizer.iterations.numpy()) == 2
    start = values(second.network.weights)
    first.train_step(batch)
    second.train_step(batch)
    assert_equal(values(second.resumable_variables), values(first.resumable_variables))
    assert np.abs(start[0] - second.network.weights[0].numpy()).max() > 1e-3


# Atomic.


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, write)
    assert [p.name for p in tmp_path.iterdir()] == ["some.txt"]
    assert path.read_text() == "old"


def test_an_interrupted_first_write_leaves_nothing(tmp_path):
    def write(temporary):
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "some.txt", write)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_save_leaves_the_checkpoint_before_it(tmp_path, monkeypatch):
    path, before = tmp_path / "last.npz", variables(3)
    save_variables(path, before, {"step": 3})

    def savez(file, **arrays):
        file.write_bytes(b"PK half of it")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(OSError, match="disk full"):
        save_variables(path, variables(5), {"step": 5})
    assert [p.name for p in tmp_path.iterdir()] == ["last.npz"]
    loaded = variables(7)
    assert load_variables(path, loaded) == {"step": 3}
    assert_equal(values(loaded), values(before))


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "some.keras"
    seen = []

    def write(temporary):
        assert temporary.parent == tmp_path and temporary.suffix == ".keras"  # Keras looks at the suffix
        temporary.write_text("half")
        seen.append(path.exists())
        temporary.write_text("whole")

    write_atomically(path, write)
    assert seen == [False]
    assert path.read_text() == "whole" and len(list(tmp_path.iterdir())) == 1


def test_the_file_before_is_kept_under_another_name(tmp_path):
    path, previous = tmp_path / "some.txt", tmp_path / "previous.txt"
    found = []
    for text in ("one", "two", "three"):
        write_atomically(path, lambda temporary, text=text: temporary.write_text(text), previous)
        found.append((path.read_text(), previous.read_text() if previous.exists() else None))
    assert found == [("one", None), ("two", "one"), ("three", "two")]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    """The error of a full disk names no file."""

    def write(temporary):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError) as error:
        write_atomically(tmp_path / "last.npz", write)
    assert str(error.value) == f"cannot write {tmp_path / 'last.npz'}: No space left on device"


# The last one, and the one before.


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def garble(path):
    """One byte of the first array."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\x93NUMPY") + 200] ^= 0xFF
    path.write_bytes(bytes(content))


def overwrite_with_text(path):
    path.write_text("not an npz file\n" * 50)


@pytest.fixture
def run(tmp_path):
    """A run directory with last.npz of update 5 and previous.npz of update 3, whose values are those numbers' too."""
    run = RunDirectory(tmp_path)
    for step in (3, 5):
        save_variables(run.last, variables(step), {"step": step}, run.previous)
    return run


def test_the_last_checkpoint_is_loaded(run, capsys):
    loaded = variables(7)
    assert load_last(run, loaded) == {"step": 5}
    assert_equal(values(loaded), values(variables(5)))
    assert capsys.readouterr().out == "" and run.previous.exists()


@pytest.mark.parametrize("damage", [truncate, cut_in_half, empty, garble, overwrite_with_text, os.unlink])
def test_the_one_before_takes_the_place_of_a_damaged_one(run, capsys, damage):
    damage(run.last)
    loaded = variables(7)
    assert load_last(run, loaded) == {"step": 3}
    assert_equal(values(loaded), values(variables(3)))
    (line,) = capsys.readouterr().out.splitlines()
    assert f"cannot read {run.last}" in line and line.endswith("; going back to previous.npz")
    assert load_last(run, loaded) == {"step": 3} and not run.previous.exists()
    assert capsys.readouterr().out == ""


def test_two_damaged_ones_are_both_named(run):
    truncate(run.last)
    empty(run.previous)
    with pytest.raises(CheckpointError) as refused:
        load_last(run, variables(7))
    message = str(refused.value)
    assert f"cannot read {run.last}" in message and f"cannot read {run.previous}" in message
    assert message.endswith("or choose another --model_dir") and "\n" not in message


def test_for_another_model_the_one_before_is_not_tried(run):
    with pytest.raises(CheckpointError, match="last.npz was written by a different model"):
        load_last(run, variables(7, {**SHAPES, "bias": (11,)}))


# What is refused.


def refuse(path, variables):
    """The message with which a file is refused; the variables stay as they are."""
    before = values(variables)
    with pytest.raises(CheckpointError) as refused:
        load_variables(path, variables)
    assert_equal(values(variables), before)
    message = str(refused.value)
    assert isinstance(refused.value, DamagedCheckpoint) == message.startswith("cannot read")
    assert "\n" not in message and str(path) in message
    return message


@pytest.mark.parametrize("damage", [truncate, cut_in_half, empty, garble, overwrite_with_text, os.unlink])
def test_a_damaged_file_is_refused_and_changes_nothing(tmp_path, damage):
    path = tmp_path / "last.npz"
    save_variables(path, variables(3), {"step": 3})
    damage(path)
    assert refuse(path, variables(5)).startswith(f"cannot read {path}: ")


def test_damaged_progress_is_refused(tmp_path):
    path = tmp_path / "last.npz"
    save_variables(path, variables(3))
    with np.load(path) as arrays:
        content = dict(arrays)
    np.savez(path, **{**content, "progress": np.array('{"step": ')})
    assert refuse(path, variables(5)).startswith(f"cannot read {path}: ")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({**SHAPES, "kernel": (5, 11)}, r"kernel has shape \(5, 11\), not \(5, 3\)"),  # the others would fit
        ({"embedding": (7, 5), "gamma": (5, 3), "bias": (3,), "seed": (2,)}, "kernel"),
        ({"embedding": (7, 5)}, "kernel"),
    ],
    ids=["shape", "name", "fewer"],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path, other, named):
    path = tmp_path / "last.npz"
    save_variables(path, variables(3, other))
    message = refuse(path, variables(5))
    assert message.startswith(f"{path} was written by a different model: ")
    pytest.raises(CheckpointError, load_variables, path, variables(5)).match(named)


def test_a_checkpoint_with_more_variables_is_refused(tmp_path):
    path = tmp_path / "last.npz"
    more = variables(3)
    save_variables(path, more)
    assert refuse(path, more[:-1]).startswith(f"{path} was written by a different model")


# Average.


@pytest.mark.parametrize("files", [1, 2, 5])
def test_average_is_the_mean_of_the_files(tmp_path, files):
    saved = []
    for n in range(files):
        some = variables(n)[:-1]
        save_variables(tmp_path / f"{n}.npz", some)
        saved.append(values(some))
    averaged = variables(11)[:-1]
    average_variables([tmp_path / f"{n}.npz" for n in range(files)], averaged)
    for found, *expected in zip(averaged, *saved, strict=True):
        np.testing.assert_allclose(found.numpy(), np.mean(expected, axis=0, dtype="float64"), rtol=1e-6, atol=1e-7)


def test_average_loses_nothing_to_float32(tmp_path):
    value = keras.Variable([0.0], name="value")
    paths = []
    for n, number in enumerate([2.0**30, 1.0, 1.0, 1.0, -(2.0**30), 0.0, 0.0]):  # 2^30 + 1 is none of float32
        value.assign([number])
        paths.append(tmp_path / f"{n}.npz")
        save_variables(paths[-1], [value])
    average_variables(paths, [value])
    assert value.numpy()[0] == np.float32(3 / 7)


@pytest.mark.parametrize("damage", [truncate, garble, os.unlink])
def test_a_file_that_cannot_be_read_is_named_and_left_out_of_the_average(tmp_path, capsys, damage):
    paths = [tmp_path / f"epoch_{number:04d}.npz" for number in (2, 3, 5)]
    for seed, path in enumerate(paths):
        save_variables(path, variables(seed)[:-1])
    damage(paths[1])
    averaged = variables(11)[:-1]
    assert average_variables(paths, averaged) == 2
    for found, first, last in zip(averaged, variables(0), variables(2), strict=False):
        np.testing.assert_allclose(found.numpy(), (first.numpy() + last.numpy()) / 2, rtol=1e-6, atol=1e-7)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"left out    cannot read {paths[1]}: ")


def test_if_no_file_can_be_read_the_weights_stay_and_a_line_tells_the_remedy(tmp_path, capsys):
    paths = [tmp_path / f"epoch_{number:04d}.npz" for number in (2, 3)]
    save_variables(paths[0], variables(7))
    overwrite_with_text(paths[0])
    loaded = variables(5)
    line = f"no weights can be read from {tmp_path}: train on with more --epochs, which writes new ones"
    for load in (average_variables, lambda *arguments: next(load_each(*arguments))):
        with pytest.raises(CheckpointError) as refused:
            load(paths, loaded)
        assert str(refused.value) == line
        assert_equal(values(loaded), values(variables(5)))
        for path, said in zip(paths, capsys.readouterr().out.splitlines(), strict=True):
            assert said.startswith(f"left out    cannot read {path}: ")


# The run directory.


def test_run_directory_is_made_and_has_one_place_for_everything(tmp_path):
    run = RunDirectory(tmp_path / "runs" / "some")
    assert run.checkpoints.is_dir()
    names = ("config", "tokens", "samples", "last", "previous", "best", "model", "results", "logs")
    places = {str(getattr(run, name).relative_to(run.path)) for name in names}
    assert places == {
        "config.yaml",
        "tokens",
        "samples.txt",
        "checkpoints/last.npz",
        "checkpoints/previous.npz",
        "checkpoints/best.npz",
        "model.keras",
        "results.yaml",
        "logs",
    }
    assert run.tokenizer_files(True) == [run.path / "tokenizer.model"]
    assert run.tokenizer_files(False) == [run.path / "source_tokenizer.model", run.path / "target_tokenizer.model"]
    assert RunDirectory(str(tmp_path / "runs" / "some")).path == run.path  # it may exist


def test_epochs_are_listed_oldest_first_without_unfinished_files(tmp_path):
    run = RunDirectory(tmp_path)
    for number in (10, 9, 100, 1):
        save_variables(run.epoch(number), variables())
    save_variables(run.last, variables())
    run.epoch(2).with_name(f".{run.epoch(2).name}").write_text("left by a killed process")
    assert run.epochs() == [run.epoch(number) for number in (1, 9, 10, 100)]


def test_a_directory_is_claimed_by_one_process_at_a_time(tmp_path):
    first, second = RunDirectory(tmp_path), RunDirectory(tmp_path)
    first.claim()
    with pytest.raises(CheckpointError, match=f"^{tmp_path} is in use by another .*choose another --model_dir$"):
        second.claim()
    RunDirectory(tmp_path / "another").claim()
    del first
    second.claim()


def test_a_claim_removes_the_unfinished_files_of_a_killed_process(tmp_path):
    run = RunDirectory(tmp_path)
    (run.logs / "train").mkdir(parents=True)
    half_written = []

    def write(temporary):
        temporary.write_text("whole")
        half_written.append(temporary)

    for path in (run.model, run.logs / "train" / "events.v2", run.last):
        write_atomically(path, write)
    for path in half_written:
        path.write_text("half")
    before = run.last.read_bytes()
    run.claim()
    assert not any(path.exists() for path in half_written)
    assert run.last.read_bytes() == before and run.model.exists()


def test_checkpoints_are_plain_numpy_files(tmp_path):
    saved = variables(3)
    save_variables(tmp_path / "some.npz", saved, {"step": 3})
    with np.load(tmp_path / "some.npz", allow_pickle=False) as arrays:
        assert len(arrays.files) == len(saved) + 1
        assert json.loads(str(arrays["progress"])) == {"step": 3}
        np.testing.assert_array_equal(arrays["0001/kernel"], saved[1].numpy())
