import concurrent.futures
import contextlib
import itertools
import json
import socket
import time
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.errors import ConfigError
from keras_transformer.layers.kernels import Dropout
from keras_transformer.training import strategy
from keras_transformer.training.strategy import (
    POLICIES,
    decoding_strategy,
    is_listening,
    join_workers,
    make_strategy,
    read_cluster,
    resolve_precision,
    strategy_of_gpus,
    vary_seeds,
    wait_for_workers,
)
from tests import tiny

ROOT = Path(__file__).parents[2]


def list_gpus(monkeypatch, number):
    """Makes TensorFlow list its CPU devices as this number of GPUs, beside one CPU."""
    devices = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", {"GPU": devices[:number], "CPU": devices[:1]}.__getitem__)


# Devices.


def test_mirrored_is_one_replica_per_cpu_device_where_there_is_no_gpu(monkeypatch):
    cpus = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", {"GPU": [], "CPU": cpus}.__getitem__)
    mirrored = make_strategy("mirrored")
    assert isinstance(mirrored, tf.distribute.MirroredStrategy)
    assert mirrored.num_replicas_in_sync == len(cpus) == 2


@pytest.mark.parametrize(("name", "gpus", "replicas"), [("mirrored", 2, 2), ("auto", 2, 2), ("mirrored", 1, 1)])
def test_gpus_train_a_replica_each(monkeypatch, name, gpus, replicas):
    list_gpus(monkeypatch, gpus)
    strategy = make_strategy(name)
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == replicas


@pytest.mark.parametrize(("name", "gpus"), [("auto", 1), ("auto", 0), ("one_device", 2)])
def test_one_device_needs_no_strategy_of_several(monkeypatch, name, gpus):
    list_gpus(monkeypatch, gpus)
    assert make_strategy(name) is tf.distribute.get_strategy()


def test_several_gpus_share_validation_and_the_test_set_and_one_gpu_or_cpus_do_not(monkeypatch):
    strategy = tf.distribute.get_strategy()
    list_gpus(monkeypatch, 2)
    assert decoding_strategy(strategy) is strategy and strategy_of_gpus().num_replicas_in_sync == 2
    list_gpus(monkeypatch, 1)
    assert strategy_of_gpus() is None
    list_gpus(monkeypatch, 0)
    assert decoding_strategy(strategy) is None


# The machines of a cluster.

WORKERS = ["a:2222", "b:3333", "c:5555"]


def tf_config(cluster, task_type, index):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, "environment": "cloud"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tf_config({"worker": WORKERS}, "worker", 2), ("worker", 2, "c:5555", ["a:2222", "b:3333"])),
        (tf_config({"chief": ["d:7777"], "worker": WORKERS}, "chief", 0), ("chief", 0, "d:7777", WORKERS)),
        (tf_config({"worker": ["[::1]:2222"]}, "worker", "0"), ("worker", 0, "[::1]:2222", [])),
    ],
)
def test_tf_config_gives_the_workers_and_this_one_s_place(text, expected):
    assert read_cluster(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "worker",
        "[]",
        "{}",
        json.dumps({"cluster": {"worker": WORKERS}}),
        tf_config(WORKERS, "worker", 0),
        tf_config({"worker": WORKERS}, "worker", 3),
        tf_config({"worker": WORKERS}, "worker", -1),
        tf_config({"worker": WORKERS}, "chief", 0),
        tf_config({"worker": WORKERS, "evaluator": ["d:7777"]}, "evaluator", 0),
        tf_config({"worker": ["a", "b:2222"]}, "worker", 0),
        tf_config({"worker": [2222]}, "worker", 0),
        tf_config({"chief": WORKERS}, "chief", 0),
    ],
)
def test_a_wrong_tf_config_is_refused_with_an_example_of_a_right_one(text):
    with pytest.raises(ConfigError) as refused:
        read_cluster(text)
    assert str(refused.value) == (
        '`strategy` multi_worker needs TF_CONFIG, such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
        f'"task": {{"type": "worker", "index": 0}}}}. Received: TF_CONFIG={text}'
    )


def free_addresses(number):
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.create_server(("", 0))) for _ in range(number)]
        return [f"localhost:{one.getsockname()[1]}" for one in free]


