import errno
import functools
import inspect
import json
import logging
import math
import os
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.data.full_stops import UNKNOWN, FullStops, Known, save_known
from keras_transformer.errors import CheckpointError, DamagedCheckpoint, FileError, UserError
from keras_transformer.files import write_whole
from keras_transformer.tokenizer import save_tokenizers
from keras_transformer.training import checkpoints
from keras_transformer.training.checkpoints import load_network, load_translator, load_variables, save_variables
from keras_transformer.training.run_directory import RunDirectory
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


def test_variables_and_progress_come_back_from_a_plain_numpy_file(tmp_path):
    saved, loaded, path = variables(3), variables(5), tmp_path / "some.npz"
    save_variables(path, saved)
    assert load_variables(path, loaded[::-1]) is None  # Keras changes the order of layers from version to version
    assert_equal(values(loaded), values(saved))
    for progress in ({"step": 7, "best": -math.inf, "best_epoch": 0, "text": "größer"}, {"step": 8}):
        save_variables(path, saved, progress)
        assert load_variables(path, variables()) == progress
    with np.load(path, allow_pickle=False) as arrays:
        assert len(arrays.files) == len(saved) + 1 and json.loads(str(arrays["progress"])) == {"step": 8}
        np.testing.assert_array_equal(arrays["0000/kernel"], saved[1].numpy())


def test_a_file_appears_when_it_is_whole_and_the_one_before_is_kept_under_another_name(tmp_path):
    path, previous = tmp_path / "some.keras", tmp_path / "previous.keras"

    def contents():
        return {file.name: file.read_text() for file in tmp_path.iterdir()}

    def fail(temporary, error):
        assert temporary.parent == tmp_path and temporary.suffix == ".keras"  # Keras looks at the suffix
        temporary.write_text("half")
        raise error

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # names no file
    for text in "abc":
        before = contents()
        for error, raised in ((KeyboardInterrupt(), KeyboardInterrupt), (full, FileError)):
            with pytest.raises(raised) as stopped:
                write_whole(path, functools.partial(fail, error=error), previous)
            assert contents() == before
        assert str(stopped.value) == f"cannot write {path}: No space left on device"
        write_whole(path, functools.partial(Path.write_text, data=text), previous)
    assert contents() == {path.name: "c", previous.name: "b"}


def overwrite_with_text(path):
    path.write_text("not an npz file\n" * 50)


def garble(path):
    """One byte of the first array."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\x93NUMPY") + 200] ^= 0xFF
    path.write_bytes(bytes(content))


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "garbled": garble,
    "text": overwrite_with_text,
    "gone": os.unlink,
    "progress": lambda path: np.savez(path, **{**np.load(path), "progress": np.array('{"step": ')}),
}


@pytest.fixture
def run(tmp_path):
    """A run directory with last.npz of update 5 and previous.npz of update 3, whose values are those numbers' too."""
    run = RunDirectory(tmp_path)
    for step in (3, 5):
        save_variables(run.last, variables(step), {"step": step}, run.previous)
    return run


@pytest.mark.parametrize("damage", [garble, os.unlink])
def test_the_last_checkpoint_is_loaded_and_the_one_before_takes_the_place_of_a_damaged_one(run, capsys, damage):
    loaded = variables(7)
    assert checkpoints.load_last(run, loaded) == {"step": 5}
    assert_equal(values(loaded), values(variables(5)))
    assert capsys.readouterr().out == "" and run.previous.exists()
    damage(run.last)
    assert checkpoints.load_last(run, loaded) == {"step": 3}
    assert_equal(values(loaded), values(variables(3)))
    (line,) = capsys.readouterr().out.splitlines()
    assert f"cannot read {run.last}" in line and line.endswith("; going back to previous.npz")
    assert checkpoints.load_last(run, loaded) == {"step": 3} and not run.previous.exists()
    assert capsys.readouterr().out == ""


