"""A training run from config to finished model, in the order in which things happen: `train` names every stop."""

import contextlib
import logging
import math
import random

import keras
import tensorflow as tf

from keras_transformer.data.corpora import kind_of
from keras_transformer.data.pipeline import Undivided, count_batches, training_batches, validation_batches
from keras_transformer.errors import CheckpointError, ToolError
from keras_transformer.files import write_whole
from keras_transformer.models import MODELS
from keras_transformer.private_api import without_lasting_gradients
from keras_transformer.process import find_tool, random_as_before, share_cores
from keras_transformer.training.adapters import add_adapters
from keras_transformer.training.checkpoints import load_last, load_network, load_variables, save_variables
from keras_transformer.training.decide import (
    POLICIES,
    Begun,
    Judge,
    Machine,
    decide,
    describe_devices,
    start_devices,
    surely_fits,
)
from keras_transformer.training.final_score import score_model
from keras_transformer.training.losses import make_loss
from keras_transformer.training.preparation import open_origin, prepare, write_samples
from keras_transformer.training.run_directory import RunDirectory, epoch_number
from keras_transformer.training.teacher_forcing import TeacherForcing, vary_seeds
from keras_transformer.training.updates import make_optimizer, make_schedule
from keras_transformer.training.watchers import Progress, watched

log = logging.getLogger(__name__)
# Settings that change the pairs of a batch.
VARIED = ("protect", "title_case", "upper_case", "typos", "noise", "subword_dropout_rate")


@random_as_before()
@without_lasting_gradients()
def train(config, evaluate, choose_tokenization, corpus=None, owns_process=False, callbacks=()):
    """Trains a model to the end, or from where an earlier run of the same command stopped, and scores it.

    Args:
        config: `Config`.
        evaluate: function (translations, references, `tokenize`, `target_lang`) -> `Evaluation`.
        choose_tokenization: function (references, `target_lang`) -> what `tokenize` "auto" stands for.
        corpus: `Corpus`; by default the one that `config.dataset` names.
        owns_process: whether this process does nothing else, and its CPU cores can be divided.
        callbacks: Keras callbacks of a user, which Keras calls after those of the run. Only the first worker has them.

    Returns:
        (`RunDirectory`, name of the set that was scored, its `Evaluation`), or None on a worker that is not the first.

    Raises:
        UserError: for everything that the user can mend.
    """
    check_first(config, evaluate)
    owns_process = owns_process and can_wait(config)
    group = Alone()
    if config.strategy == "multi_worker":
        group = find_tool("workers", "`strategy` multi_worker").Workers.meet(config.workers)
    with group.ending_together():
        run = group.run_directory(config)
        with run.claimed():
            # The data, and all decisions
            begun = group.begun(run)
            asked = begun.completed(config)
            data = group.prepare(asked, run, corpus)
            machine = Machine.here(owns_process and group.strategy is None)
            config, data, plan, decided = decide(asked, data, machine, begun)
            strategy = group.strategy or start_devices(config, plan, machine)
            decided["replicas"] = strategy.num_replicas_in_sync
            log.info("devices     %s", describe_devices(strategy))
            log.info("plan        %s", plan.describe(config))

            # The model
            check_memory(config, data, strategy, machine)
            with strategy.scope(), initial_weights_of(config.seed):
                trainer = build_trainer(config, data, plan)
            log.info("model       %s", describe_model(trainer.network, config))
            progress = restore(config, run, trainer, plan)
            group.check_equal(run, decided, data.corpus, progress.step)
            run.keep_settings(asked)
            run.keep_decided({**begun.decided, **decided})
            run.keep_architecture(trainer.network)
            write_samples(config, run, data)
            vary_seeds(trainer.seeds, group.first_replica)

            # The loop, which validates and saves
            judge = Judge(config, run, evaluate, choose_tokenization)
            if plan.is_over(progress):
                log.info("complete    %s; more `epochs` would go on", plan.describe_end(progress))
            else:
                forget_results(run)
                with watched(config, run, data, trainer, plan, progress, group, judge) as own:
                    others = callbacks if group.is_chief else ()
                    update_and_validate(config, data, trainer, [*own, *others], plan, progress)
            if not group.is_chief:
                return None
            finish(config, run)
            return run, *score_model(config, run, data, judge)


