import contextlib
import errno
import functools
import io
import itertools
import json
import os
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import yaml

from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.data.links import PLACES, as_rows
from keras_transformer.data.pipeline import count_batches
from keras_transformer.errors import CheckpointError, FileError
from keras_transformer.evaluation import measure
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
    """Of two runs: progress, weights, optimizer and dropout seeds, and the weights of every epoch."""
    one, other = ({**progress_of(run), "metrics": {}} for run in (found, expected))
    assert one == other and len(found.epochs()) == len(expected.epochs()) > 0
    for path in (found.last, *found.epochs()):
        one, other = arrays(path), arrays(expected.checkpoints / path.name)
        assert one.keys() == other.keys() and len(one) > 20
        for name in one.keys() - {"progress"}:
            np.testing.assert_allclose(one[name], other[name], atol=tolerance, rtol=0, err_msg=name)


def assert_weights(network, expected, tolerance=0):
    """Of a network, these arrays."""
    for weight, value in zip(network.weights, expected, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, atol=tolerance, rtol=0)


def interrupt_in(update, trainer, interrupt=lambda: signal.raise_signal(signal.SIGINT)):
    """Interrupts at the begin of an update, counted from 1."""
    trainer.make_train_function()
    inner, numbers = trainer.train_function, itertools.count(1)

    def interrupted(batches):
        if next(numbers) == update:
            interrupt()
        return inner(batches)

    trainer.train_function = interrupted


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """(run, config, steps per epoch) of a run from start to end; tests do not change it."""
    config = tiny.config(corpus, tmp_path_factory.mktemp("runs") / "uninterrupted", strategy="one_device", **SETTINGS)
    _, data, _ = train(config)
    return RunDirectory(config.model_dir), config, count_batches(data.train, config.batch_tokens)


