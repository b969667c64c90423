"""The devices of a training: strategies, the workers of a cluster and what they agree on, and the fastest precision."""

import atexit
import contextlib
import functools
import json
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_transformer.errors import CheckpointError, ConfigError, counted
from keras_transformer.presets import is_address, worker_addresses
from keras_transformer.process import available_cores
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory

log = logging.getLogger(__name__)

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

SECONDS_BETWEEN_LINES = 30


def make_strategy(name, workers=None):
    """The distribution strategy that the config names.

    Args:
        name: "mirrored": MirroredStrategy over all GPUs, or over all logical CPU devices where there is no GPU;
            "one_device": TensorFlow's default, the first of them; "auto": "mirrored" if there are several, else
            "one_device", which spares the bookkeeping; "multi_worker": MultiWorkerMirroredStrategy over all GPUs, or
            the CPUs, of the machines that TF_CONFIG names. It must be made before TensorFlow computes anything.
        workers: pattern of the addresses of "multi_worker", from which TF_CONFIG is made, or None.

    Returns:
        tf.distribute.Strategy.

    Raises:
        ConfigError: if TF_CONFIG is missing or wrong.
    """
    if name == "multi_worker":
        if workers:
            os.environ["TF_CONFIG"] = tf_config_of(workers, os.environ.get("JOB_COMPLETION_INDEX", ""))
        return join_workers()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "one_device" or (name == "auto" and len(devices) == 1):
        return tf.distribute.get_strategy()
    return mirrored(*(device.name for device in devices))


@functools.cache
def mirrored(*devices):
    """MirroredStrategy over the devices with these names: one for all runs of a process.

    A second one would number its collective operations from the start again, and TensorFlow would take them for
    operations of the first.
    """
    return tf.distribute.MirroredStrategy(devices)


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


def tf_config_of(workers, index):
    """Makes the TF_CONFIG of a worker of an Indexed Job of Kubernetes.

    Args:
        workers: str, the setting of the config, such as "train-{0..3}.train:2222".
        index: str, the number of this worker, from 0.

    Returns:
        str, JSON.

    Raises:
        ConfigError: if there is no worker of this number.
    """
    addresses = worker_addresses(workers)
    if not index.isdecimal() or int(index) >= len(addresses):
        raise ConfigError(
            "`workers` needs the number of this worker in the environment variable JOB_COMPLETION_INDEX: from 0 to "
            f"{len(addresses) - 1}. Received: JOB_COMPLETION_INDEX={index}"
        )
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": int(index)}})


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
        is_good = index >= 0 and len(cluster["chief"]) <= 1 and all(map(is_address, sum(cluster.values(), [])))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        is_good = False
    if not is_good:
        raise ConfigError(f"`strategy` multi_worker needs TF_CONFIG, such as {EXAMPLE}. Received: TF_CONFIG={text}")
    addresses = [*cluster["chief"], *cluster["worker"]]
    addresses.remove(address)
    return task_type, index, address, addresses


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
    return mirrored(*(gpu.name for gpu in gpus)) if len(gpus) > 1 else None


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


# The errors of TensorFlow on the other workers when one is gone.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError)
LOST += (tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.UnknownError)
# The errors among these that a bug of ours raises as well. They tell a loss only if they name another worker.
MAY_BE_BUGS = (tf.errors.InternalError, tf.errors.UnknownError, tf.errors.FailedPreconditionError)


