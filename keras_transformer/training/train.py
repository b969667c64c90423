"""A training run from config to finished model, in the order in which things happen: `train` names every stop."""

import contextlib
import functools
import hashlib
import logging
import random
from dataclasses import asdict, replace
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.data.encoded import INDEX
from keras_transformer.data.full_stops import load_known
from keras_transformer.data.pipeline import count_batches, dealt, make_batch, training_batches
from keras_transformer.data.protected_pairs import PairProtection
from keras_transformer.data.subword_dropout import SubwordDropout
from keras_transformer.data.typed_text import CHANGES, TypedPairs
from keras_transformer.errors import CheckpointError, FileError
from keras_transformer.files import write_whole
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer
from keras_transformer.process import random_as_before
from keras_transformer.training.callbacks import (
    CountSteps,
    HeldSignals,
    KeepWeights,
    Progress,
    Recover,
    SaveState,
)
from keras_transformer.training.checkpoints import keep_architecture, load_last, load_network
from keras_transformer.training.final_score import score_model
from keras_transformer.training.losses import make_loss
from keras_transformer.training.memory import check_fits, estimate
from keras_transformer.training.plan import as_before, make_plan, peak_rate, suited
from keras_transformer.training.preparation import open_origin
from keras_transformer.training.progress import ShowProgress
from keras_transformer.training.run_directory import epoch_number
from keras_transformer.training.schedules import make_schedule
from keras_transformer.training.strategy import (
    POLICIES,
    Workers,
    decoding_strategy,
    describe_devices,
    make_strategy,
    prepare_on_all,
    resolve_precision,
    run_directory,
    vary_seeds,
)
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.tensorboard import (
    AlignmentPictures,
    EventWriter,
    Profile,
    TensorBoardCurves,
    forget_after,
    write_embedding,
    write_hyper_parameters,
)
from keras_transformer.training.updates import make_optimizer
from keras_transformer.training.validation import validation_batches, validation_bleu, validation_pairs
from keras_transformer.translation.translator import Translator

log = logging.getLogger(__name__)
WITH_SUBWORD_DROPOUT = 0.9  # the share of a run, from its start, that has subword dropout
SAMPLE_SENTENCES, PICTURES = 32, 4  # for the proof of an export; alignments of validation pairs


@random_as_before()
def train(config, evaluate, corpus=None):
    """Trains a model to the end, or from where an earlier run of the same command stopped, and scores it.

    Args:
        config: `Config`.
        evaluate: function (translations, references, `tokenize`, `target_lang`) -> `Evaluation`.
        corpus: `Corpus`; by default the one that `config.dataset` names.

    Returns:
        (`RunDirectory`, name of the set that was scored, its `Evaluation`), or None on a worker that is not the first.

    Raises:
        UserError: for everything that the user can mend.
    """
    strategy = make_strategy(config.strategy, config.workers)
    workers = Workers(strategy)
    with workers.ending_together():
        run = run_directory(config, workers)
        with run.claimed():
            log.info("devices     %s", describe_devices(strategy))
            data = prepare_on_all(config, run, workers, corpus)
            config, data = suited(as_before(config, run), data)
            evaluate = partial(evaluate, tokenize=config.tokenize, target_lang=data.corpus.target_lang)
            check_fits(estimate(config, data, strategy, outline(config, data)))
            with strategy.scope(), initial_weights_of(config.seed):
                trainer = build_trainer(config, data)
            keep_architecture(run, trainer.network)
            greedy = Translator(
                trainer.network,
                *data.tokenizers,
                beam_size=1,
                max_length=config.max_length,
                batch_size=64,
                strategy=decoding_strategy(strategy),
                split_sentences=config.split_sentences,
                known=load_known(run.full_stops),
                tags=data.languages,
            )
            fit(config, run, data, trainer, workers.share(greedy.translate), evaluate)
            if not workers.is_chief:
                return None
            finish(config, run, data)
            return run, *score_model(config, run, data, evaluate)


