import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.pipeline import dealt, training_batches
from keras_transformer.errors import ConfigError
from keras_transformer.presets import OPTIMIZERS
from keras_transformer.training import memory
from keras_transformer.training.memory import (
    MIB,
    SLOTS,
    Memory,
    available_memory,
    check_fits,
    count_activations,
    count_parameters,
    estimate,
)
from keras_transformer.training.train import build_trainer, make_network, train
from keras_transformer.training.updates import make_optimizer
from tests import tiny

SIZES = {"d_model": 2 * 53, "num_heads": 2, "d_ff": 211, "num_layers": 3}
MEASURED = {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2, "vocabulary_size": 2003}


def data_of(source_size, target_size=None, rows=7, length=5):
    """What `estimate` reads of `Data`: sizes of vocabularies, and pairs."""
    source = SimpleNamespace(vocabulary_size=source_size)
    target = SimpleNamespace(vocabulary_size=target_size) if target_size else source
    pairs = tiny.encoded_pairs([length] * rows, [length - 1] * rows, source_size)
    return SimpleNamespace(
        source_tokenizer=source, target_tokenizer=target, tokenizers=(source, target), train=pairs, validation=pairs
    )


@pytest.mark.parametrize(
    ("share", "tie", "pre_norm"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, False)],  # every pair of values
)
def test_weights_are_counted_without_making_them(share, tie, pre_norm):
    settings = {**SIZES, "num_layers": 1, "share_vocabulary": share, "tie_embeddings": tie, "pre_norm": pre_norm}
    config, data = tiny.config("none", "none", **settings), data_of(97, None if share else 89)
    made = make_network(config, data, "float32").count_params()
    assert count_parameters(config, 97, data.target_tokenizer.vocabulary_size) == made


VARIANTS = [
    {"positions": "learned", "max_length": 41},
    {"positions": "relative", "relative_clip": 7},
    {"positions": "relative", "relative_clip": 5, "d_key": 13, "d_value": 7, "num_key_value_heads": 1},
    {"positions": "rotary", "num_heads": 6, "d_key": 10, "num_key_value_heads": 3},
    {"positions": "none", "num_decoder_layers": 1},
    {"num_decoder_layers": 3, "d_key": 7, "num_key_value_heads": 1, "pre_norm": True},
    {"heads": "2,0,1/0,1/3,2", "d_key": 11, "num_layers": 3, "num_decoder_layers": 2, "positions": "relative"},
    {"attention_bias": True, "logits_bias": True, "embedding_norm": True, "d_key": 7, "d_value": 3},
    {"positions": "learned", "tie_positions": False, "embedding_norm": True, "max_length": 41},
    {"heads": "2,0/0,1/1,2", "d_key": 11, "d_value": 5, "num_layers": 2, "attention_bias": True},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_weights_of_every_variant_are_counted(variant):
    config = tiny.config("none", "none", **{**SIZES, "num_layers": 1, **variant})
    made = make_network(config, data_of(97), "float32").count_params()
    assert count_parameters(config, 97, 97) == made


@pytest.mark.parametrize(
    "smaller",
    [
        {"num_decoder_layers": 1},
        {"num_layers": 1, "num_decoder_layers": 3},
        {"num_key_value_heads": 1},
        {"d_key": 11},
        {"d_value": 11},
    ],
    ids=str,
)
def test_less_depth_and_narrower_or_fewer_heads_need_fewer_activations(smaller):
    whole, less = (tiny.config("none", "none", **{**SIZES, **settings}) for settings in ({}, smaller))
    assert count_activations(less, 5, 7, 97) < count_activations(whole, 5, 7, 97)
    same = tiny.config("none", "none", **SIZES, num_decoder_layers=3, num_key_value_heads=2, d_key=53)
    assert count_activations(same, 5, 7, 97) == count_activations(whole, 5, 7, 97)


@pytest.mark.parametrize(
    "settings",
    [
        {"architecture": "gru", "attention_span": "local_p", "num_layers": 2},
        {"architecture": "lstm", "attention": "general", "input_feeding": True, "tie_embeddings": False},
        {"architecture": "rnn", "attention": "none", "bidirectional": False, "share_vocabulary": False},
    ],
)
def test_the_weights_of_recurrent_networks_are_counted_as_well(settings):
    config = tiny.config("none", "none", **{**SIZES, **settings})
    data = data_of(97, None if config.share_vocabulary else 89)
    made = make_network(config, data, "float32").count_params()
    assert count_parameters(config, 97, data.target_tokenizer.vocabulary_size) == made


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_has_as_many_slots_as_it_says(name):
    optimizer = make_optimizer(name, 0.1)
    matrix = keras.Variable(np.zeros((211, 223)))
    optimizer.build([matrix])
    made = sum(np.prod(variable.shape) for variable in optimizer.variables) / np.prod(matrix.shape)
    assert made == pytest.approx(SLOTS[name], abs=0.02)


def test_averages_and_sums_are_as_large_as_the_weights_and_replicas_have_a_copy_each():
    config, data = tiny.config("none", "none", **SIZES), data_of(97)
    plain = estimate(config, data, tf.distribute.get_strategy())
    weights = 4 * count_parameters(config, 97, 97)
    assert plain[:3] == (weights, 2 * weights, weights)
    more = tiny.config("none", "none", **SIZES, ema_decay=0.9, accumulate_steps=3, optimizer="lion")
    assert estimate(more, data, tf.distribute.get_strategy())[:3] == (2 * weights, weights, 2 * weights)
    shared = estimate(config, data_of(97, rows=8), tiny.two_replicas())
    alone = estimate(config, data_of(97, rows=8), tf.distribute.get_strategy())
    assert shared[:3] == tuple(2 * size for size in plain[:3]) and shared.activations == alone.activations


def test_longer_sentences_and_larger_batches_need_more():
    needs = [
        estimate(
            tiny.config("none", "none", **SIZES), data_of(97, rows=rows, length=length), tf.distribute.get_strategy()
        )
        for rows, length in ((3, 5), (6, 5), (6, 10))
    ]
    assert needs[1].activations == 2 * needs[0].activations
    assert needs[2].activations > 2 * needs[1].activations  # attention grows with the square


def measured_peak(architecture):
    """Trains for two updates. Returns the bytes by which the process has grown at most."""
    config, data, strategy = measured_training(architecture)
    tf.matmul(tf.ones((7, 7)), tf.ones((7, 7)))
    before = high_water()
    trainer = build_trainer(config, data)
    batches = dealt(training_batches(data.train, config.batch_tokens, 1), strategy)
    trainer.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0)
    return high_water() - before


