"""A tiny language pair, and what runs on it need, quick to make: shared by the tests of whole runs."""

import functools
import itertools
import random
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras_transformer.models.transformer import Transformer

from keras_transformer.config import Config
from keras_transformer.data.encoded import EncodedPairs, Sentences, encode_pairs
from keras_transformer.data.pipeline import training_batches
from keras_transformer.config import EOS_ID
from keras_transformer.tokenizer import Tokenizer, train_tokenizer
from keras_transformer.training.teacher_forcing import TeacherForcing
from tests import reference

ENGLISH = "zero one two three four five six seven eight nine ten".split()
GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn".split()

VOCABULARY = 331  # all bytes and a few pieces
SIZES = {"d_model": 2 * 13, "num_heads": 2, "d_ff": 17, "num_layers": 1}


def pairs(count, seed=0):
    """`count` different pairs of one to five number words."""
    rng = np.random.default_rng(seed)
    numbers = set()
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
        **{"vocabulary_size": VOCABULARY, "precision": "float32", **SIZES, **quick, **settings},
    )


@functools.cache
def tokenizer_model():
    """A SentencePiece model, bytes."""
    return train_tokenizer(itertools.chain.from_iterable(pairs(211)), VOCABULARY)


@functools.cache
def tokenizer():
    return Tokenizer(tokenizer_model())


@functools.cache
def trained_transformer():
    """A half-trained `Transformer`: it has learned words, and when to stop not always. No test changes its weights."""
    random.seed(7)  # Keras draws from it
    model = TeacherForcing(Transformer(VOCABULARY, **SIZES, dropout_rate=0.1, name="transformer"))
    model.compile(optimizer=keras.optimizers.Adam(0.01, beta_2=0.98))
    with tempfile.TemporaryDirectory() as directory:
        encoded = encode_pairs(pairs(211), tokenizer(), tokenizer(), 31, directory)
        model.fit(training_batches(encoded, 401, seed=1), steps_per_epoch=90, shuffle=False, verbose=0)
    return model.network


def transformer(seed=0, **arguments):
    """A `Transformer` with random weights, none of them 0 or 1."""
    return reference.randomise(
        Transformer(**{"vocabulary_size": VOCABULARY, **SIZES, "name": "transformer", **arguments}), seed
    )


@functools.cache
def two_replicas():
    """MirroredStrategy on two CPU devices.

    One for all tests: a second one would number its collective operations from the start again, and TensorFlow would
    take them for those of the first.
    """
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    assert len(devices) == 2
    return tf.distribute.MirroredStrategy(devices)


def encoded_pairs(source_lengths, target_lengths, vocabulary_size, seed=0):
    """`EncodedPairs` of random ids with these lengths; every target has eos on top."""
    rng = np.random.default_rng(seed)

    def sentences(lengths, end=()):
        rows = [[*rng.integers(4, vocabulary_size, length), *end] for length in lengths]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        return Sentences(np.array(list(itertools.chain.from_iterable(rows)), np.int32), starts)

    return EncodedPairs(sentences(source_lengths), sentences(target_lengths, [EOS_ID]), {})


@functools.cache
def endless():
    """A random model to which eos is the least likely token."""
    model = transformer(seed=3)
    eos = model.output_matrix.numpy()[EOS_ID]
    model.decoder.layers[-1].feed_forward_residual.norm.beta.assign_sub(30 * eos / (eos @ eos))
    return model
