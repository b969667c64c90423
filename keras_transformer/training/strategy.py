"""The devices of a training: strategies, threads, the machines of a cluster, and the fastest precision."""

import json
import logging
import os
import socket
import time
from pathlib import Path

import tensorflow as tf

from keras_transformer.errors import ConfigError, counted
from keras_transformer.process import available_cores

log = logging.getLogger(__name__)

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

SECONDS_BETWEEN_LINES = 30


def make_strategy(name):
    """The distribution strategy that the config names.

    Args:
        name: "mirrored": MirroredStrategy over all GPUs, or over all logical CPU devices where there is no GPU;
            "one_device": TensorFlow's default, the first of them; "auto": "mirrored" if there are several, else
            "one_device", which spares the bookkeeping; "multi_worker": MultiWorkerMirroredStrategy over all GPUs, or
            the CPUs, of the machines that TF_CONFIG names. It must be made before TensorFlow computes anything.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ConfigError: if TF_CONFIG is missing or wrong.
    """
    if name == "multi_worker":
        return join_workers()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "one_device" or (name == "auto" and len(devices) == 1):
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def join_workers():
    """The strategy of this worker; waits for all the others.

    Returns:
        tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ConfigError: if TF_CONFIG is missing or wrong, or the worker cannot be started at its address.
    """
    task_type, index, address, others = read_cluster(os.environ.get("TF_CONFIG"))
    log.info("strategy    %s %d at %s, waiting for the other workers: %s", task_type, index, address, ", ".join(others))
    try:
        wait_for_workers(address, others)
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise ConfigError(f"{task_type} {index} cannot start at {address}: {' '.join(str(error).split())}") from error


def wait_for_workers(address, others):
    """Listens at this worker's address until all others listen at theirs; says every half minute who is missing.

    TensorFlow would wait too, but without a word, and Ctrl-C and SIGTERM would have no effect.

    Args:
        address: str, "host:port".
        others: list of str, the addresses of the other workers.

    Raises:
        OSError: if something else listens at this worker's port.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    port = int(address.rpartition(":")[2])
    with socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6):
        missing, said = others, time.monotonic()
        while missing := [other for other in missing if not is_listening(other)]:
            if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                log.info("            still waiting for %s", ", ".join(missing))
                said = time.monotonic()
            time.sleep(0.2)


def is_listening(address):
    """Whether a program takes connections at an address, "host:port", now."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:  # the machine, its name or its program is not there yet
        return False
    return True


def read_cluster(text):
    """Reads and checks TF_CONFIG: which workers train, and which of them this is.

    Args:
        text: its value, or None.

    Returns:
        type of this task, its index, its address, and a list of the addresses of the others.

    Raises:
        ConfigError: if it is missing or wrong.
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
    addresses = [*cluster["chief"], *cluster["worker"]]
    addresses.remove(address)
    return task_type, index, address, addresses


def _is_address(text):
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit()


def describe_devices(strategy):
    """The devices of a strategy for people, such as "2 replicas on CPU:0, CPU:1; 1 thread each"."""
    number = strategy.num_replicas_in_sync
    if number == 1:
        gpus = tf.config.list_logical_devices("GPU")
        return f"one replica on {'GPU:0' if gpus else 'the CPU, ' + counted(available_cores(), 'core')}"
    names = [":".join(name.split(":")[-2:]) for name in strategy.extended.worker_devices]
    return f"{number} replicas, {len(names)} of them here on {', '.join(names)}"


def decoding_strategy(strategy):
    """The strategy by which replicas share validation decoding; None where the first replica decodes everything.

    The graph of every replica takes seconds to make. CPU cores are busy without it, because several batches are under
    way at a time, whichever device they are on.
    """
    return strategy if tf.config.list_logical_devices("GPU") else None


def strategy_of_gpus():
    """MirroredStrategy over the GPUs of this machine; None for fewer than two."""
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus]) if len(gpus) > 1 else None


def vary_seeds(seeds, first_replica=0):
    """Gives the dropout of every replica its own seeds. With equal seeds, all replicas would drop the same positions.

    The seeds of the first replica stay as they are: a checkpoint holds them. To be called again after a checkpoint is
    loaded.

    Args:
        seeds: Keras variables, `TeacherForcing.seeds`.
        first_replica: number, among all replicas, of the first one here. It is above 0 on a worker that has loaded the
            checkpoint of the first worker.
    """
    for states in seed_states(seeds):
        first = tf.identity(states[0])
        for replica, state in enumerate(states, start=first_replica):
            state.assign(first + tf.constant([replica, 0], state.dtype))  # (seed, draws so far)


def seed_states(seeds):
    """The states of seed generators on the replicas: for each Keras variable a list of tf.Variable (2,)."""
    return [list(getattr(seed.value, "values", [seed.value])) for seed in seeds]


def resolve_precision(name):
    """The precision for "auto" on this machine: bfloat16 if the hardware multiplies it, else float32."""
    if name != "auto":
        return name
    return "bfloat16" if _multiplies_bfloat16() else "float32"


def _multiplies_bfloat16():
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        capability = tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0))
        return capability[0] >= 8
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and bool({"avx512_bf16", "amx_bf16"} & set(cpu.read_text().split()))