def measured_training(architecture):
    config = tiny.config(
        "none", "none", **MEASURED, architecture=architecture, batch_tokens=4096, strategy="one_device"
    )
    return config, data_of(2003, rows=128, length=32), tf.distribute.get_strategy()


def high_water():
    """The largest resident size of this process so far, in bytes. `getrusage` would count the parent's as well."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["VmHWM"].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
@pytest.mark.parametrize("architecture", ["transformer", "gru"])
def test_the_estimate_is_near_the_growth_of_a_process_that_trains(architecture):
    code = f"from tests.training.test_memory import measured_peak; print(measured_peak('{architecture}'))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    peak = json.loads(found.stdout.splitlines()[-1])
    need = estimate(*measured_training(architecture))
    assert need.activations > 0.6 * need.total  # they are the part that is estimated
    assert 0.67 < need.total / peak < 1.5, (need.describe(), peak / MIB)


def test_a_training_that_cannot_fit_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: (1000 * MIB, "free memory"))
    check_fits(Memory(100 * MIB, 200 * MIB, 100 * MIB, 500 * MIB))
    with pytest.raises(ConfigError, match=r"needs about 1,064 MiB, .* are 1,000 MiB of free memory. Lower `batch_to"):
        check_fits(Memory(100 * MIB, 200 * MIB, 100 * MIB, 600 * MIB))
    with pytest.raises(ConfigError, match="Choose a smaller `preset`"):
        check_fits(Memory(300 * MIB, 600 * MIB, 300 * MIB, 100 * MIB))
    monkeypatch.setattr(memory, "available_memory", lambda: (None, "memory of a GPU"))
    check_fits(Memory(300 * MIB, 600 * MIB, 300 * MIB, 100 * MIB))


def test_a_gpu_has_the_limit_that_was_set_for_it(monkeypatch):
    gpu = SimpleNamespace(memory_limit=5)
    monkeypatch.setattr(tf.config, "list_physical_devices", {"GPU": ["gpu"]}.__getitem__)
    for devices, limit in ((None, None), ([gpu], 5 * MIB), ([SimpleNamespace(memory_limit=None)], None)):
        monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda _, devices=devices: devices)
        assert available_memory() == (limit, "memory of a GPU")


def test_a_run_that_cannot_fit_never_starts(monkeypatch, tmp_path):
    config = tiny.config(tiny.write_corpus(tmp_path / "pairs"), tmp_path / "run", strategy="one_device")
    monkeypatch.setattr(memory, "available_memory", lambda: (3 * MIB, "free memory"))
    with pytest.raises(ConfigError, match="the training needs about"):
        train(config, evaluate=None)
    assert not (tmp_path / "run" / "model.json").exists()
