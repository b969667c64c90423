import dataclasses
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.config import Config, settings_of_model
from keras_transformer.data.corpora import pairs_corpus
from keras_transformer.data.full_stops import UNKNOWN, load_known
from keras_transformer.errors import CheckpointError, ConfigError, CorpusError, UserError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, load_tokenizers, save_tokenizers
from keras_transformer.training import preparation
from keras_transformer.training.origin import Origin
from keras_transformer.training.preparation import (
    LEAST_COPIED,
    check_placeholders,
    check_resumable,
    open_origin,
    open_split,
    prepare,
)
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import make_network
from keras_transformer.training.validation import validation_pairs
from tests import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


def changed(config, **settings):
    """The same settings, and these."""
    return type(config)(**{**dataclasses.asdict(config), **settings})


@pytest.fixture
def prepared(corpus, tmp_path):
    """(run, config) of a run that has been prepared before."""
    config = tiny.config(corpus, tmp_path / "prepared", dropout_rate=0.3)
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    return run, config


# What is refused.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocabulary_size", 997),
        ("character_coverage", 0.98),
        ("num_layers", 3),
        ("dropout_rate", 0.1),
        ("batch_tokens", 997),
        ("label_smoothing", 0.0),
        ("seed", 3),
        ("max_length", 29),
        ("precision", "bfloat16"),
        ("tie_embeddings", False),
        ("optimizer", "lion"),
        ("clip_norm", 0.5),
    ],
)
def test_a_run_under_other_settings_is_refused_by_name_and_left_alone(prepared, name, value):
    run, config = prepared
    before = run.config.read_bytes(), (run.path / SHARED).read_bytes()
    with pytest.raises(ConfigError) as refused:
        prepare(changed(config, **{name: value}), run)
    assert f"{name} was {getattr(config, name)} and is {value}" in str(refused.value)
    assert str(run.path) in str(refused.value) and "\n" not in str(refused.value)
    assert (run.config.read_bytes(), (run.path / SHARED).read_bytes()) == before


@pytest.mark.parametrize("dataset", ["foo:bar", "files:nowhere"])
def test_a_wrong_corpus_is_the_mistake_that_is_named_not_that_it_has_changed(prepared, dataset):
    run, config = prepared
    with pytest.raises(CorpusError) as refused:
        prepare(changed(config, dataset=dataset), run)
    assert dataset.removeprefix("files:") in str(refused.value) and "other settings" not in str(refused.value)


def test_how_long_and_where_a_run_goes_on_may_change(prepared):
    run, config = prepared
    check_resumable(changed(config, epochs=7, max_steps=11, strategy="mirrored", average_epochs=3), run)
    check_resumable(changed(config, beam_size=1, length_penalty=0.0, patience=7, save_minutes=0), run)


@pytest.mark.parametrize("name", ["config.yaml", SHARED])
def test_a_run_that_lacks_a_file_of_its_checkpoints_is_refused_and_left_alone(prepared, name):
    run, config = prepared
    run.checkpoints.mkdir(parents=True)
    run.last.touch()
    (run.path / name).unlink()
    with pytest.raises(CheckpointError, match=f"without their {run.path / name}: put it back, or choose another"):
        prepare(config, run)
    assert not (run.path / name).exists()


@pytest.mark.parametrize("name", [SOURCE, TARGET])
def test_a_run_of_two_tokenizers_needs_both(corpus, tmp_path, name):
    config = tiny.config(corpus, tmp_path / "run", share_vocabulary=False)
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    run.checkpoints.mkdir(parents=True)
    run.last.touch()
    (run.path / name).unlink()
    with pytest.raises(CheckpointError, match=f"without their {run.path / name}: put it back, or choose another"):
        prepare(config, run)


# Starting again.


