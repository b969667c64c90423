import contextlib
import functools
import io
import json
import re
import resource
import shutil
import signal
import zipfile
from types import SimpleNamespace

import h5py
import keras
import numpy as np
import pytest
import yaml

from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.data.pipeline import count_batches, training_batches
from keras_transformer.errors import CheckpointError, ConfigError
from keras_transformer.evaluation import choose_tokenization, measure
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, Tokenizer, with_eos
from keras_transformer.training import train as module
from keras_transformer.training import validation, watchers
from keras_transformer.training.checkpoints import load_variables
from keras_transformer.training.decide import Plan
from keras_transformer.training.preparation import prepare
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
    one, other = arrays(found.last), arrays(expected.last)
    assert one.keys() == other.keys()
    for name in one.keys() - {"progress"}:
        np.testing.assert_allclose(one[name], other[name], atol=tolerance, rtol=0, err_msg=name)
    one, other = weights_of_model(found), weights_of_model(expected)
    assert one.keys() == other.keys() and len(one) > 20
    for name, weight in one.items():
        np.testing.assert_allclose(weight, other[name], atol=tolerance, rtol=0, err_msg=name)


def weights_of_model(run):
    """All arrays in model.keras by their names, without the time that it takes to make a model of them."""
    found = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with zipfile.ZipFile(run.model) as archive, archive.open("model.weights.h5") as file, h5py.File(file) as weights:
        weights.visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
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


def assert_interruption_changes_nothing(config, model_dir):
    """Trains an interrupted run in `model_dir` to its end: it is, to the bit, the finished run of the config."""
    found = again(config, model_dir)
    with pytest.raises(KeyboardInterrupt):
        train(found, before_fit=functools.partial(interrupt_after, 7))
    train(found)
    assert_same_state(RunDirectory(found.model_dir), RunDirectory(config.model_dir))
    assert_same_curves(RunDirectory(found.model_dir), RunDirectory(config.model_dir))


