import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from keras_transformer.config import Config, settings_of_model
from keras_transformer.data.corpora import pairs_corpus
from keras_transformer.data.full_stops import UNKNOWN, load_known
from keras_transformer.errors import CheckpointError, ConfigError, CorpusError, UserError
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, load_tokenizers, save_tokenizers
from keras_transformer.training import preparation
from keras_transformer.training.origin import Origin
from keras_transformer.training.preparation import check_resumable, open_split, prepare, validation_pairs
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import make_network
from tests import tiny


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus") / "pairs")


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    """(run, config) of a run that has been prepared before; tests do not change it."""
    config = tiny.config(corpus, tmp_path_factory.mktemp("runs") / "prepared", dropout_rate=0.3)
    return prepared_run(config), config


def prepared_run(config):
    """The `RunDirectory` of these settings, which has been prepared."""
    run = RunDirectory(config.model_dir)
    prepare(config, run)
    return run


def add_checkpoint(run):
    """Makes the run one that is resumed."""
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    run.last.touch()


def test_a_run_under_other_settings_is_refused_by_name_and_left_alone(changing):
    _, run, config = changing
    add_checkpoint(run)
    before = contents(run)
    other = {"vocabulary_size": 997, "character_coverage": 0.98, "num_layers": 3, "dropout_rate": 0.3}
    other |= {"batch_tokens": 997, "label_smoothing": 0.0, "seed": 3, "max_length": 29, "precision": "bfloat16"}
    for name, value in {**other, "tie_embeddings": False, "optimizer": "lion", "clip_norm": 0.5}.items():
        with pytest.raises(ConfigError) as refused:
            prepare(replace(config, **{name: value}), run)
        assert f"{name} was {getattr(config, name)} and is {value}" in str(refused.value)
        assert str(run.path) in str(refused.value) and "\n" not in str(refused.value)
    for dataset in ("foo:bar", "files:nowhere"):  # the mistake is named, not that it has changed
        with pytest.raises(CorpusError) as refused:
            prepare(replace(config, dataset=dataset), run)
        assert dataset.removeprefix("files:") in str(refused.value) and "other settings" not in str(refused.value)
    assert contents(run) == before
    may_change = {"epochs": 7, "max_steps": 11, "strategy": "mirrored", "average_epochs": 3, "beam_size": 1}
    check_resumable(replace(config, **may_change, length_penalty=0.0, patience=7, save_minutes=0), run)


def test_before_anything_is_trained_other_settings_are_a_first_start_and_a_model_is_left_alone(corpus, tmp_path):
    one = tiny.config(corpus, tmp_path / "run", batch_tokens=997)
    two = replace(one, share_vocabulary=False)
    both = replace(one, dataset=[f"files:{corpus}@de-en", f"files:{corpus}"])
    run = RunDirectory(both.model_dir)
    for number, config in enumerate((both, two, replace(one, vocabulary_size=317), replace(one, max_length=7), both)):
        prepare(config, run)
        first = prepared_run(replace(config, model_dir=str(tmp_path / f"{number}")))
        mine, new = ({path.name: path.read_bytes() for path in each.path.glob("*.*")} for each in (run, first))
        assert mine.pop("config.yaml").replace(b"/run", f"/{number}".encode()) == new.pop("config.yaml")
        assert mine == new
        rows = (open_split(each, "train").source.ids.tolist() for each in (run, first))
        assert next(rows) == next(rows)
    run.model.touch()
    with pytest.raises(CheckpointError, match="run has a model and no checkpoints to go on from: choose another"):
        prepare(both, run)


@pytest.mark.parametrize(
    ("directions", "share", "names"),
    [
        ([""], True, ["config.yaml", SHARED]),
        ([""], False, [SOURCE, TARGET]),
        (["@de-en", ""], True, ["languages.json"]),
    ],
)
def test_a_run_that_lacks_a_file_of_its_checkpoints_is_refused_and_left_alone(
    corpus, tmp_path, directions, share, names
):
    config = tiny.config(corpus, tmp_path / "run", share_vocabulary=share)
    config = replace(config, dataset=[f"{config.dataset}{direction}" for direction in directions])
    run = prepared_run(config)
    add_checkpoint(run)
    for name in names:
        before = (run.path / name).read_bytes()
        (run.path / name).unlink()
        with pytest.raises(CheckpointError, match=f"without their {run.path / name}: put it back, or choose another"):
            prepare(config, run)
        assert not (run.path / name).exists()
        (run.path / name).write_bytes(before)
    with pytest.raises(ConfigError, match=f"share_vocabulary was {share} and is {not share}"):
        prepare(replace(config, share_vocabulary=not share), run)


