import json

import pytest
import tensorflow as tf
from keras_transformer.training.cluster import join_workers, read_cluster

from keras_transformer.config import ConfigError

WORKERS = ["a:2222", "b:3333", "c:5555"]


def tf_config(cluster, task_type, index):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}, "environment": "cloud"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tf_config({"worker": WORKERS}, "worker", 2), ("worker", 2, "c:5555", 3)),
        (tf_config({"chief": ["d:7777"], "worker": WORKERS}, "chief", 0), ("chief", 0, "d:7777", 4)),
        (tf_config({"worker": ["[::1]:2222"]}, "worker", "0"), ("worker", 0, "[::1]:2222", 1)),
    ],
)
def test_who_trains_and_which_of_them_this_is(text, expected):
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
def test_what_does_not_say_so_is_refused_with_what_would(text):
    with pytest.raises(ConfigError) as refused:
        read_cluster(text)
    assert str(refused.value) == (
        '`strategy` multi_worker needs TF_CONFIG, such as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
        f'"task": {{"type": "worker", "index": 0}}}}. Received: TF_CONFIG={text}'
    )


def test_a_worker_that_cannot_start_says_so_in_a_line(monkeypatch, capsys):
    def fail():
        raise tf.errors.UnknownError(None, None, "Could not start\ngRPC server")

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", fail)
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": WORKERS}, "worker", 1))
    with pytest.raises(ConfigError, match="worker 1 cannot start at b:3333: Could not start gRPC server"):
        join_workers()
    assert capsys.readouterr().out == "strategy    worker 1 at b:3333 waits for all of 3\n"