@pytest.fixture
def copy_of_finished(uninterrupted, tmp_path):
    """(run, config) of a copy that tests may change."""
    run, config, _ = uninterrupted
    shutil.copytree(run.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy"), replace(config, model_dir=tmp_path / "copy")


# What a run leaves.


def test_run_directory_explains_itself(uninterrupted, corpus):
    run, config, steps = uninterrupted
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
    run, config, steps = uninterrupted
    training, validation = read_events(run.logs / "train"), read_events(run.logs / "validation")
    curves = {"loss", "accuracy", "perplexity", "padding", "learning_rate", "memory/resident_mib"}
    curves |= {"target_tokens_seen", "target_tokens_per_second", "gradient_norm"}
    assert training.keys() == {*curves, "config"}
    for name in curves:
        assert [step for step, _ in training[name]] == list(range(3, 2 * steps + 1, 3))
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


# Going on.


def test_the_same_command_on_a_finished_run_trains_nothing_more(copy_of_finished, uninterrupted):
    run, config = copy_of_finished
    before, kept = run.last.read_bytes(), run.decided.read_text(encoding="utf-8")
    trainer, _, printed = train(config, before_fit=functools.partial(interrupt_in, 1))
    assert "resuming" in printed and run.last.read_bytes() == before
    assert run.decided.read_text(encoding="utf-8") == kept
    assert_same_state(run, uninterrupted[0])
    assert_weights(trainer.network, weights_in(run.epochs()[-1]))


@pytest.mark.slow
def test_a_run_that_is_interrupted_fills_the_disk_and_loses_its_last_checkpoint_is_an_uninterrupted_run(
    uninterrupted, tmp_path
):
    """Where it stops, a command that ends the run there gives it its model without an update."""
    expected, config, steps = uninterrupted
    run, copy = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "copy")
    config = replace(config, model_dir=run.path)

    def fill(texts):
        raise FileError.of("write", run.logs, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    line = f"cannot write {run.logs}: No space left on device. The same command goes on after update {steps}$"
    for how, stopped, end, step in (
        ({"before_fit": functools.partial(interrupt_in, 2)}, pytest.raises(KeyboardInterrupt), {"max_steps": 2}, 2),
        ({"translate": fill}, pytest.raises(CheckpointError, match=line), {"epochs": 1}, steps),  # in validation
    ):
        with stopped:
            train(config, **how)
        assert (progress_of(run)["step"], progress_of(run)["ended"]) == (step, 0) and not run.model.exists()
        shutil.copytree(run.path, copy.path)
        train(replace(config, model_dir=copy.path, **end), before_fit=functools.partial(interrupt_in, 1))
        saved = [value for key, value in arrays(run.last).items() if "seed_generator" not in key]
        model = load_model(copy.model)
        assert_weights(model, saved[: len(model.weights)])
        shutil.rmtree(copy.path)
    run.last.write_bytes(run.last.read_bytes()[:-101])
    run.epoch(3).write_bytes(b"of an epoch that is not yet")
    _, _, printed = train(config)
    assert "going back to previous.npz" in printed
    assert_same_state(run, expected)
    assert_same_curves(run, expected)


@pytest.mark.slow
def test_a_run_interrupted_on_two_replicas_goes_on_on_two_or_on_one(corpus, tmp_path):
    """A run that saves after every update is copied after the third, which is how an interruption leaves it."""
    expected, one, two = (RunDirectory(tmp_path / name) for name in ("expected", "one", "two"))
    settings = {"strategy": "mirrored", "precision": "bfloat16", "max_steps": 5, "save_minutes": 0, **SETTINGS}
    config = tiny.config(corpus, expected.path, guided_alignment=0.1, **settings)
    expected.checkpoints.mkdir(parents=True)
    expected.epoch(9).touch()  # of a run whose checkpoints a user has removed: no part of the average

    def copy():
        for run in (one, two):
            shutil.copytree(expected.path, run.path)

    trainer, _, _ = train(config, before_fit=functools.partial(interrupt_in, 4, interrupt=copy))
    assert len(trainer.network.weights[0].value.values) == 2 and trainer.network.compute_dtype == "bfloat16"
    saved = weights_in(one.last)
    assert progress_of(one)["step"] == 3
    resumed, _, _ = train(replace(config, model_dir=one.path, strategy="one_device", max_steps=3))
    for found, value in zip(resumed.resumable_variables, saved, strict=True):
        np.testing.assert_array_equal(found.numpy(), value)
    assert load_model(one.model).dtype_policy.name == "float32"
    train(replace(config, model_dir=two.path))
    assert_same_state(two, expected, tolerance=1e-6)


def test_fewer_epochs_may_be_averaged_afterwards(copy_of_finished):
    run, config = copy_of_finished
    run.results.write_text("set: test\n")
    fewer = replace(config, average_epochs=1)
    run.keep_settings(fewer)
    module.finish(fewer, run)
    assert_weights(load_model(run.model), weights_in(run.epoch(2)), tolerance=1e-7)
    assert not run.results.exists()  # of another model
    for path in run.epochs():
        path.unlink()
    with pytest.raises(CheckpointError, match="no weights can be read of any epoch"):
        module.finish(fewer, run)
    assert run.model.exists()


@pytest.mark.slow
def test_a_run_without_patience_for_more_epochs_ends_early_and_stays_ended(copy_of_finished, uninterrupted):
    """All epochs have the same BLEU here: the first remains the best."""
    (run, config), (_, _, steps) = copy_of_finished, uninterrupted
    config = replace(config, patience=2, epochs=5)
    _, _, printed = train(config)
    assert "no better validation bleu since epoch 1" in printed
    train(config, before_fit=functools.partial(interrupt_in, 1))
    assert progress_of(run)["step"] == 3 * steps


@pytest.mark.slow
def test_adapters_alone_are_trained_and_resumed_to_the_bit_and_the_finished_model_has_them_inside(
    copy_of_finished, tmp_path
):
    """A run that starts from another needs it no more when it is resumed."""
    origin, config = copy_of_finished
    how = {"init_from": str(origin.path), "vocabulary_size": 997, "dropout_rate": 0.1, "lora_rank": 2}
    config = replace(config, model_dir=tmp_path / "run", **how, average_epochs=1, validate_every=2, max_steps=4)
    run, stopped = RunDirectory(config.model_dir), RunDirectory(tmp_path / "stopped")
    trainer, _, printed = train(config)
    assert "of its adapters are trained" in printed
    assert (run.path / SHARED).read_bytes() == (origin.path / SHARED).read_bytes()
    for old, new in zip(load_model(origin.model).weights, load_model(run.model).weights, strict=True):
        change, is_adapted = np.array(new) - np.array(old), old.path.endswith("kernel")
        assert np.linalg.matrix_rank(change, tol=1e-5) == 2 if is_adapted else not change.any(), old.path
    for checkpoint in ("last", "2"):
        network, _ = load_network(run, checkpoint)
        assert_weights(network, merged_weights(trainer.network), tolerance=1e-6)
    assert load_network(run, "best")[1] == [run.best]
    assert run.last.stat().st_size < run.frozen.stat().st_size and run.best.stat().st_size < run.last.stat().st_size

    config = replace(config, model_dir=stopped.path)
    pytest.raises(KeyboardInterrupt, train, config, before_fit=functools.partial(interrupt_in, 3))
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
    assert trainer.token_loss.label_smoothing == 0.13 and trainer.network.output_matrix.shape == (503, config.d_model)
    arguments = trainer.network.get_config()
    shared = {name: value for name, value in vars(config).items() if name in arguments and name != "vocabulary_size"}
    assert len(shared) == 26 and {name: arguments[name] for name in shared} == shared
    assert type(trainer.optimizer) is Adam  # the paper's, with the paper's peak at the end of the warm-up
    assert [getattr(trainer.optimizer, name) for name in ("beta_1", "beta_2", "epsilon")] == [0.9, 0.98, 1e-9]
    other = tiny.build_trainer(replace(config, optimizer="lion", peak_learning_rate=0.7), sizes(503))
    assert type(other.optimizer) is keras.optimizers.Lion
    for each, peak in ((trainer, (config.d_model * config.warmup_steps) ** -0.5), (other, 0.7)):
        each.optimizer.iterations.assign(config.warmup_steps - 1)
        assert float(each.optimizer.learning_rate) == pytest.approx(peak)
    two = module.make_network(replace(config, share_vocabulary=False), sizes(503, 397), "float32")
    assert [matrix.shape[0] for matrix in (two.source_embedding.matrix, two.output_matrix)] == [503, 397]


@pytest.mark.slow
def test_a_run_with_all_that_others_lack_goes_on_exactly_where_it_was_and_its_averages_translate(corpus, tmp_path):
    """It has two vocabularies. Its averages are validated and exported, and never trained from."""
    settings = {"strategy": "one_device", "optimizer": "lion", "peak_learning_rate": 0.001, "clip_norm": 0.5}
    settings |= {"accumulate_steps": 3, "ema_decay": 0.7, "share_vocabulary": False, "tie_embeddings": False}
    settings |= {"max_steps": 2, "beam_size": 2, **SETTINGS}
    whole, halves = (tiny.config(corpus, tmp_path / name, **settings) for name in ("whole", "halves"))
    expected, run, seen, trainers = RunDirectory(whole.model_dir), RunDirectory(halves.model_dir), [], []

    def translate(texts):
        seen.append(trainers[0].network.get_weights())
        return list(texts)

    trainer, _, printed = train(whole, translate, before_fit=trainers.append)
    assert "the exponential average at the end of epoch 2" in printed
    averages = [average.numpy() for average in trainer.updates.averages]
    assert_weights(load_model(expected.model), averages)
    for average, weight, trained in zip(averages, seen[-1], trainer.network.trainable_variables, strict=True):
        np.testing.assert_array_equal(average, weight)
        assert np.abs(average - trained.numpy()).max() > 1e-5, trained.path

    train(replace(halves, max_steps=1))
    assert run.model.exists()  # a run of so many steps is a finished one
    _, data, printed = train(halves)
    assert "resuming    after update 1" in printed
    assert_same_state(run, expected)
    source, target = (Tokenizer.load(run.path / name).vocabulary_size for name in (SOURCE, TARGET))
    model = load_model(run.model)
    assert (model.vocabulary_size, model.target_vocabulary_size, model.tie_embeddings) == (source, target, False)
    split, evaluation = module.score_model(halves, run, data, lambda *texts: measure(*texts[:2]))  # by two tokenizers
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert split == results["set"] == "test" and results["bleu"] == evaluation.bleu


def test_a_short_run_has_curves_too():
    for last_step, every in ((1, 1), (39, 1), (60, 3), (999, 49), (10**6, 50)):
        assert POINTS_EVERY(Plan(7, last_step)) == every


@pytest.mark.slow
def test_validation_every_few_updates_trains_to_the_same_weights(uninterrupted, tmp_path):
    """What is validated changes, and never what is learned: the data goes on where it was."""
    by_pass, config, steps = uninterrupted
    often, data, _ = train(replace(config, model_dir=tmp_path / "often", validate_every=2))
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
