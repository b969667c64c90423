import functools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.data.pipeline import Undivided, training_batches
from keras_transformer.errors import ConfigError
from keras_transformer.presets import OPTIMIZERS
from keras_transformer.tools.planning import available, memory
from keras_transformer.tools.planning.available import MIB, available_memory, container_memory
from keras_transformer.tools.planning.memory import SLOTS, Memory, check_fits, estimate
from keras_transformer.training import train as training
from keras_transformer.training.decide import surely_fits
from keras_transformer.training.train import make_network, outline, train
from keras_transformer.training.updates import make_optimizer
from tests import tiny

SIZES = {"d_model": 2 * 53, "num_heads": 2, "d_ff": 211, "num_layers": 2}
MEASURED = {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2, "vocabulary_size": 2003}


def data_of(source_size, target_size=None, rows=7, length=5):
    """What `estimate` reads of `Data`: sizes of vocabularies, and pairs."""
    source = SimpleNamespace(vocabulary_size=source_size)
    target = SimpleNamespace(vocabulary_size=target_size) if target_size else source
    pairs = tiny.encoded_pairs([length] * rows, [length - 1] * rows, source_size)
    return SimpleNamespace(
        source_tokenizer=source, target_tokenizer=target, tokenizers=(source, target), train=pairs, validation=pairs
    )


@functools.cache
def outlined(config, vocabulary_size):
    return outline(config, data_of(vocabulary_size))


def estimated(config, data, strategy=None):
    network = outlined(config, data.source_tokenizer.vocabulary_size)
    return estimate(config, data, strategy or tf.distribute.get_strategy(), network)


OUTLINED = [
    {"share_vocabulary": False, "tie_embeddings": False, "positions": "relative", "num_key_value_heads": 1},
    {"positions": "learned", "max_length": 41, "num_decoder_layers": 2, "attention_bias": True},
    {"architecture": "lstm", "attention": "concat", "input_feeding": True},
]


@pytest.mark.parametrize("settings", OUTLINED, ids=str)
def test_an_outline_has_the_weights_of_the_model(settings):
    config = tiny.config("none", "none", **{**SIZES, "num_layers": 1, **settings})
    data = data_of(97, None if config.share_vocabulary else 89)
    drawn, made = outline(config, data), make_network(config, data, "float32")
    assert [(weight.path, weight.shape) for weight in drawn.weights] == [(w.path, w.shape) for w in made.weights]


def test_an_outline_takes_no_memory():
    """Weights of 4 GiB."""
    config, data = tiny.config("none", "none", **{**SIZES, "num_layers": 1, "d_model": 2**14}), data_of(2**16)
    before = high_water()
    assert outline(config, data).count_params() > 2**30 and high_water() - before < 200 * MIB


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_has_as_many_slots_as_it_says(name):
    optimizer, matrix = make_optimizer(name, 0.1), keras.Variable(np.zeros((211, 223)))
    optimizer.build([matrix])
    made = sum(np.prod(variable.shape) for variable in optimizer.variables) / np.prod(matrix.shape)
    assert made == pytest.approx(SLOTS.get(name, 2), abs=0.02)


def test_averages_and_sums_are_as_large_as_the_weights_and_replicas_have_a_copy_each():
    sizes = {**SIZES, "num_layers": 1}
    config, data = tiny.config("none", "none", **sizes), data_of(97, rows=8)
    plain = estimated(config, data)
    weights = 4 * make_network(config, data, "float32").count_params()
    assert plain[:3] == (weights, 2 * weights, weights)
    more = tiny.config("none", "none", **sizes, ema_decay=0.9, accumulate_steps=3, optimizer="lion")
    assert estimated(more, data)[:3] == (2 * weights, weights, 2 * weights)
    shared = estimated(config, data, tiny.two_replicas())
    assert shared[:3] == tuple(2 * size for size in plain[:3])
    assert shared.activations == pytest.approx(plain.activations, rel=0.1)


@pytest.mark.slow
def test_adapters_need_gradients_and_slots_of_their_own_size_and_guided_alignment_little_more():
    all_settings = {"init_from": "a"}, {"init_from": "a", "lora_rank": 2}, {"guided_alignment": 0.1}
    configs = (tiny.config("none", "none", **{**SIZES, "num_layers": 1, **settings}) for settings in all_settings)
    plain, adapted, guided = (estimated(config, data_of(97, rows=6, length=11)) for config in configs)
    assert adapted.optimizer == 2 * adapted.gradients < 0.1 * plain.optimizer
    assert adapted.weights == plain.weights + adapted.gradients
    assert plain.activations < guided.activations < 1.2 * plain.activations
    assert plain._replace(activations=0) == guided._replace(activations=0)


# MiB by which the process of `measured_peak` has grown, on a thread of x86-64, with Keras 3.15. Pairs
# have 32 pieces, or the `length`, and the batch has 4,096 tokens.
PEAKS = [({}, 355), ({"positions": "relative"}, 376), ({"length": 64}, 384), ({"architecture": "gru"}, 442)]


@pytest.mark.parametrize(
    ("settings", "peak"), [PEAKS[0], *(pytest.param(*row, marks=pytest.mark.slow) for row in PEAKS[1:])], ids=str
)
def test_the_estimate_is_near_the_growth_that_was_measured(settings, peak):
    need = estimated(*measured_training(settings))
    assert need.activations > 0.6 * need.total  # they are the part that is estimated
    assert 0.6 < need.total / MIB / peak < 1.1, need.describe()  # another machine needs 0.65 of these peaks


