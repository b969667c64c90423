"""A recurrent network trains, resumes, translates, and is exported, like the Transformer."""

import random
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.pipeline import Undivided, make_batch, teacher_forced
from keras_transformer.evaluation import choose_tokenization, measure
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.versions import export_version
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.training.checkpoints import load_translator
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.train import train
from tests import tiny
from tests.in_cpp import run_in_cpp

pytestmark = pytest.mark.slow

TEXTS = ["one two", "seven", "three three nine. Ten"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A directory of two runs: `whole`, and `resumed`, which stopped after 2 of its 5 epochs and went on."""
    directory = tmp_path_factory.mktemp("recurrent")
    corpus = tiny.write_corpus(directory / "corpus")
    settings = {"architecture": "gru", "d_model": 48, "num_layers": 1, "input_feeding": True, "hard_attention": True}
    settings |= {"peak_learning_rate": 0.02, "batch_tokens": 201, "strategy": "one_device"}
    settings |= {"scheduled_sampling_rate": 0.1}  # coins, dropout and hard attention draw random numbers
    whole = tiny.config(corpus, directory / "whole", epochs=5, **settings)
    train_run = partial(train, evaluate=measure, choose_tokenization=choose_tokenization)
    train_run(whole)
    train_run(tiny.config(corpus, directory / "resumed", epochs=2, **settings))
    train_run(tiny.config(corpus, directory / "resumed", epochs=5, **settings))
    return directory


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(run):
    whole, resumed = (np.load(RunDirectory(run / name).last) for name in ("whole", "resumed"))
    assert whole.files == resumed.files
    assert [name for name in whole.files if not np.array_equal(whole[name], resumed[name])] == []


def test_two_replicas_update_as_one_device_does():
    """The second batch has one row, so that the second replica has none."""
    pairs = tiny.encoded_pairs([3, 5, 2, 7, 4], [1, 8, 2, 3, 6], vocabulary_size=37)
    ends = []
    for strategy in (tf.distribute.get_strategy(), tiny.two_replicas()):
        with strategy.scope():
            random.seed(1)  # Keras draws from it
            network = RecurrentNetwork(37, d_model=14, input_feeding=True, dropout_rate=0.0)
            trainer = TeacherForcing(network)
            trainer.compile(keras.optimizers.SGD(0.5))
        batches = tf.data.Dataset.from_generator(
            lambda: (make_batch(pairs, np.array(rows)) for rows in ([0, 1, 2, 3], [4])),
            output_signature=(tf.TensorSpec((None, None), tf.int32),) * 2,
        )
        trainer.fit(Undivided(batches.map(teacher_forced)), steps_per_epoch=2, shuffle=False, verbose=0)
        ends.append([weight.numpy() for weight in network.trainable_variables])
    for one, two in zip(*ends, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def translator(run):
    return load_translator(RunDirectory(run / "whole"), beam_size=3)


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
