"""The processes that train one model together, on several machines (`strategy` multi_worker)."""

import atexit
import contextlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_transformer.errors import CheckpointError
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory

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

        def translate_together(texts):
            translations = [""] * len(texts)
            for worker, part in enumerate(self.gather(translate(texts[self.index :: len(self.names)]))):
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
    for path in (shared.config, *shared.tokenizer_files(config.share_vocabulary), shared.last, shared.previous):
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
