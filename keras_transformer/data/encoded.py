"""Sentence pairs as token ids: flat arrays with offsets, so that millions of pairs stay small and batches are quick."""

import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_transformer.data.corpus import CorpusError

CHUNK = 8192  # pairs tokenised at a time


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences.

    Args:
        ids: int32 (total,), all sentences one after the other, without control symbols.
        starts: int64 (N + 1,); sentence i is ids[starts[i] : starts[i + 1]].
    """

    ids: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self):
        """int64 (N,): tokens of every sentence."""
        return np.diff(self.starts)

    def padded(self, rows, width, shift=0):
        """The sentences `rows` (B,) as int32 (B, width), moved right by `shift` positions, 0 elsewhere."""
        starts, lengths = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        positions = np.arange(width)[None, :] - shift  # (1, width)
        inside = (positions >= 0) & (positions < lengths[:, None])
        padded = np.zeros(inside.shape, np.int32)
        padded[inside] = self.ids[(starts[:, None] + positions)[inside]]
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

    def __len__(self):
        return len(self.source.starts) - 1

    def describe(self):
        """One line for the console: what was kept and dropped, and why."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)
        tokens = f"{len(self.source.ids):,} source and {len(self.target.ids):,} target tokens"
        return f"{len(self):,} pairs ({tokens})" + (f"; dropped {reasons}" if reasons else "; none dropped")


def encode_pairs(pairs, tokenizer, max_length, name="corpus"):
    """Tokenises pairs and leaves out those that cannot be learned from.

    Args:
        pairs: iterable of (source, target) strings.
        tokenizer: the `Tokenizer` of both languages.
        max_length: most tokens of either side, control symbols not counted.
        name: what to call the pairs in an error.

    Returns:
        `EncodedPairs`.

    Raises:
        CorpusError: if no pair is left.
    """
    blank, too_long = 0, 0
    chunks = []
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        filled = [(source, target) for source, target in chunk if source.strip() and target.strip()]
        blank += len(chunk) - len(filled)
        if not filled:
            continue
        source, target = (tokenizer.encode(tf.constant(side)) for side in zip(*filled, strict=True))
        fits = (source.row_lengths() <= max_length) & (target.row_lengths() <= max_length)
        too_long += len(filled) - int(tf.math.count_nonzero(fits))
        chunks.append((tf.ragged.boolean_mask(source, fits), tf.ragged.boolean_mask(target, fits)))
    dropped = {"blank on one side": blank, f"longer than {max_length} tokens": too_long}
    if not any(len(source.row_splits) > 1 for source, _ in chunks):
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        raise CorpusError(f"{name}: no pair is left to use ({reasons}); check the files or raise --max_length")
    source, target = (_join(side) for side in zip(*chunks, strict=True))
    return EncodedPairs(source, target, dropped)


def _join(ragged_chunks):
    lengths = np.concatenate([chunk.row_lengths().numpy() for chunk in ragged_chunks])
    ids = np.concatenate([chunk.values.numpy() for chunk in ragged_chunks])
    return Sentences(ids, np.concatenate([[0], np.cumsum(lengths)]))
