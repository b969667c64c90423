"""A tiny language pair, and what runs on it need, quick to make: shared by the tests of whole runs."""

import functools
import itertools
import os
import random
import shutil
import unittest.mock
from pathlib import Path

import filelock
import keras
import numpy as np
import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import EOS_ID, Config
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.data.pipeline import teacher_forced
from keras_transformer.models.transformer import Transformer
from keras_transformer.protection import PLACEHOLDERS
from keras_transformer.tags import LanguageTags
from keras_transformer.tokenizer import Tokenizer, save_tokenizers, train_tokenizer, with_eos
from keras_transformer.training.decide import make_plan, make_strategy
from keras_transformer.training.run_directory import RunDirectory
from keras_transformer.training.updates import paper_peak_rate
from keras_transformer.translation.translator import Translator
from tests import reference

ENGLISH = "zero one two three four five six seven eight nine ten".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn".split()

LANGUAGES = ("de", "en", "fr", "zh_Hans")  # of the tests of many languages
VOCABULARY = 331  # all bytes and a few pieces
SIZES = {"d_model": 2 * 13, "num_heads": 2, "d_ff": 17, "num_layers": 1}


def once(name, make):
    """The path that `make(path)` writes, once for all processes of the tests. Tests only read it."""
    path = Path(os.environ["SHARED_BY_TESTS"], name)  # see conftest.py
    done = path.with_name(f"{name}.done")
    with filelock.FileLock(path.with_name(f"{name}.lock")):
        if not done.exists():
            shutil.rmtree(path, ignore_errors=True)  # what a process left that failed
            make(path)
            done.touch()
    return path


def pairs(count, seed=0):
    """`count` different pairs of one to five number words."""
    rng, numbers = np.random.default_rng(seed), set()
    while len(numbers) < count:
        numbers.add(tuple(rng.integers(0, len(ENGLISH), rng.integers(1, 6)).tolist()))
    return [
        (" ".join(ENGLISH[n] for n in sentence), " ".join(GERMAN[n] for n in sentence)) for sentence in sorted(numbers)
    ]


def write_pairs(directory, stem, pairs):
    """Writes line-aligned STEM.en and STEM.de."""
    for language, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (directory / f"{stem}.{language}").write_text("".join(f"{s}\n" for s in sentences), encoding="utf-8")


def write_corpus(directory, train=211, validation=13, test=7):
    """A directory for `files:` with all three splits, no pair in two of them."""
    directory.mkdir(exist_ok=True)
    all_pairs = iter(np.random.default_rng(3).permutation(pairs(train + validation + test)).tolist())
    for stem, count in {"train": train, "val": validation, "test": test}.items():
        write_pairs(directory, stem, list(itertools.islice(all_pairs, count)))
    return directory


def config(corpus, model_dir, **settings):
    """A `Config` that trains in seconds."""
    quick = {"max_length": 31, "epochs": 3, "batch_tokens": 401, "warmup_steps": 11, "validation_sentences": 5}
    return Config(
        model_dir=str(model_dir),
        dataset=f"files:{corpus}",
        source_lang="en",
        target_lang="de",
        **{"preset": "base", "vocabulary_size": VOCABULARY, "precision": "float32", **SIZES, **quick, **settings},
    )


@functools.cache
def tokenizer_model():
    """A SentencePiece model, bytes."""
    return train_tokenizer(itertools.chain.from_iterable(pairs(211)), VOCABULARY)


@functools.cache
def tokenizer():
    return Tokenizer(tokenizer_model())


# "one two three" for a reader, in other characters.
ODD_SPELLINGS = [
    "one  two three",
    "one\u00a0two\u202fthree",
    "o\u00adne t\u200bwo thr\u2060ee",
    "one \u200etwo\u3000\ufeffthree",
]


@functools.cache
def spelling_tokenizer():
    """One with the pieces and ids of `tokenizer`. It divides text into characters: longer pieces are unused."""
    model = ModelProto.FromString(tokenizer_model())
    for piece in model.pieces:
        if piece.type == piece.NORMAL and len(piece.piece) > 1:
            piece.type = piece.UNUSED
    return Tokenizer(model.SerializeToString())


# As OPUS-MT and M2M-100 are: what their models have that the paper's has not.
OPUS = {"positions": "sinusoidal_tensor2tensor", "attention_bias": True, "logits_bias": True, "activation": "silu"}
OPUS |= {"frame": "/3/", "layer_norm_epsilon": 1e-5}
M2M_100 = {**OPUS, "activation": "relu", "pre_norm": True, "first_position": 2, "frame": "17/3/3"}


@functools.cache
def keeping_tokenizer():
    """One with placeholders, as large as `tokenizer`."""
    sentences = itertools.chain.from_iterable(pairs(211))
    return Tokenizer(train_tokenizer(sentences, VOCABULARY, placeholders=PLACEHOLDERS))


def with_tags(model):
    """A SentencePiece model with a tag for each of `LANGUAGES` behind its pieces, `Tokenizer`."""
    model = ModelProto.FromString(model)
    for code in LANGUAGES:
        model.pieces.add(piece=f"<2{code}>", score=0.0, type=ModelProto.SentencePiece.CONTROL)
    return Tokenizer(model.SerializeToString())


def tags(place):
    """`LanguageTags` of a tokenizer of `with_tags`: all directions between `LANGUAGES`; from en to de by default."""
    ids = {code: VOCABULARY + number for number, code in enumerate(LANGUAGES)}
    return LanguageTags(place, ids, ids, ("en", "de"))