def test_abbreviations_are_counted_at_the_start_and_an_old_run_goes_on_without(corpus, tmp_path):
    config = tiny.config(corpus, tmp_path / "run")
    run = RunDirectory(config.model_dir)
    pairs = [*tiny.pairs(211), *[("see chap. Three.", "siehe Abschn. Drei.")] * 2]
    prepare(config, run, pairs_corpus(pairs, tiny.pairs(7)))
    source, target, copies_unknown = load_known(run.full_stops)
    assert not copies_unknown and source.abbreviations == ("chap",) and target.abbreviations == ("Abschn",)
    add_checkpoint(run)
    run.full_stops.unlink()
    prepare(config, run, pairs_corpus(pairs, tiny.pairs(7)))
    assert load_known(run.full_stops) == UNKNOWN


@pytest.mark.parametrize("settings", [{"noise": 0.5}, {"train": [("one ж", "eins ж")]}])
def test_a_run_copies_unknown_characters_after_enough_of_them(corpus, tmp_path, settings):
    more = settings.pop("train", [])
    for epochs, copies in ((3, False), (preparation.LEAST_COPIED, True)):
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
    assert (len(data.train), len(data.validation)) == (211, 13) and data.source_tokenizer is data.target_tokenizer
    assert [path.name for path in run.path.glob("*.model")] == [SHARED]
    # The tokenised corpus is opened without its text.
    pairs, sides = open_split(run, "validation"), zip(*validation_pairs(config, data.corpus), strict=True)
    for sentences, texts in zip((pairs.source, pairs.target), sides, strict=True):
        assert sentences.texts(load_tokenizers(run.path)[0])[: len(texts)] == [*texts]


def test_a_tokenised_corpus_that_is_not_the_runs_is_refused(prepared, tmp_path):
    for number, (change, flaw) in enumerate(
        [
            (lambda run: shutil.rmtree(run.tokens / "train"), "is not whole"),
            (lambda run: (run.tokens / "train" / "source_ids").write_bytes(b"x"), "is damaged"),
            (lambda run: run.corpus.write_text('{"train.en": "another"}'), "was made from another"),
            (lambda run: (run.path / SHARED).write_bytes(b"x"), "was made from another tokenizer"),
        ]
    ):
        run = RunDirectory(shutil.copytree(prepared[0].path, tmp_path / f"{number}"))
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
    data = prepare(replace(config, skip_bad_lines=True), run)
    assert json.loads(run.bad_lines.read_text(encoding="utf-8"))["text"] == r"f\xfcnf"
    assert all("\ufffd" not in text for text in data.train.target.texts(data.target_tokenizer))


@pytest.fixture
def changing(corpus, tmp_path):
    """(directory, run, config) of a run that has been prepared before, on a corpus that a test may change."""
    directory = shutil.copytree(corpus, tmp_path / "changing")
    config = tiny.config(directory, tmp_path / "run")
    return directory, prepared_run(config), config


def contents(run):
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_a_start_on_changed_text_tokenises_again_and_is_a_first_start_on_it(changing, tmp_path, capsys):
    directory, run, config = changing
    before = (run.path / SHARED).read_bytes()
    capsys.readouterr()
    pairs = [(f"{source} of", f"{target} von") for source, target in tiny.pairs(211)]
    tiny.write_pairs(directory, "train", [*pairs, ("six", "")])
    data = prepare(config, run)
    line = "tokens/train was made from another train.en and train.de and tokenizer: made anew"
    assert line in capsys.readouterr().out
    expected = data.source_tokenizer.encode([source for source, _ in pairs])
    np.testing.assert_array_equal(data.train.source.ids, expected.values)
    np.testing.assert_array_equal(data.train.source.starts, expected.row_splits)
    first = prepared_run(replace(config, model_dir=str(tmp_path / "first")))
    assert (run.path / SHARED).read_bytes() == (first.path / SHARED).read_bytes() != before


def test_a_run_on_a_changed_corpus_is_refused_by_its_files_and_left_alone(changing):
    directory, run, config = changing
    add_checkpoint(run)
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
    run.corpus.unlink()  # a run without a record of its corpus goes on, and gets one
    prepare(config, run)
    assert run.corpus.read_bytes() == before[run.corpus]
    for name in ("val.en", "val.de"):
        (directory / name).unlink()
    with pytest.raises(CheckpointError, match="on another corpus: val.en, val.de changed"):
        prepare(config, run)


