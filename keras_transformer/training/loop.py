"""A training run from config to finished model, in the order in which things happen."""

import itertools
import math
import sys
from dataclasses import asdict, dataclass

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import Config, ConfigError
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.corpus import BothSides, Corpus
from keras_transformer.data.encoded import EncodedPairs, encode_pairs
from keras_transformer.data.pipeline import count_batches, evaluation_batches, make_batch, training_batches
from keras_transformer.model import Transformer
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.training.callbacks import (
    CountSteps,
    KeepCheckpoints,
    Progress,
    ValidationBleu,
    resumable_variables,
)
from keras_transformer.training.checkpoints import (
    average_variables,
    load_variables,
    write_atomically,
)
from keras_transformer.training.heat_maps import AlignmentPictures
from keras_transformer.training.optimizer import Adam
from keras_transformer.training.progress_bar import ProgressBar
from keras_transformer.training.projector import write_embedding
from keras_transformer.training.schedules import InverseSquareRoot, paper_peak_rate
from keras_transformer.training.strategy import POLICIES, resolve_precision, vary_seeds
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.tensorboard import Profile, TensorBoardCurves, write_hyper_parameters

# What may differ when a run goes on: how long and where. All else would make it another run.
MAY_CHANGE = (
    "epochs",
    "max_steps",
    "strategy",
    "average_epochs",
    "beam_size",
    "length_penalty",
    "model_dir",
    "profile",
)
SAMPLE_SENTENCES = 32
PICTURES = 4  # of the alignment of validation pairs


@dataclass(frozen=True)
class Data:
    """A corpus and what of it is trained and validated on, as token ids."""

    corpus: Corpus
    tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs


def prepare(config, run):
    """Opens the corpus, makes or loads the tokenizer, tokenises; says what was kept and dropped.

    Returns:
        `Data`.

    Raises:
        ConfigError: if the run directory holds a run with other settings.
        CorpusError: if the corpus cannot be used.
    """
    corpus = open_corpus(config.dataset, config.source_lang, config.target_lang, config.seed)
    print(f"corpus      {corpus.name}: {corpus.source_lang} to {corpus.target_lang}")
    for note in corpus.notes:
        print(f"            {note}")
    check_resumable(config, run)
    write_atomically(run.config, config.save)
    if not run.tokenizer.exists():
        model = train_tokenizer(BothSides(corpus.train), config.vocabulary_size)
        write_atomically(run.tokenizer, lambda path: path.write_bytes(model))
    tokenizer = Tokenizer.load(run.tokenizer)
    size = tokenizer.vocabulary_size
    asked = f" ({config.vocabulary_size:,} asked for; the corpus has no more)" if size < config.vocabulary_size else ""
    print(f"tokenizer   {size:,} pieces{asked}")
    splits = {}
    for name, pairs in (("train", corpus.train), ("validation", corpus.validation)):
        splits[name] = encode_pairs(pairs, tokenizer, config.max_length, f"{corpus.name}, {name}")
        print(f"{name:12}{splits[name].describe()}", flush=True)
    return Data(corpus, tokenizer, **splits)


def make_transformer(config, vocabulary_size, policy):
    """The Transformer that the config describes, with new weights."""
    return Transformer(vocabulary_size, **config.model_arguments(), dtype=policy, name="transformer")


def build_trainer(config, vocabulary_size):
    """The Transformer with its loss and optimizer (sections 5.3 and 5.4), compiled."""
    policy = POLICIES[resolve_precision(config.precision)]
    transformer = make_transformer(config, vocabulary_size, policy)
    trainer = TeacherForcing(transformer, config.label_smoothing)
    schedule = InverseSquareRoot(peak_rate(config), config.warmup_steps)
    optimizer = Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9, name="adam")
    trainer.compile(optimizer=optimizer, jit_compile=False)
    trainer.optimizer.build(trainer.trainable_variables)
    print(f"model       {transformer.count_params():,} parameters, {config.preset}, {policy}", flush=True)
    return trainer


def peak_rate(config):
    """The learning rate at the end of the warm-up: the config's, or that of equation (3)."""
    return config.peak_learning_rate or paper_peak_rate(config.d_model, config.warmup_steps)


def check_resumable(config, run):
    """Refuses to go on with a run under other settings. Raises ConfigError that names them."""
    if not run.config.exists():
        return
    before, now = asdict(Config.load(run.config)), asdict(config)
    different = [name for name in now if before[name] != now[name] and name not in MAY_CHANGE]
    if different:
        changes = ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in different)
        raise ConfigError(f"{run.path} holds a run with other settings: {changes}. Choose another --model_dir")