def test_for_another_model_the_one_before_is_not_tried_and_two_damaged_ones_are_both_named(run):
    with pytest.raises(CheckpointError, match="last.npz was written by a different model"):
        checkpoints.load_last(run, variables(7, {**SHAPES, "bias": (11,)}))
    overwrite_with_text(run.last)
    garble(run.previous)
    damages = f"cannot read {run.last}: .*cannot read {run.previous}: .*or choose another `model_dir`$"
    with pytest.raises(CheckpointError, match=damages):
        checkpoints.load_last(run, variables(7))


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


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_changes_nothing(tmp_path, damage):
    path = tmp_path / "last.npz"
    save_variables(path, variables(3), {"step": 3})
    DAMAGES[damage](path)
    assert refuse(path, variables(5)).startswith(f"cannot read {path}: ")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({**SHAPES, "kernel": (5, 11)}, r"kernel has shape (5, 11), not (5, 3)"),  # the others would fit
        ({"embedding": (7, 5), "gamma": (5, 3), "bias": (3,), "seed": (2,)}, "it has no '0000/kernel"),
        ({**SHAPES, "iteration": (), "one": (2,), "more": (2,)}, "it has 3 variables more"),
    ],
    ids=["shape", "name", "more"],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path, other, named):
    path = tmp_path / "last.npz"
    save_variables(path, variables(3, other))
    assert refuse(path, variables(5)).startswith(f"{path} was written by a different model: {named}")


def test_files_that_cannot_be_read_are_named_and_left_out_of_the_average_and_without_any_the_weights_stay(
    tmp_path, capsys
):
    paths = [tmp_path / f"epoch_{number:04d}.npz" for number in (2, 3, 5, 6)]
    for seed, path in enumerate(paths):
        save_variables(path, variables(seed)[:-1])
    garble(paths[1])
    paths[3].unlink()
    averaged = variables(11)[:-1]
    assert checkpoints.average_variables(paths, averaged) == [paths[0], paths[2]]
    for found, first, last in zip(averaged, variables(0), variables(2), strict=False):
        np.testing.assert_allclose(found.numpy(), (first.numpy() + last.numpy()) / 2, rtol=1e-6, atol=1e-7)
    bad, loaded = [paths[1], paths[3]], variables(5)
    assert_named(bad, capsys)
    for load in (checkpoints.average_variables, lambda *arguments: next(checkpoints.load_each(*arguments))):
        line = f"^no weights can be read from {tmp_path}: go on with more `epochs`, which writes new ones$"
        with pytest.raises(CheckpointError, match=line):
            load(bad, loaded)
        assert_equal(values(loaded), values(variables(5)))
        assert_named(bad, capsys)
    with pytest.raises(CheckpointError, match="no weights can be read of any epoch: go on with more"):
        checkpoints.average_variables([], [])


def assert_named(paths, capsys):
    """Each of these paths has a line that says that it is left out."""
    for path, line in zip(paths, capsys.readouterr().out.splitlines(), strict=True):
        assert line.startswith(f"left out    cannot read {path}: ")


# The run directory.


def test_a_run_directory_has_one_place_for_everything_and_lists_epochs_oldest_first(tmp_path):
    run = RunDirectory(str(tmp_path / "runs" / "some"))
    assert run.path == tmp_path / "runs" / "some" and not run.path.exists()  # to look at a run makes nothing
    listed = re.findall(r"^ +([\w./]+?)/? ", inspect.getdoc(RunDirectory), re.MULTILINE)
    found = {str(path.relative_to(run.path)) for path in vars(run).values()} - {".", "checkpoints"}
    assert found | {"tokenizer.model", "checkpoints/epoch_N.npz", ".lock"} == {*listed}
    assert run.tokenizer_files(True) == [run.path / "tokenizer.model"]
    assert run.tokenizer_files(False) == [run.path / "source_tokenizer.model", run.path / "target_tokenizer.model"]
    for number in (10, 9, 100, 1):
        save_variables(run.epoch(number), variables())
    save_variables(run.last, variables())
    run.epoch(2).with_name(f".{run.epoch(2).name}").write_text("left by a killed process")
    assert run.epochs() == [run.epoch(number) for number in (1, 9, 10, 100)]
    assert run.epochs_to_average(2, best=0) == [run.epoch(99), run.epoch(100)]  # all measures were NaN