@contextlib.contextmanager
def initial_weights_of(seed):
    """A context in which Keras draws initial weights and the seeds of dropout from `seed`."""
    with random_as_before():
        random.seed(seed)  # keras.utils.set_random_seed would break tokenizers made before
        yield


def make_network(config, data, policy):
    """The model that the config describes, with new weights.

    Args:
        config: `Config`.
        data: `Data`, whose tokenizers have the sizes of the vocabularies.
        policy: name of the dtype policy.
    """
    sizes = {"vocabulary_size": data.source_tokenizer.vocabulary_size}
    if not config.share_vocabulary:
        sizes["target_vocabulary_size"] = data.target_tokenizer.vocabulary_size
    model_class = next(model for model in (Transformer, RecurrentNetwork) if config.architecture in model.architectures)
    return model_class.from_settings(config, **sizes, dtype=policy, name=config.architecture)


def outline(config, data):
    """The model of `make_network` in a graph that never runs: its weights have shapes and take no memory."""
    with tf.Graph().as_default():
        return make_network(config, data, "float32")


def build_trainer(config, data):
    """The model with its loss and optimizer (sections 5.3 and 5.4), compiled, from `Config` and `Data`."""
    policy = POLICIES[resolve_precision(config.precision)]
    network = make_network(config, data, policy)
    trainer = TeacherForcing(
        network,
        config.accumulate_steps,
        config.clip_norm,
        config.ema_decay,
        config.scheduled_sampling_rate,
    )
    last_step = make_plan(config, data).last_step
    schedule = make_schedule(config.schedule, peak_rate(config, config.warmup_steps), config.warmup_steps, last_step)
    optimizer = make_optimizer(config.optimizer, schedule, config.weight_decay)
    trainer.compile(optimizer, make_loss(config))
    return trainer


def describe_model(config, parameters):
    """The number of parameters, the preset and the dtype policy, three str."""
    return f"{parameters:,}", config.preset, POLICIES[resolve_precision(config.precision)]


def fit(config, run, data, trainer, translate, evaluate):
    """Trains to the end of the last epoch, or from where an earlier run of the same command stopped.

    SIGINT and SIGTERM wait until the update under way is done and saved.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.
        trainer: compiled `TeacherForcing`.
        translate, evaluate: functions for validation BLEU, see `validation_bleu`.

    Raises:
        CheckpointError: if the checkpoints there cannot be used, or something cannot be written.
    """
    plan = make_plan(config, data)
    log.info("plan        %s", plan.describe(config))
    log.info("model       %s parameters, %s, %s", *describe_model(config, trainer.network.count_params()))
    progress = restore(config, run, trainer, plan)
    workers = Workers(trainer.distribute_strategy)
    workers.check_equal(facts(config, run, data, progress))
    vary_seeds(trainer.seeds, workers.first_replica)
    if plan.is_over(progress):
        log.info("complete    %s; more `epochs` would go on", plan.describe_end(progress))
        return
    announce_new_cycle(config, progress, plan)
    write_samples(config, run, data)
    for outdated in (run.model, run.results):  # of a run that was finished, and goes on
        outdated.unlink(missing_ok=True)
    forget_after(run.logs / "train", progress.step)
    forget_after(run.logs / "validation", progress.ended)
    write_hyper_parameters(run.logs / "validation", resolved(config, data))
    writers = {name: EventWriter(run.logs / name) for name in ("train", "validation")}
    with writers["train"].as_default(step=progress.step):
        tf.summary.text("config", "\n".join(f"    {name}: {value}" for name, value in resolved(config, data).items()))
    signals, shown, recover = HeldSignals(), ShowProgress(progress, plan), Recover(run, progress)
    save = SaveState(run, progress, plan, config.save_minutes, signals, recover.examine, workers.anywhere)
    validation = writers["validation"]
    measures = validation_bleu(config, data, translate, evaluate, trainer.distribute_strategy, validation, progress)
    pictured = np.arange(min(PICTURES, len(data.validation)))
    pictures = (*make_batch(data.validation, pictured), data.tokenizers, validation, progress)
    callbacks = [  # Keras calls them in this order
        CountSteps(progress, plan),  # first: the others read the number of the update
        recover,  # before weights are measured or saved, which it may take back
        *measures,  # they add val_bleu, and measures to show
        TensorBoardCurves(writers, progress, tokens_per_epoch(data, config, plan), points_every(plan)),  # adds a speed
        KeepWeights(run, progress, config.average_epochs, config.patience, config.best_by),  # reads val_bleu
        AlignmentPictures(*pictures, data.validation.first_ids(pictured)),  # anywhere
        *([Profile(run.logs / "train", progress, *config.profiled_updates())] if config.profile else []),  # anywhere
        shown,  # after the callbacks that add to the logs
        save,  # last: it saves what the others have noted in `progress`, and then lets held signals through
    ]
    try:
        update_and_validate(config, data, trainer, callbacks, plan, progress)
        for writer in writers.values():
            writer.close()
    except (KeyboardInterrupt, SystemExit, tf.errors.OpError):  # OpError: another worker is lost
        log.info(
            "stopped     update %s of %s is saved; the same command goes on from there",
            f"{save.saved_step:,}",
            f"{plan.last_step:,}",
        )
        raise
    except FileError as error:
        raise CheckpointError(f"{error}. The same command goes on after update {save.saved_step:,}") from error
    finally:
        shown.close()
        signals.restore()