@functools.cache
def many_languages(place="source", beam_size=1, model=tokenizer_model, **arguments):
    """A `Translator` of many languages with random weights, which rarely end a translation before its limit."""
    network = transformer(vocabulary_size=VOCABULARY + len(LANGUAGES), **arguments)
    how = {"beam_size": beam_size, "length_penalty": 0.7, "max_length": 31, "batch_size": 3, "extra_length": 5}
    return Translator(network, with_tags(model()), tags=tags(place), **how)


@functools.cache
def learned_pairs():
    """The pairs that `trained_transformer` knows by heart."""
    sentences = ["one two", "one two three", "five five zero nine", "ten nine eight four zero", *ENGLISH]
    of_words = [
        (sentence, " ".join(GERMAN[ENGLISH.index(word)] for word in sentence.split())) for sentence in sentences
    ]
    return list(dict.fromkeys([*of_words, *pairs(53, seed=5)]))


@functools.cache
def trained_transformer():
    """A `Transformer` that gives every token of `learned_pairs` a probability above 0.97, on every processor.

    So greedy search finds these translations. Beam search may not: the other hypotheses of so sure a model end early,
    and the search stops when W of them have ended. Of other texts, expect no particular translation. No test changes
    the weights.
    """
    random.seed(7)  # Keras draws from it
    sizes = {**SIZES, "d_ff": 512}  # an export spreads kernels of this width
    model = Transformer(VOCABULARY, **sizes, dropout_rate=0.0, name="transformer")
    model(dict.fromkeys(("source_ids", "target_ids"), np.ones((1, 1), "int32")))  # makes the weights

    def write(path):
        learn_by_heart(model)
        np.savez(path, *model.get_weights())

    with np.load(once("trained_transformer.npz", write)) as weights:
        model.set_weights(list(weights.values()))
    return model


def learn_by_heart(model):
    """Trains a model until it is sure of every token of `learned_pairs`."""
    sources, targets = (tokenizer().encode(list(side)) for side in zip(*learned_pairs(), strict=True))
    inputs, labels = teacher_forced(sources.to_tensor(), with_eos(targets).to_tensor())
    weights = tf.cast(labels != 0, tf.float32)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.01, 300, alpha=0.1), beta_2=0.98)
    optimizer.build(model.trainable_variables)

    def losses():
        return weights * tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs))

    @tf.function(autograph=False)
    def learn():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses()) / tf.reduce_sum(weights)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))

    for _ in range(300):  # about 20 are enough
        for _ in range(10):
            learn()
        if tf.reduce_max(losses()) < 0.03:
            return
    raise RuntimeError("the toy has not learned its pairs")


def write_run(path, corpus):
    """Writes the directory of a finished run of `trained_transformer`."""
    run = RunDirectory(path)
    run.path.mkdir()
    config(corpus, run.path).save(run.config)
    save_tokenizers(run.path, tokenizer(), tokenizer())
    trained_transformer().save(run.model)
    run.samples.write_text("\n".join(source for source, _ in learned_pairs()), encoding="utf-8")
    return run


@functools.cache
def beam_translator():
    """A `Translator` of `trained_transformer` with beam search."""
    return Translator(trained_transformer(), tokenizer(), beam_size=3, max_length=31)


def saved_model():
    """A directory with the proven version exports/1 of `beam_translator`, and `plain` and `compacted` on its way."""
    return once("saved_model", _write_saved_model)


def _write_saved_model(path):
    from keras_transformer.export import saved_model as module  # here, as other tests do without it
    from keras_transformer.export.versions import export_version

    compact = module.compact_saved_model

    def keep_and_compact(directory):
        shutil.copytree(directory, path / "plain")
        compact(directory)
        shutil.copytree(directory, path / "compacted")

    texts = ["one two three", "ten", "five five zero nine"]
    with (
        unittest.mock.patch.object(module, "compact_saved_model", keep_and_compact),
        unittest.mock.patch.object(module, "replay"),  # slow; tests/export/test_saved_model.py runs every signature
    ):
        export_version(module.SavedModelExport(beam_translator()), path / "exports", sentences=texts)


def transformer(seed=0, **arguments):
    """A `Transformer` with random weights, none of them 0 or 1."""
    return reference.randomise(
        Transformer(**{"vocabulary_size": VOCABULARY, **SIZES, "name": "transformer", **arguments}), seed
    )


def two_replicas():
    """MirroredStrategy on two CPU devices."""
    strategy = make_strategy("mirrored", 2)
    assert strategy.num_replicas_in_sync == 2
    return strategy


def encoded_pairs(source_lengths, target_lengths, vocabulary_size, seed=0):
    """`EncodedPairs` of random ids with these lengths; every target has eos on top."""
    rng = np.random.default_rng(seed)

    def sentences(lengths, end=()):
        rows = [[*rng.integers(4, vocabulary_size, length), *end] for length in lengths]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        return Sentences(np.array(list(itertools.chain.from_iterable(rows)), np.int32), starts)

    return EncodedPairs(sentences(source_lengths), sentences(target_lengths, [EOS_ID]), {})


def build_trainer(config, data):
    """The trainer of settings in which all is decided but the peak of the learning rate."""
    from keras_transformer.training import train  # late: most tests need none

    peak = config.peak_learning_rate or paper_peak_rate(config.d_model, config.warmup_steps)
    config = Config(**{**vars(config), "peak_learning_rate": peak})
    return train.build_trainer(config, data, make_plan(config, data.train))


@functools.cache
def endless():
    """A random model to which eos is the least likely token."""
    model = transformer(seed=3)
    eos = model.output_matrix.numpy()[EOS_ID]
    model.decoder.layers[-1].feed_forward_residual.norm.beta.assign_sub(30 * eos / (eos @ eos))
    return model