@pytest.fixture
def copy_of_finished(uninterrupted, tmp_path):
    """(run, config) of a copy that tests may change."""
    run, config, _, _ = uninterrupted
    shutil.copytree(run.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy"), again(config, tmp_path / "copy")


# What a run leaves.


def test_run_directory_explains_itself(uninterrupted, corpus):
    run, config, steps, _ = uninterrupted
    assert steps >= 4
    assert yaml.safe_load(run.config.read_text(encoding="utf-8"))["dataset"] == config.dataset
    assert type(config).load(run.config) == config
    assert Tokenizer.load(run.path / SHARED).vocabulary_size == tiny.VOCABULARY
    assert [path.name for path in run.epochs()] == ["epoch_0001.npz", "epoch_0002.npz"]
    assert progress_of(run)["step"] == 2 * steps
    assert run.best.exists() and run.model.exists()
    sources = (corpus / "val.en").read_text(encoding="utf-8").splitlines()
    assert run.samples.read_text(encoding="utf-8").split("\n") == sources[: config.validation_sentences]


def test_the_finished_model_is_the_mean_of_the_epochs_in_float32(uninterrupted):
    run, config, _, _ = uninterrupted
    model = load_model(run.model)
    assert model.dtype_policy.name == "float32" and {weight.dtype for weight in model.weights} == {"float32"}
    first, second = (weights_in(path) for path in run.epochs())
    for weight, *epochs in zip(model.weights, first, second, strict=True):
        np.testing.assert_allclose(weight.numpy(), np.mean(epochs, axis=0), atol=1e-7)
    assert np.abs(first[0] - second[0]).max() > 1e-3


def test_curves_are_in_the_logs(uninterrupted):
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


def test_tokens_seen_and_padding_are_those_of_the_batches(uninterrupted):
    run, config, steps, _ = uninterrupted
    with contextlib.redirect_stdout(None):
        pairs = prepare(config, run).train
    tokens, padding = [], []
    for batch, (inputs, labels) in enumerate(training_batches(pairs, config.batch_tokens, config.seed).take(2 * steps)):
        if batch % steps == 0:
            is_padding = []  # of this epoch
        is_padding += [(ids.numpy() == 0).ravel() for ids in inputs.values()]
        padding.append(np.concatenate(is_padding).mean())
        tokens.append(np.sum(labels != 0))
    curves = read_events(run.logs / "train")
    assert [seen for _, seen in curves["target_tokens_seen"]] == np.cumsum(tokens)[2::3].tolist()
    assert [share for _, share in curves["padding"]] == pytest.approx(padding[2::3])


def test_all_settings_are_in_the_logs(uninterrupted):
    run, config, _, _ = uninterrupted
    ((step, text),) = read_events(run.logs / "train")["config"]
    assert step == 0
    for name in vars(config):
        assert f"{name}: " in text
    assert f"dataset: {config.dataset}" in text and "source_lang: en" in text


def test_the_corpus_and_the_model_are_printed(uninterrupted):
    _, _, _, printed = uninterrupted
    lines = printed.splitlines()
    assert lines[0].endswith("pairs: en to de")
    assert any(line.startswith("train") and "211 pairs" in line and "none dropped" in line for line in lines)
    assert any(line.startswith("validation") and "13 pairs" in line for line in lines)
    assert any(line.startswith("model") and "parameters" in line for line in lines)


def test_every_epoch_has_a_line_and_translations_of_its_own(uninterrupted):
    _, _, _, printed = uninterrupted
    epochs = [line for line in printed.splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in epochs] == ["1/2", "2/2"]
    assert all("loss" in line and "BLEU 5.0" in line for line in epochs)
    assert len(re.findall(r"^ {12}\S.* -> \S", printed, re.MULTILINE)) == 4


def test_training_learns(uninterrupted):
    run, _, steps, _ = uninterrupted
    (_, first), (_, last) = read_events(run.logs / "validation")["loss"]
    assert last < first < np.log(tiny.VOCABULARY) + 0.5


# Going on.


def test_the_same_command_on_a_finished_run_trains_nothing_more(copy_of_finished, uninterrupted):
    run, config = copy_of_finished
    before = run.last.read_bytes()
    trainer, _, printed = train(config, before_fit=lambda trainer: interrupt_after(1, trainer))
    assert "resuming" in printed and run.last.read_bytes() == before
    assert_same_state(run, uninterrupted[0])
    for weight, value in zip(trainer.network.weights, weights_in(run.epochs()[-1]), strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.slow
def test_max_steps_in_the_middle_of_an_epoch_and_then_the_rest_is_an_uninterrupted_run(uninterrupted, tmp_path):
    expected, config, steps, _ = uninterrupted
    config = again(config, tmp_path / "run")
    trainer, _, _ = train(again(config, tmp_path / "run", max_steps=steps + 2))
    run = RunDirectory(tmp_path / "run")
    assert int(trainer.optimizer.iterations.numpy()) == steps + 2
    assert run.model.exists()  # a run of so many steps is a finished one
    _, _, printed = train(config)
    assert f"resuming    after update {steps + 2:,}" in printed
    assert_same_state(run, expected)


@pytest.fixture(scope="module")
def interrupted(uninterrupted, tmp_path_factory):
    """(a run that was interrupted twice and then trained to its end, a copy from each interruption)."""
    _, config, steps, _ = uninterrupted
    directory = tmp_path_factory.mktemp("interrupted")
    run = RunDirectory(directory / "run")
    config = again(config, run.path)
    with pytest.raises(KeyboardInterrupt):  # in the middle of the first epoch
        train(config, before_fit=functools.partial(interrupt_after, 2))
    assert progress_of(run)["step"] == 2 and not run.model.exists()
    shutil.copytree(run.path, directory / "2 steps")
    with pytest.raises(KeyboardInterrupt):  # while the first epoch is validated
        train(config, translate=interrupt_translation)
    assert (progress_of(run)["step"], progress_of(run)["ended"]) == (steps, 0) and not run.model.exists()
    shutil.copytree(run.path, directory / "1 epoch")
    train(config)
    return run, RunDirectory(directory / "2 steps"), RunDirectory(directory / "1 epoch")


@pytest.mark.slow
def test_a_run_interrupted_again_and_again_is_an_uninterrupted_run(interrupted, uninterrupted):
    run, _, _ = interrupted
    assert_same_state(run, uninterrupted[0])
    assert_same_curves(run, uninterrupted[0])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "settings"), [(1, {"max_steps": 2}), (2, {"epochs": 1})], ids=["update", "epoch"])
