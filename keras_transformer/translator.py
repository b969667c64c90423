"""Text in, text out: model, tokenizer and search together."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.model import load_transformer
from keras_transformer.segments import in_batches, join, join_scores, split
from keras_transformer.tokenizer import BOS_ID, EOS_ID, Tokenizer

BATCHES_AT_ONCE = 2
EXTRA_LENGTH = 50  # a translation may have so many tokens more than its source (6.1)
FEWEST_AT_ONCE = 32  # parts of texts that are translated side by side, or as many as there are texts


class Translation(NamedTuple):
    """Of a batch of texts.

    Args:
        text: string (B,).
        score: float32 (B,), log-probability of the best hypothesis over its length penalty; 0 for blank text.
    """

    text: tf.Tensor
    score: tf.Tensor


def translate_text(model, tokenizer, text, beam_size, length_penalty, max_length):
    """Translates a batch of texts, all as TensorFlow ops: what `Translator` runs and the SavedModel holds.

    Text of several sentences, or longer than `max_length`, is translated in parts; white space around sentences, such
    as line breaks, is kept.

    Args:
        model: `Transformer`.
        tokenizer: `Tokenizer`.
        text: string (B,). Blank text gives blank text.
        beam_size: W; 1 is greedy search.
        length_penalty: alpha.
        max_length: most source tokens that are translated as one sequence.

    Returns:
        `Translation`.
    """
    segments = split(text, tokenizer, max_length)

    def translate_parts(source):
        limits = tf.cast(source.row_lengths(), tf.int32) + EXTRA_LENGTH
        cache = model.start_cache(*model.encode(source.to_tensor()))
        options = {"bos_id": BOS_ID, "eos_id": EOS_ID, "length_penalty": length_penalty}
        if beam_size == 1:
            best = greedy_search(model.decode_step, cache, limits, **options)
        else:
            best = beam_search(model.decode_step, cache, limits, width=beam_size, **options)
        return tokenizer.decode(best.ids[:, 0]), best.scores[:, 0], best.lengths[:, 0]

    at_once = tf.maximum(tf.size(text, tf.int64), FEWEST_AT_ONCE)
    nothing = (tf.zeros([0], tf.string), tf.zeros([0]), tf.zeros([0], tf.int32))
    translations, scores, lengths = in_batches(translate_parts, segments.ids, at_once, nothing)
    return Translation(join(segments, translations), join_scores(segments, scores, lengths, length_penalty))


class Translator:
    """Translates lists of strings with a trained model.

    Args:
        model: `Transformer`.
        tokenizer: `Tokenizer`.
        beam_size: W; 1 is greedy search.
        length_penalty: alpha.
        max_length: most source tokens that are translated as one sequence; longer text is divided.
        batch_size: texts translated at a time, on every device.
        strategy: tf.distribute.Strategy that the weights were made under, each of whose replicas on this machine is to
            translate its part of every batch; None leaves all to the first.

    Raises:
        ValueError: for a size that is not positive, or a length penalty that is not finite.
    """

    def __init__(self, model, tokenizer, beam_size=4, length_penalty=0.6, max_length=256, batch_size=32, strategy=None):
        check_positive(beam_size=beam_size, max_length=max_length, batch_size=batch_size)
        if not math.isfinite(length_penalty):
            raise ValueError(f"`length_penalty` must be finite. Received: length_penalty={length_penalty}")
        self.model = model
        self.tokenizer = tokenizer
        self.options = {"beam_size": beam_size, "length_penalty": length_penalty, "max_length": max_length}
        self.batch_size = batch_size
        self._strategy = strategy or tf.distribute.get_strategy()
        self._replicas = len(self._strategy.experimental_local_results(model.weights[0].value))
        self._translate = tf.function(self._share, input_signature=[tf.TensorSpec([None], tf.string)])

    @classmethod
    def load(cls, model_dir, beam_size=None, length_penalty=None, batch_size=32):
        """The translator of a run directory; the options default to those of its config.

        Raises:
            FileNotFoundError: if train.py has not finished a model there.
        """
        model_dir = Path(model_dir)
        if not (model_dir / "model.keras").exists():
            raise FileNotFoundError(f"no model.keras in {model_dir}: train.py writes it at the end of a run")
        config = Config.load(model_dir / "config.yaml")
        return cls(
            load_transformer(model_dir / "model.keras"),
            Tokenizer.load(model_dir / "tokenizer.model"),
            beam_size=config.beam_size if beam_size is None else beam_size,
            length_penalty=config.length_penalty if length_penalty is None else length_penalty,
            max_length=config.max_length,
            batch_size=batch_size,
        )

    def _share(self, text):
        """`translate_text` of string (B,), of which every replica does the rows i, i + n, ..., with its own weights."""

        def translate_part():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group % self._replicas
            return translate_text(self.model, self.tokenizer, text[replica :: self._replicas], **self.options)

        rows = [tf.range(tf.size(text))[replica :: self._replicas] for replica in range(self._replicas)]
        parts = map(self._strategy.experimental_local_results, self._strategy.run(translate_part))
        return Translation(*(tf.dynamic_stitch(rows, part) for part in parts))

    def translate_batch(self, texts):
        """Translates one batch, a list of str: (list of str, list of float scores)."""
        text, score = self._translate(tf.constant(texts, tf.string, shape=[len(texts)]))
        return [t.decode("utf-8") for t in text.numpy()], score.numpy().tolist()

    def translate(self, texts, on_progress=None):
        """Translates any number of texts, sorted by length on the way so that little is padded.

        Args:
            texts: list of str.
            on_progress: called with the number of texts translated since the last call.

        Returns:
            list of str, in the order of `texts`.
        """
        return translate_sorted(self.translate_batch, texts, self.batch_size * self._replicas, on_progress)


def translate_sorted(translate_batch, texts, batch_size, on_progress=None):
    """Runs `translate_batch` over texts sorted by length, longest first, and restores their order.

    Two batches are under way at a time: on few cores that is faster than more threads for one.
    """
    check_positive(batch_size=batch_size)
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    translations = [""] * len(texts)
    threads = ThreadPoolExecutor(BATCHES_AT_ONCE)
    try:
        results = threads.map(lambda rows: translate_batch([texts[row] for row in rows])[0], batches)
        for rows, translated in zip(batches, results, strict=True):
            for row, translation in zip(rows, translated, strict=True):
                translations[row] = translation
            if on_progress:
                on_progress(len(rows))
    finally:
        threads.shutdown(cancel_futures=True)  # Ctrl-C waits for two batches, not for all
    return translations


def check_positive(**sizes):
    """Raises ValueError for a size that is less than 1, by its name."""
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")


class SavedModelTranslator:
    """The same interface over an exported SavedModel, which needs nothing else of this package.

    Args:
        path: EXPORT_DIR/VERSION, or EXPORT_DIR, whose latest version is taken.
        batch_size: texts translated at a time.

    Raises:
        FileNotFoundError: if there is no SavedModel.
    """

    def __init__(self, path, batch_size=32):
        path = Path(path)
        versions = [p for p in path.glob("[0-9]*") if p.name.isdigit()] if path.is_dir() else []
        if versions:
            path = max(versions, key=lambda p: int(p.name))
        if not (path / "saved_model.pb").exists():
            raise FileNotFoundError(f"no SavedModel at {path}: export.py writes one")
        self._loaded = tf.saved_model.load(os.fspath(path))
        self._signature = self._loaded.signatures["serving_default"]
        self.batch_size = batch_size

    def translate_batch(self, texts):
        """As `Translator.translate_batch`."""
        outputs = self._signature(text=tf.constant(texts, tf.string, shape=[len(texts)]))
        return [t.decode("utf-8") for t in outputs["translation"].numpy()], outputs["score"].numpy().tolist()

    def translate(self, texts, on_progress=None):
        """As `Translator.translate`."""
        return translate_sorted(self.translate_batch, texts, self.batch_size, on_progress)


def load_translator(model_dir, saved_model, beam_size, length_penalty, batch_size):
    """The translator of a run directory or of a SavedModel, whichever is given.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: for search options beside a SavedModel, which has them inside.
    """
    if saved_model is None:
        return Translator.load(model_dir, beam_size, length_penalty, batch_size)
    if beam_size is not None or length_penalty is not None:
        raise ValueError("a SavedModel has its beam size and length penalty inside: give them to export.py instead")
    return SavedModelTranslator(saved_model, batch_size)