class Workers:
    """The processes that train together, each on its rows of every batch. Most runs have only one.

    `gather` and `anywhere` are collective operations: they end when all workers have called them. All workers must call
    them in the same order.

    Args:
        strategy: tf.distribute.Strategy.

    Attributes:
        names: list of str such as "worker 1", as TF_CONFIG numbers them; the first is the chief.
        index: int, which of them this is.
        first_replica: int, how many replicas those before this one have.
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.names, self.index = ["worker 0"], 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            sizes = {kind: len(resolver.cluster_spec().as_dict().get(kind, [])) for kind in ("chief", "worker")}
            self.names = [f"{kind} {number}" for kind, size in sizes.items() for number in range(size)]
            self.index = self.names.index(f"{resolver.task_type} {resolver.task_id}")
        self.first_replica = self.index * strategy.num_replicas_in_sync // len(self.names)
        self._sum = tf.function(lambda flags: strategy.reduce("SUM", flags, axis=None), autograph=False)

    @property
    def is_chief(self):
        """Whether this is the one that writes to the run directory."""
        return self.index == 0

    def gather(self, value):
        """The values of all workers in their order, a list; a value is anything that JSON can hold."""
        if len(self.names) == 1:
            return [value]
        line = np.frombuffer(f"{json.dumps(value)}\n".encode(), np.uint8).astype(
            np.int32
        )  # a dtype that collectives support
        gathered = self.strategy.gather(tf.constant(line), axis=0).numpy().astype(np.uint8).tobytes()
        return [json.loads(line) for line in gathered.splitlines()]

    def anywhere(self, *flags):
        """Whether each of some bools is true on any worker; quick enough for a call after every update."""
        if len(self.names) == 1:
            return flags
        return tuple(self._sum(tf.constant(flags, tf.float32)).numpy() > 0)

    def share(self, translate):
        """A function like `translate`, from a list of str to a list of str, whose texts all workers divide."""

        def translate_together(texts, **languages):
            translations = [""] * len(texts)
            for worker, part in enumerate(self.gather(translate(texts[self.index :: len(self.names)], **languages))):
                translations[worker :: len(self.names)] = part
            return translations

        return translate_together

    def check_equal(self, facts):
        """Checks that all workers are about to train the same.

        Args:
            facts: dict of name -> value, all that JSON can hold.

        Raises:
            CheckpointError: on all of them, if they differ, with the names of the facts.
        """
        chief, *others = self.gather(facts)
        for worker, found in zip(self.names[1:], others, strict=True):
            different = [f"{name} is {found[name]}, not {chief[name]}" for name in facts if found[name] != chief[name]]
            if different:
                raise CheckpointError(
                    f"{worker} does not train the same as {self.names[0]}: {', '.join(different)}. All workers "
                    "need the same command, the same corpus, and a `model_dir` that they share"
                )

    @contextlib.contextmanager
    def ending_together(self):
        """Ends this worker when another is lost: SystemExit with one line, status 1."""
        try:
            yield
        except LOST as error:
            tasks = re.findall(r"/job:(\w+)(?:/replica:0)?/task:(\d+)", error.message)
            named = [f"{kind} {number}" for kind, number in tasks]
            gone = [name for name in named if name not in (self.names[self.index], "localhost 0")]
            is_bug = isinstance(error, MAY_BE_BUGS) and not gone and "ollective" not in error.message
            if len(self.names) == 1 or is_bug:
                raise
            name = gone[0] if gone else "another worker"
            sys.exit(f"error: {name} is gone ({type(error).__name__}): start all workers again with the same command")


def run_directory(config, workers):
    """The `RunDirectory` of this worker: `model_dir` for the first, a directory of its own for each of the others."""
    return RunDirectory(config.model_dir if workers.is_chief else own_directory())


def prepare_on_all(config, run, workers, corpus=None):
    """`prepare` on the chief, then on the others, who start with copies of the chief's files.

    Args:
        config: `Config`.
        run: `RunDirectory` of `run_directory`, claimed.
        workers: `Workers`.
        corpus: see `prepare`.

    Returns:
        `Data`.

    Raises:
        As `prepare`.
        CheckpointError: if this worker does not see the files of the chief.
    """
    if workers.is_chief:
        data = prepare(config, run, corpus)
        workers.gather("prepared")
        return data
    workers.gather("waiting")
    if not Path(config.model_dir, "config.yaml").exists():
        raise CheckpointError(
            f"{workers.names[workers.index]} does not see {config.model_dir}/config.yaml, which {workers.names[0]} has "
            "written: `model_dir` must be on a file system that all workers share"
        )
    shared = RunDirectory(config.model_dir)
    tokenizers = shared.tokenizer_files(config.has_one_tokenizer)
    for path in (shared.config, *tokenizers, shared.tags, shared.full_stops, shared.last, shared.previous):
        if path.exists():
            own = run.path / path.relative_to(shared.path)
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, own)
    shutil.copytree(shared.tokens, run.tokens)
    return prepare(config, run, corpus)


def own_directory():
    """A directory, pathlib.Path, that is removed when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="worker_"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
