"""Where training runs: devices, their threads, and the precision that they are fast in."""

import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.config import ConfigError
from keras_transformer.training.cluster import join_workers

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

TOKENS_PER_REPLICA = 2048  # fewer, and a CPU thread spends its time on starting operations


def share_cores(name, batch_tokens):
    """Without a GPU, makes every core a device of its own, so that each trains a replica with a single thread.

    The products of a small model gain little from a second thread; two replicas of one thread train 1.2 times as fast
    as one of two (benchmarks/train_speed.py). Has to be called before TensorFlow's first operation.

    Args:
        name: of the strategy; only "auto" and "mirrored" do not keep TensorFlow's defaults.
        batch_tokens: of all replicas; there are only as many as get `TOKENS_PER_REPLICA` each, and for a single one
            TensorFlow's defaults are kept.
    """
    if name not in ("auto", "mirrored") or tf.config.list_physical_devices("GPU"):
        return
    cores = available_cores()
    replicas = min(cores, batch_tokens // TOKENS_PER_REPLICA)
    if replicas < 2:
        return
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    tf.config.threading.set_intra_op_parallelism_threads(cores // replicas)
    tf.config.threading.set_inter_op_parallelism_threads(replicas)


def available_cores():
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def make_strategy(name):
    """The distribution strategy that the config names.

    Args:
        name: "mirrored": MirroredStrategy over all GPUs, or over all logical CPU devices where there is no GPU;
            "one_device": TensorFlow's default, the first of them; "auto": "mirrored" if there are several, else
            "one_device", which spares the bookkeeping; "multi_worker": MultiWorkerMirroredStrategy over all GPUs, or
            the CPUs, of the machines that TF_CONFIG names, which has to be made before anything is computed; "tpu":
            `find_tpu`.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ConfigError: if TF_CONFIG is not what it should be, or there is no TPU.
    """
    if name == "multi_worker":
        return join_workers()
    if name == "tpu":
        return find_tpu()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "one_device" or (name == "auto" and len(devices) == 1):
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def find_tpu():
    """TPUStrategy of the TPU that the environment variable TPU_NAME names ("local" on its own machine).

    Raises:
        ConfigError: if there is none.
    """
    print("strategy    tpu: this has never been tested", flush=True)
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise ConfigError(f"`strategy` tpu finds no TPU: {' '.join(str(error).split())}") from error
    return tf.distribute.TPUStrategy(resolver)


def decoding_strategy(strategy):
    """The strategy by which replicas share validation decoding; None where the first does it all.

    The graph of every replica takes seconds to make. CPU cores are busy without: several batches are under way at a
    time, whichever device they are on. And a TPU knows no text.
    """
    return strategy if tf.config.list_logical_devices("GPU") else None


def strategy_of_gpus():
    """MirroredStrategy over the GPUs of this machine, whoever else has trained; None where there are not several."""
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus]) if len(gpus) > 1 else None


def vary_seeds(variables, first_replica=0):
    """Gives the dropout of every replica its own seeds: as copies of each other they would all drop the same positions.

    Those of the first replica stay, since they are what a checkpoint holds. To be called once more after loading one.

    Args:
        variables: Keras variables; the states of seed generators among them are changed.
        first_replica: number, among all replicas, of the first one here. It is not 0 on a worker that has just loaded
            what the first worker saved.
    """
    for states in seed_states(variables):
        first = tf.identity(states[0])
        for replica, state in enumerate(states, start=first_replica):
            state.assign(first + tf.constant([replica, 0], state.dtype))  # (seed, draws so far)


def seed_states(variables):
    """The states of seed generators among Keras variables, each a list of tf.Variable (2,), one a replica."""
    states = (variable.value for variable in variables if variable.path.endswith("seed_generator_state"))
    return [list(getattr(state, "values", [state])) for state in states]


def resolve_precision(name):
    """What "auto" stands for on this machine: bfloat16 where the hardware multiplies it, else float32."""
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
