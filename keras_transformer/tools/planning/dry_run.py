"""`train.py --dry_run`: the settings of a run, its corpus, and its memory and time, estimated."""

import dataclasses
import statistics
import tempfile
import time

import keras
import tensorflow as tf

from keras_transformer.data.corpora import BothSides
from keras_transformer.data.pipeline import Undivided, count_batches, training_batches
from keras_transformer.errors import ConfigError, UserError, counted
from keras_transformer.process import TOKENS_PER_REPLICA
from keras_transformer.tools import duration
from keras_transformer.tools.planning.memory import check_fits, estimate
from keras_transformer.tools.planning.statistics import (
    LOPSIDED,
    character_lengths,
    count_characters,
    count_lopsided,
    count_repeated,
    spread,
)
from keras_transformer.training.decide import Begun, Machine, decide, start_devices
from keras_transformer.training.preparation import check_resumable, check_same_corpus, prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import build_trainer, can_wait, describe_model, outline

WARM_UP, MEASURED = 3, 10  # updates before the clock starts, and then
LITTLE = 2**30  # bytes that a rehearsal may take
SHOWN_CHARACTERS = 40


def rehearse(config):
    """Prints all settings, figures of the corpus, the model's size, and an estimate of memory and time.

    It works in a temporary directory and keeps nothing. It needs little memory, whatever the run would need.

    Raises:
        ConfigError: as `prepare`, and if the run would need more memory than there is.
        CorpusError: as `prepare`.
    """
    if config.strategy == "multi_worker":
        raise ConfigError("a dry run measures one machine: choose another `strategy` than multi_worker, such as auto")
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(config.model_dir)
        begun, before = Begun.of(run), run.corpus_identity() if run.has_checkpoint() else None
        asked, owns_process = begun.completed(config), can_wait(config)
        data = prepare(asked, RunDirectory(directory), before=before)
        machine = Machine.here(owns_process)
        config, data, plan, decided = decide(asked, data, machine, begun)
        strategy = start_devices(config, plan, machine)
        print("settings")
        for name, value in {**vars(config), "dataset": ", ".join(config.corpora), **decided}.items():
            print(f"            {name}: {value}")
        for line in describe_corpus(data):
            print(line, flush=True)
        batches = count_batches(data.train, config.batch_tokens)
        print(f"epoch       {counted(batches, 'batch', 'batches')}; {counted(plan.last_step, 'update')} in all")
        network = outline(config, data)
        print(f"model       {describe_model(network, config)}")
        memory = estimate(config, data, strategy, network)
        print(f"memory      {memory.describe()}", flush=True)
        if refused := refusal(asked, data.corpus):
            print(f"refused     the training itself: {refused}", flush=True)
        check_fits(memory)
        small = shrunk(config, memory)
        seconds = seconds_per_update(small, data, plan, strategy) * work(config, data) / work(small, data)
    whole = duration(seconds * plan.last_step)
    from_less = "" if small == config else ", estimated from fewer layers or positions"
    print(f"time        about {whole}, {seconds:.2g} s an update{from_less}; validation comes on top")


def refusal(config, corpus):
    """Why the run in `config.model_dir` cannot be resumed by this config, str; None if it can, or there is none."""
    run = RunDirectory(config.model_dir)
    try:
        check_resumable(config, run)
        check_same_corpus(run, corpus)
    except UserError as error:
        return str(error)
    return None


def work(config, data):
    """The measure of the work of an update: every position of a batch is multiplied with every weight."""
    return config.batch_tokens * outline(config, data).count_params()


def shrunk(config, memory):
    """The config with so few positions and layers that a CPU trains it in `LITTLE` memory; on a GPU as it is."""
    if tf.config.list_physical_devices("GPU") or memory.total <= LITTLE:
        return config
    fewer = {"batch_tokens": min(config.batch_tokens, TOKENS_PER_REPLICA), "num_layers": 1, "heads": None}
    return dataclasses.replace(config, **fewer, **({"num_decoder_layers": 1} if config.num_decoder_layers else {}))


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


def seconds_per_update(config, data, plan, strategy):
    """Trains for a few updates. Returns their median seconds."""
    with strategy.scope():
        trainer = build_trainer(config, data, plan)
    clock = _Clock()
    batches = Undivided(training_batches(data.train, config.batch_tokens, config.seed))
    trainer.fit(batches, steps_per_epoch=1 + WARM_UP + MEASURED, shuffle=False, verbose=0, callbacks=[clock])
    marks = clock.marks[WARM_UP:]
    return statistics.median(end - start for start, end in zip(marks, marks[1:], strict=False))
