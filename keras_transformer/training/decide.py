"""What a run decides, once: its sizes, rate, length, precision, replicas, and the tokenization of its BLEU.

`decide` makes every decision, from the settings, the corpus and the machine. The run directory keeps them in
resolved.yaml. A later start keeps the sizes and the tokenization. Length, precision and replicas follow the new command
and the machine, and a line of the log says so.
"""

import functools
import logging
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import SUITED, Config
from keras_transformer.data.corpora import are_same
from keras_transformer.data.encoded import Share
from keras_transformer.data.pipeline import count_batches
from keras_transformer.errors import counted
from keras_transformer.process import available_cores, divide_cores, replicas_for
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.updates import paper_peak_rate
from keras_transformer.translation.segments import EXTRA_LENGTH

log = logging.getLogger(__name__)
FEWEST_UPDATES, FEWEST_PAIRS = 100, 64  # of an epoch, and of a batch, if `batch_tokens` is not set
LONGEST_WARMUP = 10  # a warm-up is at most this part of a run, if `warmup_steps` is not set
USUAL = 99.9  # percent of the pairs: the others may be wrong
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


class Machine(NamedTuple):
    """What a decision needs to know of the machine.

    Args:
        cores: CPU cores of this process.
        gpus: number of GPUs.
        devices: devices that TensorFlow computes on already; None where this process may divide its cores.
        has_bfloat16: whether the hardware multiplies bfloat16 fast.
    """

    cores: int
    gpus: int
    devices: int | None
    has_bfloat16: bool

    @classmethod
    def here(cls, owns_process):
        """This machine. With `owns_process`, TensorFlow has computed nothing yet, and its devices can be chosen."""
        gpus = tf.config.list_physical_devices("GPU")
        devices = None if owns_process and not gpus else len(tf.config.list_logical_devices("GPU" if gpus else "CPU"))
        return cls(available_cores(), len(gpus), devices, _multiplies_bfloat16(gpus))


def _multiplies_bfloat16(gpus):
    if gpus:
        return tf.config.experimental.get_device_details(gpus[0]).get("compute_capability", (0, 0))[0] >= 8
    cpu = Path("/proc/cpuinfo")
    words = set(cpu.read_text().split()) if cpu.exists() else set()
    # Without AMX, which a virtual machine may hide, an Intel processor multiplies float32 faster.
    return "amx_bf16" in words or {"avx512_bf16", "AuthenticAMD"} <= words


@dataclass(frozen=True)
class Plan:
    """When epochs end, and the run; and on how many replicas it trains.

    Args:
        steps_per_epoch: updates of every epoch.
        last_step: the last update of the run, which may be in the middle of an epoch.
        patience: epochs without a better validation measure after which the run ends early; None: it never does.
        replicas: models that train together on this machine, each on its share of every batch.
    """

    steps_per_epoch: int
    last_step: int
    patience: int | None = None
    replicas: int = 1

    def epoch(self, step):
        """The epoch of update `step`; both are counted from 1."""
        return math.ceil(step / self.steps_per_epoch)

    def ends_epoch(self, step):
        """Whether update `step` is the last one of its epoch, or of the run."""
        return step % self.steps_per_epoch == 0 or step >= self.last_step

    def has_lost_patience(self, progress):
        """Whether the best validation measure is older than `patience` epochs."""
        return self.patience is not None and self.epoch(progress.ended) - progress.best_epoch >= self.patience

    def describe(self, config):
        """The numbers of updates, for people. They say so if the run ends within its warm-up."""
        epochs = f"{counted(self.last_step, 'update')}, {self.steps_per_epoch:,} an epoch, of batches of at most "
        rate = f"learning rate {config.peak_learning_rate:.2g} after a warm-up of {config.warmup_steps:,}"
        text = f"{epochs}{config.batch_tokens:,} tokens; {rate}"
        if self.last_step <= config.warmup_steps:
            text += ". THE RUN ENDS WITHIN ITS WARM-UP and learns little: raise `epochs`, or lower `warmup_steps`"
        return text

    def describe_end(self, progress):
        """Why the run is over, for people."""
        epochs = f"update {progress.ended:,} in epoch {self.epoch(progress.ended)}"
        if progress.ended >= self.last_step:
            return f"the run has reached its last update, {epochs}"
        return f"the run has lost patience after {epochs}; the best one is {progress.best_epoch}"

    def is_over(self, progress):
        """Whether there is nothing left to train or to validate."""
        return progress.ended >= self.last_step or self.has_lost_patience(progress)