def fit(config, run, data, trainer, translate, score):
    """Trains to the end of the last epoch, or from where an earlier run of the same command stopped.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        trainer: compiled `TeacherForcing`.
        translate: function from a list of str to their translations with the trainer's weights, for validation BLEU.
        score: function (translations, references) -> BLEU.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after saving.
    """
    progress = restore(run, trainer)
    vary_seeds(trainer.transformer.variables)
    keep = KeepCheckpoints(run, progress, config.average_epochs, config.best_by)
    steps_per_epoch = count_batches(data.train, config.batch_tokens)
    if progress.step:  # it may have stopped before the epoch's own checkpoint, and may be to end right here
        keep.save_epoch(math.ceil(progress.step / steps_per_epoch), trainer)
    last_step = min(config.epochs * steps_per_epoch, config.max_steps or sys.maxsize)
    if progress.step >= last_step:
        return
    write_hyper_parameters(run.logs / "validation", resolved(config, data))
    writers = {name: tf.summary.create_file_writer(str(run.logs / name)) for name in ("train", "validation")}
    with writers["train"].as_default(step=progress.step):
        tf.summary.text("config", "\n".join(f"    {name}: {value}" for name, value in resolved(config, data).items()))
    pictured = make_batch(data.validation, np.arange(min(PICTURES, len(data.validation))))
    callbacks = [
        CountSteps(progress, last_step),
        ValidationBleu(translate, score, validation_pairs(config, data), writers["validation"]),  # first: it adds a log
        TensorBoardCurves(writers, progress, len(data.train.target.ids) + len(data.train)),  # and an eos each
        keep,
        AlignmentPictures(pictured, data.tokenizer, writers["validation"], progress),
        *([Profile(run.logs / "train", progress, *config.profiled_updates())] if config.profile else []),
        ProgressBar(),  # last: it shows the logs that others add
    ]
    epoch, batch = divmod(progress.step, steps_per_epoch)
    settings = {
        "x": training_batches(data.train, config.batch_tokens, config.seed, epoch, batch),
        "validation_data": evaluation_batches(data.validation, config.batch_tokens),
        "callbacks": callbacks,
        "shuffle": False,  # the data shuffles itself
    }
    try:
        if batch:  # the rest of an epoch that was interrupted
            rest = steps_per_epoch - batch
            trainer.fit(initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=rest, **settings)
            epoch += 1
            settings["x"] = training_batches(data.train, config.batch_tokens, config.seed, epoch)
        if progress.step < last_step:
            trainer.fit(initial_epoch=epoch, epochs=config.epochs, steps_per_epoch=steps_per_epoch, **settings)
    except KeyboardInterrupt:
        # It mostly comes when TensorFlow hands back to Python: after an update, before any callback has counted it.
        progress.step = max(progress.step, int(keras.ops.convert_to_numpy(trainer.optimizer.iterations)))
        keep.save_state()
        print(f"\nstopped after update {progress.step:,} of {last_step:,}; saved. The same command goes on from here.")
        raise
    finally:
        for writer in writers.values():
            writer.close()


def resolved(config, data):
    """All settings with what "auto" and None came to, a dict."""
    return {
        **asdict(config),
        "source_lang": data.corpus.source_lang,
        "target_lang": data.corpus.target_lang,
        "vocabulary_size": data.tokenizer.vocabulary_size,
        "peak_learning_rate": peak_rate(config),
        "precision": resolve_precision(config.precision),
    }


def restore(run, trainer):
    """Loads last.npz into the trainer, if there is one, and returns the `Progress` of it."""
    if not run.last.exists():
        return Progress()
    progress = Progress(**load_variables(run.last, resumable_variables(trainer)))
    print(f"resuming    after update {progress.step:,}", flush=True)
    return progress


def validation_pairs(config, data):
    """The first `validation_sentences` pairs of the validation split that are not blank, a list."""
    filled = (pair for pair in data.corpus.validation if pair[0].strip() and pair[1].strip())
    return list(itertools.islice(filled, config.validation_sentences))


def finish(config, run, data):
    """Averages the weights of the last epochs into model.keras, in float32, free of all training state."""
    samples = [source for source, _ in validation_pairs(config, data)[:SAMPLE_SENTENCES]]
    run.samples.write_text("\n".join(samples), encoding="utf-8")
    transformer = make_transformer(config, data.tokenizer.vocabulary_size, "float32")
    epochs = run.epochs()[-config.average_epochs :]
    average_variables(epochs, transformer.weights)
    write_atomically(run.model, transformer.save)
    write_embedding(run.logs / "train", transformer.embedding.matrix, data.tokenizer)
    print(f"finished    {run.model}, the average of {len(epochs)} epochs")
