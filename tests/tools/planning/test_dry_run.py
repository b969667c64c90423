import random
import re
import shutil

import numpy as np
import pytest

from keras_transformer.config import Config
from keras_transformer.data.corpora import Corpus
from keras_transformer.errors import ConfigError, CorpusError
from keras_transformer.tools.planning import dry_run, memory, statistics
from keras_transformer.tools.planning.dry_run import describe_corpus, rehearse
from keras_transformer.training.preparation import Data, prepare
from keras_transformer.training.run_directory import RunDirectory
from tests import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


def contents(directory):
    """Path -> bytes and time of the last change, of every file."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_every_figure_is_printed_no_file_is_left_and_no_run_may_need_too_much(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dry_run, "WARM_UP", 1)
    monkeypatch.setattr(dry_run, "MEASURED", 2)
    config = tiny.config(corpus, tmp_path / "run", strategy="one_device", epochs=7)
    random.seed(1)
    rehearse(config)
    printed = capsys.readouterr().out
    for name in vars(config):
        assert f"            {name}: " in printed
    for line in ("corpus ", "tokenizer ", "train ", "model ", "lengths ", "repeated ", "lopsided ", "characters "):
        assert f"\n{line}" in f"\n{printed}"
    (epoch,) = (line for line in printed.splitlines() if line.startswith("epoch "))
    batches = int(epoch.split()[1])
    assert batches >= 4 and epoch.endswith(f"{batches} batches; {7 * batches} updates in all")
    assert "\ntime        about " in printed and "s an update" in printed
    assert "\nmemory      about " in printed and "MiB, an estimate (weights 0, optimizer 0, " in printed
    monkeypatch.setattr(memory, "available_memory", lambda: (3 * 2**20, "free memory"))
    with pytest.raises(ConfigError, match="the training needs about .* There are 3 MiB of free memory"):
        rehearse(config)
    printed = capsys.readouterr().out
    assert "\nmemory      about " in printed and "\ntime " not in printed and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_less_of_a_large_model_is_trained_and_an_existing_run_of_other_settings_or_another_corpus_stays_unchanged(
    corpus, tmp_path, capsys, monkeypatch
):
    trained = []
    monkeypatch.setattr(dry_run, "seconds_per_update", lambda config, *_: trained.append(config) or 0.5)
    monkeypatch.setattr(dry_run, "LITTLE", 0)  # of memory
    directory, large = shutil.copytree(corpus, tmp_path / "changing"), {"num_layers": 2, "batch_tokens": 4099}
    large |= {"heads": "1,2/2,1/2,2", "d_key": 6}  # of a pruned model
    config = tiny.config(directory, tmp_path / "run", strategy="one_device", max_steps=3, **large)
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    rehearse(config)
    printed = capsys.readouterr().out
    assert "; 3 updates in all" in printed and "an update, estimated from fewer layers or positions; " in printed
    assert [(c.num_layers, c.batch_tokens, c.d_model) for c in trained] == [(1, 2048, config.d_model)]
    run.checkpoints.mkdir()
    run.last.touch()
    before = contents(run.path)
    rehearse(Config(**{**vars(config), "seed": 7}))
    assert re.search("^refused .*seed was 1 and is 7", capsys.readouterr().out, re.M) and contents(run.path) == before
    tiny.write_pairs(directory, "val", [("ten", "zehn")])
    rehearse(config)
    assert re.search("^refused .*: .* on another corpus: val.en, val.de changed", capsys.readouterr().out, re.M)


def test_a_corpus_that_cannot_be_used_leaves_nothing_and_several_machines_are_not_rehearsed(tmp_path):
    with pytest.raises(CorpusError, match="no such directory"):
        rehearse(tiny.config(tmp_path / "nowhere", tmp_path / "run"))
    with pytest.raises(ConfigError, match="measures one machine: choose another `strategy` than multi_worker"):
        rehearse(tiny.config(tmp_path / "nowhere", tmp_path / "run", strategy="multi_worker"))
    assert list(tmp_path.iterdir()) == []


def test_figures_of_the_corpus_are_those_of_its_pairs():
    pairs = [("ab", "b" * 23), ("ab", "b" * 23), ("a\u0301b", "b" * 7), ("a" * 1009, "ä")]
    corpus = Corpus("of this test", "en", "de", pairs, [], None, {})
    data = Data(corpus, None, None, tiny.encoded_pairs([2, 2, 3, 1500], [7, 7, 7, 500], 97), None)
    heading, *rows, repeated, lopsided, characters = describe_corpus(data)
    assert heading.split() == ["lengths", "median", "95", "%", "longest"]
    assert [row.split() for row in rows] == [
        ["source", "pieces", "2", "1,500", "1,500"],
        ["target", "pieces", "7", "500", "500"],
        ["source", "characters", "2", "1,009", "1,009"],
        ["target", "characters", "7", "23", "23"],
    ]
    assert repeated == "repeated    1 pair has occurred before" and lopsided.startswith("lopsided    2 pairs have ")
    assert characters == "characters  4 different ones, 2 of them once: 'ä' '\u0301'"  # code points


def test_medians_repeated_and_lopsided_pairs_are_counted():
    for lengths, expected in (
        ([7], (7, 7, 7)),
        ([5, 7, 11, 13], (7, 13, 13)),  # of two in the middle the smaller: a length that occurs
        (range(101, 0, -1), (51, 96, 101)),
        ([3] * 19 + [1009], (3, 3, 1009)),
    ):
        assert statistics.spread(np.array(lengths)) == expected
    # A pair counts as repeated every time after the first.
    pairs = [("a", "b"), ("b", "a"), ("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("a", "b"), ("a", "c")]
    assert [statistics.count_repeated(each) for each in (iter(pairs), dict.fromkeys(pairs))] == [3, 0]
    # A pair is lopsided with more than three times as much on either side.
    source, target = np.array([3, 10, 9, 1, 1, 7]), np.array([10, 3, 3, 3, 4, 7])
    assert statistics.count_lopsided(source, target) == 3
