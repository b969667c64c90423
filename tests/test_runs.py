"""The library as a notebook uses it."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.cli import export
from keras_transformer.cli.export import summarise
from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, DivergenceError, FileError, UserError
from keras_transformer.export.manifest import read_manifest
from keras_transformer.runs import Run
from keras_transformer.tokenizer import train_tokenizer
from keras_transformer.tools.analysis.pruning import keep_pruned, prune
from keras_transformer.training.checkpoints import load_network
from keras_transformer.training.origin import Origin
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.watchers import CountSteps
from tests import tiny, warm_start
from tests.global_state import changes, global_state, living_graphs

ROOT = Path(__file__).parents[1]
NAMES = "Config Ensemble RecurrentNetwork Run SavedModelTranslator SequenceToSequence Tokenizer Transformer Translator"
NAMES += " UserError analysis compare evaluate import_model layers load measure minimum_bayes_risk open_corpus"
NAMES += " perplexity preset process rerank train training translate_document"
QUICK = {"vocabulary_size": 300, **tiny.SIZES, "max_length": 31, "batch_tokens": 401}
QUICK |= {"strategy": "one_device", "beam_size": 1}


def test_the_library_has_these_names_and_loads_tensorflow_when_it_is_needed():
    assert kt.__all__ == NAMES.split() and set(kt.__all__) <= set(dir(kt))
    assert all(getattr(kt, name) is not None for name in kt.__all__)
    check = "import sys, keras_transformer as kt; kt.preset('tiny'); kt.UserError; print('tensorflow' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (loaded.stdout, loaded.stderr) == ("False\n", "")
    with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
        kt.tarin  # noqa: B018


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
serving = ["starlette", "uvicorn", "prometheus_client"]
others = ["tensorflow_datasets", "markdown_it", "tokenizers", "safetensors", "torch", "transformers"]
for name in (*serving, "ctranslate2", "ai_edge_litert", *others):
    sys.modules[name] = None  # an import of it fails
import keras_transformer as kt
for name in kt.__all__:
    getattr(kt, name)
names = ["argos", "ctranslate2", "litert", "translate_litert"]
names += ["hugging_face", "hugging_face_tokenizers", "transformers_search"]
engines = ["keras_transformer.tools.engines." + name for name in names]
for module in pkgutil.walk_packages(kt.__path__, "keras_transformer."):
    if module.name not in ("keras_transformer.__main__", "keras_transformer.cli.document_api", *engines):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_the_library_needs_no_package_of_its_extras(warm):
    how = {"input": WITHOUT_EXTRAS, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([*warm_start.command(warm), "-"], cwd=ROOT, **how)
    assert done.returncode == 0, done.stderr


class Noting(keras.callbacks.Callback):
    """A user's callback."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def on_train_batch_end(self, batch, logs=None):
        self.noted.append(("update", logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        self.noted.append(("epoch", logs["val_bleu"], logs["val_loss"]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    pairs = (pair for pair in tiny.pairs(211))  # a generator
    settings = {"epochs": 1, "model_dir": tmp_path_factory.mktemp("runs") / "numbers", **QUICK}
    graphs, before, noting = living_graphs(), global_state(), Noting()
    run = kt.train(pairs, validation=tiny.pairs(7, seed=5), callbacks=[noting], **settings)
    run.changed, run.noted, noting = changes(before, global_state()), noting.noted, None
    run.new_graphs = living_graphs() - graphs
    return run


def test_a_run_knows_its_settings_and_its_score_and_tells_the_callbacks_of_a_user_of_every_update(run):
    assert (run.config.dataset, run.config.epochs, run.config.d_model) == ("pairs", 1, tiny.SIZES["d_model"])
    assert (run.evaluated_set, run.evaluation.sentences) == ("validation", 7)
    assert repr(run) == f"Run({str(run.path)!r})"
    *updates, last = run.noted
    assert len(updates) > 5 and {kind for kind, _ in updates} == {"update"}
    lines = (run.path / "run.log").read_text("utf-8").splitlines()
    line = next(line for line in lines if "epoch 1/1   loss" in line)  # a slow machine logs its progress before
    assert last[0] == "epoch" and f"BLEU {last[1]:.1f};" in line and f"validation: loss {last[2]:.3f}," in line


def test_a_training_leaves_the_state_of_the_process_as_it_was_even_if_it_fails(run, tmp_path, monkeypatch):
    """After the model is made, within the first epoch, while a signal is held."""

    def fail(self, batch, logs=None):
        raise DivergenceError("here")

    def without_updates(self):
        self.train_function = lambda _: {}

    monkeypatch.setattr(CountSteps, "on_train_batch_end", fail)
    monkeypatch.setattr(TeacherForcing, "make_train_function", without_updates)
    before = global_state()
    with pytest.raises(DivergenceError):
        kt.train(tiny.pairs(53), epochs=1, model_dir=tmp_path / "run", **QUICK)
    assert changes(before, global_state()) == run.changed == {} and not run.new_graphs


def test_run_load_and_checkpoints_give_the_same_translator(run):
    one, *others = run.translator(), kt.load(run.path), kt.load(str(run.path), checkpoint=1)
    for other in others:
        assert other.settings == one.settings and other.source_tokenizer.model == one.source_tokenizer.model
        for weight, expected in zip(other.model.weights, one.model.weights, strict=True):
            np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=1e-7, err_msg=weight.path)
    assert kt.load(run.path, beam_size=2, batch_size=3).settings["beam_size"] == 2
    assert isinstance(one.translate("one two"), str)


def test_a_preset_can_be_changed_and_an_evaluation_is_that_of_the_translations():
    class Echo:
        languages = ("en", "zh")

        def translate(self, texts, on_progress=None, **options):
            return [f"{text} {options['beam_size']}" for text in texts]

    found = kt.evaluate(Echo(), ["a b c d", "e"], ["a b c d 2", "f"], beam_size=2)
    assert found == kt.measure(["a b c d 2", "e 2"], ["a b c d 2", "f"], target_lang="zh")
    assert kt.preset("big") == kt.Config(preset="big")
    assert (kt.preset("tiny", epochs=3).epochs, kt.preset("tiny", epochs=3).d_ff) == (3, 256)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ([[("one", "eins")]], {"dataset": "files:some"}, "takes pairs or a dataset, not both"),
        ([None, kt.preset("tiny")], {"epochs": 3}, "takes a config or settings, not both"),
        ([["one"], ["eins"]], {}, "settings by name"),
        ([], {"test": []}, "`validation` and `test` belong to `pairs`"),
        ([[("one", "eins"), ("two",)]], {}, r"Received: \('two',\) at index 1"),
        ([[("one", "eins")]], {}, "too few to hold any out"),
        ([[]], {"validation": [("one", "eins")]}, "`pairs` has no pair"),
        ([], {"tokenizer": "spm.model", "vocabulary_size": 503}, "`vocabulary_size` has no effect with `tokenizer`"),
        ([], {"dataset": "pairs"}, "unknown corpus 'pairs'"),
        ([["ab"]], {}, "at index 0"),
    ],
)
def test_a_mistake_in_a_call_is_named_and_nothing_is_made(tmp_path, arguments, settings, message):
    settings = settings if len(arguments) > 1 else {**settings, "model_dir": tmp_path / "run", **QUICK}
    with pytest.raises(UserError, match=message):
        kt.train(*arguments, **settings)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_what_a_directory_cannot_give_is_named(tmp_path):
    with pytest.raises(UserError, match=f"no run and no export in {tmp_path}"):
        kt.load(tmp_path)
    with pytest.raises(CheckpointError, match="no run in"):
        Run(tmp_path).translator()
    (tmp_path / "3").mkdir()
    for settings in ({"beam_size": 3}, {"length_penalty": 0.0}, {"checkpoint": "best"}, {"shortlist": 3}):
        with pytest.raises(UserError, match=f"`{next(iter(settings))}` is part of an export"):
            kt.load(tmp_path, **settings)


@pytest.mark.slow
def test_an_export_with_a_shortlist_translates_as_the_run_and_says_what_the_shortlist_changes(run, tmp_path, caplog):
    path, short = run.export(tmp_path / "exports", beam_size=2, shortlist=3), run.translator(beam_size=2, shortlist=3)
    exported, expected = kt.load(path.parent), short.translate(texts := ["one two", "three", "", "Größe 😀. Seven"])
    keras.utils.clear_session()  # empties TensorFlow's cache of kernels: no tokenizer of ours dies with its own
    assert exported.translate(np.array(texts)) == short.translate(texts) == expected and path.name == "1"
    assert [getattr(short, name)(texts) for name in ("alternatives", "sample", "explain", "translate_scored")]
    assert short.score(texts, texts) and "retracing" not in caplog.text
    facts = (manifest := read_manifest(path))["shortlist"]
    assert (facts["size"], facts["sentences"]) == (3, 7) and "tok:13a" in facts["bleu_signature"]
    assert short.shortlist.table.shape == (run.config.vocabulary_size, 3 + 1)
    assert f"shortlist   of 3 leaves {facts['equal']} of 7 translations" in summarise(manifest)


def test_a_pruned_run_translates_and_is_the_origin_of_the_next(tmp_path):
    run = tiny.write_run(tmp_path / "run", "nowhere")
    model = prune(tiny.transformer(), np.array([True, False, True, True, False, False]))
    run.keep_decided({"source_lang": "en", "extra_length": 53})
    pruned = keep_pruned(Run(run.path), model, tmp_path / "pruned")
    assert RunDirectory(pruned.path).read_decided() == run.read_decided()
    config = Config.load(tmp_path / "pruned" / "config.yaml")
    assert (config.heads, config.d_key, config.model_dir) == ("1/0/2", 13, str(tmp_path / "pruned_trained"))
    loaded, (file,) = load_network(RunDirectory(pruned.path))
    assert file == tmp_path / "pruned" / "model.keras"
    ids = {"source_ids": np.array([[5, 7, 11]]), "target_ids": np.array([[2, 13]])}
    np.testing.assert_array_equal(loaded(ids), model(ids))
    trained_on = tiny.transformer(heads=config.heads, d_key=config.d_key)
    Origin(config).load(trained_on, [tmp_path / "pruned" / "tokenizer.model"])
    np.testing.assert_array_equal(trained_on(ids), model(ids))
    with pytest.raises(FileError, match="cannot write .*pruned: it exists already"):
        keep_pruned(Run(run.path), model, tmp_path / "pruned")


@pytest.mark.slow
def test_a_small_corpus_is_learned_with_the_defaults_of_quickstart(tmp_path):
    """12 pairs, with every seed and precision. With a rate of 0.003, 9 of 10 runs left a word out of a translation."""
    pairs = tiny.pairs(12)
    settings = {"preset": "quickstart", "strategy": "one_device", "model_dir": tmp_path}  # two replicas take long here
    run = kt.train(pairs, validation=pairs[::5], **settings)
    sources, references = map(list, zip(*pairs, strict=True))
    assert kt.evaluate(run.translator(), sources, references).exact >= 0.99


@pytest.mark.slow
def test_the_same_call_on_a_finished_run_says_so_and_leaves_earlier_translators_alone(run, capsys):
    translator = run.translator(beam_size=1)
    before = translator.translate(["one two"])
    config = kt.Config(epochs=1, model_dir=str(run.path), **QUICK)
    again = kt.train(tiny.pairs(211), config, validation=tiny.pairs(7, seed=5))
    assert "complete    the run has reached its last update" in capsys.readouterr().out
    assert again.evaluation == run.evaluation and translator.translate(["one two"]) == before


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Two runs of one model: their ensemble is the model."""
    directory = tmp_path_factory.mktemp("two")
    corpus = tiny.write_corpus(directory / "corpus")
    return [tiny.write_run(directory / name, corpus).path for name in ("a", "b")]


@pytest.mark.slow
def test_an_ensemble_of_equal_models_translates_as_one_does_and_is_exported_as_one_saved_model(
    two_runs, tmp_path, monkeypatch, capsys
):
    texts = ["one two three", "", "ten", "five five zero nine"]
    one, together = kt.load((two_runs[0],)), kt.load(two_runs)
    assert together.files == [path / "model.keras" for path in two_runs]
    expected, found = (each.translate_scored(texts) for each in (one, together))
    assert [row.text for row in found] == [row.text for row in expected]
    np.testing.assert_allclose([row.score for row in found], [row.score for row in expected], atol=1e-4)
    flags = [word for path in two_runs for word in ("--model_dir", str(path))]
    monkeypatch.setattr("sys.argv", ["export.py", *flags, "--export_dir", str(tmp_path), "--version", "5"])
    export.program()
    assert "translates  " in capsys.readouterr().out
    about = json.loads((tmp_path / "5/export.json").read_text())["run"]  # a score would be that of one of them
    assert about["ensemble"] == [str(path) for path in two_runs] and about["evaluation"] is None
    assert kt.load(tmp_path).translate(texts) == [row.text for row in expected]


def test_runs_that_cannot_translate_together_are_refused_and_the_one_that_reads_least_divides_texts(two_runs, tmp_path):
    """A model with learned positions has none for longer texts."""
    other = tmp_path / "other"
    shutil.copytree(two_runs[0], other)
    config = Config.load(other / "config.yaml")
    dataclasses.replace(config, max_length=7).save(other / "config.yaml")
    assert kt.load([two_runs[0], other]).settings["max_length"] == 7 < config.max_length
    opposite = shutil.copytree(other, tmp_path / "opposite")
    RunDirectory(opposite).keep_decided({"source_lang": "de", "target_lang": "en"})
    (other / "tokenizer.model").write_bytes(train_tokenizer(["un deux trois quatre cinq"] * 9, 300))
    for path in (other, opposite):
        with pytest.raises(kt.UserError, match=f"same tokenizers and languages, and those of {path} differ: train it"):
            kt.load([two_runs[0], path])
    for paths, received in ([], "an empty list"), ([other, two_runs[0], other], f"{other}, {two_runs[0]}, {other}"):
        for use in (kt.load, kt.Run):
            with pytest.raises(kt.UserError, match=f"different runs, each named once. Received: {received}$"):
                use(paths)
    with pytest.raises(kt.UserError, match="or several runs. Received: format='litert'"):
        kt.Run(two_runs).export(tmp_path / "exports", format="litert")