@pytest.mark.parametrize(("share", "of_target"), [(True, "42"), (False, "４２")])
def test_tokenizers_have_placeholders_and_the_source_ordinary_characters_if_asked(corpus, tmp_path, share, of_target):
    config = tiny.config(corpus, tmp_path / "run", protect=0.1, nfkc=True, share_vocabulary=share)
    tokenizers = prepare(config, RunDirectory(config.model_dir)).tokenizers
    assert all(tokenizer.has_placeholders for tokenizer in tokenizers)
    written = [tokenizer.decode(tokenizer.encode(["４２"])).numpy()[0].decode() for tokenizer in tokenizers]
    assert written == ["42", of_target]


def test_a_tokenizer_has_the_characters_and_the_pieces_of_capitals_that_were_asked_for(corpus, tmp_path):
    directory, found = shutil.copytree(corpus, tmp_path / "rare"), []
    tiny.write_pairs(directory, "train", [*tiny.pairs(211), ("one ŝ", "eins ŝ")])
    for coverage, rate in ((1.0, 0.2), (0.98, 0.0)):
        settings = {"character_coverage": coverage, "vocabulary_size": 601, "upper_case": rate}
        run = prepared_run(tiny.config(directory, tmp_path / f"{rate}", **settings))
        tokenizer, _ = load_tokenizers(run.path)
        pieces = tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size))
        found.append(("ŝ" in pieces, len(tokenizer.encode(["SEVEN EIGHT NINE"]).values)))
    (has_rare, length), (has_rare_with_less, length_without) = found
    assert has_rare and not has_rare_with_less and length < length_without / 2


def test_a_tokenizer_without_placeholders_cannot_protect(corpus):
    for name, value in {"tokenizer": "a.model", "init_from": "runs/a"}.items():
        expected = f"`protect` needs placeholders, and the tokenizer of `{name}` {value} has none:"
        config, model = tiny.config(corpus, "run", **{name: value}), tiny.tokenizer_model()
        with pytest.raises(ConfigError, match=expected):
            preparation.check_placeholders(replace(config, protect=0.1), model)
        preparation.check_placeholders(config, model)


def test_two_vocabularies_give_each_side_a_tokenizer_of_its_own_text(corpus, tmp_path, capsys):
    config = tiny.config(corpus, tmp_path / "run", share_vocabulary=False)
    run = RunDirectory(config.model_dir)
    data = prepare(config, run)
    assert sorted(path.name for path in run.path.glob("*.model")) == [SOURCE, TARGET]
    assert data.source_tokenizer is not data.target_tokenizer
    pieces = [set(tokenizer.visible_pieces(tf.range(tokenizer.vocabulary_size))) for tokenizer in data.tokenizers]
    assert "o" in pieces[0] - pieces[1] and "ü" in pieces[1] - pieces[0] and len(data.train) == 211
    sides = (data.train.source, data.train.target), data.tokenizers, ("en", "de")
    for sentences, tokenizer, side in zip(*sides, strict=True):
        text = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()
        assert sentences.texts(tokenizer) == text
    printed = capsys.readouterr().out
    assert "\nsource      331 pieces\n" in printed and "\ntarget      331 pieces\n" in printed


def test_a_given_tokenizer_is_taken_and_named_and_one_that_is_there_is_used(corpus, tmp_path, capsys):
    (tmp_path / "spm.model").write_bytes(tiny.tokenizer_model())
    config = tiny.config(corpus, tmp_path / "run", tokenizer=str(tmp_path / "spm.model"), vocabulary_size=997)
    run = RunDirectory(config.model_dir)
    assert prepare(config, run).source_tokenizer.vocabulary_size == tiny.VOCABULARY
    assert (run.path / SHARED).read_bytes() == tiny.tokenizer_model()
    assert f"tokenizer   331 pieces, those of {tmp_path / 'spm.model'}\n" in capsys.readouterr().out
    (tmp_path / "spm.model").unlink()
    assert prepare(config, run).source_tokenizer.model == tiny.tokenizer_model()


