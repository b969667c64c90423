"""A recurrent network trains, resumes, translates, and is exported, like the Transformer."""

import numpy as np
import pytest

from keras_transformer.evaluation import choose_tokenization, measure
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.versions import export_version
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.train import train
from tests import tiny
from tests.in_cpp import run_in_cpp

pytestmark = pytest.mark.slow

TEXTS = ["one two", "seven", "three three nine. Ten"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A directory of two runs: `whole`, of 5 epochs, and `resumed`, which stopped after the first and made another."""
    directory = tmp_path_factory.mktemp("recurrent")
    corpus = tiny.write_corpus(directory / "corpus")
    settings = {"architecture": "gru", "d_model": 48, "num_layers": 1, "input_feeding": True, "hard_attention": True}
    settings |= {"peak_learning_rate": 0.02, "batch_tokens": 201, "strategy": "one_device"}
    settings |= {"beam_size": 1, "average_epochs": 4}  # the weights after so many epochs are kept
    settings |= {"scheduled_sampling_rate": 0.1}  # coins, dropout and hard attention draw random numbers
    for name, epochs in (("whole", 5), ("resumed", 1), ("resumed", 2)):
        train(tiny.config(corpus, directory / name, epochs=epochs, **settings), measure, choose_tokenization)
    return directory


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(run):
    """After the second epoch."""
    whole, resumed = (np.load(RunDirectory(run / name).epoch(2)) for name in ("whole", "resumed"))
    assert whole.files == resumed.files
    assert [name for name in whole.files if not np.array_equal(whole[name], resumed[name])] == []


@pytest.fixture(scope="module")
def translator(run):
    return load_translator(RunDirectory(run / "whole"), 5, beam_size=3)


def test_it_has_learned_which_translation_belongs_to_which_text_and_scores_as_the_beam_does(translator):
    sources, references = map(list, zip(*tiny.pairs(211)[:60], strict=True))
    right = np.mean([score.score for score in translator.score(sources, references)])
    wrong = np.mean([score.score for score in translator.score(sources, references[7:] + references[:7])])
    assert right > wrong + 0.5
    texts = TEXTS[:2]  # of one sentence each: their translations are scored as a whole
    found = translator.translate_scored(texts)
    scores = translator.score(texts, [translation.text for translation in found])
    np.testing.assert_allclose([s.score for s in scores], [t.score for t in found], rtol=1e-4)


def test_the_export_is_proven_and_runs_in_c_without_python_and_without_xla(run, translator):
    exported = export_version(SavedModelExport(translator), run / "exports", sentences=TEXTS)
    ran = run_in_cpp(exported, TEXTS, xla="off")
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stdout.decode().splitlines() == translator.translate(TEXTS)
