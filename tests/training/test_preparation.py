import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import ConfigError
from keras_transformer.training import preparation
from keras_transformer.training.checkpoints import CheckpointError, RunDirectory
from keras_transformer.training.preparation import check_resumable, prepare, validation_pairs
from tests import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


@pytest.fixture
def prepared(corpus, tmp_path):
    """(run, config) of a run that has been prepared before."""
    config = tiny.config(corpus, tmp_path / "prepared", dropout_rate=0.3)
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    return run, config


# What is refused.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocabulary_size", 997),
        ("num_layers", 3),
        ("dropout_rate", 0.1),
        ("batch_tokens", 997),
        ("label_smoothing", 0.0),
        ("seed", 3),
        ("max_length", 29),
        ("precision", "bfloat16"),
    ],
)
def test_a_run_under_other_settings_is_refused_by_name_and_left_alone(prepared, name, value):
    run, config = prepared
    before = run.config.read_bytes(), run.tokenizer.read_bytes()
    with pytest.raises(ConfigError) as refused:
        prepare(dataclasses.replace(config, **{name: value}), run)
    assert f"{name} was {getattr(config, name)} and is {value}" in str(refused.value)
    assert str(run.path) in str(refused.value) and "\n" not in str(refused.value)
    assert (run.config.read_bytes(), run.tokenizer.read_bytes()) == before


def test_how_long_and_where_a_run_goes_on_may_change(prepared):
    run, config = prepared
    check_resumable(dataclasses.replace(config, epochs=7, max_steps=11, strategy="mirrored", average_epochs=3), run)
    check_resumable(dataclasses.replace(config, beam_size=1, length_penalty=0.0, patience=7, save_minutes=0), run)


@pytest.mark.parametrize("name", ["config", "tokenizer"])
def test_a_run_that_lacks_what_its_checkpoints_need_is_refused_and_left_alone(prepared, name):
    run, config = prepared
    run.last.touch()
    getattr(run, name).unlink()
    with pytest.raises(CheckpointError, match=f"without their {getattr(run, name)}: put it back, or choose another"):
        prepare(config, run)
    assert not getattr(run, name).exists()


# Starting again.


def test_a_second_start_does_not_tokenise_again(prepared, monkeypatch):
    run, config = prepared
    before = {path: path.stat().st_mtime_ns for path in run.tokens.rglob("*")}
    monkeypatch.setattr(preparation, "encode_pairs", None)
    data = prepare(config, run)
    assert len(before) == 2 * 7 and {path: path.stat().st_mtime_ns for path in run.tokens.rglob("*")} == before
    assert (len(data.train), len(data.validation)) == (211, 13)


def test_a_start_on_changed_text_tokenises_again_and_says_so(corpus, tmp_path, capsys):
    directory = tmp_path / "changing"
    shutil.copytree(corpus, directory)
    config = tiny.config(directory, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    capsys.readouterr()
    tiny.write_pairs(directory, "train", [("ten", "zehn"), ("one two", "eins zwei"), ("six", "")])
    data = prepare(config, run)
    assert "tokens/train was made from another corpus: made anew" in capsys.readouterr().out
    expected = data.tokenizer.encode(tf.constant(["ten", "one two"]))
    np.testing.assert_array_equal(data.train.source.ids, expected.values)
    np.testing.assert_array_equal(data.train.source.starts, expected.row_splits)


# What is kept.


def test_blank_validation_pairs_are_not_translated(corpus, tmp_path):
    directory = tmp_path / "blank"
    shutil.copytree(corpus, directory)
    tiny.write_pairs(
        directory, "val", [("one", "eins"), ("", "zwei"), ("three", "  "), ("four", "vier"), ("five", "fünf")]
    )
    config = tiny.config(directory, tmp_path / "run", validation_sentences=2)
    data = prepare(config, RunDirectory(config.model_dir))
    assert validation_pairs(config, data) == [("one", "eins"), ("four", "vier")]


def test_a_tokenizer_that_is_there_is_used(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    run.tokenizer.write_bytes(tiny.tokenizer_model())
    data = prepare(config, run)
    assert run.tokenizer.read_bytes() == tiny.tokenizer_model()
    text = tf.constant(["one two three"])
    np.testing.assert_array_equal(data.tokenizer.encode(text).values, tiny.tokenizer().encode(text).values)
