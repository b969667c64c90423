"""Sentence pairs as token ids: flat arrays with offsets, in files that are mapped into memory.

However many pairs there are, tokenising holds one chunk of them, and training what its batches touch: the kernel takes
pages of files back when it needs them. Batches are quick, since a batch is one indexing of a flat array.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from keras_transformer.data.corpus import CorpusError

CHUNK = 8192  # pairs tokenised at a time
LAYOUT = 1  # of the files: to be raised with every change of what they hold, so that older ones are not taken for it
ABOUT = "about.json"  # beside the arrays: the type of the ids, and what was dropped


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences.

    Args:
        ids: int (total,), all sentences one after the other, without control symbols.
        starts: int64 (N + 1,); sentence i is ids[starts[i] : starts[i + 1]].
    """

    ids: np.ndarray
    starts: np.ndarray

    @classmethod
    def open(cls, stem, dtype):
        """Maps the files STEM_ids, of integers of this type, and STEM_starts into memory."""
        ids, starts = np.memmap(f"{stem}_ids", dtype, mode="r"), np.memmap(f"{stem}_starts", np.int64, mode="r")
        return cls(np.asarray(ids), np.asarray(starts))

    @property
    def lengths(self):
        """int64 (N,): tokens of every sentence, counted anew."""
        return np.diff(self.starts)

    def lengths_of(self, rows):
        """int64 (B,): tokens of the sentences `rows`."""
        return self.starts[rows + 1] - self.starts[rows]

    def of(self, rows):
        """The sentences `rows` (B,) alone, as `Sentences`."""
        lengths = self.lengths_of(rows)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Sentences(self.ids[np.repeat(self.starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])], starts)

    def padded(self, rows, width, shift=0):
        """The sentences `rows` (B,) as int32 (B, width), moved right by `shift` positions, 0 elsewhere."""
        positions = np.arange(width)[None, :] - shift  # (1, width)
        inside = (positions >= 0) & (positions < self.lengths_of(rows)[:, None])
        padded = np.zeros(inside.shape, np.int32)
        padded[inside] = self.ids[(self.starts[rows, None] + positions)[inside]]
        return padded


@dataclass(frozen=True)
class EncodedPairs:
    """A split of a corpus, tokenised and filtered.

    Args:
        source: the `Sentences` of one language.
        target: those of the other, aligned.
        dropped: reason -> number of pairs left out.
    """

    source: Sentences
    target: Sentences
    dropped: dict

    @classmethod
    def open(cls, directory):
        """Maps what `encode_pairs` wrote into memory."""
        about = json.loads(Path(directory, ABOUT).read_text(encoding="utf-8"))
        source, target = (Sentences.open(Path(directory, side), about["dtype"]) for side in ("source", "target"))
        return cls(source, target, about["dropped"])

    def __len__(self):
        return len(self.source.starts) - 1

    def describe(self):
        """One line for the console: what was kept and dropped, and why."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)
        tokens = f"{len(self.source.ids):,} source and {len(self.target.ids):,} target tokens"
        return f"{len(self):,} pairs ({tokens})" + (f"; dropped {reasons}" if reasons else "; none dropped")


def encode_pairs(pairs, tokenizer, max_length, directory, name="corpus"):
    """Tokenises pairs into files, chunk by chunk, and leaves out those that cannot be learned from.

    Ids are stored in the smallest unsigned type that holds the vocabulary. In a terminal a bar shows how far it is,
    once that takes seconds.

    Args:
        pairs: iterable of (source, target) strings.
        tokenizer: the `Tokenizer` of both languages.
        max_length: most tokens of either side, control symbols not counted.
        directory: an empty one, for the files.
        name: what to call the pairs in an error.

    Returns:
        `EncodedPairs`, mapped from the files.

    Raises:
        CorpusError: if no pair is left.
    """
    dtype = np.min_scalar_type(tokenizer.vocabulary_size - 1)
    writers = [_SentencesWriter(Path(directory, side), dtype) for side in ("source", "target")]
    blank, too_long = 0, 0
    rest = iter(tqdm(pairs, "tokenising", unit=" pairs", unit_scale=True, delay=3, leave=False, disable=None))
    while chunk := list(itertools.islice(rest, CHUNK)):
        filled = [(source, target) for source, target in chunk if source.strip() and target.strip()]
        blank += len(chunk) - len(filled)
        if not filled:
            continue
        sides = [tokenizer.encode(tf.constant(side)) for side in zip(*filled, strict=True)]
        fits = tf.reduce_all([side.row_lengths() <= max_length for side in sides], axis=0)
        too_long += len(filled) - int(tf.math.count_nonzero(fits))
        for writer, side in zip(writers, sides, strict=True):
            writer.append(tf.ragged.boolean_mask(side, fits))
    dropped = {"blank on one side": blank, f"longer than {max_length} tokens": too_long}
    if not writers[0].total:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise CorpusError(f"{name}: no pair is left to use ({reasons}); check the files or raise --max_length")
    about = {"dtype": dtype.str, "dropped": dropped}
    Path(directory, ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return EncodedPairs.open(directory)


class _SentencesWriter:
    """Writes the files of `Sentences.open` chunk by chunk; `total` counts the ids."""

    def __init__(self, stem, dtype):
        self.stem, self.dtype, self.total = stem, dtype, 0
        self._append("starts", np.zeros(1, np.int64))

    def append(self, sentences):
        """Adds a RaggedTensor (n, None)."""
        self._append("ids", sentences.values.numpy().astype(self.dtype))
        self._append("starts", self.total + sentences.row_splits.numpy()[1:])
        self.total += len(sentences.values)

    def _append(self, name, array):
        with open(f"{self.stem}_{name}", "ab") as file:
            file.write(array)
