import dataclasses
import random

import numpy as np
import pytest
from keras_transformer.training.origin import Origin

from keras_transformer.config import ConfigError
from tests import tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(config, model) of a finished run; tests do not change it."""
    path = tmp_path_factory.mktemp("finished")
    config, model = tiny.config("corpus", path), tiny.transformer(seed=3)
    config.save(path / "config.yaml")
    (path / "tokenizer.model").write_bytes(tiny.tokenizer_model())
    model.save(path / "model.keras")
    return config, model


def test_the_weights_are_those_of_the_finished_model(finished, tmp_path):
    config, model = finished
    (tmp_path / "tokenizer.model").write_bytes(tiny.tokenizer_model())
    started = tiny.transformer(seed=5, dropout_rate=0.3)
    Origin(config.model_dir).load(started, tmp_path / "tokenizer.model")
    for weight, expected in zip(started.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_settings_of_training_may_differ(finished):
    config, _ = finished
    settings = {"init_from": config.model_dir, "model_dir": "another", "dropout_rate": 0.3, "warmup_steps": 7}
    Origin(config.model_dir).check(dataclasses.replace(config, **settings, vocabulary_size=997, dataset="cldr:en-de"))


def test_another_model_is_refused_by_all_settings_that_differ(finished):
    config, _ = finished
    other = dataclasses.replace(config, init_from="runs/first", num_heads=13, pre_norm=True, dropout_rate=0.3)
    with pytest.raises(ConfigError) as refused:
        Origin(config.model_dir).check(other)
    assert str(refused.value) == "runs/first holds another model: num_heads is 2, not 13, pre_norm is False, not True"


@pytest.mark.parametrize("missing", ["config.yaml", "tokenizer.model", "model.keras"])
def test_an_unfinished_run_is_refused_by_what_it_lacks(tmp_path, missing):
    for name in {"config.yaml", "tokenizer.model", "model.keras"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=f"must hold a finished run. Received: {tmp_path}, without {missing}$"):
        Origin(tmp_path)
    with pytest.raises(ConfigError, match="must hold a finished run"):
        Origin(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_another_tokenizer_is_refused(finished, tmp_path):
    config, _ = finished
    (tmp_path / "tokenizer.model").write_bytes(random.Random(1).randbytes(101))
    model = tiny.transformer(seed=5)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ConfigError, match="which the weights to start from were made with"):
        Origin(config.model_dir).load(model, tmp_path / "tokenizer.model")
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