def test_a_directory_is_claimed_by_one_process_at_a_time_which_keeps_the_log_there(tmp_path):
    run, second, log = RunDirectory(tmp_path), RunDirectory(tmp_path), logging.getLogger("keras_transformer.training")
    half_written = []
    for path in (run.model, run.logs / "train" / "events.v2", run.last):
        write_whole(path, lambda temporary: half_written.append(temporary) or temporary.write_text("whole"))
    for path in half_written:
        path.write_text("of a process that was killed")
    log.info("before")
    with run.claimed():
        log.info("the first line")
        assert run.last.read_text() == "whole" and run.model.exists()
        assert not any(path.exists() for path in half_written)
        with pytest.raises(CheckpointError, match=f"^{tmp_path} is in use by another .*choose another `model_dir`$"):
            with second.claimed():
                pass
        with RunDirectory(tmp_path / "another").claimed():
            pass
    log.info("after")
    with second.claimed():
        log.warning("the second line")
    lines = [re.sub("^[0-9-]{10} [0-9:]{8} ", "", line) for line in run.log.read_text(encoding="utf-8").splitlines()]
    assert lines == ["the first line", "the second line"]


def test_a_training_that_fails_at_once_leaves_no_directory(tmp_path):
    new, old = RunDirectory(tmp_path / "runs" / "new"), RunDirectory(tmp_path)
    for run, is_kept in ((new, False), (old, True)):
        with pytest.raises(CheckpointError), run.claimed():
            raise CheckpointError("no corpus")
        assert run.path.exists() == is_kept
    with pytest.raises(CheckpointError), new.claimed():
        new.tokens.mkdir()  # to make them takes minutes
        raise CheckpointError("too large for this machine")
    assert new.tokens.exists()


# Its model, finished or not.

ALPHA = 0.7


@functools.cache
def transformer():
    """Only its architecture matters: `save_weights` gives it the weights that it saves."""
    return tiny.transformer()


def make_run(path, **settings):
    """A run directory in which a training has saved nothing yet."""
    run = RunDirectory(path)
    write_whole(run.config, tiny.config("nowhere", path, length_penalty=ALPHA, **settings).save)
    save_tokenizers(run.path, tiny.tokenizer(), tiny.tokenizer())
    run.keep_architecture(transformer())
    return run


def save_weights(path, value, progress=None):
    """Saves weights of a `Transformer` that are all `value`; with `progress`, as training saves all that it needs."""
    network = transformer()
    for weight in network.weights:
        weight.assign(np.full(weight.shape, value))
    state = [*network.variables, keras.Variable(3.0, name="moment")]
    save_variables(path, network.weights if progress is None else state, progress)


def value_of(network):
    """The value of all weights."""
    (value,) = {float(number) for weight in network.weights for number in np.unique(weight.numpy())}
    return value


@pytest.fixture
def under_way(tmp_path):
    """A run that stopped in epoch 5 and averages 3: the weights of epoch N are N, the best were those of epoch 3."""
    run = make_run(tmp_path / "run", average_epochs=3)
    for epoch in (1, 2, 3, 4):
        save_weights(run.epoch(epoch), epoch)
    save_weights(run.best, 3.0)
    save_weights(run.last, 11.0, {"best_epoch": 3})
    return run


