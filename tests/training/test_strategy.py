import concurrent.futures
import contextlib
import itertools
import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.layers.kernels import Dropout
from keras_transformer.training import strategy
from keras_transformer.training import strategy as module
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.strategy import (
    POLICIES,
    Workers,
    decoding_strategy,
    is_listening,
    join_workers,
    make_strategy,
    prepare_on_all,
    read_cluster,
    resolve_precision,
    run_directory,
    strategy_of_gpus,
    tf_config_of,
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
    assert make_strategy("mirrored") is mirrored  # of two, each would take the other's collective operations


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
        tf_config({"worker": ["b:70000"]}, "worker", 0),  # no port is so high
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


def test_an_indexed_job_gives_the_place_of_a_worker():
    found = read_cluster(tf_config_of("train-{0..2}.train:2222", "1"))
    assert found == ("worker", 1, "train-1.train:2222", ["train-0.train:2222", "train-2.train:2222"])
    assert read_cluster(tf_config_of("localhost:{9999..10000}", "1"))[2:] == ("localhost:10000", ["localhost:9999"])
    for index in ("", "3", "-1", "x"):
        with pytest.raises(ConfigError, match=f"^`workers` .* from 0 to 2. Received: JOB_COMPLETION_INDEX={index}$"):
            tf_config_of("train-{0..2}.train:2222", index)


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


ONE = tf.distribute.get_strategy()


class FiveWorkers:
    """As much of MultiWorkerMirroredStrategy as can be seen without the others: two replicas each."""

    num_replicas_in_sync = 10

    def __init__(self, task_type="worker", task_id=3, chiefs=()):
        cluster = {"chief": list(chiefs), "worker": ["any:2222"] * (5 - len(chiefs))}
        self.cluster_resolver = SimpleNamespace(
            task_type=task_type,
            task_id=task_id,
            cluster_spec=lambda: SimpleNamespace(as_dict=lambda: cluster),
        )


@pytest.fixture
def five(monkeypatch):
    """Makes the `Workers` of one of five. `others` maps this one's value for `gather` to the values of all five."""
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", FiveWorkers)

    def make(*arguments, others=lambda value: [value] * 5, **keywords):
        workers = Workers(FiveWorkers(*arguments, **keywords))
        workers.gather = others
        return workers

    return make


def test_a_process_of_its_own_is_the_chief_and_does_all():
    alone = Workers(ONE)
    assert alone.is_chief and alone.first_replica == 0
    assert alone.gather({"any": "value"}) == [{"any": "value"}]
    assert alone.anywhere(True, False) == (True, False)
    assert alone.share(lambda texts: [text.upper() for text in texts])(["a", "b", "c"]) == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("task", "name", "first_replica"),
    [
        ({"task_id": 0}, "worker 0", 0),
        ({"task_id": 3}, "worker 3", 6),
        ({"task_type": "chief", "task_id": 0, "chiefs": ["any:2222"]}, "chief 0", 0),
        ({"task_id": 3, "chiefs": ["any:2222"]}, "worker 3", 8),
    ],
)
def test_the_chief_is_the_first_of_them(five, task, name, first_replica):
    workers = five(**task)
    assert len(workers.names) == 5 and workers.names[workers.index] == name
    assert workers.is_chief == (first_replica == 0)
    assert workers.first_replica == first_replica


def test_every_worker_translates_its_part_and_all_get_the_whole(five):
    texts = [f"text {number}" for number in range(13)]
    parts = []

    def translate(part):
        parts.append(part)
        return [text.upper() for text in part]

    for task_id in range(5):
        together = five(task_id=task_id, others=lambda part: [[t.upper() for t in texts[i::5]] for i in range(5)])
        assert together.share(translate)(texts) == [text.upper() for text in texts]
    assert sorted(sum(parts, [])) == sorted(texts) and max(map(len, parts)) == 3


