"""A sentence travels downhill: how many files it enters on its way to the loss, and through each signature."""

import contextlib
import importlib
import sys
import threading

import pytest
import tensorflow as tf

from keras_transformer import process
from keras_transformer.cli import console, train
from keras_transformer.data.encoded import encode_pairs
from keras_transformer.data.pipeline import training_batches
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.translation.options import INPUTS
from keras_transformer.translation.signatures import Signatures
from tests import tiny

PACKAGE = "keras_transformer."
# Bounds of the design, never raised to a measurement. Every module counts in which a function of ours is called, also
# one that only makes a callback or logs a line.
MOST_TO_THE_LOSS, MOST_BY_A_SENTENCE, MOST_THROUGH_A_SIGNATURE = 22, 15, 10
# Leaves do not count: they know nothing of a run, a model or a sentence, and lead nowhere.
LEAVES = {"cli.console", "cli.parser", "errors", "files", "private_api", "process", "tools.planning.available"}


@contextlib.contextmanager
def journey():
    """The modules whose functions are called, by their globals (AutoGraph writes files), in any thread: a set."""
    modules = set()

    def note(frame, event, argument):
        if event != "call":  # first of all, as there are millions of events
            return
        name = frame.f_globals.get("__name__", "")
        if name.startswith(PACKAGE) and not frame.f_code.co_name.startswith("<"):
            if (module := name.removeprefix(PACKAGE)) not in LEAVES:
                modules.add(module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Arrived(Exception):
    """The first batch has reached the loss."""


@pytest.mark.slow
def test_from_the_flags_of_train_py_to_the_loss_few_files_are_entered(tmp_path, monkeypatch):
    corpus, step = tiny.write_corpus(tmp_path / "corpus"), TeacherForcing.train_step

    def train_step(self, batch):
        step(self, batch)
        raise Arrived

    monkeypatch.setattr(TeacherForcing, "train_step", train_step)
    flags = {"source_lang": "en", "target_lang": "de", "vocabulary_size": tiny.VOCABULARY, **tiny.SIZES}
    flags |= {"dataset": f"files:{corpus}", "model_dir": tmp_path / "run", "strategy": "one_device"}
    monkeypatch.setattr(sys, "argv", ["train.py", *(f"--{name}={value}" for name, value in flags.items())])
    monkeypatch.setattr(console, "import_tensorflow", lambda: None)
    monkeypatch.setattr(process, "keep_freed_memory", lambda: None)  # it holds for all tests of this process
    for name in ("runs", "training.train", "tools.planning.dry_run"):  # an import is no stop: programs import late
        importlib.import_module(f"{PACKAGE}{name}")
    with journey() as modules, pytest.raises(Arrived):
        train.program()
    assert len(modules) <= MOST_TO_THE_LOSS, sorted(modules)
    assert {"cli.train", "config", "data.encoded", "models.transformer", "training.losses"} <= modules


def test_from_pairs_to_the_loss_a_sentence_enters_few_files(tmp_path):
    trainer = TeacherForcing(tiny.transformer())
    trainer.compile("sgd")
    with journey() as modules:
        encoded = encode_pairs(tiny.pairs(7), tiny.tokenizer(), tiny.tokenizer(), 31, tmp_path)
        batch = next(iter(training_batches(encoded, 401, seed=1)))
        tf.function(trainer.train_step, autograph=False).get_concrete_function(batch)
    to_run_it = {"training.train", "training.preparation"}  # they call the functions above
    assert len(modules | to_run_it) <= MOST_BY_A_SENTENCE, sorted(modules)
    assert {"data.encoded", "models.transformer", "training.losses"} <= modules


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translate", "explain", "sample"])
def test_through_a_signature_a_sentence_enters_few_files(name):
    functions = Signatures(tiny.transformer(), tiny.tokenizer(), tiny.tokenizer(), 2, 0.6, 31).functions()
    specs = {name: tf.TensorSpec([None], dtype, name) for name, dtype in INPUTS[name].items()}
    with journey() as modules:
        functions[name].get_concrete_function(specs)
    assert len(modules) <= MOST_THROUGH_A_SIGNATURE, sorted(modules)
    assert {"translation.signatures", "models.transformer", "layers.stacks"} <= modules