def test_abbreviations_are_counted_at_the_start_and_an_old_run_goes_on_without(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    pairs = [*tiny.pairs(211), *[("see chap. Three.", "siehe Abschn. Drei.")] * 2]
    prepare(config, run, pairs_corpus(pairs, tiny.pairs(7)))
    source, target, copies_unknown, lone_symbols = load_known(run.full_stops)
    assert not copies_unknown and lone_symbols == ""
    assert source.abbreviations == ("chap",) and target.abbreviations == ("Abschn",)
    run.last.parent.mkdir(parents=True, exist_ok=True)
    run.last.touch()
    run.full_stops.unlink()
    prepare(config, run, pairs_corpus(pairs, tiny.pairs(7)))
    assert load_known(run.full_stops) == UNKNOWN


@pytest.mark.parametrize("settings", [{"noise": 0.5}, {"train": [("one ж", "eins ж")]}])
def test_a_run_copies_unknown_characters_after_enough_of_them(corpus, tmp_path, settings):
    more = settings.pop("train", [])
    for epochs, copies in ((3, False), (LEAST_COPIED, True)):
        config = tiny.config(corpus, tmp_path / f"run_{epochs}", epochs=epochs, **settings)
        run = RunDirectory(config.model_dir)
        prepare(config, run, pairs_corpus([*tiny.pairs(211), *more], tiny.pairs(7)))
        assert load_known(run.full_stops).copies_unknown == copies


def test_a_second_start_does_not_tokenise_again(prepared, monkeypatch):
    run, config = prepared
    before = {path: path.stat().st_mtime_ns for path in run.tokens.rglob("*")}
    monkeypatch.setattr(preparation, "encode_pairs", None)
    data = prepare(config, run)
    assert len(before) == 2 * 7 and {path: path.stat().st_mtime_ns for path in run.tokens.rglob("*")} == before
    assert (len(data.train), len(data.validation)) == (211, 13)


def test_a_tokenised_corpus_is_opened_without_its_text(prepared):
    run, config = prepared
    sources, targets = map(list, zip(*validation_pairs(config, prepare(config, run).corpus), strict=True))
    pairs = open_split(run, "validation")
    assert pairs.source.texts(load_tokenizers(run.path)[0])[: len(sources)] == sources
    assert pairs.target.texts(load_tokenizers(run.path)[1])[: len(targets)] == targets


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        (lambda run: shutil.rmtree(run.tokens / "train"), "is not whole"),
        (lambda run: (run.tokens / "train" / "source_ids").write_bytes(b"x"), "is damaged"),
        (lambda run: run.corpus.write_text('{"train.en": "another"}'), "was made from another"),
        (lambda run: (run.path / SHARED).write_bytes(b"x"), "was made from another tokenizer"),
    ],
)
def test_a_tokenised_corpus_that_is_not_the_runs_is_refused(prepared, change, flaw):
    run, _ = prepared
    change(run)
    with pytest.raises(CheckpointError, match=f"tokens/train {flaw}.*: train.py with the settings of the run"):
        open_split(run, "train")