def test_a_worker_that_cannot_start_gives_the_reason_in_a_line(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        monkeypatch.setenv("TF_CONFIG", tf_config({"worker": [address]}, "worker", 0))
        with pytest.raises(ConfigError, match=f"^worker 0 cannot start at {address}: .* in use"):
            join_workers()


def test_workers_wait_until_all_of_them_listen_and_name_those_that_are_missing(monkeypatch, capsys):
    monkeypatch.setattr(strategy, "SECONDS_BETWEEN_LINES", 0.1)
    first, second, third = addresses = free_addresses(3)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait_for_workers, own, [a for a in addresses if a != own]) for own in (first, second)]
        time.sleep(2)
        said, done = capsys.readouterr().out, [worker.done() for worker in waiting]
        with socket.create_server(("", int(third.rpartition(":")[2]))):
            for worker in waiting:
                worker.result(timeout=10)
    assert (said.splitlines()[-1].strip(), done) == (f"still waiting for {third}", [False, False])
    assert not any(map(is_listening, addresses))  # TensorFlow takes the ports over


# Seeds.


def test_every_replica_drops_other_positions():
    strategy = tiny.two_replicas()
    with strategy.scope():
        dropout = Dropout(0.5, seed=3)
    alone = Dropout(0.5, seed=3)
    vary_seeds([*dropout.variables, *alone.variables])
    drop = tf.function(lambda: strategy.run(lambda: dropout(tf.ones((7, 11)), training=True)).values)
    masks = []
    for _ in range(2):
        first, second = (mask.numpy() for mask in drop())
        np.testing.assert_array_equal(first, alone(np.ones((7, 11), "float32"), training=True))
        masks += [first, second]
    for one, other in itertools.combinations(masks, 2):
        assert 0.2 < (one == other).mean() < 0.8  # independent coins agree half the time


def test_replicas_of_other_workers_have_other_seeds_and_keep_them_when_a_checkpoint_of_these_is_loaded():
    def states_after(first_replica, first_state=(7, 11)):
        with tiny.two_replicas().scope():
            dropout = Dropout(0.5, seed=3)
        (variable,) = dropout.variables
        variable.assign(first_state)
        vary_seeds([variable], first_replica)
        return [state.numpy().tolist() for state in variable.value.values]

    assert states_after(0) + states_after(2) == [[7, 11], [8, 11], [9, 11], [10, 11]]
    assert states_after(0, first_state=states_after(2)[0]) == states_after(2)


# Precision.


def machine(monkeypatch, tmp_path, compute_capability=None, flags=None):
    """A machine with a GPU of this compute capability or none, and a CPU with these flags or no /proc/cpuinfo."""
    gpus = [] if compute_capability is None else ["gpu"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus if kind == "GPU" else ["cpu"])
    details = {"compute_capability": compute_capability} if compute_capability else {}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor : 0\nflags : fpu {flags} sse\n")
    monkeypatch.setattr(strategy, "Path", lambda path: cpuinfo)


@pytest.mark.parametrize(
    ("compute_capability", "flags", "precision"),
    [
        ((9, 0), None, "bfloat16"),
        ((8, 0), None, "bfloat16"),
        ((7, 5), "amx_bf16", "float32"),  # beside a GPU, the CPU does not matter
        ((), "amx_bf16", "float32"),  # a GPU of unknown capability
        (None, "avx2 amx_bf16", "bfloat16"),
        (None, "avx512_bf16", "bfloat16"),
        (None, "avx2 avx512f", "float32"),
        (None, None, "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(monkeypatch, tmp_path, compute_capability, flags, precision):
    machine(monkeypatch, tmp_path, compute_capability, flags)
    assert resolve_precision("auto") == precision


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_named_precision_is_taken_on_any_machine(monkeypatch, tmp_path, name):
    machine(monkeypatch, tmp_path, flags="amx_bf16")
    assert resolve_precision(name) == name


def test_every_setting_of_config_is_known(monkeypatch):
    hints = get_type_hints(Config)
    assert {*POLICIES, "auto"} == set(get_args(hints["precision"]))
    monkeypatch.setattr(strategy, "join_workers", tf.distribute.get_strategy)
    for name in get_args(hints["strategy"]):
        assert isinstance(make_strategy(name), tf.distribute.Strategy)
