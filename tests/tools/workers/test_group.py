import concurrent.futures
import contextlib
import json
import shutil
import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.tools.workers import group as module
from keras_transformer.tools.workers.group import Workers, join_workers, read_cluster, tf_config_of, wait_for_workers
from keras_transformer.training.decide import Begun
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import Alone
from tests import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


WORKERS = ["a:2222", "b:3333", "c:5555"]


def tf_config(cluster, task_type, index):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, "environment": "cloud"})


def test_tf_config_or_an_indexed_job_gives_the_workers_and_this_one_s_place():
    job = "train-{0..2}.train:2222"
    for text, *expected in (
        (tf_config({"worker": WORKERS}, "worker", 2), "worker", 2, "c:5555", ["a:2222", "b:3333"]),
        (tf_config({"chief": ["d:7777"], "worker": WORKERS}, "chief", 0), "chief", 0, "d:7777", WORKERS),
        (tf_config({"worker": ["[::1]:2222"]}, "worker", "0"), "worker", 0, "[::1]:2222", []),
        (tf_config_of(job, "1"), "worker", 1, "train-1.train:2222", ["train-0.train:2222", "train-2.train:2222"]),
        (tf_config_of("localhost:{9999..10000}", "1"), "worker", 1, "localhost:10000", ["localhost:9999"]),
    ):
        assert read_cluster(text) == tuple(expected)
    for index in ("", "3", "-1", "x"):
        with pytest.raises(ConfigError, match=f"^`workers` .* from 0 to 2. Received: JOB_COMPLETION_INDEX={index}$"):
            tf_config_of(job, index)


def test_a_wrong_tf_config_is_refused_with_an_example_of_a_right_one():
    for text in (
        *(None, "", "worker", "[]", json.dumps({"cluster": {"worker": WORKERS}})),
        tf_config(WORKERS, "worker", 0),
        tf_config({"worker": WORKERS}, "worker", 3),
        tf_config({"worker": WORKERS}, "chief", 0),
        tf_config({"worker": WORKERS, "evaluator": ["d:7777"]}, "evaluator", 0),
        tf_config({"worker": ["a", "b:2222"]}, "worker", 0),
        tf_config({"worker": ["b:70000"]}, "worker", 0),  # no port is so high
        tf_config({"chief": WORKERS}, "chief", 0),
    ):
        with pytest.raises(ConfigError) as refused:
            read_cluster(text)
        assert str(refused.value) == (
            '`strategy` multi_worker needs TF_CONFIG, such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            f'"task": {{"type": "worker", "index": 0}}}}. Received: TF_CONFIG={text}'
        )


def test_workers_wait_until_all_of_them_listen_and_name_those_that_are_missing(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.1)
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.create_server(("", 0))).getsockname()[1] for _ in range(3)]
    first, second, third = addresses = [f"localhost:{port}" for port in free]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(wait_for_workers, own, [a for a in addresses if a != own]) for own in (first, second)]
        said, end = "", time.monotonic() + 10
        while f"            still waiting for {third}\n" not in said and time.monotonic() < end:
            time.sleep(0.1)
            said += capsys.readouterr().out
        done = [worker.done() for worker in waiting]
        with socket.create_server(("", free[2])):
            for worker in waiting:
                worker.result(timeout=10)
    assert done == [False, False] and time.monotonic() < end
    assert not any(map(module.is_listening, addresses))  # TensorFlow takes the ports over


def test_a_worker_that_cannot_start_gives_the_reason_in_a_line(monkeypatch):
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        monkeypatch.setenv("TF_CONFIG", tf_config({"worker": [address]}, "worker", 0))
        with pytest.raises(ConfigError, match=f"^worker 0 cannot start at {address}: .* in use"):
            join_workers()


def five(task_type="worker", task_id=3, chiefs=(), others=lambda value: [value] * 5):
    """The `Workers` of one of five, with two replicas each. `others` maps its value for `gather` to those of all five.

    It has as much of MultiWorkerMirroredStrategy as can be seen without the others.
    """
    cluster = {"chief": list(chiefs), "worker": ["any:2222"] * (5 - len(chiefs))}
    spec = SimpleNamespace(as_dict=lambda: cluster)
    resolver = SimpleNamespace(task_type=task_type, task_id=task_id, cluster_spec=lambda: spec)
    workers = Workers(SimpleNamespace(num_replicas_in_sync=10, cluster_resolver=resolver))
    workers.gather = others
    return workers


def test_the_chief_is_the_first_of_them():
    chief = {"task_type": "chief", "task_id": 0, "chiefs": ["any:2222"]}
    for task, name, first_replica in (
        ({"task_id": 0}, "worker 0", 0),
        ({"task_id": 3}, "worker 3", 6),
        (chief, "chief 0", 0),
        ({"task_id": 3, "chiefs": ["any:2222"]}, "worker 3", 8),
    ):
        workers = five(**task)
        assert len(workers.names) == 5 and workers.names[workers.index] == name
        assert (workers.is_chief, workers.first_replica) == (first_replica == 0, first_replica)