def test_bad_lines_that_are_skipped_are_listed_in_the_run(tmp_path):
    directory = tiny.write_corpus(tmp_path / "pairs")
    with open(directory / "train.de", "ab") as german, open(directory / "train.en", "a", encoding="utf-8") as english:
        german.write(b"f\xfcnf\n")
        english.write("five\n")
    config = tiny.config(directory, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    with pytest.raises(CorpusError, match=r"train\.de, line \d+: not valid UTF-8.* With `skip_bad_lines`"):
        prepare(config, run)
    assert not run.bad_lines.exists()
    data = prepare(changed(config, skip_bad_lines=True), run)
    assert json.loads(run.bad_lines.read_text(encoding="utf-8"))["text"] == r"f\xfcnf"
    assert all("\ufffd" not in text for text in data.train.target.texts(data.target_tokenizer))


@pytest.fixture
def changing(corpus, tmp_path):
    """(directory, run, config) of a run that has been prepared before, on a corpus that a test may change."""
    directory = shutil.copytree(corpus, tmp_path / "changing")
    config = tiny.config(directory, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    return directory, run, config


def contents(run):
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_a_start_on_changed_text_tokenises_again_and_says_so(changing, capsys):
    directory, run, config = changing
    capsys.readouterr()
    tiny.write_pairs(directory, "train", [("ten", "zehn"), ("one two", "eins zwei"), ("six", "")])
    data = prepare(config, run)
    assert (
        "tokens/train was made from another train.en and train.de and tokenizer: made anew" in capsys.readouterr().out
    )
    expected = data.source_tokenizer.encode(tf.constant(["ten", "one two"]))
    np.testing.assert_array_equal(data.train.source.ids, expected.values)
    np.testing.assert_array_equal(data.train.source.starts, expected.row_splits)


def test_a_start_on_changed_text_has_the_tokenizer_of_a_first_start_on_it(changing, tmp_path):
    directory, run, config = changing
    before = (run.path / SHARED).read_bytes()
    tiny.write_pairs(directory, "train", [(f"{source} of", f"{target} von") for source, target in tiny.pairs(211)])
    prepare(config, run)
    first = RunDirectory(tmp_path / "first")
    prepare(config, first)
    assert (run.path / SHARED).read_bytes() == (first.path / SHARED).read_bytes() != before


def test_a_run_on_a_changed_corpus_is_refused_by_its_files_and_left_alone(changing):
    directory, run, config = changing
    run.checkpoints.mkdir()
    run.last.touch()
    shutil.rmtree(run.tokens)  # they could be made again
    before = contents(run)
    text = {path: path.read_bytes() for path in directory.iterdir()}
    for name in ("train.de", "val.en"):
        (directory / name).write_bytes(text[directory / name].replace(b"s", b"z"))
    (directory / "test.en").write_bytes(text[directory / "test.en"].replace(b"o", b"0"))
    expected = f"^{run.path} holds a run on another corpus: train.de, val.en changed. .*choose another `model_dir`$"
    with pytest.raises(CheckpointError, match=expected):
        prepare(config, run)
    assert contents(run) == before
    for path, content in text.items():
        path.write_bytes(content)
    prepare(config, run)


@pytest.mark.parametrize("name", ["val.en", "val.de"])
def test_a_side_of_a_corpus_that_comes_or_goes_is_a_change(changing, name):
    directory, run, config = changing
    run.checkpoints.mkdir()
    run.last.touch()
    for language in ("en", "de"):
        (directory / f"val.{language}").unlink()
    with pytest.raises(CheckpointError, match="on another corpus: .*" + name):
        prepare(config, run)


def test_a_run_without_a_record_of_its_corpus_goes_on_and_gets_one(changing):
    directory, run, config = changing
    record = run.corpus.read_bytes()
    run.checkpoints.mkdir()
    run.last.touch()
    run.corpus.unlink()
    prepare(config, run)
    assert run.corpus.read_bytes() == record


# The corpus and its tokenizers.


def test_blank_validation_pairs_are_not_translated(corpus, tmp_path):
    directory = tmp_path / "blank"
    shutil.copytree(corpus, directory)
    tiny.write_pairs(
        directory, "val", [("one", "eins"), ("", "zwei"), ("three", "  "), ("four", "vier"), ("five", "fünf")]
    )
    config = tiny.config(directory, tmp_path / "run", validation_sentences=2)
    data = prepare(config, RunDirectory(config.model_dir))
    assert validation_pairs(config, data.corpus) == [("one", "eins"), ("four", "vier")]


def test_a_tokenizer_that_is_there_is_used(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    run.path.mkdir()
    (run.path / SHARED).write_bytes(tiny.tokenizer_model())
    data = prepare(config, run)
    assert (run.path / SHARED).read_bytes() == tiny.tokenizer_model()
    text = tf.constant(["one two three"])
    np.testing.assert_array_equal(data.source_tokenizer.encode(text).values, tiny.tokenizer().encode(text).values)


@pytest.mark.parametrize("share", [True, False])
def test_tokenizers_have_placeholders_if_the_training_protects(corpus, tmp_path, share):
    config = tiny.config(corpus, tmp_path / "run", protect=0.1, share_vocabulary=share)
    data = prepare(config, RunDirectory(config.model_dir))
    assert all(tokenizer.has_placeholders for tokenizer in data.tokenizers)


@pytest.mark.parametrize(("share", "of_target"), [(True, "42"), (False, "４２")])
def test_compatibility_characters_of_the_source_become_ordinary_ones(corpus, tmp_path, share, of_target):
    config = tiny.config(corpus, tmp_path / "run", nfkc=True, share_vocabulary=share)
    tokenizers = prepare(config, RunDirectory(config.model_dir)).tokenizers
    written = [tokenizer.decode(tokenizer.encode(["４２"])).numpy()[0].decode() for tokenizer in tokenizers]
    assert written == ["42", of_target]


@pytest.mark.parametrize("share", [True, False])
def test_tokenizers_have_pieces_of_capitals_if_the_training_has_capitals(corpus, tmp_path, share):
    settings = {"share_vocabulary": share, "vocabulary_size": 601}
    cased, plain = (
        prepare(each, RunDirectory(each.model_dir)).source_tokenizer
        for each in (tiny.config(corpus, tmp_path / f"{rate}", upper_case=rate, **settings) for rate in (0.2, 0.0))
    )
    lengths = [len(tokenizer.encode(["SEVEN EIGHT NINE"]).values) for tokenizer in (cased, plain)]
    assert lengths[0] < lengths[1] / 2


@pytest.mark.parametrize("origin", [{"tokenizer": "a.model"}, {"init_from": "runs/a"}])
def test_a_tokenizer_without_placeholders_cannot_protect(corpus, origin):
    protecting = tiny.config(corpus, "run", protect=0.1, **origin)
    (name, value), *_ = origin.items()
    with pytest.raises(
        ConfigError, match=f"`protect` needs placeholders, and the tokenizer of `{name}` {value} has none:"
    ):
        check_placeholders(protecting, tiny.tokenizer_model())
    check_placeholders(tiny.config(corpus, "run", **origin), tiny.tokenizer_model())


def test_two_vocabularies_give_each_side_a_tokenizer_of_its_own_text(corpus, tmp_path, capsys):
    config = tiny.config(corpus, tmp_path / "run", share_vocabulary=False)
    run = RunDirectory(config.model_dir)
    data = prepare(config, run)
    assert sorted(path.name for path in run.path.glob("*.model")) == [SOURCE, TARGET]
    assert data.source_tokenizer is not data.target_tokenizer
    pieces = [set(tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size))) for tokenizer in data.tokenizers]
    assert "o" in pieces[0] - pieces[1] and "ü" in pieces[1] - pieces[0]
    assert len(data.train) == 211
    for sentences, tokenizer, side, end in zip(
        (data.train.source, data.train.target), data.tokenizers, ("en", "de"), ([], [3]), strict=True
    ):
        text = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()
        expected = [[*row, *end] for row in tokenizer.encode(tf.constant(text)).to_list()]
        found = np.split(sentences.ids, sentences.starts[1:-1])
        assert [row.tolist() for row in found] == expected
    printed = capsys.readouterr().out
    assert "\nsource      331 pieces\n" in printed and "\ntarget      331 pieces\n" in printed


def test_a_tokenizer_covers_the_characters_that_were_asked_for(corpus, tmp_path):
    directory = shutil.copytree(corpus, tmp_path / "rare")
    tiny.write_pairs(directory, "train", [*tiny.pairs(211), ("one ŝ", "eins ŝ")])
    for coverage in (1.0, 0.98):
        config = tiny.config(directory, tmp_path / f"{coverage}", character_coverage=coverage)
        tokenizer = prepare(config, RunDirectory(config.model_dir)).source_tokenizer
        pieces = tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size))
        assert ("ŝ" in pieces) == (coverage == 1.0)