class Alone:
    """The only process of a training. `Workers` has the same methods for several that train together."""

    is_chief = True
    first_replica = 0
    strategy = None
    ending_together = contextlib.nullcontext

    def run_directory(self, config):
        """The `RunDirectory` of this process."""
        return RunDirectory(config.model_dir)

    def begun(self, run):
        """`Begun.of`."""
        return Begun.of(run)

    def prepare(self, config, run, corpus=None):
        """`prepare`."""
        return prepare(config, run, corpus)

    def anywhere(self, *flags):
        """The flags of all processes: those of this one."""
        return flags

    def share(self, translate):
        """A function like `translate`, whose texts all processes divide."""
        return translate

    def check_equal(self, *facts):
        """Nobody differs."""


def check_memory(config, data, strategy, machine):
    """Raises ConfigError if the training needs more memory than there is. Without its tool, nothing is estimated."""
    with contextlib.suppress(ToolError):
        available, _ = find_tool("planning.available", "an estimate of memory").available_memory()
        if machine.gpus or not surely_fits(config, data.target_tokenizer.vocabulary_size, available):
            planning = find_tool("planning.memory", "an estimate of memory")
            planning.check_fits(planning.estimate(config, data, strategy, outline(config, data)))


@contextlib.contextmanager
def initial_weights_of(seed):
    """A context in which Keras draws initial weights and the seeds of dropout from `seed`."""
    with random_as_before():
        random.seed(seed)  # keras.utils.set_random_seed would empty TensorFlow's cache of kernels
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
    model_class = next(model for model in MODELS if config.architecture in model.architectures)
    network = model_class.from_settings(config, **sizes, dtype=policy, name=config.architecture)
    if config.lora_rank:
        add_adapters(network, config.lora_rank)
    return network


def can_wait(config):
    """Whether cores are shared out when sizes of batches are known. For a corpus that starts TensorFlow, it does so."""
    if starts := any(kind and kind.starts_tensorflow for kind in map(kind_of, config.corpora)):
        share_cores(config.strategy, config.batch_tokens or config.of_preset("batch_tokens"))
    return not starts


def describe_model(network, config):
    """A line for people: the numbers in the weights, those of adapters if they alone are trained, and the precision."""
    numbers, adapters = network.count_params(), ""
    if config.lora_rank:
        trained = sum(math.prod(weight.shape) for weight in network.trainable_weights)
        numbers, adapters = numbers - trained, f", {trained:,} of its adapters are trained"
    return f"{numbers:,} parameters{adapters}, {config.preset}, {POLICIES[config.precision]}"


def outline(config, data):
    """The model of `make_network` in a graph that never runs: its weights have shapes and take no memory."""
    with tf.Graph().as_default():
        return make_network(config, data, "float32")


def build_trainer(config, data, plan):
    """The model with its loss and optimizer (sections 5.3 and 5.4), compiled.

    Args:
        config: `Config`, as decided.
        data: `Data`.
        plan: `Plan`.
    """
    network = make_network(config, data, POLICIES[config.precision])
    trainer = TeacherForcing(
        network, config.accumulate_steps, config.clip_norm, config.ema_decay, config.scheduled_sampling_rate
    )
    schedule = make_schedule(config.schedule, config.peak_learning_rate, config.warmup_steps, plan.last_step)
    trainer.compile(make_optimizer(config.optimizer, schedule, config.weight_decay), make_loss(config))
    return trainer


