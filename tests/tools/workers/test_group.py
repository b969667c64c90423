import concurrent.futures
import contextlib
import json
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.tools.workers import group as module
from keras_transformer.tools.workers.group import (
    Workers,
    is_listening,
    join_workers,
    read_cluster,
    tf_config_of,
    wait_for_workers,
)
from keras_transformer.training.decide import Begun
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import Alone
from tests import tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


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
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.1)
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
def five():
    """Makes the `Workers` of one of five. `others` maps this one's value for `gather` to the values of all five."""

    def make(*arguments, others=lambda value: [value] * 5, **keywords):
        workers = Workers(FiveWorkers(*arguments, **keywords))
        workers.gather = others
        return workers

    return make


def test_a_process_of_its_own_is_the_chief_and_does_all(corpus, tmp_path):
    alone, config = Alone(), tiny.config(corpus, tmp_path / "run")
    assert alone.is_chief and alone.first_replica == 0
    assert alone.anywhere(True, False) == (True, False)
    assert alone.share(lambda texts: [text.upper() for text in texts])(["a", "b", "c"]) == ["A", "B", "C"]
    run = alone.run_directory(config)
    assert run.path == tmp_path / "run" and len(alone.prepare(config, run).train) == 211
    assert alone.begun(run) == Begun(config, False, {})


def test_it_has_the_methods_of_several():
    names = {name for name in vars(Alone) if not name.startswith("_")}
    assert names - {"strategy"} <= {name for name in dir(Workers)} | {"first_replica"}


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


def test_workers_that_do_not_train_the_same_all_name_the_difference(five, corpus, tmp_path):
    run = RunDirectory(tmp_path / "run")
    data, others = prepare(tiny.config(corpus, run.path), run), []

    def gather(value):
        return [value, value, {**value, **dict(others)}, value, value]

    workers = five(others=gather)
    workers.check_equal(run, {"epochs": 7}, data.corpus, 11)
    others = [("epochs", 5)]
    with pytest.raises(CheckpointError, match="worker 2 does not train the same as worker 0: epochs is 5, not 7. All"):
        workers.check_equal(run, {"epochs": 7}, data.corpus, 11)


def test_workers_compare_texts_wherever_these_are_and_tell_which_one_differs(five, corpus, tmp_path):
    copy, other = (shutil.copytree(corpus, tmp_path / name) for name in ("copy", "other"))
    (other / "train.de").write_bytes((corpus / "train.de").read_bytes().replace(b"s", b"z"))
    found = []
    for number, directory in enumerate((corpus, copy, other)):
        run = RunDirectory(tmp_path / str(number))
        data = prepare(tiny.config(directory, run.path), run)
        five(others=lambda value: found.append(value) or [value] * 5).check_equal(run, {}, data.corpus, 0)
    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2][name]} == {"train.de", "tokens"}


def test_all_go_on_from_what_the_chief_has_begun(five, tmp_path):
    begun = [{"dataset": ["cldr:en-de", "cldr:de-en"], "epochs": 5}, True, {"passes": 3}]
    found = five(others=lambda value: [begun, value, value, value, value]).begun(RunDirectory(tmp_path))
    assert found == Begun(Config(dataset=("cldr:en-de", "cldr:de-en"), epochs=5), True, {"passes": 3})


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
    with pytest.raises(tf.errors.UnavailableError), Alone().ending_together():
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
    run = workers.run_directory(config)
    data = workers.prepare(config, run)
    assert run.path == own and contents(chief.path) == before
    for path in (run.config, run.corpus, *run.tokenizer_files(shared), run.last):
        assert path.read_bytes() == before[chief.path / path.relative_to(own)]
    monkeypatch.setattr("keras_transformer.training.preparation.encode_pairs", None)  # no need to tokenise again
    assert len(prepare(config, run).train) == len(data.train) == 211


def test_the_chief_prepares_in_the_run_directory_before_it_meets_the_others(five, corpus, tmp_path):
    config, met = tiny.config(corpus, tmp_path / "run"), []
    workers = five(task_id=0, others=lambda value: met.append(run.config.exists()))
    run = workers.run_directory(config)
    workers.prepare(config, run)
    assert met == [True] and run.path == tmp_path / "run"


def test_a_run_directory_that_is_not_shared_is_reported_in_a_line_and_not_made(five, corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=f"worker 3 does not see {config.model_dir}/config.yaml, which worker 0 has"
    ):
        five().prepare(config, RunDirectory(tmp_path / "own"))
    assert not (tmp_path / "run").exists()


def test_the_directory_of_another_worker_is_gone_when_it_ends(monkeypatch):
    at_exit = []
    monkeypatch.setattr(module.atexit, "register", lambda *arguments, **keywords: at_exit.append((arguments, keywords)))
    directory = module.own_directory()
    assert directory.is_dir()
    ((remove, *arguments), keywords), *others = at_exit
    remove(*arguments, **keywords)
    assert not directory.exists() and not others
