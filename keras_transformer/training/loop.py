"""A training run from config to finished model, in the order in which things happen."""

import hashlib
import math
import sys
from dataclasses import asdict

import keras
import numpy as np
import tensorflow as tf
import yaml

from keras_transformer.data.cache import INDEX
from keras_transformer.data.pipeline import count_batches, dealt, evaluation_batches, make_batch, training_batches
from keras_transformer.data.subword_dropout import SubwordDropout
from keras_transformer.model import Transformer
from keras_transformer.training.callbacks import (
    CountSteps,
    KeepWeights,
    SaveState,
    ValidationBleu,
    resumable_variables,
)
from keras_transformer.training.checkpoints import (
    CheckpointError,
    average_variables,
    load_each,
    load_last,
    write_atomically,
)
from keras_transformer.training.event_files import EventWriter, forget_after
from keras_transformer.training.heat_maps import AlignmentPictures
from keras_transformer.training.optimizer import Adam
from keras_transformer.training.origin import open_origin
from keras_transformer.training.preparation import validation_pairs
from keras_transformer.training.progress import Plan, Progress
from keras_transformer.training.progress_bar import ProgressBar
from keras_transformer.training.projector import write_embedding
from keras_transformer.training.recovery import Recover
from keras_transformer.training.schedules import InverseSquareRoot, paper_peak_rate
from keras_transformer.training.signals import HeldSignals
from keras_transformer.training.strategy import POLICIES, resolve_precision, vary_seeds
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.tensorboard import Profile, TensorBoardCurves, write_hyper_parameters
from keras_transformer.training.workers import Workers

SAMPLE_SENTENCES = 32
PICTURES = 4  # of the alignment of validation pairs


def make_transformer(config, vocabulary_size, policy):
    """The Transformer that the config describes, with new weights."""
    return Transformer(vocabulary_size, **config.model_arguments(), dtype=policy, name="transformer")


def build_trainer(config, vocabulary_size):
    """The Transformer with its loss and optimizer (sections 5.3 and 5.4), compiled."""
    policy = POLICIES[resolve_precision(config.precision)]
    transformer = make_transformer(config, vocabulary_size, policy)
    trainer = TeacherForcing(transformer, config.label_smoothing, config.accumulate_steps)
    schedule = InverseSquareRoot(peak_rate(config), config.warmup_steps)
    optimizer = Adam(schedule, ema_decay=config.ema_decay, scale_losses=policy == "mixed_float16")
    trainer.compile(optimizer=optimizer, auto_scale_loss=False, jit_compile=False)
    trainer.optimizer.build(trainer.trainable_variables)
    print(f"model       {transformer.count_params():,} parameters, {config.preset}, {policy}", flush=True)
    return trainer


def peak_rate(config):
    """The learning rate at the end of the warm-up: the config's, or that of equation (3)."""
    return config.peak_learning_rate or paper_peak_rate(config.d_model, config.warmup_steps)


def fit(config, run, data, trainer, translate, score):
    """Trains to the end of the last epoch, or from where an earlier run of the same command stopped.

    SIGINT and SIGTERM do what they did before, but not before the update under way is done and saved.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        trainer: compiled `TeacherForcing`.
        translate: function from a list of str to their translations with the trainer's weights, for validation BLEU.
        score: function (translations, references) -> BLEU.

    Returns:
        int, the number of the last epoch, counted from 1.

    Raises:
        CheckpointError: if the checkpoints there cannot be used, or something cannot be written.
    """
    plan = make_plan(config, data)
    progress = restore(config, run, trainer, plan)
    workers = Workers(trainer.distribute_strategy)
    workers.check_equal(facts(config, run, data, progress))
    vary_seeds(trainer.transformer.variables, workers.first_replica)
    if plan.is_over(progress):
        return plan.epoch(progress.ended)
    forget_after(run.logs / "train", progress.step)
    forget_after(run.logs / "validation", progress.ended)
    write_hyper_parameters(run.logs / "validation", resolved(config, data))
    writers = {name: EventWriter(run.logs / name) for name in ("train", "validation")}
    with writers["train"].as_default(step=progress.step):
        tf.summary.text("config", "\n".join(f"    {name}: {value}" for name, value in resolved(config, data).items()))
    signals = HeldSignals()
    save = SaveState(run, progress, plan, config.save_minutes, signals, workers.anywhere)
    pictured = make_batch(data.validation, np.arange(min(PICTURES, len(data.validation))))
    callbacks = [
        CountSteps(progress, plan),
        Recover(run, progress),
        ValidationBleu(translate, score, validation_pairs(config, data), writers["validation"], progress),  # adds a log
        TensorBoardCurves(writers, progress, len(data.train.target.ids) + len(data.train)),  # and an eos each
        KeepWeights(run, progress, config.average_epochs, config.best_by),
        AlignmentPictures(pictured, data.tokenizer, writers["validation"], progress),
        *([Profile(run.logs / "train", progress, *config.profiled_updates())] if config.profile else []),
        ProgressBar(),  # it shows the logs that others add
        save,  # last: of all that the others have done
    ]
    try:
        train(config, data, trainer, callbacks, plan, progress)
        for writer in writers.values():
            writer.close()
    except (KeyboardInterrupt, SystemExit, tf.errors.OpError):  # the last when another worker is lost
        print(
            f"\nstopped: update {save.saved_step:,} of {plan.last_step:,} is saved; the same command goes on from there"
        )
        raise
    except OSError as error:
        raise CheckpointError(f"{error}. The same command goes on after update {save.saved_step:,}") from error
    finally:
        signals.restore()
    return plan.epoch(progress.ended)