class Begun(NamedTuple):
    """What a run directory says of earlier starts.

    Args:
        config: `Config` of the last start; None where there was none.
        is_resumed: whether there is a checkpoint to go on from.
        decided: dict, the content of resolved.yaml; {} without a checkpoint, and for a run that began before this file.
    """

    config: Config | None
    is_resumed: bool
    decided: dict

    @classmethod
    def of(cls, run):
        """Reads a `RunDirectory`. Raises ConfigError or FileError for a damaged file."""
        config = Config.load(run.config) if run.config.exists() else None
        return cls(config, run.has_checkpoint(), run.read_decided() if run.has_checkpoint() else {})

    def completed(self, config):
        """The config with the sizes and the tokenization that the earlier command named and this one leaves out.

        If both name the same corpora, it has the names of the earlier command: files of the run begin with them.
        Without a checkpoint, the rest of the earlier command counts for nothing.
        """
        if self.config is None:
            return config
        names = [name for name in SUITED if getattr(config, name) is None]
        names += ["tokenize"] if config.tokenize == "auto" else []  # an earlier version had another default
        names = ["dataset"] * are_same(self.config.corpora, config.corpora) + names * self.is_resumed
        return replace(config, **{name: getattr(self.config, name) for name in names})


def languages_of(config):
    """The languages of pairs that do not say theirs.

    They are those of the settings, else those of the run that goes on, else the default of the run `init_from`.

    Args:
        config: `Config`.

    Returns:
        {"source_lang": str, "target_lang": str}, without those that nobody knows.
    """
    given = [(config.source_lang, config.target_lang)]
    runs = (RunDirectory(path) for path in (config.model_dir, config.init_from) if path)
    known = [*given, *(run.languages() for run in runs if run.has_checkpoint() or run.model.exists())]
    sides = {"source_lang": [pair[0] for pair in known], "target_lang": [pair[1] for pair in known]}
    return {name: next(filter(None, codes)) for name, codes in sides.items() if any(codes)}


def decide(config, data, machine, begun):
    """Decides everything that a run finds out at its start.

    An epoch has about 100 updates or more, of about 64 pairs or more. So a small corpus gets smaller batches than
    `batch_tokens` of the preset. A corpus of fewer than 6,400 pairs is read several times in an epoch. The preset
    gives the warm-up, which is at most a tenth of the run and does not change the peak of the learning rate.
    Smaller batches have gradients with more noise. So a peak that the user has not set falls with the square root of
    the size of a batch, as Adam needs it (Malladi et al. 2022). A run that goes on keeps these sizes, whatever its new
    end. Precision and replicas follow the machine.

    Args:
        config: `Config`.
        data: `Data`, whose shares have the weights of an epoch.
        machine: `Machine`.
        begun: `Begun`.

    Returns:
        `Config` with numbers for `batch_tokens`, `warmup_steps` and `peak_learning_rate`, and with a precision; `Data`
        whose epochs take as many pairs as they need; `Plan`; and all decisions, a dict for resolved.yaml.
    """
    fresh, before = sizes_of(config, data.train), begun.decided
    if begun.is_resumed and not before:
        before = decisions_of_467dcb2(begun.config, data.train)
    sizes = {name: before.get(name, size) for name, size in fresh.items()}
    passes, divided_for = sizes["passes"], before.get("divided_for", sizes["batch_tokens"])
    settings = {name: size for name, size in sizes.items() if name != "passes"}
    config = replace(config, **settings, precision=precision_of(config, machine))
    train = with_passes(data.train, passes)
    plan = make_plan(config, train, count_replicas(config.strategy, machine, divided_for))
    decided = {**sizes, "precision": config.precision, "steps_per_epoch": plan.steps_per_epoch}
    decided |= {"last_step": plan.last_step, "replicas": plan.replicas}
    decided |= {} if divided_for == config.batch_tokens else {"divided_for": divided_for}
    say_differences(before, decided, fresh, config.schedule)
    say_shares(data.corpus, train.shares)
    return config, replace(data, train=train), plan, facts_of(data) | decided


def say_shares(corpus, shares):
    """Says how many pairs of each corpus an epoch takes, if there are several corpora or the one has a weight."""
    if not corpus.others and corpus.weight == 1:
        return
    for each, share in zip((corpus, *corpus.others), shares, strict=True):
        counts = " or ".join(f"{count:,}" for count in sorted({share.fewest, share.most}))
        replayed = ", replayed" if each.is_replayed else ""
        log.info("epoch       takes %s from the %s of %s%s", counts, counted(share.size, "pair"), each.name, replayed)


def facts_of(data):
    """The languages, the vocabulary and the longest translations of a run, a dict; with tags, also all directions."""
    corpus = data.corpus
    found = {"source_lang": corpus.source_lang, "target_lang": corpus.target_lang}
    if data.languages:
        directions = [f"{source}-{target}" for source, target in corpus.directions]
        found |= {"tags": data.languages.place, "directions": directions}
    sizes = {"vocabulary_size": data.source_tokenizer.vocabulary_size, "extra_length": extra_length_of(data.train)}
    return {**found, **sizes}


