import contextlib
import errno
import functools
import io
import json
import os
import re
import shutil
import signal
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest
import yaml

from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.data.links import PLACES, as_rows
from keras_transformer.data.pipeline import count_batches
from keras_transformer.errors import CheckpointError, FileError
from keras_transformer.evaluation import choose_tokenization, measure
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer, with_eos
from keras_transformer.training import train as module
from keras_transformer.training import validation, watchers
from keras_transformer.training.adapters import merged_weights
from keras_transformer.training.checkpoints import load_network
from keras_transformer.training.decide import Plan
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import build_trainer
from keras_transformer.training.updates import Adam
from tests import tiny
from tests.training.curves import assert_same_curves, read_events

POINTS_EVERY = watchers.points_every
SETTINGS = {"epochs": 2, "average_epochs": 5, "dropout_rate": 0.3}  # dropout, so that its seeds matter


@pytest.fixture(scope="module", autouse=True)
def many_points():
    """The curves of runs as short as these."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(watchers, "points_every", lambda plan: 3)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


def echo(texts, **languages):
    return list(texts)


def count_sentences(translations, references, tokenize, target_lang):
    """A measure for which untrained models need not translate."""
    return SimpleNamespace(bleu=float(len(translations)))


def train(config, translate=echo, before_fit=lambda trainer: None):
    """Trains up to the test set, with a translator that does little: the trainer, the data and the printed text."""
    printed, made = io.StringIO(), {}

    def build(config, data, plan):
        made.update(trainer=build_trainer(config, data, plan), data=data)
        before_fit(made["trainer"])
        return made["trainer"]

    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "build_trainer", build)
        monkeypatch.setattr(module, "score_model", lambda *arguments: ("validation", None))
        monkeypatch.setattr(validation, "Translator", lambda *_, **__: SimpleNamespace(translate=translate))
        module.train(config, count_sentences, lambda references, target_lang: "13a")
    return made["trainer"], made["data"], printed.getvalue()


def arrays(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def weights_in(path):
    """The weights of a network in a checkpoint, in their order."""
    return [value for name, value in arrays(path).items() if name != "progress"]


def progress_of(run):
    return json.loads(str(arrays(run.last)["progress"]))


def assert_same_state(found, expected, tolerance=0):
    """Of two runs: progress, weights, optimizer and dropout seeds, and the averaged model."""
    one, other = ({**progress_of(run), "metrics": {}} for run in (found, expected))
    assert one == other
    for read in (lambda run: arrays(run.last), weights_of_model):
        one, other = read(found), read(expected)
        assert one.keys() == other.keys() and len(one) > 20
        for name in one.keys() - {"progress"}:
            np.testing.assert_allclose(one[name], other[name], atol=tolerance, rtol=0, err_msg=name)


def assert_weights(network, expected, tolerance=0):
    """Of a network, these arrays."""
    for weight, value in zip(network.weights, expected, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, atol=tolerance, rtol=0)


def weights_of_model(run):
    """All arrays in model.keras by their names, without the time that it takes to make a model of them."""
    found = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with zipfile.ZipFile(run.model) as archive, archive.open("model.weights.h5") as file, h5py.File(file) as weights:
        weights.visititems(keep)
    return found


def interrupt_after(updates, trainer):
    """Ctrl-C within an update."""
    trainer.make_train_function()
    update, done = trainer.train_function, iter(range(1, 1000))

    def interrupted(batches):
        if next(done) == updates:
            signal.raise_signal(signal.SIGINT)
        return update(batches)

    trainer.train_function = interrupted


def interrupt_translation(texts):
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """(run, config, steps per epoch, printed text) of a run from start to end; tests do not change it."""
    config = tiny.config(corpus, tmp_path_factory.mktemp("runs") / "uninterrupted", strategy="one_device", **SETTINGS)
    _, data, printed = train(config)
    return RunDirectory(config.model_dir), config, count_batches(data.train, config.batch_tokens), printed


def again(config, model_dir, **settings):
    """The same settings for another directory, and these."""
    return type(config)(**{**vars(config), "model_dir": str(model_dir), **settings})


@pytest.fixture
def copy_of_finished(uninterrupted, tmp_path):
    """(run, config) of a copy that tests may change."""
    run, config, _, _ = uninterrupted
    shutil.copytree(run.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy"), again(config, tmp_path / "copy")


# What a run leaves.


def test_run_directory_explains_itself(uninterrupted, corpus):
    run, config, steps, _ = uninterrupted
    assert steps >= 4 and progress_of(run)["step"] == 2 * steps
    assert yaml.safe_load(run.config.read_text(encoding="utf-8"))["dataset"] == config.dataset
    assert type(config).load(run.config) == config
    assert Tokenizer.load(run.path / SHARED).vocabulary_size == tiny.VOCABULARY
    assert [path.name for path in run.epochs()] == ["epoch_0001.npz", "epoch_0002.npz"] and run.best.exists()
    decided = yaml.safe_load(run.decided.read_text(encoding="utf-8"))
    settings = [name for name in decided if hasattr(config, name)]
    assert settings == [name for name in vars(config) if name in decided] == [*decided][: len(settings)]  # in order
    assert (decided["source_lang"], decided["target_lang"], decided["tokenize"]) == ("en", "de", {"de": "13a"})
    assert {"batch_tokens", "warmup_steps", "peak_learning_rate", "passes", "precision", "replicas"} <= {*decided}
    sources = (corpus / "val.en").read_text(encoding="utf-8").splitlines()
    assert run.samples.read_text(encoding="utf-8").split("\n") == sources[: config.validation_sentences]


def test_the_finished_model_is_the_mean_of_the_epochs_in_float32(uninterrupted):
    run, *_ = uninterrupted
    model = load_model(run.model)
    assert model.dtype_policy.name == "float32" and {weight.dtype for weight in model.weights} == {"float32"}
    first, second = (weights_in(path) for path in run.epochs())
    assert_weights(model, [np.mean(epochs, axis=0) for epochs in zip(first, second, strict=True)], tolerance=1e-7)
    assert np.abs(first[0] - second[0]).max() > 1e-3


def test_curves_and_settings_are_in_the_logs(uninterrupted):
    run, config, steps, _ = uninterrupted
    training, validation = read_events(run.logs / "train"), read_events(run.logs / "validation")
    curves = {"loss", "accuracy", "perplexity", "padding", "learning_rate", "memory/resident_mib"}
    curves |= {"target_tokens_seen", "target_tokens_per_second", "gradient_norm"}
    assert training.keys() == {*curves, "config"}
    for name in curves:
        assert [step for step, _ in training[name]] == list(range(3, 2 * steps + 1, 3))
    for step, rate in training["learning_rate"]:  # of the next update
        peak = (config.d_model * config.warmup_steps) ** -0.5
        expected = peak * min((step + 1) / config.warmup_steps, (config.warmup_steps / (step + 1)) ** 0.5)
        assert rate == pytest.approx(expected, rel=1e-5)
    pictures = {f"alignment/{number}" for number in range(1, 5)}
    assert validation.keys() == {"loss", "accuracy", "perplexity", "bleu", "samples", *pictures}
    for name in ("loss", "accuracy", "perplexity", "bleu", *pictures):
        assert [step for step, _ in validation[name]] == [steps, 2 * steps]
    assert [bleu for _, bleu in validation["bleu"]] == [5, 5]  # sentences, by our score
    assert len(validation["samples"]) == 2 and "| reference |" in validation["samples"][0][1]
    (_, first), (_, last) = validation["loss"]  # training learns
    assert last < first < np.log(tiny.VOCABULARY) + 0.5
    ((step, text),) = training["config"]
    assert step == 0 and all(f"{name}: " in text for name in vars(config))
    assert f"dataset: {config.dataset}" in text and "source_lang: en" in text


def test_the_corpus_the_model_and_every_epoch_are_printed(uninterrupted):
    _, _, _, printed = uninterrupted
    lines = printed.splitlines()
    assert lines[0].endswith("pairs: en to de")
    assert any(line.startswith("train") and "211 pairs" in line and "none dropped" in line for line in lines)
    assert any(line.startswith("validation") and "13 pairs" in line for line in lines)
    assert any(line.startswith("model") and "parameters" in line for line in lines)
    epochs = [line for line in lines if line.startswith("epoch ") and "validation: " in line]  # no progress
    assert [line.split()[1] for line in epochs] == ["1/2", "2/2"]
    assert all("loss" in line and "BLEU 5.0" in line for line in epochs)
    assert len(re.findall(r"^ {12}\S.* -> \S", printed, re.MULTILINE)) == 4  # translations


# Going on.


def test_the_same_command_on_a_finished_run_trains_nothing_more(copy_of_finished, uninterrupted):
    run, config = copy_of_finished
    before, kept = run.last.read_bytes(), run.decided.read_text(encoding="utf-8")
    trainer, _, printed = train(config, before_fit=lambda trainer: interrupt_after(1, trainer))
    assert "resuming" in printed and run.last.read_bytes() == before
    assert run.decided.read_text(encoding="utf-8") == kept
    assert_same_state(run, uninterrupted[0])
    assert_weights(trainer.network, weights_in(run.epochs()[-1]))


@pytest.mark.slow
def test_a_run_interrupted_again_and_again_is_an_uninterrupted_run(uninterrupted, tmp_path):
    """After each interruption, a command that ends the run there gives it its model without an update."""
    expected, config, steps, _ = uninterrupted
    run, copy = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "copy")
    config = again(config, run.path)
    before_fit = functools.partial(interrupt_after, 2)  # in the middle of the first epoch, or while it is validated
    how = {"update": {"before_fit": before_fit}, "epoch": {"translate": interrupt_translation}}
    for name, end, step in (("update", {"max_steps": 2}, 2), ("epoch", {"epochs": 1}, steps)):
        with pytest.raises(KeyboardInterrupt):
            train(config, **how[name])
        assert (progress_of(run)["step"], progress_of(run)["ended"]) == (step, 0) and not run.model.exists()
        shutil.copytree(run.path, copy.path)
        train(again(config, copy.path, **end), before_fit=functools.partial(interrupt_after, 1))
        saved = [value for key, value in arrays(run.last).items() if "seed_generator" not in key]
        model = load_model(copy.model)
        assert_weights(model, saved[: len(model.weights)])
        shutil.rmtree(copy.path)
    train(config)
    assert_same_state(run, expected)
    assert_same_curves(run, expected)


@pytest.mark.slow
def test_a_run_interrupted_on_two_replicas_goes_on_on_two_or_on_one(corpus, tmp_path):
    run, expected, trainers = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "expected"), []
    settings = {"strategy": "mirrored", "precision": "bfloat16", "num_layers": 1, "max_steps": 5, **SETTINGS}
    settings |= {"guided_alignment": 0.1}
    config = tiny.config(corpus, run.path, **settings)

    def interrupt(trainer):
        trainers.append(trainer)
        interrupt_after(3, trainer)

    with pytest.raises(KeyboardInterrupt):
        train(config, before_fit=interrupt)
    (trainer,) = trainers
    assert len(trainer.network.weights[0].value.values) == 2
    assert trainer.network.compute_dtype == "bfloat16"
    assert progress_of(run)["step"] == 3
    shutil.copytree(run.path, tmp_path / "one")

    one = RunDirectory(tmp_path / "one")
    resumed, _, _ = train(again(config, one.path, strategy="one_device", max_steps=3))
    for found, saved in zip(resumed.resumable_variables, trainer.resumable_variables, strict=True):
        np.testing.assert_array_equal(found.numpy(), keras.ops.convert_to_numpy(saved))
    assert load_model(one.model).dtype_policy.name == "float32"

    train(config)
    train(again(config, expected.path))
    assert_same_state(run, expected, tolerance=1e-6)

    # A second strategy would take the gradients of one model for those of another in the same process.
    other = again(config, tmp_path / "other", d_model=22, max_steps=1)
    train(other)
    assert progress_of(RunDirectory(other.model_dir))["step"] == 1


def test_fewer_epochs_may_be_averaged_afterwards_and_a_lost_one_is_named(copy_of_finished, capsys):
    run, config = copy_of_finished
    run.results.write_text("set: test\n")
    fewer = again(config, run.path, average_epochs=1)
    run.keep_settings(fewer)
    module.finish(fewer, run)
    assert_weights(load_model(run.model), weights_in(run.epoch(2)), tolerance=1e-7)
    assert not run.results.exists()  # of another model
    run.epoch(1).unlink()
    run.keep_settings(config)
    module.finish(config, run)
    printed = capsys.readouterr().out
    assert f"left out    cannot read {run.epoch(1)}: " in printed and "the average of epoch 2" in printed
    assert_weights(load_model(run.model), weights_in(run.epoch(2)), tolerance=1e-7)


def test_a_run_whose_last_checkpoint_is_damaged_goes_on_from_the_one_before(copy_of_finished, uninterrupted):
    run, config = copy_of_finished
    run.last.write_bytes(run.last.read_bytes()[:-101])
    run.epoch(3).write_bytes(b"of an epoch that is not yet")
    _, _, printed = train(config)
    assert "going back to previous.npz" in printed
    assert_same_state(run, uninterrupted[0])
    assert_same_curves(run, uninterrupted[0])
    assert run.epochs() == [run.epoch(1), run.epoch(2)]


@pytest.mark.slow
def test_a_full_disk_is_reported_in_a_line_and_the_run_goes_on_when_there_is_room(uninterrupted, tmp_path):
    expected, config, steps, _ = uninterrupted
    run = RunDirectory(tmp_path / "run")
    config = again(config, run.path)

    def fill(texts):
        raise FileError.of("write", run.logs, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    line = f"cannot write {run.logs}: No space left on device. The same command goes on after update {steps}$"
    with pytest.raises(CheckpointError, match=line):
        train(config, translate=fill)
    train(config)
    assert_same_state(run, expected)
    assert_same_curves(run, expected)


@pytest.mark.slow
def test_a_run_without_patience_for_more_epochs_ends_early_and_stays_ended(uninterrupted, tmp_path):
    """All epochs have the same BLEU here: the first remains the best."""
    expected, config, _, _ = uninterrupted
    config = again(config, tmp_path, patience=1, epochs=5)
    _, _, printed = train(config)
    assert "no better validation bleu since epoch 1" in printed
    assert_same_state(RunDirectory(tmp_path), expected)  # which has 2 epochs
    train(config, before_fit=functools.partial(interrupt_after, 1))
    assert_same_state(RunDirectory(tmp_path), expected)


@pytest.mark.slow
def test_adapters_alone_are_trained_and_resumed_to_the_bit_and_the_finished_model_has_them_inside(
    copy_of_finished, tmp_path
):
    """A run that starts from another needs it no more when it is resumed."""
    origin, config = copy_of_finished
    how = {"init_from": str(origin.path), "vocabulary_size": 997, "dropout_rate": 0.1, "lora_rank": 2}
    config = again(config, tmp_path / "run", **how, average_epochs=1, validate_every=2, max_steps=4)
    run, stopped = RunDirectory(config.model_dir), RunDirectory(tmp_path / "stopped")
    trainer, _, printed = train(config)
    assert "of its adapters are trained" in printed
    assert (run.path / SHARED).read_bytes() == (origin.path / SHARED).read_bytes()
    for old, new in zip(load_model(origin.model).weights, load_model(run.model).weights, strict=True):
        change = np.array(new) - np.array(old)
        is_adapted = old.path.endswith("kernel")
        assert np.linalg.matrix_rank(change, tol=1e-5) == 2 if is_adapted else not change.any(), old.path
    for checkpoint in ("last", "2"):
        network, _ = load_network(run, checkpoint)
        assert_weights(network, merged_weights(trainer.network), tolerance=1e-6)
    assert load_network(run, "best")[1] == [run.best]
    assert run.last.stat().st_size < run.frozen.stat().st_size and run.best.stat().st_size < run.last.stat().st_size

    config = again(config, stopped.path)
    with pytest.raises(KeyboardInterrupt):
        train(config, before_fit=functools.partial(interrupt_after, 3))
    shutil.rmtree(origin.path)
    train(config)
    assert_same_state(stopped, run)


def sizes(source, target=None):
    """As much of `Data` as a model needs."""
    source, target = (SimpleNamespace(vocabulary_size=size) for size in (source, target or source))
    train = tiny.encoded_pairs([3], [2], 7)
    return SimpleNamespace(source_tokenizer=source, target_tokenizer=target, train=train)


def test_the_trainer_has_the_settings_of_the_config():
    config = tiny.config("corpus", "run", label_smoothing=0.13, accumulate_steps=3, clip_norm=0.7, ema_decay=0.9)
    trainer = tiny.build_trainer(config, sizes(503))
    settings = ("accumulate_steps", "clip_norm", "ema_decay")
    for holder in (config, trainer, trainer.updates):
        assert [getattr(holder, name) for name in settings] == [3, 0.7, 0.9]
    assert trainer.token_loss.label_smoothing == 0.13
    assert trainer.network.output_matrix.shape == (503, config.d_model)
    arguments = trainer.network.get_config()
    shared = {name: value for name, value in vars(config).items() if name in arguments and name != "vocabulary_size"}
    assert len(shared) == 26 and {name: arguments[name] for name in shared} == shared
    assert type(trainer.optimizer) is Adam  # the paper's, with the paper's peak at the end of the warm-up
    assert [getattr(trainer.optimizer, name) for name in ("beta_1", "beta_2", "epsilon")] == [0.9, 0.98, 1e-9]
    other = tiny.build_trainer(again(config, "run", optimizer="lion", peak_learning_rate=0.7), sizes(503))
    assert type(other.optimizer) is keras.optimizers.Lion
    for each, peak in ((trainer, (config.d_model * config.warmup_steps) ** -0.5), (other, 0.7)):
        each.optimizer.iterations.assign(config.warmup_steps - 1)
        assert float(each.optimizer.learning_rate) == pytest.approx(peak)


def test_two_vocabularies_give_each_side_its_matrix():
    for tied in (True, False):
        config = tiny.config("corpus", "run", share_vocabulary=False, tie_embeddings=tied)
        shapes = [weight.shape for weight in module.make_network(config, sizes(503, 397), "float32").weights]
        source, target = ((size, config.d_model) for size in (503, 397))
        assert (shapes.count(source), shapes.count(target)) == (1, 1 if tied else 2)


@pytest.mark.slow
def test_exponential_averages_are_validated_kept_and_exported_and_never_trained_from(uninterrupted, tmp_path):
    run, config, _, _ = uninterrupted
    seen, trainers = [], []

    def translate(texts):
        seen.append(trainers[0].network.get_weights())
        return list(texts)

    with_averages = again(config, tmp_path / "run", ema_decay=0.7)
    trainer, _, printed = train(with_averages, translate, before_fit=trainers.append)
    averages = [average.numpy() for average in trainer.updates.averages]
    found = RunDirectory(with_averages.model_dir)
    one, other = arrays(found.last), arrays(run.last)
    assert one.keys() > other.keys()
    for name in other.keys() - {"progress"}:  # training itself is as without
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert any(
        np.abs(x - y.numpy()).max() > 1e-4 for x, y in zip(averages, trainer.network.trainable_variables, strict=True)
    )
    assert_weights(load_model(found.model), averages)
    for x, other in zip(averages, seen[-1], strict=True):
        np.testing.assert_array_equal(x, other)
    losses = [[loss for _, loss in read_events(r.logs / "validation")["loss"]] for r in (found, run)]
    assert losses[0][-1] != losses[1][-1]
    assert "the exponential average at the end of epoch 2" in printed


@pytest.mark.slow
def test_a_run_with_all_that_others_lack_goes_on_exactly_where_it_was(corpus, tmp_path):
    settings = {"strategy": "one_device", "optimizer": "lion", "peak_learning_rate": 0.001, "clip_norm": 0.5}
    settings |= {"accumulate_steps": 3, "ema_decay": 0.7, "share_vocabulary": False, "tie_embeddings": False}
    settings |= {"save_minutes": 0, "max_steps": 2, **SETTINGS}
    whole, halves = (tiny.config(corpus, tmp_path / name, **settings) for name in ("whole", "halves"))
    train(whole)
    train(again(halves, halves.model_dir, max_steps=1))
    run = RunDirectory(halves.model_dir)
    assert run.model.exists()  # a run of so many steps is a finished one
    _, _, printed = train(halves)
    assert "resuming    after update 1" in printed
    assert progress_of(run)["step"] > 1
    assert_same_state(run, RunDirectory(whole.model_dir))


@pytest.mark.slow
def test_a_run_of_two_vocabularies_is_finished_and_scored_with_its_two_tokenizers(corpus, tmp_path):
    """By `train` itself, which translates with the tokenizers of the run directory."""
    settings = {"share_vocabulary": False, "tie_embeddings": False, "beam_size": 2, "max_steps": 2}
    config = tiny.config(corpus, tmp_path / "run", strategy="one_device", **settings)
    run, split, evaluation = module.train(config, measure, choose_tokenization)
    assert sorted(path.name for path in run.path.glob("*.model")) == [SOURCE, TARGET]
    source, target = (Tokenizer.load(run.path / name).vocabulary_size for name in (SOURCE, TARGET))
    model = load_model(run.model)
    assert (model.vocabulary_size, model.target_vocabulary_size, model.tie_embeddings) == (source, target, False)
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert split == results["set"] == "test" and results["bleu"] == evaluation.bleu


def test_a_short_run_has_curves_too():
    for last_step, every in ((1, 1), (39, 1), (60, 3), (999, 49), (10**6, 50)):
        assert POINTS_EVERY(Plan(7, last_step)) == every


@pytest.mark.slow
def test_validation_every_few_updates_trains_to_the_same_weights(uninterrupted, tmp_path):
    """What is validated changes, and never what is learned: the data goes on where it was."""
    by_pass, config, steps, _ = uninterrupted
    often, data, printed = train(again(config, tmp_path / "often", validate_every=2))
    last = 2 * steps
    assert often.updates.optimizer.iterations == progress_of(by_pass)["step"] == last and last % 2 == 0
    assert_weights(often.network, weights_in(by_pass.epochs()[-1]))
    steps = [step for step, _ in read_events(tmp_path / "often/logs/validation")["loss"]]
    assert steps == list(range(2, last + 1, 2))
    seen = dict(read_events(tmp_path / "often/logs/train")["target_tokens_seen"])
    assert seen[max(seen)] == pytest.approx(2 * len(data.train.target.ids) * max(seen) / last, rel=0.2)


def varying(sources, targets, tokenizer, batches, **rates):
    """Pairs, and the function by which batches vary with these rates."""
    encoded = tokenizer.encode(sources), with_eos(tokenizer.encode(targets))
    pairs = EncodedPairs(*(Sentences(ids.values.numpy(), ids.row_splits.numpy()) for ids in encoded), {})
    rates = {**dict.fromkeys(("subword_dropout_rate", *module.VARIED), 0.0), **rates}
    data = SimpleNamespace(train=pairs, tokenizers=(tokenizer, tokenizer))
    return pairs, module.variation(SimpleNamespace(max_length=99, **rates), data, batches)


@pytest.mark.parametrize("name", ["subword_dropout_rate", *module.VARIED])
def test_a_batch_is_varied_as_the_settings_say(name):
    tokenizer, sides = tiny.keeping_tokenizer(), (["seven Ann 12", "two of Bob"] * 7, ["12 Ann sieben", "Bob zwei"] * 7)
    pairs, vary = varying(*sides, tokenizer, 10, **{name: 0.999})
    one, same, other = (vary(pairs, np.random.default_rng(seed), 8) for seed in (3, 3, 5))
    assert not np.array_equal(one.source.ids, pairs.source.ids)
    assert np.array_equal(one.target.ids, pairs.target.ids) == (name == "typos")  # people make them in what they type
    np.testing.assert_array_equal(one.source.ids, same.source.ids)
    assert name not in ("typos", "noise") or not np.array_equal(one.source.ids, other.source.ids)
    assert any("⟦" in text for text in one.source.texts(tokenizer)) == (name == "protect")
    assert varying(*sides, tokenizer, 10)[1] is None


def test_links_follow_their_words_into_other_pieces_and_the_last_tenth_of_a_run_has_no_subword_dropout():
    pairs, vary = varying(["seven one"] * 17, ["sieben eins"] * 17, tiny.tokenizer(), 40, subword_dropout_rate=0.5)
    sizes = [len(tiny.tokenizer().tokenize([word])[0]) for word in ("sieben", "seven")]
    places = [(row, t, s) for row in range(17) for t in range(sizes[0]) for s in range(sizes[1])]
    pairs = replace(pairs, links=as_rows(*np.array(places).T, 17))

    def first_word(ids):
        """The number of pieces of the first word."""
        pieces = tiny.tokenizer().visible_pieces(ids)
        return next(place for place, piece in enumerate(pieces) if place and piece.startswith("▁"))

    for number in range(40):
        varied = vary(pairs, np.random.default_rng(number), number)
        expected = [
            {(t, s) for t in range(first_word(target)) for s in range(first_word(source))}
            for source, target in zip(varied.source.lists(), varied.target.lists(), strict=True)
        ]
        assert [{divmod(link, PLACES) for link in row} for row in varied.links.lists()] == expected
        grew = [len(varied.source.ids) > len(pairs.source.ids), len(varied.target.ids) > len(pairs.target.ids)]
        assert grew == [number < 36] * 2, number
        assert (max(map(len, expected)) > sizes[0] * sizes[1]) == (number < 36)