def test_a_run_interrupted_at_its_end_gets_its_model_without_an_update(interrupted, uninterrupted, number, settings):
    run, (_, config, _, _) = interrupted[number], uninterrupted
    before = {name: value for name, value in arrays(run.last).items() if "seed_generator" not in name}
    train(again(config, run.path, **settings), before_fit=functools.partial(interrupt_after, 1))
    for weight, value in zip(load_model(run.model).weights, before.values(), strict=False):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.slow
def test_a_run_interrupted_on_two_replicas_goes_on_on_two_or_on_one(corpus, tmp_path):
    run, expected, trainers = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "expected"), []
    settings = {"strategy": "mirrored", "precision": "bfloat16", "num_layers": 1, "max_steps": 5, **SETTINGS}
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


@pytest.mark.slow
def test_fewer_epochs_may_be_averaged_afterwards(copy_of_finished):
    run, config = copy_of_finished
    train(again(config, run.path, average_epochs=1))
    for weight, value in zip(load_model(run.model).weights, weights_in(run.epochs()[-1]), strict=True):
        np.testing.assert_allclose(weight.numpy(), value, atol=1e-7)


def test_results_do_not_outlive_their_model(copy_of_finished):
    run, config = copy_of_finished
    run.results.write_text("set: test\n")
    module.finish(config, run, prepare(config, run))
    assert not run.results.exists()