def extra_length_of(pairs):
    """Most tokens that a translation may have more than its source: those of nearly all `EncodedPairs` have fewer."""
    source, target = pairs.lengths
    return max(EXTRA_LENGTH, int(np.percentile(target - source, USUAL, method="lower")))


def sizes_of(config, pairs):
    """The sizes of a new run, see `decide`.

    Args:
        config: `Config`.
        pairs: `EncodedPairs` for training, with the weights of their corpora.

    Returns:
        dict: `batch_tokens`, `peak_learning_rate`, `warmup_steps`, and `passes`, how often an epoch takes the pairs.
    """
    widths = np.maximum(*pairs.lengths)
    shares = pairs.shares or (Share(len(pairs)),)
    stops = np.cumsum([share.size for share in shares])
    sums = [int(part.sum()) for part in np.split(widths, stops[:-1])]
    taken = sum(share.size * share.weight for share in shares)
    tokens = sum(share.weight * total for share, total in zip(shares, sums, strict=True))
    most = config.of_preset("batch_tokens")
    return _sizes(config, pairs, taken, lambda passes: min(most, passes * tokens // _least_batches(config)))


def decisions_of_467dcb2(config, pairs):
    """The decisions of a run that began before resolved.yaml, so that it goes on with them.

    It counted a corpus as whole, whatever its weight. The cores were divided for the batches of the preset.

    Args:
        config: `Config` of the last start.
        pairs: as for `sizes_of`.

    Returns:
        dict: that of `sizes_of`, `last_step`, and `divided_for`, the size of a batch by which replicas were counted.
    """
    tokens = int(np.maximum(*pairs.lengths).sum())
    sizes = _sizes(config, pairs, len(pairs), lambda passes: passes * tokens // _least_batches(config))
    sized = replace(config, batch_tokens=sizes["batch_tokens"])
    last_step = make_plan(sized, with_passes(pairs, sizes["passes"])).last_step
    return {**sizes, "last_step": last_step, "divided_for": config.batch_tokens or config.of_preset("batch_tokens")}


def _sizes(config, pairs, taken, batch_of):
    """`sizes_of`, for an epoch that takes so many pairs; `batch_of` gives the size of a batch for some passes."""
    usual = config.batch_tokens or config.of_preset("batch_tokens")
    longest = config.warmup_steps or config.of_preset("warmup_steps")
    peak = config.peak_learning_rate or config.of_preset("peak_learning_rate")
    peak = peak or paper_peak_rate(config.d_model, longest)
    passes, batch_tokens = 1, usual
    if config.batch_tokens is None and count_batches(pairs, usual) < _least_batches(config):
        passes = math.ceil(FEWEST_PAIRS * _least_batches(config) / taken)
        batch_tokens = max(int(np.maximum(*pairs.lengths).max()), int(batch_of(passes)))
        if config.peak_learning_rate is None:
            peak *= min(1, batch_tokens / usual) ** 0.5
    warmup_steps = config.warmup_steps
    if warmup_steps is None:
        sized = replace(config, batch_tokens=batch_tokens)
        last_step = make_plan(sized, with_passes(pairs, passes)).last_step
        warmup_steps = min(longest, max(1, last_step // LONGEST_WARMUP))
    sizes = {"batch_tokens": batch_tokens, "peak_learning_rate": peak}
    return {**sizes, "warmup_steps": warmup_steps, "passes": passes}


def _least_batches(config):
    return FEWEST_UPDATES * config.accumulate_steps


def precision_of(config, machine):
    """The setting `precision`; for "auto" bfloat16 if the `Machine` multiplies it fast, else float32."""
    if config.precision != "auto":
        return config.precision
    return "bfloat16" if machine.has_bfloat16 else "float32"


def with_passes(pairs, passes):
    """The `EncodedPairs` of which an epoch takes each pair `passes` times as often."""
    if passes == 1:
        return pairs
    shares = pairs.shares or (Share(len(pairs)),)
    return replace(pairs, shares=tuple(Share(share.size, share.weight * passes) for share in shares))


def make_plan(config, pairs, replicas=1):
    """The `Plan` of a run, whose epochs are all of equal length: a pass over the corpus, or `validate_every` updates.

    If the batches of a pass over the corpus are no multiple of `accumulate_steps`, the last update of an epoch takes a
    few batches from the next pass.
    """
    steps_per_pass = math.ceil(count_batches(pairs, config.batch_tokens) / config.accumulate_steps)
    last_step = min(config.epochs * steps_per_pass, config.max_steps or sys.maxsize)
    return Plan(config.validate_every or steps_per_pass, last_step, config.patience, replicas)


def say_differences(before, now, fresh, schedule):
    """Logs what this start has otherwise than the run began with, and the sizes that a new run would have.

    Args:
        before: dict, the decisions of the last start; {} if there are none.
        now: dict, those of this start.
        fresh: dict, the sizes of a new run with this command.
        schedule: the setting.
    """
    for name, size in fresh.items():
        if before and size != now[name]:
            log.info("kept        `%s` %s, with which the run began; a new run would have %s", name, now[name], size)
    for name in ("precision", "replicas"):
        if name in before and before[name] != now[name]:
            log.info("changed     `%s` was %s and is %s, as this machine has it", name, before[name], now[name])
    old, new = before.get("last_step", now["last_step"]), now["last_step"]
    if old != new and schedule == "inverse_square_root":
        log.info("changed     the last update was %s and is %s, as this command says", f"{old:,}", f"{new:,}")
    elif old != new:  # the rate of the next update is that of a run that was planned like this
        log.info(
            "schedule    a new cycle: the learning rate was to reach 0 at update %s, and now does at %s",
            f"{old:,}",
            f"{new:,}",
        )


def count_replicas(strategy, machine, batch_tokens):
    """How many replicas train: one on each device, or on each core that a batch of so many tokens keeps busy."""
    return 1 if strategy == "one_device" else machine.devices or replicas_for(batch_tokens)


def start_devices(config, plan, machine):
    """The strategy of a `Plan` on this `Machine`, whose cores become devices where they may."""
    if machine.devices is None:
        divide_cores(plan.replicas)
    return make_strategy(config.strategy, plan.replicas)


def make_strategy(name, replicas):
    """The distribution strategy of a run on this machine. The cores become devices if they are not yet.

    Args:
        name: "mirrored": MirroredStrategy over all GPUs, or over all logical CPU devices where there is no GPU;
            "one_device": TensorFlow's default, the first of them; "auto": "mirrored" for several replicas, else
            "one_device", which spares the bookkeeping.
        replicas: int, of `Plan`.

    Returns:
        tf.distribute.Strategy.
    """
    if name == "one_device" or (name == "auto" and replicas == 1):
        return tf.distribute.get_strategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return mirrored(*(device.name for device in devices))


@functools.cache
def mirrored(*devices):
    """MirroredStrategy over the devices with these names: one for all runs of a process.

    A second one would number its collective operations from the start again, and TensorFlow would take them for
    operations of the first.
    """
    return tf.distribute.MirroredStrategy(devices)


def describe_devices(strategy):
    """The devices of a strategy for people, such as "2 replicas, 2 of them here on CPU:0, CPU:1"."""
    number = strategy.num_replicas_in_sync
    if number == 1:
        gpus = tf.config.list_logical_devices("GPU")
        return f"one replica on {'GPU:0' if gpus else 'the CPU, ' + counted(available_cores(), 'core')}"
    names = [":".join(name.split(":")[-2:]) for name in strategy.extended.worker_devices]
    return f"{number} replicas, {len(names)} of them here on {', '.join(names)}"


class Judge:
    """Measures translations, with one tokenization of BLEU for each target language in the whole run.

    Args:
        config: `Config`.
        run: `RunDirectory`, which keeps the tokenizations.
        evaluate: function (translations, references, `tokenize`, `target_lang`) -> `Evaluation`.
        choose: function (references, `target_lang`) -> the name of the tokenization for "auto".
    """

    def __init__(self, config, run, evaluate, choose):
        self.config = config
        self.run = run
        self.evaluate = evaluate
        self.choose = choose

    def __call__(self, translations, references, target_lang):
        """`Evaluation` of translations into a language."""
        tokenize = self.tokenization(references, target_lang)
        return self.evaluate(translations, references, tokenize=tokenize, target_lang=target_lang)

    def tokenization(self, references, target_lang):
        """The setting `tokenize`; for "auto", the choice that the first references of this language have led to."""
        if self.config.tokenize != "auto":
            return self.config.tokenize
        decided = self.run.read_decided()
        kept = decided.setdefault("tokenize", {})
        if target_lang not in kept:
            kept[target_lang] = self.choose(references, target_lang)
            self.run.keep_decided(decided)
        return kept[target_lang]


def surely_fits(config, vocabulary_size, memory):
    """Whether a training fits in the memory of this machine by far, by a bound that needs no model: bool.

    Args:
        config: `Config`, as decided.
        vocabulary_size: V.
        memory: the bytes that there are.
    """
    layers = config.num_layers + config.decoder_depth
    width = max(config.d_model, config.num_heads * max(config.d_key or 0, config.d_value or 0))
    given = layers * (24 * width + 3 * config.d_ff)  # numbers that the weights of all layers give at a position
    weights = 3 * vocabulary_size * config.d_model + config.d_model * given
    scores = 4 * layers * config.num_heads * config.num_positions  # of all attentions at a position
    activations = 4 * config.batch_tokens * (given + 2 * vocabulary_size + scores)
    return 4 * (6 * weights + activations) < memory / 4