def facts(config, run, data, progress):
    """What has to be the same on all workers, a dict."""
    tokens = [(run.tokens / split / INDEX).read_text(encoding="utf-8") for split in ("train", "validation")]
    return {
        **resolved(config, data),
        "corpus": hashlib.sha256("".join(tokens).encode()).hexdigest()[:12],
        "update": progress.step,
    }


def make_plan(config, data):
    """The `Plan` of a run. Its epochs are all of equal length: where the batches of a pass over the corpus are no
    multiple of `accumulate_steps`, the last update of an epoch takes a few from the next pass."""
    steps_per_epoch = math.ceil(count_batches(data.train, config.batch_tokens) / config.accumulate_steps)
    last_step = min(config.epochs * steps_per_epoch, config.max_steps or sys.maxsize)
    return Plan(steps_per_epoch, last_step, config.patience)


def train(config, data, trainer, callbacks, plan, progress):
    """Updates and validates until the plan is over: what is left of the epoch under way, then whole epochs."""
    strategy = trainer.distribute_strategy
    validation = dealt(evaluation_batches(data.validation, config.batch_tokens), strategy)
    validation_steps = count_batches(data.validation, config.batch_tokens)
    if plan.ends_epoch(progress.step) and progress.ended < progress.step:
        end_epoch(trainer, callbacks, plan.epoch(progress.step) - 1, validation, validation_steps)
    rate = config.subword_dropout_rate
    vary = SubwordDropout(data.tokenizer.model, rate) if rate else None
    while not plan.is_over(progress):
        epoch, done = divmod(progress.step, plan.steps_per_epoch)
        position = divmod(progress.step * config.accumulate_steps, count_batches(data.train, config.batch_tokens))
        batches = training_batches(data.train, config.batch_tokens, config.seed, *position, vary=vary)
        trainer.fit(
            dealt(batches, strategy),
            initial_epoch=epoch,
            epochs=epoch + 1 if done else config.epochs,
            steps_per_epoch=plan.steps_per_epoch - done,
            validation_data=validation,
            validation_steps=validation_steps,
            callbacks=callbacks,
            shuffle=False,  # the data shuffles itself
        )
    if plan.has_lost_patience(progress):
        print(f"stopped     no better {config.best_by} since epoch {progress.best_epoch}")


def end_epoch(trainer, callbacks, epoch, validation, validation_steps):
    """What `fit` does after the last update of `epoch`, counted from 0, for a run that was stopped just then."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=trainer)
    callbacks.on_epoch_begin(epoch)
    logs = trainer.get_metrics_result()
    measures = trainer.evaluate(validation, steps=validation_steps, return_dict=True)
    callbacks.on_epoch_end(epoch, {**logs, **{f"val_{name}": value for name, value in measures.items()}})


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


def restore(config, run, trainer, plan):
    """Loads the last checkpoint into the trainer, or the weights to start from, and returns the `Progress`."""
    if not run.has_checkpoint():
        if origin := open_origin(config, run):
            origin.load(trainer.transformer, run.tokenizer)
        return Progress()
    progress = Progress(**load_last(run, resumable_variables(trainer)))
    for later in run.epochs():  # there are some where last.npz was damaged
        if later > run.epoch(plan.epoch(progress.step)):
            later.unlink()
    print(f"resuming    after update {progress.step:,}", flush=True)
    return progress


def finish(config, run, data, last_epoch):
    """Averages the weights of the last epochs into model.keras, in float32, free of all training state.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        last_epoch: int, its number as `fit` returns it.

    Raises:
        CheckpointError: if the weights of no epoch can be read, or something cannot be written.
    """
    samples = [source for source, _ in validation_pairs(config, data)[:SAMPLE_SENTENCES]]
    write_atomically(run.samples, lambda path: path.write_text("\n".join(samples), encoding="utf-8"))
    transformer = make_transformer(config, data.tokenizer.vocabulary_size, "float32")
    epochs = [run.epoch(number) for number in range(max(1, last_epoch - config.average_epochs + 1), last_epoch + 1)]
    if config.ema_decay is None:
        what = f"the average of {average_variables(epochs, transformer.weights)} epochs"
    else:
        newest = next(load_each(reversed(epochs), transformer.weights))
        what = f"the exponential average at the end of {newest.stem.replace('_', ' ')}"
    run.results.unlink(missing_ok=True)  # those of the model before
    write_atomically(run.model, transformer.save)
    write_embedding(run.logs / "train", transformer.embedding.matrix, data.tokenizer)
    print(f"finished    {run.model}, {what}")


def write_results(config, run, data, split, evaluation):
    """Keeps what the finished model scores, and how, in results.yaml.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        split: "test" or "validation".
        evaluation: `Evaluation` of it, with the config's beam size and length penalty.
    """
    results = {
        "source_lang": data.corpus.source_lang,
        "target_lang": data.corpus.target_lang,
        "set": split,
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        **asdict(evaluation),
    }
    text = yaml.safe_dump(results, sort_keys=False)
    write_atomically(run.results, lambda path: path.write_text(text, encoding="utf-8"))
