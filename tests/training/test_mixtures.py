"""Whole runs on more than one corpus, and runs that go on with new text."""

import itertools
import shutil
from collections import Counter
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

from keras_transformer import runs
from keras_transformer.config import Config
from keras_transformer.data.pipeline import batch_sizes, plan_epoch
from keras_transformer.errors import ConfigError, CorpusError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, Tokenizer, load_tokenizers
from keras_transformer.training.decide import Begun, Machine, decide
from keras_transformer.training.origin import Origin
from keras_transformer.training.preparation import prepare
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import make_network
from keras_transformer.training.validation import validation_bleu
from tests import tiny
from tests.training.curves import read_events

MACHINE, BEGUN = Machine(cores=2, gpus=0, devices=None, has_bfloat16=False), Begun(None, False, {})
NEW = [(f"{source} Katze", f"{target} кот") for source, target in tiny.pairs(59, seed=7)]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """(directory of the old corpus, of a smaller one with other words)."""
    directory = tmp_path_factory.mktemp("corpora")
    (new := directory / "new").mkdir()
    for stem, pairs in {"train": NEW[:47], "val": NEW[47:54], "test": NEW[54:]}.items():
        tiny.write_pairs(new, stem, pairs)
    return tiny.write_corpus(directory / "old"), new


def mixed_config(corpora, model_dir, **settings):
    names = f"files:{corpora[0]}", f"files:{corpora[1]}:0.3"
    return replace(tiny.config("", model_dir), **{"epochs": 2, "dataset": names, **settings})


def test_an_epoch_says_how_many_pairs_it_takes_from_each_corpus(corpora, tmp_path, capsys):
    config = mixed_config(corpora, tmp_path / "two")
    data = prepare(config, RunDirectory(config.model_dir))
    assert [(share.size, float(share.weight)) for share in data.train.shares] == [(211, 1), (47, 0.3)]
    printed = capsys.readouterr().out
    assert f"corpus      files:{corpora[1]}: en to de\n" in printed and "takes" not in printed
    for size, counts in ((401, ("211", "14 or 15")), (None, ("6,119", "408 or 409"))):  # of None, it takes 29 passes
        decide(replace(config, batch_tokens=size), data, MACHINE, BEGUN)
        printed = capsys.readouterr().out
        assert f"epoch       takes {counts[0]} from the 211 pairs of files:{corpora[0]}\n" in printed
        assert f"epoch       takes {counts[1]} from the 47 pairs of files:{corpora[1]}\n" in printed
    config = tiny.config(f"{corpora[0]}:0.1", tmp_path / "one")
    (share,) = prepare(config, RunDirectory(config.model_dir)).train.shares
    assert (share.size, float(share.weight)) == (211, 0.1)


# Going on with new text.


@pytest.fixture(scope="module")
def finished(corpora, tmp_path_factory):
    """The config of a finished run on the old corpus, with random weights; tests do not change it."""
    return finish(tiny.config(corpora[0], tmp_path_factory.mktemp("finished") / "run"))


def finish(config):
    """Writes what a finished run has."""
    run = RunDirectory(config.model_dir)
    data = prepare(config, run)
    network, generator = make_network(config, data, "float32"), np.random.default_rng(3)
    network.set_weights([generator.normal(0, 0.1, weight.shape) for weight in network.get_weights()])
    network.save(run.model)
    return config


def going_on(config, corpora, model_dir, **settings):
    """The settings of a run that goes on from a finished one with the new corpus."""
    changes = {"init_from": config.model_dir, "model_dir": str(model_dir), "dataset": f"files:{corpora[1]}", **settings}
    return Config(**{**vars(config), **changes})


def test_the_asked_for_share_of_every_epoch_is_replayed_and_the_old_corpus_is_validated_on_its_own_pairs(
    finished, corpora, tmp_path, capsys
):
    config = going_on(finished, corpora, tmp_path / "run", replay=0.2)
    data = prepare(config, RunDirectory(config.model_dir))
    expected = 12  # of 59 pairs, a fifth
    decide(config, data, MACHINE, BEGUN)
    line = f"epoch       takes {expected} from the 211 pairs of files:{corpora[0]}, replayed\n"
    assert line in capsys.readouterr().out
    first, other = validation_bleu(config, data, list, None, None, None).parts
    assert (first.name, first.pairs, first.batches) == ("", NEW[47:52], None)
    assert other.name == f"files:{corpora[0]}" and other.pairs == [*data.corpus.others[0].validation][:5]
    batches, steps = other.batches
    assert sum(len(labels) for _, labels in itertools.islice(batches, steps)) == 13
    for epoch in range(7):
        plan = plan_epoch(data.train, batch_sizes(data.train, 401), 1, epoch)
        assert Counter((np.concatenate(plan) >= 47).tolist()) == {False: 47, True: expected}