def test_a_lost_epoch_is_named_and_the_others_are_the_model(copy_of_finished):
    run, config = copy_of_finished
    run.epoch(1).unlink()
    _, _, printed = train(config)
    assert f"left out    cannot read {run.epoch(1)}: " in printed and "the average of epoch 2" in printed
    for weight, value in zip(load_model(run.model).weights, weights_in(run.epoch(2)), strict=True):
        np.testing.assert_allclose(weight.numpy(), value, atol=1e-7)


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
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(texts):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # bytes of a file
        return echo(texts)

    try:
        with pytest.raises(CheckpointError) as full:
            train(config, translate=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    place = re.escape(str(run.path))
    line = rf"cannot write {place}/\S+: File too large. The same command goes on after update {steps}"
    assert re.fullmatch(line, str(full.value))
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
def test_a_run_can_start_from_weights_and_tokenizer_of_another_and_then_needs_it_no_more(copy_of_finished, tmp_path):
    origin, config = copy_of_finished
    started = {"init_from": str(origin.path), "vocabulary_size": 997, "peak_learning_rate": 1e-9, "dropout_rate": 0.1}
    run = RunDirectory(tmp_path / "run")
    train(again(config, run.path, **started, max_steps=1))
    assert (run.path / SHARED).read_bytes() == (origin.path / SHARED).read_bytes()
    models = [load_model(path) for path in (run.model, origin.model)]
    for weight, start in zip(*(model.weights for model in models), strict=True):
        np.testing.assert_allclose(weight.numpy(), start.numpy(), atol=1e-7)
    shutil.rmtree(origin.path)
    train(again(config, run.path, **started, max_steps=2))
    assert progress_of(run)["step"] == 2


# What is refused.


def test_another_model_to_start_from_is_refused_before_anything_is_written(uninterrupted, tmp_path):
    origin, config, _, _ = uninterrupted
    with pytest.raises(ConfigError, match="holds another model: d_ff is 17, not 19"):
        prepare(again(config, tmp_path / "run", init_from=str(origin.path), d_ff=19), RunDirectory(tmp_path / "run"))
    assert not RunDirectory(tmp_path / "run").config.exists()


# The parts.


def sizes(source, target=None):
    """As much of `Data` as a model needs."""
    tokenizers = {
        name: SimpleNamespace(vocabulary_size=size)
        for name, size in {"source": source, "target": target or source}.items()
    }
    named = {f"{name}_tokenizer": tokenizer for name, tokenizer in tokenizers.items()}
    return SimpleNamespace(**named, train=tiny.encoded_pairs([3], [2], 7))


def test_the_trainer_has_the_settings_of_the_config(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path, label_smoothing=0.13, accumulate_steps=3, clip_norm=0.7, ema_decay=0.9)
    trainer = tiny.build_trainer(config, sizes(503))
    settings = ("accumulate_steps", "clip_norm", "ema_decay")
    assert [getattr(trainer, name) for name in settings] == [getattr(config, name) for name in settings]
    assert [getattr(trainer.updates, name) for name in settings] == [3, 0.7, 0.9]
    assert trainer.token_loss.label_smoothing == 0.13
    assert trainer.network.output_matrix.shape == (503, config.d_model)
    arguments = trainer.network.get_config()
    shared = {name: value for name, value in vars(config).items() if name in arguments and name != "vocabulary_size"}
    assert len(shared) == 25 and {name: arguments[name] for name in shared} == shared


def test_the_optimizer_is_the_paper_s_unless_the_config_names_another(corpus, tmp_path):
    optimizer = tiny.build_trainer(tiny.config(corpus, tmp_path), sizes(503)).optimizer
    assert type(optimizer) is Adam
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert (
        type(tiny.build_trainer(tiny.config(corpus, tmp_path, optimizer="lion"), sizes(503)).optimizer)
        is keras.optimizers.Lion
    )


def test_the_rate_peaks_at_the_end_of_the_warm_up(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path)
    rates = [(config.d_model * config.warmup_steps) ** -0.5, 0.7]
    for given, peak in zip((None, 0.7), rates, strict=True):
        trainer = tiny.build_trainer(again(config, tmp_path, peak_learning_rate=given), sizes(503))
        trainer.optimizer.iterations.assign(config.warmup_steps - 1)
        assert float(trainer.optimizer.learning_rate) == pytest.approx(peak)


@pytest.mark.slow
def test_two_vocabularies_give_each_side_its_matrix(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path, share_vocabulary=False)
    shapes = lambda **settings: [  # noqa: E731
        tuple(weight.shape)
        for weight in tiny.build_trainer(again(config, tmp_path, **settings), sizes(503, 397)).network.weights
        if weight.shape[-1] == config.d_model and weight.shape[0] in (503, 397)
    ]
    assert shapes() == [(503, config.d_model), (397, config.d_model)]
    assert sorted(shapes(tie_embeddings=False)) == [(397, config.d_model)] * 2 + [(503, config.d_model)]


def test_a_checkpoint_is_refused_if_the_model_is_another(uninterrupted, tmp_path):
    run, config, _, _ = uninterrupted
    other = tiny.build_trainer(again(config, tmp_path, d_ff=19), sizes(tiny.VOCABULARY))
    with pytest.raises(CheckpointError, match="was written by a different model"):
        load_variables(run.last, other.resumable_variables)


# Averages, other optimizers, other vocabularies.


@pytest.mark.slow
def test_exponential_averages_are_validated_kept_and_exported_and_never_trained_from(uninterrupted, tmp_path):
    run, config, _, _ = uninterrupted
    seen = []

    def translate(texts):
        seen.append(values_of(trainers[0].network.weights))
        return list(texts)

    trainers = []
    with_averages = again(config, tmp_path / "run", ema_decay=0.7)
    trainer, _, printed = train(with_averages, translate, before_fit=trainers.append)
    averages = values_of(trainer.updates.averages)
    found = RunDirectory(with_averages.model_dir)
    one, other = arrays(found.last), arrays(run.last)
    assert one.keys() > other.keys()
    for name in other.keys() - {"progress"}:  # training itself is as without
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert any(
        np.abs(x - y).max() > 1e-4
        for x, y in zip(averages, values_of(trainer.network.trainable_variables), strict=True)
    )
    exported = values_of(load_model(found.model).weights)
    for x, *others in zip(averages, seen[-1], exported, strict=True):
        for other in others:
            np.testing.assert_array_equal(x, other)
    losses = [[loss for _, loss in read_events(r.logs / "validation")["loss"]] for r in (found, run)]
    assert losses[0][-1] != losses[1][-1]
    assert "the exponential average at the end of epoch 2" in printed

    found.epoch(2).write_bytes(b"damaged")
    _, _, printed = train(with_averages)
    assert f"left out    cannot read {found.epoch(2)}: " in printed
    assert "the exponential average at the end of epoch 1" in printed
    for x, value in zip(seen[0], values_of(load_model(found.model).weights), strict=True):
        np.testing.assert_array_equal(x, value)


LION = {"optimizer": "lion", "clip_norm": 0.5, "peak_learning_rate": 0.001, "accumulate_steps": 3, "save_minutes": 0}
ADAMW = {"optimizer": "adamw", "ema_decay": 0.7, "share_vocabulary": False, "tie_embeddings": False}
GO_ON = {"lion, clipped, accumulated": LION, "adamw, averaged, three matrices": ADAMW}


@pytest.mark.slow
@pytest.mark.parametrize("settings", GO_ON.values(), ids=GO_ON)
def test_a_run_goes_on_exactly_where_it_was(corpus, tmp_path, settings):
    whole, halves = (
        tiny.config(corpus, tmp_path / name, **SETTINGS, **settings, max_steps=3) for name in ("whole", "halves")
    )
    train(whole)
    train(again(halves, halves.model_dir, max_steps=1))
    _, _, printed = train(halves)
    assert "resuming    after update 1" in printed
    assert progress_of(RunDirectory(whole.model_dir))["step"] == 3
    assert_same_state(RunDirectory(halves.model_dir), RunDirectory(whole.model_dir))


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


def values_of(variables):
    return [variable.numpy() for variable in variables]


# Epochs of a number of updates, and the points of curves.


@pytest.mark.parametrize(("last_step", "every"), [(1, 1), (39, 1), (60, 3), (999, 49), (10**6, 50)])
def test_a_short_run_has_curves_too(last_step, every):
    assert POINTS_EVERY(Plan(7, last_step)) == every


@pytest.mark.slow
def test_validation_every_few_updates_trains_to_the_same_weights(corpus, tmp_path):
    """What is validated changes, and never what is learned: the data goes on where it was."""
    by_pass, _, _ = train(tiny.config(corpus, tmp_path / "pass", **SETTINGS))
    often, data, printed = train(tiny.config(corpus, tmp_path / "often", **SETTINGS, validate_every=2))
    last = 2 * count_batches(data.train, 401)
    assert by_pass.updates.optimizer.iterations == often.updates.optimizer.iterations == last and last % 2 == 0
    for one, other in zip(often.network.weights, by_pass.network.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    steps = [step for step, _ in read_events(tmp_path / "often/logs/validation")["loss"]]
    assert steps == list(range(2, last + 1, 2))
    seen = dict(read_events(tmp_path / "often/logs/train")["target_tokens_seen"])
    assert seen[max(seen)] == pytest.approx(2 * len(data.train.target.ids) * max(seen) / last, rel=0.2)


@pytest.mark.parametrize("rates", [(0.9, 0.0), (0.0, 0.9), (0.9, 0.9)])
def test_a_batch_is_varied_as_the_settings_say(rates):
    protect, dropout = rates
    tokenizer, words = tiny.keeping_tokenizer(), [("seven Ann 12", "12 Ann sieben"), ("2012 Bob", "Bob 2012")] * 7
    source, target = (tokenizer.encode(list(side)) for side in zip(*words, strict=True))
    sides = [Sentences(ids.values.numpy(), ids.row_splits.numpy()) for ids in (source, with_eos(target))]
    pairs = EncodedPairs(*sides, {})
    unchanged = dict.fromkeys(module.CHANGES, 0.0)
    config = SimpleNamespace(protect=protect, subword_dropout_rate=dropout, max_length=99, **unchanged)
    data = SimpleNamespace(train=pairs, tokenizers=(tokenizer, tokenizer))
    varied = module.variation(config, data, 10)(pairs, np.random.default_rng(3), 8)
    texts = [side.texts(tokenizer) for side in (varied.source, varied.target)]
    has_marks = [any("⟦" in text for text in side) for side in texts]
    assert has_marks == [protect > 0, protect > 0]
    assert (texts == [list(side) for side in zip(*words, strict=True)]) == (protect == 0)
    whole = tokenizer.encode(texts[0])
    assert (len(varied.source.ids) > len(whole.values)) == (dropout > 0)
    assert (len(varied.target.ids) > len(tokenizer.encode(texts[1]).values) + len(words)) == (dropout > 0)
    settings = SimpleNamespace(protect=0.0, subword_dropout_rate=0.0, max_length=99, **unchanged)
    assert module.variation(settings, data, 10) is None


def test_the_last_tenth_of_a_run_has_no_subword_dropout():
    tokenizer = tiny.tokenizer()
    source, target = (tokenizer.encode([side] * 17) for side in ("seven one", "sieben eins"))
    sides = [Sentences(ids.values.numpy(), ids.row_splits.numpy()) for ids in (source, with_eos(target))]
    data = SimpleNamespace(train=EncodedPairs(*sides, {}), tokenizers=(tokenizer, tokenizer))
    rates = dict.fromkeys(("protect", *module.CHANGES), 0.0)
    vary = module.variation(SimpleNamespace(subword_dropout_rate=0.5, max_length=99, **rates), data, 40)
    for number in range(40):
        varied = vary(data.train, np.random.default_rng(number), number)
        grew = [
            len(now.ids) > len(before.ids) for now, before in zip((varied.source, varied.target), sides, strict=True)
        ]
        assert grew == [number < 36] * 2, number


@pytest.mark.parametrize(
    ("name", "sources", "targets"),
    [
        ("upper_case", {"SEVEN ONE"}, {"SIEBEN EINS"}),
        ("title_case", {"Seven One"}, {"Sieben Eins"}),
        ("typos", None, {"sieben eins"}),
        ("noise", None, None),
    ],
)
def test_a_batch_is_typed_as_the_settings_say_and_anew_in_every_epoch(name, sources, targets):
    tokenizer = tiny.tokenizer()
    source, target = (tokenizer.encode([side] * 17) for side in ("seven one", "sieben eins"))
    sides = [Sentences(ids.values.numpy(), ids.row_splits.numpy()) for ids in (source, with_eos(target))]
    data = SimpleNamespace(train=EncodedPairs(*sides, {}), tokenizers=(tokenizer, tokenizer))
    rates = {**dict.fromkeys(module.CHANGES, 0.0), name: 0.999}
    vary = module.variation(SimpleNamespace(protect=0.0, subword_dropout_rate=0.0, max_length=99, **rates), data, 10)
    epochs = [vary(data.train, np.random.default_rng((3, epoch, 0)), epoch) for epoch in (0, 0, 1)]
    texts = [[side.texts(tokenizer) for side in (pairs.source, pairs.target)] for pairs in epochs]
    assert texts[0] == texts[1] and (texts[0] != texts[2] or sources)
    if sources:
        assert (set(texts[0][0]), set(texts[0][1])) == (sources, targets)
    else:
        assert len(set(texts[0][0])) > 5 and (not targets or set(texts[0][1]) == targets)