def test_a_run_under_way_has_a_model(under_way, monkeypatch):
    monkeypatch.setattr(checkpoints, "read_architecture", lambda run: transformer())  # it takes a second each time

    def check(checkpoint, value, *names):
        network, paths = load_network(under_way, checkpoint)
        assert value_of(network) == value and [path.stem for path in paths] == [*names]

    check("average", 3.0, "epoch_0002", "epoch_0003", "epoch_0004")
    check("best", 3.0, "best")
    check("last", 11.0, "last")
    check("4", 4.0, "epoch_0004")
    with pytest.raises(CheckpointError, match="no weights of `checkpoint` 7 in .*: there are those of 1, 2, 3, 4"):
        load_network(under_way, "7")
    with pytest.raises(CheckpointError, match="must be average, best, last or a number. Received: 'newest'"):
        load_network(under_way, "newest")
    save_weights(under_way.epoch(5), 50.0)
    tiny.config("", under_way.path, average_epochs=3, patience=2, epochs=9).save(under_way.config)
    check("average", 3.0, "epoch_0002", "epoch_0003", "epoch_0004")  # around the best one
    tiny.config("", under_way.path, ema_decay=0.9).save(under_way.config)
    check("average", 50.0, "epoch_0005")  # which has an average of its own
    save_weights(under_way.previous, 10.0, {"best_epoch": 3})
    overwrite_with_text(under_way.last)
    before = under_way.last.read_bytes()
    check("last", 10.0, "previous")
    assert under_way.last.read_bytes() == before and under_way.previous.exists()  # nothing is changed


def test_before_the_first_epoch_has_ended_there_is_the_newest_checkpoint_and_without_one_it_says_so(tmp_path, capsys):
    with pytest.raises(CheckpointError, match=rf"no run in {tmp_path}.*train\.py"):
        load_translator(RunDirectory(tmp_path))
    run = make_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"no weights in .* yet.*`save_minutes`"):
        load_translator(run)
    save_weights(run.last, 7.0, {"best_epoch": 0})
    assert value_of(load_network(run)[0]) == 7.0 and "no epoch has ended yet" in capsys.readouterr().out


BY_SENTENCE = {"max_length": 31, "split_sentences": True}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("run"), beam_size=1)
    tiny.trained_transformer().save(run.model)
    return run


def test_a_finished_run_has_all_that_a_translator_needs_and_options_override_it(finished):
    loaded = load_translator(finished, batch_size=5)
    assert loaded.batch_size == 5 and loaded.files == [finished.model]
    assert loaded.settings == {"beam_size": 1, "length_penalty": ALPHA, **BY_SENTENCE}
    assert loaded.translate_batch(["one two", "seven"])[0] == ["eins zwei", "sieben"]
    loaded = load_translator(finished, beam_size=2, length_penalty=0.0)
    assert loaded.settings == {"beam_size": 2, "length_penalty": 0.0, **BY_SENTENCE}
    loaded = load_translator(finished, batch_size=1, strategy=tiny.two_replicas())
    assert loaded.batch_size == 2 and len(loaded.model.weights[0].value.values) == 2


def test_a_run_knows_how_it_divides_texts_and_a_damaged_model_is_named(finished, tmp_path):
    """Into sentences or not, and by its abbreviations, which an old run does not have."""
    assert load_translator(finished).known == UNKNOWN
    run = RunDirectory(shutil.copytree(finished.path, tmp_path / "run"))
    known = Known(FullStops(("five",), ("0",)), FullStops())
    save_known(run.full_stops, known)
    tiny.config("nowhere", run.path, beam_size=1, split_sentences=False).save(run.config)
    by_sentence, whole = load_translator(run, split_sentences=True), load_translator(run)
    assert [each.settings["split_sentences"] for each in (by_sentence, whole)] == [True, False]
    texts = ["One two five. Three four.", "One two three. Four five."]
    divided, undivided = ([*zip(*each.translate_batch(texts), strict=True)] for each in (by_sentence, whole))
    assert divided[0][0] == undivided[0][0] and divided[1] != undivided[1]  # (text, score)
    assert whole.with_model(tiny.transformer()).known == known
    run.model.write_bytes(finished.model.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"cannot read a model from .*model\.keras"):
        load_translator(run)