def restore(config, run, trainer, plan):
    """Loads the last checkpoint into the trainer, or the weights to start from, and returns the `Progress`.

    Raises:
        CheckpointError: if the checkpoints cannot be used, or the run has lost its decisions.
    """
    frozen = trainer.network.non_trainable_weights if config.lora_rank else []
    if not run.has_checkpoint():
        for left in run.epochs():  # of a run whose checkpoints were removed
            left.unlink()
        if origin := open_origin(config, run):
            origin.load(trainer.network, run.tokenizer_files(config.has_one_tokenizer))
        if frozen:
            save_variables(run.frozen, frozen)
        return Progress()
    if frozen:
        load_variables(run.frozen, frozen)
    saved = load_last(run, trainer.resumable_variables)
    if saved.get("has_decisions") and not run.decided.exists():
        raise CheckpointError(f"checkpoints without their {run.decided}: put it back, or choose another `model_dir`")
    progress = Progress.of(saved)
    for later in run.epochs():  # if last.npz was damaged, there are later ones
        if later > run.epoch(plan.epoch(progress.step)):
            later.unlink()
    log.info("resuming    after update %s", f"{progress.step:,}")
    return progress


def forget_results(run):
    """Removes the finished model and its score: the run goes on, or averages other epochs."""
    for outdated in (run.model, run.results):
        outdated.unlink(missing_ok=True)


def update_and_validate(config, data, trainer, callbacks, plan, progress):
    """Updates and validates until the plan is over: first the rest of an interrupted epoch, then whole epochs.

    Args:
        config: `Config`.
        data: `Data`.
        trainer: compiled `TeacherForcing`.
        callbacks: those of `watched`, and the user's.
        plan: `Plan`.
        progress: `Progress`, which the callbacks move on.
    """
    validation, validation_steps = validation_batches(data.validation, config.batch_tokens)
    if plan.ends_epoch(progress.step) and progress.ended < progress.step:
        end_epoch(trainer, callbacks, plan.epoch(progress.step) - 1, validation, validation_steps)
    vary = variation(config, data, plan.last_step * config.accumulate_steps)
    while not plan.is_over(progress):
        epoch, done = divmod(progress.step, plan.steps_per_epoch)
        position = divmod(progress.step * config.accumulate_steps, count_batches(data.train, config.batch_tokens))
        batches = training_batches(data.train, config.batch_tokens, config.seed, *position, vary=vary)
        trainer.fit(
            Undivided(batches),
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


def check_first(config, evaluate):
    """Finds a missing tool and a wrong `tokenize` before the long work. Raises UserError."""
    variation_tool(config)
    if config.tokenize != "auto":
        evaluate(["1 2 3 4"], ["1 2 3 4"], tokenize=config.tokenize, target_lang=None)


def variation_tool(config):
    """The tool that changes the text of pairs; None if no setting asks for it. Raises ToolError if it is missing."""
    asked = next((name for name in VARIED if getattr(config, name)), None)
    return asked and find_tool("variation", f"`{asked}`")


def variation(config, data, batches):
    """What changes the pairs of a training batch: a function for `training_batches`, or None.

    Args:
        config: `Config`.
        data: `Data`.
        batches: int, the batches of the whole run.
    """
    tool = variation_tool(config)
    return tool and tool.change_of(config, data, batches)


def end_epoch(trainer, callbacks, epoch, validation, validation_steps):
    """Ends `epoch`, counted from 0, as Keras' `fit` does: for a run that was stopped just after its last update."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=trainer)
    callbacks.on_epoch_begin(epoch)
    logs = trainer.get_metrics_result()
    measures = trainer.evaluate(validation, steps=validation_steps, return_dict=True, verbose=0)
    callbacks.on_epoch_end(epoch, {**logs, **{f"val_{name}": value for name, value in measures.items()}})


def finish(config, run):
    """Writes model.keras: the average of the last epochs, in float32, free of all training state.

    Args:
        config: `Config`.
        run: `RunDirectory`.

    Raises:
        CheckpointError: if the weights of no epoch can be read, or something cannot be written.
    """
    network, paths = load_network(run, is_new=True)
    run.results.unlink(missing_ok=True)  # the score is of the model that is replaced
    what = "the exponential average at the end" if config.ema_decay else "the average"
    numbers = ", ".join(str(epoch_number(path)) for path in paths)
    write_whole(run.model, network.save)
    log.info("finished    %s, %s of epoch%s %s", run.model, what, "s" if len(paths) > 1 else "", numbers)