def test_every_worker_translates_its_part_and_all_get_the_whole():
    texts, parts = [f"text {number}" for number in range(13)], []

    def translate(part):
        parts.append(part)
        return [text.upper() for text in part]

    for task_id in range(5):
        together = five(task_id=task_id, others=lambda part: [[t.upper() for t in texts[i::5]] for i in range(5)])
        assert together.share(translate)(texts) == [text.upper() for text in texts]
    assert sorted(sum(parts, [])) == sorted(texts) and max(map(len, parts)) == 3


def test_workers_compare_settings_and_texts_wherever_these_are_and_all_name_the_difference(corpus, tmp_path):
    copy, other = (shutil.copytree(corpus, tmp_path / name) for name in ("copy", "other"))
    (other / "train.de").write_bytes((corpus / "train.de").read_bytes().replace(b"s", b"z"))
    found = []
    for number, directory in enumerate((corpus, copy, other)):
        run = RunDirectory(tmp_path / str(number))
        data = prepare(tiny.config(directory, run.path), run)
        five(others=lambda value: found.append(value) or [value] * 5).check_equal(run, {"epochs": 7}, data.corpus, 11)
    assert found[0] == found[1]
    assert {name for name in found[0] if found[0][name] != found[2][name]} == {"train.de", "tokens"}
    workers = five(others=lambda value: [value, value, {**value, "epochs": 5}, value, value])
    with pytest.raises(CheckpointError, match="worker 2 does not train the same as worker 0: epochs is 5, not 7. All"):
        workers.check_equal(run, {"epochs": 7}, data.corpus, 11)


def test_a_worker_with_other_settings_than_the_first_is_refused(corpus, tmp_path):
    prepare(config := tiny.config(corpus, tmp_path / "run"), RunDirectory(config.model_dir))
    assert len(five().prepare(config, RunDirectory(tmp_path / "one")).train) > 0
    with pytest.raises(CheckpointError, match="^worker 3 has other settings than worker 0: all workers need the same"):
        five().prepare(replace(config, seed=5), RunDirectory(tmp_path / "other"))


def test_all_go_on_from_what_the_chief_has_begun(tmp_path):
    begun = [{"dataset": ["cldr:en-de", "cldr:de-en"], "epochs": 5}, True, {"passes": 3}]
    found = five(others=lambda value: [begun, value, value, value, value]).begun(RunDirectory(tmp_path))
    assert found == Begun(Config(dataset=("cldr:en-de", "cldr:de-en"), epochs=5), True, {"passes": 3})


def test_the_loss_of_a_worker_is_a_line_that_names_it_and_other_errors_are_left_alone():
    for message, gone in (
        ("Socket closed\nfrom /job:chief/replica:0/task:0 while calling", "chief 0"),
        ("/job:worker/replica:0/task:3 has heard from /job:worker/task:1: heartbeats", "worker 1"),
        ("Cancelled by /job:worker/replica:0/task:3", "another worker"),
    ):
        with pytest.raises(SystemExit) as ended, five().ending_together():
            raise tf.errors.UnavailableError(None, None, message)
        line = f"error: {gone} is gone (UnavailableError): start all workers again with the same command"
        assert ended.value.code == line
    own = "in /job:worker/replica:0/task:3/device:CPU:0, and /job:localhost/task:0"  # a bug of ours, on this worker
    for workers, error in (
        (Alone(), tf.errors.UnavailableError(None, None, "of a file system, perhaps")),
        (five(), tf.errors.InternalError(None, None, own)),
        (five(), tf.errors.ResourceExhaustedError(None, None, "memory")),
    ):
        with pytest.raises(type(error)), workers.ending_together():
            raise error


def test_others_begin_with_the_files_of_the_chief_which_prepares_before_it_meets_them(corpus, tmp_path, monkeypatch):
    config, own = tiny.config(corpus, tmp_path / "run", share_vocabulary=False), tmp_path / "own"
    shared, met = RunDirectory(tmp_path / "run"), []
    monkeypatch.setattr(module, "own_directory", lambda: own)

    def prepare_as_chief(value):
        chief = five(task_id=0, others=lambda value: met.append(shared.config.exists()))
        chief.prepare(config, chief.run_directory(config))
        shared.checkpoints.mkdir()
        shared.last.write_bytes(b"state")
        return [value] * 5

    workers = five(others=prepare_as_chief)
    run = workers.run_directory(config)
    data = workers.prepare(config, run)
    assert met == [True] and run.path == own
    for path in (run.config, run.corpus, *run.tokenizer_files(False), run.last):
        assert path.read_bytes() == (shared.path / path.relative_to(own)).read_bytes()
    monkeypatch.setattr("keras_transformer.training.preparation.encode_pairs", None)  # no need to tokenise again
    assert len(prepare(config, run).train) == len(data.train) == 211


def test_a_run_directory_that_is_not_shared_is_reported_in_a_line(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    expected = f"worker 3 does not see {config.model_dir}/config.yaml, which worker 0 has"
    with pytest.raises(CheckpointError, match=expected):
        five().prepare(config, RunDirectory(tmp_path / "own"))
    assert not (tmp_path / "run").exists()