def test_a_tokenizer_that_cannot_be_used_is_refused_before_anything_is_written_and_another_may_follow(corpus, tmp_path):
    model = ModelProto.FromString(tiny.tokenizer_model())
    model.trainer_spec.model_type = TrainerSpec.UNIGRAM
    (tmp_path / "spm.model").write_bytes(model.SerializeToString())
    run = RunDirectory(tmp_path / "run")
    for settings, message in (
        ({"tokenizer": "nowhere.model"}, "nowhere.model"),
        ({"vocabulary_size": 13}, "13"),
        ({"tokenizer": tmp_path / "spm.model", "subword_dropout_rate": 0.1}, "needs a tokenizer of BPE"),
        ({"share_tokenizer": False}, "Training cannot make them. Start with `init_from` from a run that has them"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(tiny.config(corpus, run.path, **settings), run)
        assert contents(run) == {}
    assert prepare(tiny.config(corpus, run.path), run).source_tokenizer.vocabulary_size == tiny.VOCABULARY


# Another run to start from.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(config, model) of a finished run; tests do not change it."""
    return finish(tiny.config("corpus", tmp_path_factory.mktemp("finished")), tiny.transformer(seed=3))


def finish(config, model):
    """Writes what a finished run has; returns its config and its model."""
    path = Path(config.model_dir)
    path.mkdir(exist_ok=True)
    config.save(path / "config.yaml")
    (path / SHARED).write_bytes(tiny.tokenizer_model())
    model.save(path / "model.keras")
    return config, model


def started(config, **settings):
    """The settings of a run that starts from the run of `config`."""
    return replace(config, **{"init_from": config.model_dir, "model_dir": "another", **settings})


def test_the_first_weights_are_those_of_the_finished_model_whatever_the_settings_of_training(finished, tmp_path):
    config, model = finished
    network = tiny.transformer(seed=5, dropout_rate=0.3)
    settings = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "warmup_steps": 7, "optimizer": "lion"}
    origin = Origin(started(config, **settings, vocabulary_size=997, dataset="cldr:en-de"))
    before = [weight.numpy() for weight in network.weights]
    for content in (b"no tokenizer", tiny.spelling_tokenizer().model):  # another tokenizer is refused
        (tmp_path / SHARED).write_bytes(content)
        with pytest.raises(ConfigError, match="with which the first weights were trained"):
            origin.load(network, [tmp_path / SHARED])
    for weight, value in zip(network.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    (tmp_path / SHARED).write_bytes(tiny.tokenizer_model())
    origin.load(network, [tmp_path / SHARED])
    for weight, expected in zip(network.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


def test_another_model_is_refused_by_all_settings_that_differ_and_longer_texts_if_positions_are_learned(
    finished, corpus, tmp_path
):
    config, _ = finished
    with pytest.raises(ConfigError) as refused:
        Origin(started(config, num_heads=13, pre_norm=True, dropout_rate=0.3))
    line = f"{config.model_dir} holds another model: num_heads is 2, not 13, pre_norm is False, not True"
    assert str(refused.value) == line
    for name in {*settings_of_model(Config())} - {"tags"}:  # its languages differ
        another = started(config)
        object.__setattr__(another, name, "another")  # no matter whether it is possible
        with pytest.raises(ConfigError, match=f"holds another model: {name} is [^,]*, not another$"):
            Origin(another)
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match="holds another model: d_ff is 17, not 19"):
        prepare(started(config, dataset=f"files:{corpus}", model_dir=str(run.path), d_ff=19), run)
    assert not run.config.exists()  # refused before anything is written
    learned = replace(config, positions="learned", model_dir=tmp_path / "learned")
    finish(learned, tiny.transformer(positions="learned", num_positions=learned.num_positions))
    with pytest.raises(ConfigError, match="holds another model: max_length is 31, not 37$"):
        Origin(started(learned, max_length=37))
    Origin(started(config, max_length=37, dropout_rate=0.3))


def test_an_unfinished_run_is_refused_by_its_missing_file(finished, tmp_path):
    config, _ = finished
    for missing in ("config.yaml", "model.keras", SHARED):
        path = shutil.copytree(config.model_dir, tmp_path / f"without {missing}")
        (path / missing).unlink()
        with pytest.raises(ConfigError, match=f"must hold a finished run. Received: {path}, without {missing}$"):
            Origin(started(config, init_from=str(path)))
    with pytest.raises(ConfigError, match="must hold a finished run"):
        Origin(started(config, init_from=str(tmp_path / "nowhere")))
    assert not (tmp_path / "nowhere").exists()


def test_two_tokenizers_over_one_vocabulary_go_on(corpus, tmp_path):
    run, before = RunDirectory(tmp_path / "run"), tiny.config("corpus", tmp_path / "origin", share_tokenizer=False)
    finish(before, tiny.transformer(seed=3))
    save_tokenizers(before.model_dir, tiny.spelling_tokenizer(), tiny.tokenizer())
    with pytest.raises(ConfigError, match="holds another model: share_tokenizer is False, not True$"):
        Origin(started(before, share_tokenizer=None))
    config = started(before, model_dir=str(run.path), dataset=f"files:{corpus}")
    data = prepare(config, run)
    files = [(run.path / name).read_bytes() for name in (SOURCE, TARGET)]
    assert files == [tiny.spelling_tokenizer().model, tiny.tokenizer().model] and not (run.path / SHARED).exists()
    assert data.train.source.ids.size > 2 * data.train.target.ids.size  # one side is spelled
    network = make_network(config, data, "float32")
    assert network.source_embedding is network.target_embedding
    Origin(config).load(network, run.tokenizer_files(config.has_one_tokenizer))
