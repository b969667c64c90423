"""What a run decides at its start: sizes, rate, length, precision, replicas; and what it keeps when it goes on."""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import get_args, get_type_hints

import pytest
import tensorflow as tf
import yaml

import keras_transformer as kt
from keras_transformer.config import Config
from keras_transformer.data.corpora import epoch_weights, pairs_corpus
from keras_transformer.data.encoded import Share
from keras_transformer.data.pipeline import batch_shapes
from keras_transformer.training import decide as module
from keras_transformer.training import train
from keras_transformer.training.decide import (
    POLICIES,
    Begun,
    Judge,
    Machine,
    decide,
    languages_of,
    make_strategy,
    surely_fits,
)
from keras_transformer.training.final_score import strategy_of_gpus
from keras_transformer.training.preparation import Data
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.validation import decoding_strategy
from tests import tiny

NEW = Begun(None, False, {})
TWO_CORES = Machine(cores=2, gpus=0, devices=None, has_bfloat16=False)
DE = pairs_corpus([("one", "eins"), ("two", "zwei")], source_lang="en", target_lang="de")


def data(count, length=7, weight=None):
    pairs = tiny.encoded_pairs([length] * count, [length] * count, 97)
    if weight is not None:
        pairs = replace(pairs, shares=(Share(count, Fraction(weight)),))
    return Data(DE, tiny.tokenizer(), tiny.tokenizer(), pairs, None)


def begun(config=None, **decided):
    return Begun(config or Config(), True, decided)


# Sizes.


