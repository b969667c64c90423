"""What a run decides at its start: sizes, rate, length, precision, replicas; and what it keeps when it goes on."""

import itertools
import os
from dataclasses import replace
from fractions import Fraction
from typing import get_args, get_type_hints

import pytest
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.data.corpora import epoch_weights, pairs_corpus
from keras_transformer.data.encoded import Share
from keras_transformer.training import decide as module
from keras_transformer.training import train
from keras_transformer.training.decide import POLICIES, Begun, Judge, Machine, decide
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


@pytest.mark.parametrize(("count", "accumulate_steps"), [(1, 1), (12, 3), (600, 1), (3000, 3), (36_000, 1)])
def test_an_epoch_has_about_a_hundred_updates_or_more_and_a_warm_up_is_a_tenth_at_most(count, accumulate_steps):
    config, _, plan, _ = decide(Config(accumulate_steps=accumulate_steps), data(count), TWO_CORES, NEW)
    assert plan.steps_per_epoch >= 90 and plan.last_step == 6 * plan.steps_per_epoch
    assert config.warmup_steps == min(150, plan.last_step // 10) and config.batch_tokens <= 2048
    assert config.peak_learning_rate**2 == pytest.approx(0.003**2 * config.batch_tokens / 2048)
    if plan.steps_per_epoch > 110:
        assert config.batch_tokens == 2048


def test_a_translation_may_be_longer_than_its_source_by_as_much_as_nearly_all_pairs():
    for longer, expected in (([83] * 18 + [400] * 2, 84), ([31] * 20, 50), ([-5] * 20, 50)):
        lengths = [7] * 1980 + [7 + each for each in longer]
        pairs = tiny.encoded_pairs([7] * 2000, [max(length, 1) for length in lengths], 97)
        assert module.extra_length_of(pairs) == expected
        assert decide(Config(), replace(data(1), train=pairs), TWO_CORES, NEW)[3]["extra_length"] == expected


@pytest.mark.parametrize("how", [{"weight": "0.05"}, {"weight": "30"}, {"replay": 0.2}, {"temperature": 5.0}])
def test_sizes_know_weights_replayed_pairs_and_the_temperature(how):
    sizes, lengths = [900, 4_000], [5, 11]
    corpora = [replace(DE, weight=Fraction(how.get("weight", 1))), replace(DE, is_replayed="replay" in how)]
    pairs = tiny.encoded_pairs(*[[lengths[0]] * sizes[0] + [lengths[1]] * sizes[1]] * 2, 97)
    weights = epoch_weights(corpora, sizes, how.get("replay", 0.0), how.get("temperature", 1.0))
    pairs = replace(pairs, shares=tuple(itertools.starmap(Share, zip(sizes, weights, strict=True))))
    some = Data(DE, tiny.tokenizer(), tiny.tokenizer(), pairs, None)
    _, some, plan, decided = decide(Config(preset="big"), some, TWO_CORES, NEW)
    taken = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
    tokens = sum(size * weight * (length + 1) for size, weight, length in zip(sizes, weights, lengths, strict=True))
    assert decided["passes"] == -(-6400 // taken)
    assert decided["batch_tokens"] == pytest.approx(decided["passes"] * tokens / 100, rel=0.01)
    assert 95 <= plan.steps_per_epoch <= 110


def test_sizes_that_are_set_stay_and_those_of_the_preset_are_bounds():
    asked = Config(preset="quickstart", batch_tokens=997, warmup_steps=53)
    config, _, plan, _ = decide(asked, data(12), TWO_CORES, NEW)
    assert (config.batch_tokens, config.warmup_steps, config.peak_learning_rate) == (997, 53, 0.003)
    assert plan.steps_per_epoch == 1
    config, *_ = decide(Config(peak_learning_rate=0.004), data(12), TWO_CORES, NEW)
    assert config.batch_tokens < 2048 and config.peak_learning_rate == 0.004
    _, _, plan, decided = decide(Config(), data(50, length=99), TWO_CORES, NEW)  # few long sentences
    assert decided["batch_tokens"] == 2048 and plan.steps_per_epoch > 100
    config, *_ = decide(Config(preset="base", batch_tokens=25_000, epochs=30), data(12), TWO_CORES, NEW)
    assert config.warmup_steps < 4000 and config.peak_learning_rate == pytest.approx((512 * 4000) ** -0.5)


def test_a_run_that_ends_within_its_warm_up_says_so():
    for settings, says_so in (({"batch_tokens": 4096, "warmup_steps": 150}, True), ({}, False)):
        config, _, plan, _ = decide(Config(epochs=3, **settings), data(600), TWO_CORES, NEW)
        assert ("THE RUN ENDS WITHIN ITS WARM-UP" in plan.describe(config)) == says_so


# A run that goes on.


def test_a_run_goes_on_with_its_sizes_for_more_epochs_and_says_what_a_new_run_would_have(capsys):
    asked = Config(schedule="inverse_square_root", epochs=1)
    first, _, plan, decided = decide(asked, data(300), TWO_CORES, NEW)
    assert first.warmup_steps == 10 and decide(asked, data(300), TWO_CORES, begun(asked, **decided))[3] == decided
    assert capsys.readouterr().out == ""  # the same command says nothing
    longer = Config(schedule="inverse_square_root", epochs=2)
    config, _, longer_plan, again = decide(longer, data(300), TWO_CORES, begun(asked, **decided))
    names = ("batch_tokens", "warmup_steps", "peak_learning_rate")
    assert [getattr(config, name) for name in names] == [getattr(first, name) for name in names]
    assert longer_plan.last_step == 2 * plan.last_step == again["last_step"]
    said = capsys.readouterr().out
    assert "kept        `warmup_steps` 10, with which the run began; a new run would have 20" in said
    assert f"changed     the last update was {plan.last_step} and is {2 * plan.last_step}, as this command says" in said
    decide(Config(epochs=3), data(300), TWO_CORES, begun(Config(epochs=1), **decided))  # linear
    assert "a new cycle: the learning rate was to reach 0 at update 1" in capsys.readouterr().out


def test_another_machine_has_its_own_precision_and_replicas_and_the_log_says_so(capsys):
    config, _, _, decided = decide(Config(), data(30_000), TWO_CORES, NEW)
    assert config.precision == "float32" and decided["replicas"] == 1
    other = Machine(cores=8, gpus=2, devices=2, has_bfloat16=True)
    config, _, plan, _ = decide(Config(), data(30_000), other, begun(**decided))
    assert config.precision == "bfloat16" and plan.replicas == 2
    said = capsys.readouterr().out
    assert "`precision` was float32 and is bfloat16, as this machine has it" in said and "`replicas` was 1" in said


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
    run.keep_decided({"passes": 3})
    assert Begun.of(run) == NEW  # without a checkpoint, decisions are taken anew
    run.checkpoints.mkdir()
    run.last.touch()
    assert Begun.of(run) == Begun(None, True, {"passes": 3}) and Begun.of(run).completed(Config()) == Config()
    Config(batch_tokens=2048, warmup_steps=150).save(run.config)  # as versions before 0.2 wrote them
    assert Begun.of(run).completed(Config()) == Config(batch_tokens=2048, warmup_steps=150)
    assert Begun.of(run).completed(Config(batch_tokens=512)) == Config(batch_tokens=512, warmup_steps=150)
    Config(tokenize="13a").save(run.config)  # the default of earlier versions
    assert Begun.of(run).completed(Config()).tokenize == "13a"
    assert Begun.of(run).completed(Config(tokenize="zh")).tokenize == "zh"
    Config(dataset=("files:tests:2", "files:docs")).save(run.config)  # the run keeps its names of directories
    again = Config(dataset=(f"files:{os.path.abspath('tests')}/:2", "files:./docs"))
    assert Begun.of(run).completed(again).dataset == ("files:tests:2", "files:docs")
    for other in (("files:tests", "files:docs"), ("files:docs", "files:tests:2"), "files:tests:2"):
        assert Begun.of(run).completed(Config(dataset=other)).dataset == other


def test_pairs_have_the_languages_of_the_settings_of_the_run_or_of_its_origin(tmp_path):
    origin, run = RunDirectory(tmp_path / "origin"), RunDirectory(tmp_path / "run")
    how = {"model_dir": str(run.path), "init_from": str(origin.path)}
    assert module.languages_of(Config(**how)) == {}
    origin.keep_decided({"source_lang": "en", "target_lang": "de", "directions": ["en-de", "de-en"]})
    origin.model.touch()
    assert module.languages_of(Config(**how)) == {"source_lang": "en", "target_lang": "de"}
    assert module.languages_of(Config(**how, source_lang="fr")) == {"source_lang": "fr", "target_lang": "de"}
    run.keep_decided({"source_lang": "nl", "target_lang": "da"})
    run.checkpoints.mkdir()
    run.last.touch()
    assert module.languages_of(Config(**how)) == {"source_lang": "nl", "target_lang": "da"}


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
    assert decide(Config(preset="tiny", batch_tokens=8192), data(12), TWO_CORES, NEW)[2].replicas == 2
    two_gpus = TWO_CORES._replace(gpus=2, devices=2)
    for name, replicas in {"auto": 2, "mirrored": 2, "one_device": 1}.items():
        assert [module.count_replicas(name, machine, 4096) for machine in (TWO_CORES, two_gpus)] == [replicas] * 2
    assert [module.count_replicas("auto", machine, 600) for machine in (TWO_CORES, two_gpus)] == [1, 2]


def test_mirrored_or_several_replicas_take_a_device_each():
    mirrored = module.make_strategy("mirrored", 2)
    assert isinstance(mirrored, tf.distribute.MirroredStrategy)
    assert mirrored.num_replicas_in_sync == len(tf.config.list_logical_devices("CPU")) == 2
    assert module.make_strategy("auto", 2) is mirrored  # of two, each would take the other's collective operations
    assert module.make_strategy("auto", 1) is module.make_strategy("one_device", 2) is tf.distribute.get_strategy()


def test_several_gpus_share_validation_and_the_test_set_and_one_gpu_or_cpus_do_not(monkeypatch):
    """The two CPU devices stand for GPUs, as only their number counts."""
    strategy, devices = tf.distribute.get_strategy(), tf.config.list_logical_devices("CPU")
    for number, shares_validation in ((2, strategy), (1, strategy), (0, None)):
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind, number=number: devices[:number])
        assert decoding_strategy(strategy) is shares_validation
        found = strategy_of_gpus()
        assert (found and found.num_replicas_in_sync) == (2 if number == 2 else None)


def test_auto_is_bfloat16_where_the_hardware_multiplies_it_and_a_named_precision_is_taken_on_any(monkeypatch, tmp_path):
    assert {*POLICIES, "auto"} == set(get_args(get_type_hints(Config)["precision"]))
    cpuinfo = tmp_path / "cpuinfo"
    for compute_capability, flags, auto in (
        ((8, 0), None, "bfloat16"),
        ((7, 5), "amx_bf16", "float32"),  # beside a GPU, the CPU does not matter
        ((), "amx_bf16", "float32"),  # a GPU of unknown capability
        (None, "avx2 amx_bf16", "bfloat16"),
        (None, "avx512_bf16\nvendor_id : AuthenticAMD", "bfloat16"),
        (None, "avx512_bf16\nvendor_id : GenuineIntel", "float32"),  # there, float32 is faster
        (None, "avx2 avx512f", "float32"),
        (None, None, "float32"),
    ):
        gpus = [] if compute_capability is None else ["gpu"]
        details = {"compute_capability": compute_capability} if compute_capability else {}
        cpuinfo.unlink(missing_ok=True)
        if flags is not None:
            cpuinfo.write_text(f"processor : 0\nflags : fpu {flags} sse\n")
        with monkeypatch.context() as patched:
            patched.setattr(tf.config.experimental, "get_device_details", lambda device, details=details: details)
            patched.setattr(module, "Path", lambda path: cpuinfo)
            devices = {"GPU": gpus, "CPU": ["cpu"]}
            patched.setattr(tf.config, "list_physical_devices", devices.get)
            this = Machine.here(False)
        assert module.precision_of(Config(), this) == auto and this.has_bfloat16 == (auto == "bfloat16")
        assert [module.precision_of(Config(precision=name), this) for name in POLICIES] == [*POLICIES]


def test_cores_are_divided_before_a_corpus_of_tfds_is_read_which_starts_tensorflow(monkeypatch, tmp_path):
    asked = []

    def prepare(self, config, run, corpus):
        raise KeyError(*asked)

    monkeypatch.setattr(train.Alone, "prepare", prepare)
    monkeypatch.setattr(train, "share_cores", lambda *arguments: asked.append(arguments))
    config = Config(preset="tiny", dataset=("cldr:en-de", "tfds:some"), model_dir=str(tmp_path))
    with pytest.raises(KeyError, match=r"\('auto', 4096\)"):
        train.train(config, print, print, owns_process=True)
