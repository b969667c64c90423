"""A corpus: sentence pairs in two languages, in streamed splits, whatever their source."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from keras_transformer.errors import CorpusError

Pair = tuple[str, str]

VALIDATION_NAMES = ("validation", "val", "valid", "dev")
"""Names of validation splits; the first that exists is taken."""

_LARGEST_HOLD_OUT = 1000
_HOLD_OUT_DIVISOR = 20


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
class Corpus:
    """A parallel corpus.

    Every split can be iterated over again and again, each `iter()` starting anew, and streams: a split of millions
    of pairs is never held in memory. Pairs may be blank on either side; the pipeline filters and counts those.

    Attributes:
        name: str, how the user named it, such as `files:data/multi30k`.
        source_lang: str, the language of the first member of every pair.
        target_lang: str, the language of the second.
        train: iterable of `(source, target)` strings.
        validation: iterable of `(source, target)` strings; its lines are not among those of `train`.
        test: iterable of `(source, target)` strings, or None where the corpus has no test split.
        fingerprint: str, the same only where all pairs of `train` and `validation` are the same.
        notes: tuple of str, remarks for the user, such as the number of pairs held out for validation.
    """

    name: str
    source_lang: str
    target_lang: str
    train: Iterable[Pair]
    validation: Iterable[Pair]
    test: Iterable[Pair] | None
    fingerprint: str
    notes: tuple[str, ...] = ()


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
        raise CorpusError(f"no validation split, and {pairs} training pair(s) are too few to hold any out for one")
    return max(1, min(_LARGEST_HOLD_OUT, pairs // _HOLD_OUT_DIVISOR))
