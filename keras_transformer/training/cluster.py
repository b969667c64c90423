"""The machines that train together, as the environment variable TF_CONFIG names them."""

import json
import os

import tensorflow as tf

from keras_transformer.config import ConfigError

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'


def join_workers():
    """The strategy of this worker, when all the others have come.

    Returns:
        tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ConfigError: if TF_CONFIG is missing or wrong, or the worker cannot be started at its address.
    """
    task_type, index, address, count = read_cluster(os.environ.get("TF_CONFIG"))
    print(f"strategy    {task_type} {index} at {address} waits for all of {count}", flush=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError) as error:
        raise ConfigError(f"{task_type} {index} cannot start at {address}: {' '.join(str(error).split())}") from error


def read_cluster(text):
    """Makes sure that TF_CONFIG says who trains, and which of them this is.

    Args:
        text: its value, or None.

    Returns:
        type of this task, its index, its address, and the number of all tasks.

    Raises:
        ConfigError: if it does not.
    """
    try:
        config = json.loads(text or "")
        cluster = {name: list(config["cluster"].get(name, [])) for name in ("chief", "worker")}
        task_type, index = config["task"]["type"], int(config["task"]["index"])
        address = cluster[task_type][index]
        is_good = index >= 0 and len(cluster["chief"]) <= 1 and all(map(_is_address, sum(cluster.values(), [])))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        is_good = False
    if not is_good:
        raise ConfigError(f"`strategy` multi_worker needs TF_CONFIG, such as {EXAMPLE}. Received: TF_CONFIG={text}")
    return task_type, index, address, sum(map(len, cluster.values()))


def _is_address(text):
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit()
