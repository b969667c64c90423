"""Several machines that train together (`strategy` multi_worker): how they meet, and on what they agree."""

import atexit
import contextlib
import hashlib
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

from keras_transformer.config import Config
from keras_transformer.data.encoded import INDEX
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.presets import is_address, worker_addresses
from keras_transformer.training.decide import Begun
from keras_transformer.training.preparation import check_resumable, prepare
from keras_transformer.training.run_directory import RunDirectory

log = logging.getLogger(__name__)

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'

SECONDS_BETWEEN_LINES = 30


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


# The errors of TensorFlow on the other workers when one is gone.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError)
LOST += (tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError, tf.errors.UnknownError)
# The errors among these that a bug of ours raises as well. They tell a loss only if they name another worker.
MAY_BE_BUGS = (tf.errors.InternalError, tf.errors.UnknownError, tf.errors.FailedPreconditionError)


class Workers:
    """The processes that train together, each on its rows of every batch. It has the methods of `Alone`.

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
        resolver = strategy.cluster_resolver
        sizes = {kind: len(resolver.cluster_spec().as_dict().get(kind, [])) for kind in ("chief", "worker")}
        self.names = [f"{kind} {number}" for kind, size in sizes.items() for number in range(size)]
        self.index = self.names.index(f"{resolver.task_type} {resolver.task_id}")
        self.first_replica = self.index * strategy.num_replicas_in_sync // len(self.names)
        self._sum = tf.function(lambda flags: strategy.reduce("SUM", flags, axis=None), autograph=False)

    @classmethod
    def meet(cls, workers):
        """Waits until all of them are there, before TensorFlow computes anything.

        Args:
            workers: pattern of their addresses, from which TF_CONFIG is made, or None where TF_CONFIG is set.

        Raises:
            ConfigError: if TF_CONFIG is missing or wrong.
        """
        if workers:
            os.environ["TF_CONFIG"] = tf_config_of(workers, os.environ.get("JOB_COMPLETION_INDEX", ""))
        return cls(join_workers())

    @property
    def is_chief(self):
        """Whether this is the one that writes to the run directory."""
        return self.index == 0

    def gather(self, value):
        """The values of all workers in their order, a list; a value is anything that JSON can hold."""
        line = np.frombuffer(f"{json.dumps(value)}\n".encode(), np.uint8).astype(
            np.int32
        )  # a dtype that collectives support
        gathered = self.strategy.gather(tf.constant(line), axis=0).numpy().astype(np.uint8).tobytes()
        return [json.loads(line) for line in gathered.splitlines()]

    def anywhere(self, *flags):
        """Whether each of some bools is true on any worker; quick enough for a call after every update."""
        return tuple(self._sum(tf.constant(flags, tf.float32)).numpy() > 0)

    def share(self, translate):
        """A function like `translate`, from a list of str to a list of str, whose texts all workers divide."""

        def translate_together(texts, **languages):
            translations = [""] * len(texts)
            for worker, part in enumerate(self.gather(translate(texts[self.index :: len(self.names)], **languages))):
                translations[worker :: len(self.names)] = part
            return translations

        return translate_together

    def check_equal(self, run, decided, corpus, step):
        """Checks that all workers are about to train the same.

        Args:
            run: `RunDirectory` of this worker.
            decided: dict, the decisions of the run.
            corpus: `Corpus`.
            step: int, the update after which this worker goes on.

        Raises:
            CheckpointError: on all of them, if they differ, with the names of the facts.
        """
        tokens = [(run.tokens / split / INDEX).read_text(encoding="utf-8") for split in ("train", "validation")]
        tokens = hashlib.sha256("".join(tokens).encode()).hexdigest()[:12]
        facts = {**decided, **corpus.identity, "tokens": tokens, "update": step}
        chief, *others = self.gather(facts)
        for worker, found in zip(self.names[1:], others, strict=True):
            names = [name for name in {**chief, **found} if found.get(name) != chief.get(name)]
            different = [f"{name} is {found.get(name)}, not {chief.get(name)}" for name in names]
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
            if is_bug:
                raise
            name = gone[0] if gone else "another worker"
            sys.exit(f"error: {name} is gone ({type(error).__name__}): start all workers again with the same command")

    def run_directory(self, config):
        """The `RunDirectory` of this worker: `model_dir` for the chief, a directory of its own for any other."""
        return RunDirectory(config.model_dir if self.is_chief else own_directory())

    def begun(self, run):
        """`Begun.of` the run directory of the chief, which nobody else may see change."""
        begun = Begun.of(run)
        here = begun._replace(config=begun.config and vars(begun.config))
        config, *others = self.gather(here)[0]
        return Begun(config and Config(**config), *others)

    def prepare(self, config, run, corpus=None):
        """`prepare` on the chief, then on the others, who start with copies of the chief's files.

        Args:
            config: `Config`.
            run: `RunDirectory` of `run_directory`, claimed.
            corpus: see `prepare`.

        Returns:
            `Data`.

        Raises:
            As `prepare`.
            CheckpointError: if this worker does not see the files of the chief, or has other settings.
        """
        if self.is_chief:
            data = prepare(config, run, corpus)
            self.gather("prepared")
            return data
        self.gather("waiting")
        if not Path(config.model_dir, "config.yaml").exists():
            raise CheckpointError(
                f"{self.names[self.index]} does not see {config.model_dir}/config.yaml, which {self.names[0]} has "
                "written: `model_dir` must be on a file system that all workers share"
            )
        shared = RunDirectory(config.model_dir)
        tokenizers = shared.tokenizer_files(config.has_one_tokenizer)
        decided = (shared.config, shared.decided, shared.corpus, shared.tags, shared.full_stops)
        for path in (*decided, *tokenizers, shared.last, shared.previous, shared.frozen):
            if path.exists():
                own = run.path / path.relative_to(shared.path)
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, own)
        shutil.copytree(shared.tokens, run.tokens)
        if not check_resumable(config, run):
            raise CheckpointError(
                f"{self.names[self.index]} has other settings than {self.names[0]}: all workers need the same command"
            )
        return prepare(config, run, corpus)


def own_directory():
    """A directory, pathlib.Path, that is removed when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="worker_"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
