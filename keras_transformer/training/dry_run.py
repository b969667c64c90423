"""`train.py --dry_run`: the settings of a run, its corpus, and its time and memory, estimated from a few updates."""

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.data.corpus import BothSides
from keras_transformer.data.pipeline import count_batches, dealt, training_batches, widest_batch
from keras_transformer.data.statistics import (
    LOPSIDED,
    character_lengths,
    count_characters,
    count_lopsided,
    count_repeated,
    spread,
)
from keras_transformer.errors import ConfigError
from keras_transformer.training.checkpoints import RunDirectory
from keras_transformer.training.preparation import check_resumable, check_same_corpus, prepare
from keras_transformer.training.run import build_trainer, make_plan, resolved
from keras_transformer.training.strategy import make_strategy
from keras_transformer.wording import counted

WARM_UP, MEASURED = 3, 10  # updates before the clock starts, and then
SHOWN_CHARACTERS = 40


def rehearse(config):
    """Prints all settings, figures of the corpus, the model's size, and an estimate of time and memory.

    It works in a temporary directory and keeps nothing.

    Raises:
        ConfigError, CheckpointError: as `prepare`, and if the run itself would be refused.
        CorpusError: as `prepare`.
    """
    if config.strategy == "multi_worker":
        raise ConfigError("--dry_run measures one machine: give it another --strategy than multi_worker, such as auto")
    if Path(config.model_dir).exists():
        check_resumable(config, RunDirectory(config.model_dir))
    with tempfile.TemporaryDirectory() as directory:
        data = prepare(config, RunDirectory(directory))
        check_same_corpus(RunDirectory(config.model_dir), data.corpus)
        with make_strategy(config.strategy).scope():
            trainer = build_trainer(config, data)
        print("settings")
        for name, value in resolved(config, data).items():
            print(f"            {name}: {value}")
        for line in describe_corpus(data):
            print(line, flush=True)
        plan = make_plan(config, data)
        batches = count_batches(data.train, config.batch_tokens)
        print(
            f"epoch       {counted(batches, 'batch', 'batches')}; {counted(plan.last_step, 'update')} in all",
            flush=True,
        )
        seconds = seconds_per_update(config, data, trainer)
    whole = describe_time(seconds * plan.last_step)
    print(f"time        about {whole}, {seconds:.2g} s an update; validation comes on top")
    print(f"memory      about {describe_memory()}")


def describe_corpus(data):
    """Yields lines for the console about the training pairs of `Data`: lengths, repetitions, suspicious pairs."""
    pairs, encoded = data.corpus.train, data.train
    lengths = {
        "source pieces": encoded.source.lengths,
        "target pieces": encoded.target_pieces,
        "source characters": character_lengths(source for source, _ in pairs),
        "target characters": character_lengths(target for _, target in pairs),
    }
    yield f"lengths     {'':18}{'median':>8}{'95 %':>8}{'longest':>9}"
    for name, values in lengths.items():
        median, percentile_95, longest = spread(values)
        yield f"            {name:18}{median:8,}{percentile_95:8,}{longest:9,}"
    yield f"repeated    {counted(count_repeated(pairs), 'pair has', 'pairs have')} occurred before"
    lopsided = counted(count_lopsided(encoded.source.lengths, encoded.target_pieces), "pair has", "pairs have")
    yield f"lopsided    {lopsided} more than {LOPSIDED} times as many pieces on one side"
    characters = count_characters(BothSides(pairs))
    once = sorted(character for character, count in characters.items() if count == 1)
    shown = f": {' '.join(map(repr, once[:SHOWN_CHARACTERS]))}" if once else ""
    more = " ..." if len(once) > SHOWN_CHARACTERS else ""
    yield f"characters  {len(characters):,} different ones, {len(once):,} of them once{shown}{more}"


class _Clock(keras.callbacks.Callback):
    """Notes when every update has ended; reading the count of updates waits for a GPU to be done."""

    def __init__(self):
        super().__init__()
        self.marks = []

    def on_train_batch_end(self, batch, logs=None):
        keras.ops.convert_to_numpy(self.model.optimizer.iterations)
        self.marks.append(time.perf_counter())


def seconds_per_update(config, data, trainer):
    """Trains on the widest batch, which needs the most memory, and some others. Returns their median seconds."""
    widest = tf.data.Dataset.from_tensors(widest_batch(data.train, config.batch_tokens))
    batches = widest.concatenate(training_batches(data.train, config.batch_tokens, config.seed))
    clock = _Clock()
    updates = 1 + WARM_UP + MEASURED
    batches = dealt(batches, trainer.distribute_strategy)
    trainer.fit(batches, steps_per_epoch=updates, shuffle=False, verbose=0, callbacks=[clock])
    marks = clock.marks[WARM_UP:]
    return statistics.median(end - start for start, end in zip(marks, marks[1:], strict=False))


def describe_time(seconds):
    """Seconds in the two largest units that matter, such as "3 h 20 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def describe_memory():
    """The most that this process and every GPU have held so far."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes that `ru_maxrss` counts in
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    peaks = [tf.config.experimental.get_memory_info(gpu)["peak"] / 2**20 for gpu in gpus]
    return ", ".join([f"{mebibytes:,.0f} MiB"] + [f"{peak:,.0f} MiB on GPU {i}" for i, peak in enumerate(peaks)])