def test_workers_that_do_not_train_the_same_all_name_the_difference(five):
    facts = {"epochs": 7, "update": 11}
    five(others=lambda value: [value] * 5).check_equal(facts)
    different = [facts, facts, {"epochs": 5, "update": 11}, facts, facts]
    with pytest.raises(CheckpointError, match="worker 2 does not train the same as worker 0: epochs is 5, not 7. All"):
        five(others=lambda value: different).check_equal(facts)


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("Socket closed\nfrom /job:chief/replica:0/task:0 while calling", "chief 0"),
        ("/job:worker/replica:0/task:3 has heard from /job:worker/task:1: heartbeats", "worker 1"),
        ("Cancelled by /job:worker/replica:0/task:3", "another worker"),
    ],
)
def test_the_loss_of_a_worker_is_a_line_that_names_it(five, message, gone):
    with pytest.raises(SystemExit) as ended, five().ending_together():
        raise tf.errors.UnavailableError(None, None, message)
    assert (
        ended.value.code == f"error: {gone} is gone (UnavailableError): start all workers again with the same command"
    )


def test_other_errors_are_left_alone(five):
    with pytest.raises(tf.errors.UnavailableError), Workers(ONE).ending_together():
        raise tf.errors.UnavailableError(None, None, "of a file system, perhaps")
    with (
        pytest.raises(tf.errors.InternalError),
        five().ending_together(),
    ):  # a bug of ours, on the device of this worker
        raise tf.errors.InternalError(
            None, None, "in /job:worker/replica:0/task:3/device:CPU:0, and /job:localhost/task:0"
        )
    with pytest.raises(tf.errors.ResourceExhaustedError), five().ending_together():
        raise tf.errors.ResourceExhaustedError(None, None, "memory")


# Preparation.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shared", [True, False], ids=["one vocabulary", "two vocabularies"])
def test_others_begin_with_the_files_of_the_chief_and_write_elsewhere(five, corpus, tmp_path, monkeypatch, shared):
    config, own = tiny.config(corpus, tmp_path / "run", share_vocabulary=shared), tmp_path / "own"
    monkeypatch.setattr(module, "own_directory", lambda: own)
    chief = RunDirectory(config.model_dir)

    def meet(value):
        """When they meet, the chief is ready."""
        prepare(config, chief)
        chief.checkpoints.mkdir()
        chief.last.write_bytes(b"state")
        before.update(contents(chief.path))
        return [value] * 5

    before = {}
    workers = five(others=meet)
    run = run_directory(config, workers)
    data = prepare_on_all(config, run, workers)
    assert run.path == own and contents(chief.path) == before
    for path in (run.config, *run.tokenizer_files(shared), run.last):
        assert path.read_bytes() == before[chief.path / path.relative_to(own)]
    monkeypatch.setattr("keras_transformer.training.preparation.encode_pairs", None)  # no need to tokenise again
    assert len(prepare(config, run).train) == len(data.train) == 211


def test_the_chief_prepares_in_the_run_directory_before_it_meets_the_others(five, corpus, tmp_path):
    config, met = tiny.config(corpus, tmp_path / "run"), []
    workers = five(task_id=0, others=lambda value: met.append(run.config.exists()))
    run = run_directory(config, workers)
    prepare_on_all(config, run, workers)
    assert met == [True] and run.path == tmp_path / "run"


def test_a_run_directory_that_is_not_shared_is_reported_in_a_line_and_not_made(five, corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=f"worker 3 does not see {config.model_dir}/config.yaml, which worker 0 has"
    ):
        prepare_on_all(config, RunDirectory(tmp_path / "own"), five())
    assert not (tmp_path / "run").exists()


def test_the_directory_of_another_worker_is_gone_when_it_ends(monkeypatch):
    at_exit = []
    monkeypatch.setattr(module.atexit, "register", lambda *arguments, **keywords: at_exit.append((arguments, keywords)))
    directory = module.own_directory()
    assert directory.is_dir()
    ((remove, *arguments), keywords), *others = at_exit
    remove(*arguments, **keywords)
    assert not directory.exists() and not others
