"""A corpus: sentence pairs in two languages, in streamed splits, from any source."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_transformer.errors import CorpusError, counted
from keras_transformer.files import write_whole

Pair = tuple[str, str]

BAD_LINES = "bad_lines.jsonl"
"""File of the bad lines that were skipped, in the directory of a run or of a prepared corpus."""

VALIDATION_NAMES = ("validation", "val", "valid", "dev")
"""Names of validation splits; the first that exists is taken."""

HASH_DIGITS = 16
"""Length of the hashes in a fingerprint."""

_LARGEST_HOLD_OUT = 1000
_HOLD_OUT_DIVISOR = 20
_FEW = 20  # different pairs: too few to keep any of them from the training


class BadLine(NamedTuple):
    """A line of a file that is no pair.

    Args:
        file: str, the name of the file.
        line: int, counted from 1.
        fault: str, such as "not valid UTF-8".
        text: str, the line. A byte that is not valid UTF-8 is written as `\\xff`.
    """

    file: str
    line: int
    fault: str
    text: str


def describe_bad_lines(bad_lines: Sequence[BadLine]) -> str:
    """Says which lines are skipped, the first one with its fault."""
    files = ", ".join(f"{count:,} of {file}" for file, count in Counter(bad.file for bad in bad_lines).items())
    first = bad_lines[0]
    return f"bad lines are skipped: {files}. The first one is line {first.line:,} of {first.file}: {first.fault}"


def write_bad_lines(path: Path, bad_lines: Sequence[BadLine]) -> None:
    """Writes a line of JSON for each bad line."""
    lines = (json.dumps(bad._asdict(), ensure_ascii=False) for bad in bad_lines)
    write_whole(path, lambda temporary: temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8"))


@dataclass(frozen=True)
class BothSides:
    """The sentences of both languages of a split, one after the other; like the split, it can be iterated again.

    Attributes:
        pairs: iterable of `(source, target)` strings.
    """

    pairs: Iterable[Pair]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.pairs)


@dataclass(frozen=True)
class OneSide:
    """The sentences of one language of a split; like the split, it can be iterated again.

    Attributes:
        pairs: iterable of `(source, target)` strings.
        side: 0 for the source, 1 for the target.
    """

    pairs: Iterable[Pair]
    side: int

    def __iter__(self) -> Iterator[str]:
        return (pair[self.side] for pair in self.pairs)


@dataclass(frozen=True)
class InTurn:
    """The pairs of several corpora, one corpus after the other; like a split, it can be iterated again.

    Attributes:
        splits: dict, from the name of each corpus to an iterable of its `(source, target)` strings.
    """

    splits: dict[str, Iterable[Pair]]

    def __iter__(self) -> Iterator[Pair]:
        return chain.from_iterable(self.splits.values())


@dataclass(frozen=True)
class Corpus:
    """A parallel corpus.

    Every split can be iterated over again and again; each `iter()` starts anew. A split streams: millions of pairs are
    never held in memory. Pairs may be blank on either side; the pipeline drops and counts blank pairs.

    Attributes:
        name: str, how the user named it, such as `files:data/multi30k`.
        source_lang: str, the language of the first member of every pair.
        target_lang: str, the language of the second.
        train: iterable of `(source, target)` strings.
        validation: iterable of `(source, target)` strings; its lines are not among those of `train`.
        test: iterable of `(source, target)` strings, or None where the corpus has no test split.
        fingerprint: dict, from the name of each part of the text, such as `train.en`, to a hash of its content. It is
            the same only if all pairs of `train` and `validation` are the same, up to their direction.
        notes: tuple of str, remarks for the user, such as the number of pairs held out for validation.
        held_out: bool, whether `validation` was taken from the training text.
        others: tuple of Corpus, the corpora that are mixed with the first one. `train` then has the pairs of all, one
            corpus after the other; `validation` and `test` belong to the first one.
        weight: Fraction, how often an epoch takes each pair on average.
        bad_lines: tuple of BadLine, those of its files that are skipped.
        is_replayed: bool, whether an earlier run trained on it. The weights of replayed corpora only divide the
            replayed share among these corpora.
    """

    name: str
    source_lang: str
    target_lang: str
    train: Iterable[Pair]
    validation: Iterable[Pair]
    test: Iterable[Pair] | None
    fingerprint: dict[str, str]
    notes: tuple[str, ...] = ()
    held_out: bool = False
    others: tuple["Corpus", ...] = ()
    weight: Fraction = Fraction(1)
    is_replayed: bool = False
    bad_lines: tuple[BadLine, ...] = ()

    @property
    def identity(self) -> dict[str, str]:
        """The directions and the fingerprint: two corpora of equal identity have the same pairs."""
        directions = [f"{source} to {target}" for source, target in self.directions]
        return {"languages": ", ".join(directions if self.is_multilingual else directions[:1]), **self.fingerprint}

    @property
    def directions(self) -> list[tuple[str, str]]:
        """(source, target), the languages of this corpus and of each of the others."""
        return [(each.source_lang, each.target_lang) for each in (self, *self.others)]

    @property
    def parts(self) -> list[tuple["Corpus", Iterable[Pair]]]:
        """This corpus and each of the others, each with its own training pairs."""
        splits = self.train.splits.values() if isinstance(self.train, InTurn) else [self.train]
        return list(zip((self, *self.others), splits, strict=True))

    @property
    def is_multilingual(self) -> bool:
        """Whether its corpora have several directions."""
        return len(set(self.directions)) > 1


def hash_pairs(pairs: list[Pair]) -> str:
    """Makes the hash of pairs in memory for `Corpus.fingerprint`."""
    return hashlib.sha256(repr(pairs).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def held_out_size(pairs: int) -> int:
    """Says how many training pairs to hold out for validation: 5 % of them, at least 1 and at most 1,000.

    Args:
        pairs: int, the number of training pairs.

    Returns:
        int, smaller than `pairs`.

    Raises:
        CorpusError: if there are not two pairs to divide.
    """
    if pairs < 2:
        few = counted(pairs, "training pair is", "training pairs are")
        raise CorpusError(f"no validation split, and {few} too few to hold any out for one")
    return max(1, min(_LARGEST_HOLD_OUT, pairs // _HOLD_OUT_DIVISOR))


@dataclass(frozen=True, eq=False)
class Kept:
    """Some of the pairs of a split; like the split, it can be iterated again.

    Attributes:
        pairs: iterable of `(source, target)` strings.
        keep: bool (N,), which of them.
    """

    pairs: Iterable[Pair]
    keep: np.ndarray

    def __len__(self) -> int:
        return int(np.count_nonzero(self.keep))

    def __iter__(self) -> Iterator[Pair]:
        return compress(self.pairs, self.keep)


def hold_out(pairs: Iterable[Pair]) -> tuple[Kept, tuple[Pair, ...], str]:
    """Divides the pairs of any source into a training and a validation split, the same way each time.

    Every k-th different pair is held out, not the last ones: corpora are often sorted, by source or by length. No copy
    of a pair that is held out stays in training. Only with fewer than 20 different pairs, all of them are trained on.

    Args:
        pairs: iterable of `(source, target)` strings that can be iterated again.

    Returns:
        The training split; the validation split, at most 1,000 pairs; and a note for the user.

    Raises:
        CorpusError: if there are not two pairs to divide.
    """
    hashes = np.fromiter(map(hash, pairs), np.int64)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    is_few = len(first) < _FEW
    among = np.arange(len(hashes)) if is_few else np.sort(first)
    count = held_out_size(len(among))
    step = len(among) // count
    chosen = among[step - 1 : step * count : step]
    is_chosen = np.isin(np.arange(len(hashes)), chosen)
    rest = Kept(pairs, ~(is_chosen if is_few else np.isin(group, group[chosen])))
    note = f"no validation split: {count:,} of the {len(hashes):,} training pairs were held out for it"
    copies = len(hashes) - len(rest) - count
    if copies:
        note += f", and {counted(copies, 'copy', 'copies')} of these left out of training"
    if is_few and len(first) < len(hashes):
        note += f". There are only {len(first)} different pairs: copies of those held out stay in training"
    return rest, tuple(Kept(pairs, is_chosen)), note


def pairs_corpus(
    pairs: Iterable[Pair],
    validation: Iterable[Pair] | None = None,
    test: Iterable[Pair] | None = None,
    source_lang: str = "source",
    target_lang: str = "target",
) -> Corpus:
    """Makes a corpus of pairs in memory.

    Args:
        pairs: iterable of `(source, target)` strings, a generator too.
        validation: as `pairs`; by default some are held out of `pairs`, the same each time.
        test: as `pairs`; None for no test split.
        source_lang: str, the name of the source language.
        target_lang: str, the name of the target language.

    Returns:
        Corpus.

    Raises:
        CorpusError: for an element that is no pair of strings, and if there are too few pairs.
    """
    train = _checked(pairs, "pairs")
    test = None if test is None else _checked(test, "test")
    notes: tuple[str, ...] = ()
    if validation is None:
        rest, held_out, note = hold_out(train)
        train, validation, notes = list(rest), list(held_out), (note,)
    else:
        validation = _checked(validation, "validation")
    for name, split in (("pairs", train), ("validation", validation)):
        if not split:
            raise CorpusError(f"`{name}` has no pair: there is nothing to learn from")
    fingerprint = {"train": hash_pairs(train), "validation": hash_pairs(validation)}
    return Corpus("pairs", source_lang, target_lang, train, validation, test, fingerprint, notes, held_out=bool(notes))


def _checked(pairs: Iterable[Pair], name: str) -> list[Pair]:
    checked = []
    for number, pair in enumerate(pairs):
        is_pair = isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        if not is_pair or isinstance(pair, str):
            raise CorpusError(f"`{name}` must hold (source, target) strings. Received: {pair!r} at index {number}")
        checked.append((pair[0], pair[1]))
    return checked