def test_replay_of_a_corpus_or_a_run_that_is_gone_or_learnt_from_python_says_so(corpora, tmp_path):
    old, gone = tiny.config(tmp_path / "gone", tmp_path / "old"), tmp_path / "gone"
    (tmp_path / "old").mkdir()
    what = f"`replay` takes pairs from the corpora of {tmp_path}/old,"
    remedy = "Put them back, or leave out `replay`"
    for before, error, message in (
        (None, ConfigError, "reads the names of the old corpora in .*/old/config.yaml"),
        (old, CorpusError, f"^{what} files:{gone}: no such directory: {gone}. {remedy}$"),
        (Config(**{**vars(old), "dataset": "pairs"}), CorpusError, f"{what} pairs: unknown corpus 'pairs'"),
    ):
        if before:
            before.save(tmp_path / "old" / "config.yaml")
        config = going_on(old, corpora, tmp_path / "run", replay=0.2)
        with pytest.raises(error, match=message):
            prepare(config, RunDirectory(config.model_dir))
        assert not (tmp_path / "run").exists()


def rows_of(network):
    """Name of a matrix -> float (V, D)."""
    return {weight.path: keras.ops.convert_to_numpy(weight) for weight in network.weights if "matrix" in weight.path}


@pytest.mark.parametrize("share", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_vocabulary_grows_and_new_rows_are_the_mean_of_those_that_spell_them(corpora, tmp_path, capsys, share):
    old = finish(tiny.config(corpora[0], tmp_path / "old", share_vocabulary=share, tie_embeddings=share))
    config = going_on(old, corpora, tmp_path / "run", extend_vocabulary=7)
    run = RunDirectory(config.model_dir)
    capsys.readouterr()
    data = prepare(config, run)
    assert capsys.readouterr().out.count(f"those of {old.model_dir} and 7 new ones\n") == (1 if share else 2)
    network = make_network(config, data, "float32")
    Origin(config).load(network, run.tokenizer_files(share))
    before = rows_of(load_model(RunDirectory(old.model_dir).model))
    of_source, of_target = zip(load_tokenizers(old.model_dir), data.tokenizers, strict=True)
    found = rows_of(network)
    assert len(found) == (1 if share else 3)
    for (path, matrix), first in zip(found.items(), before.values(), strict=True):
        shorter, longer = of_source if "source" in path else of_target
        assert len(matrix) == longer.vocabulary_size == len(first) + 7
        np.testing.assert_array_equal(matrix[: len(first)], first)
        for number in range(len(first), len(matrix)):
            piece = longer.pieces(tf.constant(number)).numpy().decode()
            ids = spelling_of(piece, shorter)
            np.testing.assert_allclose(matrix[number], np.mean(first[ids], axis=0), rtol=1e-5)


def spelling_of(piece, tokenizer):
    """The ids by which a tokenizer writes a piece inside a text: what follows a word that comes before it."""
    whole = tokenizer.encode(["0" + piece.replace("▁", " ")])[0].numpy().tolist()
    return whole[len(tokenizer.encode(["0"])[0]) :]


def test_a_run_that_is_resumed_needs_its_longer_tokenizer_and_not_the_other_run(finished, corpora, tmp_path):
    origin = shutil.copytree(finished.model_dir, tmp_path / "origin")
    config = going_on(finished, corpora, tmp_path / "run", extend_vocabulary=17, init_from=str(origin))
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    model = (run.path / SHARED).read_bytes()
    run.checkpoints.mkdir()
    run.last.touch()
    shutil.rmtree(origin)
    data = prepare(config, run)
    assert data.source_tokenizer.model == model == (run.path / SHARED).read_bytes()
    assert data.source_tokenizer.vocabulary_size == 331 + 17


@pytest.mark.slow
def test_a_run_that_goes_on_is_scored_on_the_old_text_as_well_and_translates_by_itself(finished, corpora, tmp_path):
    settings = {"replay": 0.2, "extend_vocabulary": 17, "max_steps": 1, "strategy": "one_device", "beam_size": 1}
    finished_run = runs.train(config=going_on(finished, corpora, tmp_path / "run", **settings))
    run = RunDirectory(finished_run.path)
    results = yaml.safe_load(run.results.read_text(encoding="utf-8"))
    assert (results["corpus"], results["sentences"]) == (f"files:{corpora[1]}", 5)
    other = f"files:{corpora[0]}"
    assert [(each["corpus"], each["sentences"]) for each in results["other_corpora"]] == [(other, 7)]
    names = ("loss", "accuracy", "perplexity", "bleu")
    assert {f"{name}{of}" for name in names for of in ("", f"/{other}")} <= read_events(run.logs / "validation").keys()
    assert load_model(run.model).vocabulary_size == Tokenizer.load(run.path / SHARED).vocabulary_size == 331 + 17