def tokens_per_epoch(data, config, plan):
    """Real target tokens of an epoch, on average."""
    batches = plan.steps_per_epoch * config.accumulate_steps
    return data.train.tokens_per_epoch * batches / count_batches(data.train, config.batch_tokens)


def announce_new_cycle(config, progress, plan):
    """Says that the learning rate rises again if a run with a schedule that falls to 0 goes on for longer than planned.

    The schedule then falls to 0 at the new end. So the rate of the next update is that of a run planned like this.
    """
    before, progress.last_step = progress.last_step, plan.last_step
    if before not in (0, plan.last_step) and config.schedule != "inverse_square_root":
        log.info(
            "schedule    a new cycle: the learning rate was to reach 0 at update %s, and now does at %s",
            f"{before:,}",
            f"{plan.last_step:,}",
        )


def points_every(plan):
    """Updates between two points of the training curves: a short run has 20 points, too."""
    return min(50, max(1, plan.last_step // 20))


def facts(config, run, data, progress):
    """Everything that must be the same on all workers, a dict."""
    tokens = [(run.tokens / split / INDEX).read_text(encoding="utf-8") for split in ("train", "validation")]
    return {
        **resolved(config, data),
        **data.corpus.identity,
        "tokens": hashlib.sha256("".join(tokens).encode()).hexdigest()[:12],
        "update": progress.step,
    }


def update_and_validate(config, data, trainer, callbacks, plan, progress):
    """Updates and validates until the plan is over: first the rest of an interrupted epoch, then whole epochs."""
    strategy = trainer.distribute_strategy
    validation, validation_steps = validation_batches(config, data.validation, strategy)
    if plan.ends_epoch(progress.step) and progress.ended < progress.step:
        end_epoch(trainer, callbacks, plan.epoch(progress.step) - 1, validation, validation_steps)
    vary = variation(config, data, plan.last_step * config.accumulate_steps)
    while not plan.is_over(progress):
        epoch, done = divmod(progress.step, plan.steps_per_epoch)
        position = divmod(progress.step * config.accumulate_steps, count_batches(data.train, config.batch_tokens))
        batches = training_batches(data.train, config.batch_tokens, config.seed, *position, vary=vary)
        trainer.fit(
            dealt(batches, strategy),
            initial_epoch=epoch,
            epochs=epoch + 1 if done else plan.epoch(plan.last_step),
            steps_per_epoch=plan.steps_per_epoch - done,
            validation_data=validation,
            validation_steps=validation_steps,
            callbacks=callbacks,
            shuffle=False,  # the data shuffles itself
            verbose=0,  # `ShowProgress` shows more
        )
    if plan.has_lost_patience(progress):
        log.info("stopped     no better validation %s since epoch %d", config.best_by, progress.best_epoch)


def variation(config, data, batches):
    """What changes the pairs of a training batch: a function for `training_batches`, or None.

    Args:
        config: `Config`.
        data: `Data`.
        batches: int, the batches of the whole run. The last tenth of them has no subword dropout, so the model ends
            with the pieces that it gets in translation.
    """
    models, steps = [tokenizer.model for tokenizer in data.tokenizers], []
    if config.protect:
        steps.append(PairProtection(data.train, *models, config.protect, config.max_length))
    if changes := [change(getattr(config, name)) for name, change in CHANGES.items() if getattr(config, name)]:
        steps.append(TypedPairs(*models, changes, config.max_length))
    rate = config.subword_dropout_rate
    if not steps and not rate:
        return None
    drops = [SubwordDropout(model, rate) for model in models] if rate else []

    def vary(pairs, rng, number):
        pairs = functools.reduce(lambda before, step: step(before, rng), steps, pairs)
        if not drops or number >= WITH_SUBWORD_DROPOUT * batches:
            return pairs
        source, target = (drop(side, rng) for drop, side in zip(drops, (pairs.source, pairs.target), strict=True))
        return replace(pairs, source=source, target=target)

    return vary


def end_epoch(trainer, callbacks, epoch, validation, validation_steps):
    """Ends `epoch`, counted from 0, as Keras' `fit` does: for a run that was stopped just after its last update."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=trainer)
    callbacks.on_epoch_begin(epoch)
    logs = trainer.get_metrics_result()
    measures = trainer.evaluate(validation, steps=validation_steps, return_dict=True, verbose=0)
    callbacks.on_epoch_end(epoch, {**logs, **{f"val_{name}": value for name, value in measures.items()}})


def resolved(config, data):
    """All settings, with the values found for "auto" and None, a dict."""
    return {
        **asdict(config),
        "dataset": ", ".join(config.corpora),
        "source_lang": data.corpus.source_lang,
        "target_lang": data.corpus.target_lang,
        "vocabulary_size": data.source_tokenizer.vocabulary_size,
        "peak_learning_rate": peak_rate(config, config.warmup_steps),
        "precision": resolve_precision(config.precision),
    }


def restore(config, run, trainer, plan):
    """Loads the last checkpoint into the trainer, or the weights to start from, and returns the `Progress`."""
    if not run.has_checkpoint():
        if origin := open_origin(config, run):
            origin.load(trainer.network, run.tokenizer_files(config.has_one_tokenizer))
        return Progress()
    progress = Progress(**load_last(run, trainer.resumable_variables))
    for later in run.epochs():  # if last.npz was damaged, there are later ones
        if later > run.epoch(plan.epoch(progress.step)):
            later.unlink()
    log.info("resuming    after update %s", f"{progress.step:,}")
    return progress


def write_samples(config, run, data):
    """Writes samples.txt, with which an export of the run is proven."""
    samples = [source for source, _ in validation_pairs(config, data.corpus)[:SAMPLE_SENTENCES]]
    write_whole(run.samples, lambda path: path.write_text("\n".join(samples), encoding="utf-8"))


def finish(config, run, data):
    """Writes model.keras: the average of the last epochs, in float32, free of all training state.

    Args:
        config: `Config`.
        run: `RunDirectory`.
        data: `Data`.

    Raises:
        CheckpointError: if the weights of no epoch can be read, or something cannot be written.
    """
    write_samples(config, run, data)
    for outdated in (run.model, run.results):  # an earlier start may have averaged other epochs
        outdated.unlink(missing_ok=True)
    network, paths = load_network(run)
    what = "the exponential average at the end" if config.ema_decay else "the average"
    numbers = ", ".join(str(epoch_number(path)) for path in paths)
    write_whole(run.model, network.save)
    write_embedding(run.logs / "train", network.output_matrix, data.target_tokenizer)
    log.info("finished    %s, %s of epoch%s %s", run.model, what, "s" if len(paths) > 1 else "", numbers)