def test_a_given_tokenizer_is_taken_and_named(corpus, tmp_path, capsys):
    (tmp_path / "spm.model").write_bytes(tiny.tokenizer_model())
    config = tiny.config(corpus, tmp_path / "run", tokenizer=str(tmp_path / "spm.model"), vocabulary_size=997)
    run = RunDirectory(config.model_dir)
    assert prepare(config, run).source_tokenizer.vocabulary_size == tiny.VOCABULARY
    assert (run.path / SHARED).read_bytes() == tiny.tokenizer_model()
    assert f"tokenizer   331 pieces, those of {tmp_path / 'spm.model'}\n" in capsys.readouterr().out
    (tmp_path / "spm.model").unlink()
    prepare(config, run)  # it has its copy


def test_subword_dropout_with_a_tokenizer_of_another_kind_is_refused_before_anything_is_written(corpus, tmp_path):
    model = ModelProto.FromString(tiny.tokenizer_model())
    model.trainer_spec.model_type = TrainerSpec.UNIGRAM
    (tmp_path / "spm.model").write_bytes(model.SerializeToString())
    run = RunDirectory(tmp_path / "run")
    config = tiny.config(corpus, run.path, tokenizer=str(tmp_path / "spm.model"), subword_dropout_rate=0.1)
    with pytest.raises(ConfigError, match="`subword_dropout_rate` needs a tokenizer of BPE.*Received: one of unigram"):
        prepare(config, run)
    assert not run.config.exists() and not (run.path / SHARED).exists()