@pytest.mark.parametrize("count", [1, 12, 100, 600, 3000, 36_000])
@pytest.mark.parametrize("accumulate_steps", [1, 3])
def test_an_epoch_has_about_a_hundred_updates_or_more_and_a_warm_up_is_a_tenth_at_most(count, accumulate_steps):
    config, _, plan, _ = decide(Config(accumulate_steps=accumulate_steps), data(count), TWO_CORES, NEW)
    assert plan.steps_per_epoch >= 90 and plan.last_step == 6 * plan.steps_per_epoch
    assert config.warmup_steps == min(150, plan.last_step // 10)
    assert config.batch_tokens <= 2048
    assert config.peak_learning_rate**2 == pytest.approx(0.003**2 * config.batch_tokens / 2048)
    if plan.steps_per_epoch > 110:
        assert config.batch_tokens == 2048


@pytest.mark.parametrize(("count", "weight"), [(6_000, "0.1"), (50_000, "0.01"), (100, "30"), (3_000, "2.5")])
def test_an_epoch_of_a_corpus_with_a_weight_has_the_sizes_of_one_of_as_many_pairs(count, weight):
    taken = int(count * Fraction(weight))
    _, weighted, plan, decided = decide(Config(preset="tiny"), data(count, weight=weight), TWO_CORES, NEW)
    _, plain, plain_plan, plain_decided = decide(Config(preset="tiny"), data(taken), TWO_CORES, NEW)
    assert 95 <= plan.steps_per_epoch <= 200 and abs(plan.steps_per_epoch - plain_plan.steps_per_epoch) <= 2
    assert decided["batch_tokens"] == pytest.approx(plain_decided["batch_tokens"], rel=0.02) and (
        decided["batch_tokens"] <= 4096 and decided["passes"] == plain_decided["passes"]
    )
    rows = [sum(rows for rows, _, _ in batch_shapes(each.train, decided["batch_tokens"])) for each in (weighted, plain)]
    assert rows[0] == pytest.approx(rows[1], rel=0.02)


@pytest.mark.parametrize("how", [{"replay": 0.2}, {"temperature": 5.0}])
def test_sizes_know_replayed_pairs_and_the_temperature(how):
    sizes, lengths = [900, 40_000], [5, 11]
    corpora = [DE, replace(DE, is_replayed="replay" in how)]
    pairs = tiny.encoded_pairs(
        *[[length for size, length in zip(sizes, lengths, strict=True) for _ in range(size)]] * 2, 97
    )
    weights = epoch_weights(corpora, sizes, how.get("replay", 0.0), how.get("temperature", 1.0))
    pairs = replace(pairs, shares=tuple(itertools.starmap(Share, zip(sizes, weights, strict=True))))
    some = Data(DE, tiny.tokenizer(), tiny.tokenizer(), pairs, None)
    _, some, plan, decided = decide(Config(preset="big"), some, TWO_CORES, NEW)
    taken = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    tokens = sum(size * weight * (length + 1) for size, weight, length in zip(sizes, weights, lengths, strict=True))
    assert decided["passes"] == -(-6400 // taken)
    assert decided["batch_tokens"] == pytest.approx(decided["passes"] * tokens / 100, rel=0.01)
    assert 95 <= plan.steps_per_epoch <= 110


def test_batches_of_a_small_corpus_of_long_sentences_are_those_of_the_preset_at_most():
    _, _, plan, decided = decide(Config(), data(50, length=99), TWO_CORES, NEW)
    assert decided["batch_tokens"] == 2048 and plan.steps_per_epoch > 100


def test_sizes_that_are_set_stay():
    asked = Config(preset="quickstart", batch_tokens=997, warmup_steps=53)
    config, _, plan, _ = decide(asked, data(12), TWO_CORES, NEW)
    assert (config.batch_tokens, config.warmup_steps, config.peak_learning_rate) == (997, 53, 0.003)
    assert plan.steps_per_epoch == 1
    config, *_ = decide(Config(peak_learning_rate=0.004), data(12), TWO_CORES, NEW)
    assert config.batch_tokens < 2048 and config.peak_learning_rate == 0.004


def test_a_shorter_warm_up_does_not_raise_the_paper_s_peak():
    config, *_ = decide(Config(preset="base", batch_tokens=25_000, epochs=30), data(12), TWO_CORES, NEW)
    assert config.warmup_steps < 4000 and config.peak_learning_rate == pytest.approx((512 * 4000) ** -0.5)


def test_a_run_that_ends_within_its_warm_up_says_so():
    config, _, plan, _ = decide(Config(batch_tokens=4096, warmup_steps=150, epochs=3), data(600), TWO_CORES, NEW)
    assert "THE RUN ENDS WITHIN ITS WARM-UP" in plan.describe(config)
    config, _, plan, _ = decide(Config(epochs=3), data(600), TWO_CORES, NEW)
    assert "WARM-UP" not in plan.describe(config)


# A run that goes on.


def test_a_run_goes_on_with_its_sizes_for_more_epochs_and_says_what_a_new_run_would_have(capsys):
    asked = Config(schedule="inverse_square_root", epochs=1)
    first, _, plan, decided = decide(asked, data(300), TWO_CORES, NEW)
    assert first.warmup_steps == 10
    longer = Config(schedule="inverse_square_root", epochs=2)
    config, _, longer_plan, again = decide(longer, data(300), TWO_CORES, begun(asked, **decided))
    names = ("batch_tokens", "warmup_steps", "peak_learning_rate")
    assert [getattr(config, name) for name in names] == [getattr(first, name) for name in names]
    assert longer_plan.last_step == 2 * plan.last_step == again["last_step"]
    said = capsys.readouterr().out
    assert "kept        `warmup_steps` 10, with which the run began; a new run would have 20" in said
    assert f"changed     the last update was {plan.last_step} and is {2 * plan.last_step}, as this command says" in said


def test_a_linear_rate_begins_a_new_cycle_and_the_log_says_so(capsys):
    _, _, _, decided = decide(Config(epochs=1), data(300), TWO_CORES, NEW)
    decide(Config(epochs=3), data(300), TWO_CORES, begun(Config(epochs=1), **decided))
    assert "a new cycle: the learning rate was to reach 0 at update 1" in capsys.readouterr().out


def test_another_machine_has_its_own_precision_and_replicas_and_the_log_says_so(capsys):
    config, _, _, decided = decide(Config(), data(30_000), TWO_CORES, NEW)
    assert config.precision == "float32" and decided["replicas"] == 1
    other = Machine(cores=8, gpus=2, devices=2, has_bfloat16=True)
    config, _, plan, _ = decide(Config(), data(30_000), other, begun(**decided))
    assert config.precision == "bfloat16" and plan.replicas == 2
    said = capsys.readouterr().out
    assert "`precision` was float32 and is bfloat16, as this machine has it" in said and "`replicas` was 1" in said


def test_the_same_command_says_nothing(capsys):
    _, _, _, decided = decide(Config(), data(300), TWO_CORES, NEW)
    assert decide(Config(), data(300), TWO_CORES, begun(**decided))[3] == decided
    assert capsys.readouterr().out == ""


def test_a_run_from_before_resolved_yaml_has_the_sizes_that_it_had():
    """By 467dcb2: `:0.1` of 60,000 pairs had 11 updates an epoch of batches above the preset's, and two replicas."""
    asked = Config(preset="tiny", epochs=5)
    old = begun(asked)
    config, _, plan, decided = decide(Config(preset="tiny", epochs=50), data(6_000, weight="0.1"), TWO_CORES, old)
    assert config.batch_tokens == 2 * 6_000 * 8 // 100 and decided["passes"] == 2
    assert config.warmup_steps == 5 * plan.steps_per_epoch // 10  # of the 5 epochs that were planned
    assert plan.replicas == 2 and decided["divided_for"] == 4096
    assert decide(asked, data(6_000, weight="0.1"), TWO_CORES, begun(asked, **decided))[2].replicas == 2


def test_what_an_earlier_command_named_stays_and_a_new_value_counts(tmp_path):
    run = RunDirectory(tmp_path)
    assert Begun.of(run).completed(Config()) == Config()
    Config(batch_tokens=2048, warmup_steps=150).save(run.config)  # as versions before 0.2 wrote them
    assert Begun.of(run).completed(Config()) == Config(batch_tokens=2048, warmup_steps=150)
    assert Begun.of(run).completed(Config(batch_tokens=512)) == Config(batch_tokens=512, warmup_steps=150)
    Config(tokenize="13a").save(run.config)  # the default of earlier versions
    assert Begun.of(run).completed(Config()).tokenize == "13a"
    assert Begun.of(run).completed(Config(tokenize="zh")).tokenize == "zh"


def test_decisions_without_a_checkpoint_are_taken_anew(tmp_path):
    run = RunDirectory(tmp_path)
    run.keep_decided({"passes": 3})
    assert Begun.of(run) == NEW
    run.checkpoints.mkdir()
    run.last.touch()
    assert Begun.of(run) == Begun(None, True, {"passes": 3})


def test_a_run_keeps_its_decisions_sorted_and_a_second_start_of_the_same_command_changes_nothing(tmp_path):
    corpus = tiny.write_corpus(tmp_path / "corpus")
    config = tiny.config(corpus, tmp_path / "run", batch_tokens=None, warmup_steps=None, epochs=1, max_steps=7)
    kt.train(config=config)
    run = RunDirectory(config.model_dir)
    kept = run.decided.read_text(encoding="utf-8")
    decided = yaml.safe_load(kept)
    settings = [name for name in decided if hasattr(config, name)]
    assert settings == [name for name in vars(config) if name in decided] == [*decided][: len(settings)]
    assert (decided["source_lang"], decided["target_lang"], decided["tokenize"]) == ("en", "de", {"de": "13a"})
    assert {"batch_tokens", "warmup_steps", "peak_learning_rate", "passes", "precision", "replicas"} <= {*decided}
    kt.train(config=config)
    assert run.decided.read_text(encoding="utf-8") == kept


# Languages.


def test_pairs_have_the_languages_of_the_settings_of_the_run_or_of_its_origin(tmp_path):
    origin, run = RunDirectory(tmp_path / "origin"), RunDirectory(tmp_path / "run")
    how = {"model_dir": str(run.path), "init_from": str(origin.path)}
    assert languages_of(Config(**how)) == {}
    origin.model.parent.mkdir()
    origin.model.touch()
    origin.keep_decided({"source_lang": "en", "target_lang": "de", "directions": ["en-de", "de-en"]})
    assert languages_of(Config(**how)) == {"source_lang": "en", "target_lang": "de"}
    assert languages_of(Config(**how, source_lang="fr")) == {"source_lang": "fr", "target_lang": "de"}
    run.checkpoints.mkdir(parents=True)
    run.last.touch()
    run.keep_decided({"source_lang": "nl", "target_lang": "da"})
    assert languages_of(Config(**how)) == {"source_lang": "nl", "target_lang": "da"}


# Tokenization.


def test_the_tokenization_of_bleu_is_chosen_once_for_each_language(tmp_path):
    run, asked = RunDirectory(tmp_path), []

    def choose(references, target_lang):
        asked.append((references, target_lang))
        return "char" if target_lang == "th" else "13a"

    def evaluate(translations, references, tokenize, target_lang):
        return tokenize

    for _ in range(2):  # a later start has it from the file
        judge = Judge(Config(), run, evaluate, choose)
        assert [judge(["a"], ["b"], lang) for lang in ("de", "th", "de")] == ["13a", "char", "13a"]
    assert asked == [(["b"], "de"), (["b"], "th")]
    assert Judge(Config(tokenize="zh"), run, evaluate, choose)(["a"], ["b"], "de") == "zh"


# Devices.


def test_cores_are_divided_by_the_batches_that_the_run_has():
    _, _, plan, decided = decide(Config(preset="tiny"), data(300), TWO_CORES, NEW)
    assert decided["batch_tokens"] < 600 and plan.replicas == 1
    assert decide(Config(preset="tiny"), data(60_000), TWO_CORES, NEW)[2].replicas == 2
    assert decide(Config(preset="tiny", strategy="one_device"), data(60_000), TWO_CORES, NEW)[2].replicas == 1
    assert decide(Config(preset="tiny", batch_tokens=8192), data(12), TWO_CORES, NEW)[2].replicas == 2


def list_gpus(monkeypatch, number):
    """Makes TensorFlow list its CPU devices as this number of GPUs, beside one CPU."""
    devices = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", {"GPU": devices[:number], "CPU": devices[:1]}.__getitem__)


def test_mirrored_is_one_replica_per_cpu_device_where_there_is_no_gpu(monkeypatch):
    cpus = tf.config.list_logical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", {"GPU": [], "CPU": cpus}.__getitem__)
    mirrored = make_strategy("mirrored", 2)
    assert isinstance(mirrored, tf.distribute.MirroredStrategy)
    assert mirrored.num_replicas_in_sync == len(cpus) == 2
    assert make_strategy("mirrored", 2) is mirrored  # of two, each would take the other's collective operations


@pytest.mark.parametrize(("name", "gpus", "replicas"), [("mirrored", 2, 2), ("auto", 2, 2), ("mirrored", 1, 1)])
def test_gpus_train_a_replica_each(monkeypatch, name, gpus, replicas):
    list_gpus(monkeypatch, gpus)
    strategy = make_strategy(name, gpus)
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == replicas


@pytest.mark.parametrize(("name", "gpus"), [("auto", 1), ("auto", 0), ("one_device", 2)])
def test_one_device_needs_no_strategy_of_several(monkeypatch, name, gpus):
    list_gpus(monkeypatch, gpus)
    assert make_strategy(name, max(1, gpus)) is tf.distribute.get_strategy()


def test_several_gpus_share_validation_and_the_test_set_and_one_gpu_or_cpus_do_not(monkeypatch):
    strategy = tf.distribute.get_strategy()
    list_gpus(monkeypatch, 2)
    assert decoding_strategy(strategy) is strategy and strategy_of_gpus().num_replicas_in_sync == 2
    list_gpus(monkeypatch, 1)
    assert strategy_of_gpus() is None
    list_gpus(monkeypatch, 0)
    assert decoding_strategy(strategy) is None


# Precision.


def machine(monkeypatch, tmp_path, compute_capability=None, flags=None):
    """A machine with a GPU of this compute capability or none, and a CPU with these flags or no /proc/cpuinfo."""
    gpus = [] if compute_capability is None else ["gpu"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus if kind == "GPU" else ["cpu"])
    details = {"compute_capability": compute_capability} if compute_capability else {}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor : 0\nflags : fpu {flags} sse\n")
    monkeypatch.setattr(module, "Path", lambda path: cpuinfo)


@pytest.mark.parametrize(
    ("compute_capability", "flags", "precision"),
    [
        ((9, 0), None, "bfloat16"),
        ((8, 0), None, "bfloat16"),
        ((7, 5), "amx_bf16", "float32"),  # beside a GPU, the CPU does not matter
        ((), "amx_bf16", "float32"),  # a GPU of unknown capability
        (None, "avx2 amx_bf16", "bfloat16"),
        (None, "avx512_bf16", "bfloat16"),
        (None, "avx2 avx512f", "float32"),
        (None, None, "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(monkeypatch, tmp_path, compute_capability, flags, precision):
    machine(monkeypatch, tmp_path, compute_capability, flags)
    assert decide(Config(), data(12), Machine.here(False), NEW)[0].precision == precision


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_named_precision_is_taken_on_any_machine(monkeypatch, tmp_path, name):
    machine(monkeypatch, tmp_path, flags="amx_bf16")
    assert decide(Config(precision=name), data(12), Machine.here(False), NEW)[0].precision == name


def test_every_precision_of_config_is_known():
    assert {*POLICIES, "auto"} == set(get_args(get_type_hints(Config)["precision"]))


def test_cores_are_divided_before_a_corpus_of_tfds_is_read_which_starts_tensorflow(monkeypatch, tmp_path):
    asked = []

    def prepare(self, config, run, corpus):
        raise KeyError(*asked)

    monkeypatch.setattr(train.Alone, "prepare", prepare)
    monkeypatch.setattr(train, "share_cores", lambda *arguments: asked.append(arguments))
    config = Config(preset="tiny", dataset=("cldr:en-de", "tfds:some"), model_dir=str(tmp_path))
    with pytest.raises(KeyError, match=r"\('auto', 4096\)"):
        train.train(config, print, print, owns_process=True)


# Memory.


def test_a_training_that_surely_fits_needs_far_less_than_the_estimate_of_what_does_not():
    assert surely_fits(Config(batch_tokens=2048), 4000)
    assert not surely_fits(Config(preset="big", batch_tokens=25_000), 37_000)