def measured_training(settings):
    settings = dict(settings)
    length = settings.pop("length", 32)
    config = tiny.config("none", "none", **{**MEASURED, "batch_tokens": 4096, "strategy": "one_device", **settings})
    return config, data_of(2003, rows=4096 // length, length=length)


def measured_peak(settings):
    """Trains for two updates. Returns the bytes by which the process has grown at most."""
    config, data = measured_training(settings)
    tf.matmul(tf.ones((7, 7)), tf.ones((7, 7)))
    before, trainer = high_water(), tiny.build_trainer(config, data)
    batches = Undivided(training_batches(data.train, config.batch_tokens, 1))
    trainer.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0)
    return high_water() - before


def high_water():
    """The largest resident size of this process so far, in bytes. `getrusage` would count the parent's as well."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["VmHWM"].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_estimate_is_near_the_growth_of_a_process_that_trains():
    settings = {"positions": "rotary"}
    code = f"from tests.tools.planning.test_memory import measured_peak; print(measured_peak({settings}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    peak = json.loads(found.stdout.splitlines()[-1])
    assert 0.75 < estimated(*measured_training(settings)).total / peak < 1.6  # fewer threads need less


def test_a_training_that_cannot_fit_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: (1000 * MIB, "free memory"))
    check_fits(Memory(100 * MIB, 200 * MIB, 100 * MIB, 500 * MIB))
    with pytest.raises(ConfigError, match=r"needs about 1,064 MiB, .* are 1,000 MiB of free memory. Lower `batch_to"):
        check_fits(Memory(100 * MIB, 200 * MIB, 100 * MIB, 600 * MIB))
    with pytest.raises(ConfigError, match="Choose a smaller `preset`"):
        check_fits(Memory(300 * MIB, 600 * MIB, 300 * MIB, 100 * MIB))
    monkeypatch.setattr(memory, "available_memory", lambda: (None, "memory of a GPU"))
    check_fits(Memory(300 * MIB, 600 * MIB, 300 * MIB, 100 * MIB))


V1 = "limit_in_bytes", "usage_in_bytes", "stat"
V2 = "max", "current", "stat"
CONTAINERS = {  # what lists the groups of the process, numbers of each group, and what the process has left
    "version 2, in a container": ("0::/\n", {"memory.": ("700", "300", "anon 200\ninactive_file 50")}, 450),
    "version 2, a service in a slice with less left": (
        "0::/a/b.service\n",
        {"a/memory.": ("500", "400", "inactive_file 7"), "a/b.service/memory.": ("300", "100", "inactive_file 0")},
        107,
    ),
    "version 2, no limit": ("0::/a\n", {"a/memory.": ("max", "300", "inactive_file 0")}, None),
    "version 1, in a container whose file names the group of the host": (
        "11:cpu,cpuacct:/docker/abc\n7:memory:/docker/abc\n0::/\n",
        {"memory/memory.": ("900", "500", "cache 80\ntotal_inactive_file 60")},
        460,
    ),
    "over its limit": ("0::/\n", {"memory.": ("100", "300", "inactive_file 0")}, 0),
    "no group": ("", {}, None),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_limit_of_a_container_is_found(tmp_path, name):
    lines, groups, left = CONTAINERS[name]
    listed, root = tmp_path / "cgroup", tmp_path / "root"
    listed.write_text(lines)
    for start, numbers in groups.items():
        (root / start).parent.mkdir(parents=True, exist_ok=True)
        for end, text in zip(V1 if "version 1" in name else V2, numbers, strict=True):
            (root / f"{start}{end}").write_text(f"{text}\n")
    assert container_memory(listed, root) == left and container_memory(tmp_path / "none", tmp_path / "none") is None


def test_a_training_has_what_machine_and_container_both_have_or_the_limit_that_was_set_for_a_gpu(monkeypatch):
    monkeypatch.setattr(available.psutil, "virtual_memory", lambda: SimpleNamespace(available=7))
    limits = (None, 7, "free memory"), (9, 7, "free memory"), (5, 5, "memory that this container has left")
    for left, *expected in (*limits, (0, 0, "memory that this container has left")):
        monkeypatch.setattr(tf.config, "list_physical_devices", {"GPU": []}.__getitem__)
        monkeypatch.setattr(available, "container_memory", lambda left=left: left)
        assert available_memory() == tuple(expected)
    gpu = SimpleNamespace(memory_limit=5)
    monkeypatch.setattr(tf.config, "list_physical_devices", {"GPU": ["gpu"]}.__getitem__)
    for devices, limit in ((None, None), ([gpu], 5 * MIB), ([SimpleNamespace(memory_limit=None)], None)):
        monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda _, devices=devices: devices)
        assert available_memory() == (limit, "memory of a GPU")


def test_a_training_that_surely_fits_needs_far_less_than_the_estimate_of_what_does_not():
    assert surely_fits(Config(batch_tokens=2048), 4000, available_memory()[0])
    assert not surely_fits(Config(preset="big", batch_tokens=25_000), 37_000, available_memory()[0])


def test_a_run_that_cannot_fit_never_starts(monkeypatch, tmp_path):
    config = tiny.config(tiny.write_corpus(tmp_path / "pairs"), tmp_path / "run", strategy="one_device")
    monkeypatch.setattr(memory, "available_memory", lambda: (3 * MIB, "free memory"))
    monkeypatch.setattr(training, "surely_fits", lambda *arguments: False)
    with pytest.raises(ConfigError, match="the training needs about"):
        train(config, print, print)
    assert not (tmp_path / "run" / "model.json").exists()