@pytest.mark.parametrize("settings", [{"tokenizer": "nowhere.model"}, {"vocabulary_size": 13}], ids=str)
def test_after_a_tokenizer_that_cannot_be_made_another_may_be_asked_for(corpus, tmp_path, settings):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(UserError):
        prepare(tiny.config(corpus, run.path, **settings), run)
    assert contents(run) == {}
    assert prepare(tiny.config(corpus, run.path), run).source_tokenizer.vocabulary_size == tiny.VOCABULARY


def test_a_shared_tokenizer_is_one_object(prepared):
    run, config = prepared
    data = prepare(config, run)
    assert data.source_tokenizer is data.target_tokenizer
    assert [path.name for path in run.path.glob("*.model")] == [SHARED]


# Another run to start from.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(config, model) of a finished run; tests do not change it."""
    path = tmp_path_factory.mktemp("finished")
    return finish(tiny.config("corpus", path), tiny.transformer(seed=3))


def finish(config, model):
    """Writes what a finished run has; returns its config and its model."""
    path = Path(config.model_dir)
    config.save(path / "config.yaml")
    (path / SHARED).write_bytes(tiny.tokenizer_model())
    model.save(path / "model.keras")
    return config, model


def started(config, **settings):
    """The settings of a run that starts from the run of `config`."""
    return changed(config, **{"init_from": config.model_dir, "model_dir": "another", **settings})


def test_the_first_weights_are_those_of_the_finished_model(finished, tmp_path):
    config, model = finished
    (tmp_path / SHARED).write_bytes(tiny.tokenizer_model())
    network = tiny.transformer(seed=5, dropout_rate=0.3)
    Origin(started(config)).load(network, [tmp_path / SHARED])
    for weight, expected in zip(network.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_settings_of_training_may_differ(finished):
    config, _ = finished
    settings = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "warmup_steps": 7, "optimizer": "lion"}
    Origin(started(config, **settings, vocabulary_size=997, dataset="cldr:en-de"))


def test_another_model_is_refused_by_all_settings_that_differ(finished):
    config, _ = finished
    with pytest.raises(ConfigError) as refused:
        Origin(started(config, num_heads=13, pre_norm=True, dropout_rate=0.3))
    line = f"{config.model_dir} holds another model: num_heads is 2, not 13, pre_norm is False, not True"
    assert str(refused.value) == line


@pytest.mark.parametrize(
    "name", [name for name in settings_of_model(Config()) if name != "tags"]
)  # its languages differ
def test_every_setting_of_the_model_is_that_of_the_origin(finished, name):
    another = started(finished[0])
    object.__setattr__(another, name, "another")  # no matter whether it is possible
    with pytest.raises(ConfigError, match=f"holds another model: {name} is [^,]*, not another$"):
        Origin(another)


def test_another_architecture_is_refused_by_its_name(finished, tmp_path):
    config, _ = finished
    with pytest.raises(ConfigError, match="holds another model: architecture is transformer, not gru$"):
        Origin(started(config, architecture="gru"))
    recurrent = changed(config, architecture="gru", model_dir=str(tmp_path))
    finish(recurrent, RecurrentNetwork.from_settings(recurrent, vocabulary_size=tiny.VOCABULARY))
    with pytest.raises(ConfigError, match="holds another model: architecture is gru, not transformer$"):
        Origin(started(recurrent, architecture="transformer"))
    with pytest.raises(ConfigError, match="holds another model: architecture is gru, not lstm$"):
        Origin(started(recurrent, architecture="lstm"))
    Origin(started(recurrent, dropout_rate=0.3))


def test_a_run_of_longer_texts_may_start_from_another_unless_its_positions_are_learned(finished, tmp_path):
    config, _ = finished
    Origin(started(config, max_length=37))
    learned = changed(config, positions="learned", model_dir=str(tmp_path))
    finish(learned, tiny.transformer(positions="learned", num_positions=learned.num_positions))
    with pytest.raises(ConfigError, match="holds another model: max_length is 31, not 37$"):
        Origin(started(learned, max_length=37))


@pytest.mark.parametrize("name", ["share_vocabulary", "tie_embeddings"])
def test_other_vocabularies_are_another_model(finished, name):
    config, _ = finished
    with pytest.raises(ConfigError, match=f"holds another model: {name} is True, not False$"):
        Origin(started(config, **{name: False}))


@pytest.mark.parametrize("missing", ["config.yaml", "model.keras", SHARED])
def test_an_unfinished_run_is_refused_by_its_missing_file(finished, tmp_path, missing):
    config, _ = finished
    shutil.copytree(config.model_dir, tmp_path, dirs_exist_ok=True)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigError, match=f"must hold a finished run. Received: {tmp_path}, without {missing}$"):
        Origin(started(config, init_from=str(tmp_path)))
    with pytest.raises(ConfigError, match="must hold a finished run"):
        Origin(started(config, init_from=str(tmp_path / "nowhere")))
    assert not (tmp_path / "nowhere").exists()


def test_another_tokenizer_is_refused(finished, tmp_path):
    config, _ = finished
    (tmp_path / SHARED).write_bytes(random.Random(1).randbytes(101))
    model = tiny.transformer(seed=5)
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(ConfigError, match="with which the first weights were trained"):
        Origin(started(config)).load(model, [tmp_path / SHARED])
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_a_run_takes_the_tokenizer_of_its_origin(finished, corpus, tmp_path):
    config, _ = finished
    run = RunDirectory(tmp_path / "run")
    data = prepare(started(config, model_dir=str(run.path), dataset=f"files:{corpus}", vocabulary_size=997), run)
    assert (run.path / SHARED).read_bytes() == tiny.tokenizer_model()
    assert data.source_tokenizer.vocabulary_size == tiny.VOCABULARY


@pytest.fixture(scope="module")
def of_two_tokenizers(tmp_path_factory):
    """The config of a finished run with two tokenizers over one vocabulary."""
    config = tiny.config("corpus", tmp_path_factory.mktemp("finished"), share_tokenizer=False)
    finish(config, tiny.transformer(seed=3))
    save_tokenizers(config.model_dir, tiny.spelling_tokenizer(), tiny.tokenizer())
    return config


def test_two_tokenizers_over_one_vocabulary_go_on(of_two_tokenizers, corpus, tmp_path):
    run = RunDirectory(tmp_path / "run")
    config = started(of_two_tokenizers, model_dir=str(run.path), dataset=f"files:{corpus}")
    data = prepare(config, run)
    files = [(run.path / name).read_bytes() for name in (SOURCE, TARGET)]
    assert files == [tiny.spelling_tokenizer().model, tiny.tokenizer().model] and not (run.path / SHARED).exists()
    assert data.train.source.ids.size > 2 * data.train.target.ids.size  # one side is spelled
    network = make_network(config, data, "float32")
    assert network.source_embedding is network.target_embedding
    Origin(config).load(network, run.tokenizer_files(config.has_one_tokenizer))


def test_two_tokenizers_over_one_vocabulary_are_not_trained(of_two_tokenizers, corpus, tmp_path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match="Training cannot make them. Start with `init_from` from a run that has them"):
        prepare(tiny.config(corpus, run.path, share_tokenizer=False), run)
    with pytest.raises(ConfigError, match="holds another model: share_tokenizer is False, not True$"):
        Origin(started(of_two_tokenizers, share_tokenizer=None))


def test_a_resumed_run_needs_no_origin(finished, tmp_path):
    config, _ = finished
    run = RunDirectory(tmp_path)
    run.checkpoints.mkdir(parents=True)
    run.last.touch()
    assert open_origin(started(config, init_from=str(tmp_path / "gone")), run) is None
