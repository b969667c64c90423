"""Corpora: sentence pairs in two languages, in streamed splits; the kinds that a user names, and mixtures of several.

Every corpus may say its own languages: `files:DIR@en-de`. With several directions, a run is multilingual.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, chain, compress, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_transformer.errors import CorpusError, counted
from keras_transformer.files import write_whole
from keras_transformer.normalization import mend
from keras_transformer.process import find_tool

Pair = tuple[str, str]

BAD_LINES = "bad_lines.jsonl"
"""File of the bad lines that were skipped, in the directory of a run or of a prepared corpus."""

VALIDATION_NAMES = ("validation", "val", "valid", "dev")
"""Names of validation splits; the first that exists is taken."""

HASH_DIGITS = 16
"""Length of the hashes in a fingerprint."""

LEFT_OUT = "pairs left out of"
"""Begins the name of a part of the fingerprint of a mixture: another corpus holds out pairs of this one."""

_LARGEST_HOLD_OUT = 1000
_HOLD_OUT_DIVISOR = 20
_FEW = 20  # different pairs: too few to keep any of them from the training

_LANGUAGES = re.compile(r"([^-]+)-([^-]+)")  # two of them; a code of several parts has "_" between them
_LARGEST_WEIGHT, _DECIMALS = 1000, 4


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
        headerless: dict, from the path of each TSV file without a header to a hash of its content. Nothing in such a
            file says which column is which language.
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
    headerless: dict[str, str] = field(default_factory=dict)

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

    5 % of the different pairs are held out, at least 1 and at most 1,000. Pairs that a tokenizer reads alike are the
    same. Those held out are every k-th one, not the last ones: corpora are often sorted, by source or by length. No
    copy of a pair that is held out stays in training. Only with fewer than 20 different pairs, all of them are trained
    on.

    Args:
        pairs: iterable of `(source, target)` strings that can be iterated again.

    Returns:
        The training split; the validation split, at most 1,000 pairs; and a note for the user.

    Raises:
        CorpusError: if there are not two pairs to divide.
    """
    hashes = np.fromiter(map(hash, pairs), np.int64)
    alike = np.fromiter((hash(pair) if all(pair) else 0 for pair in map(_mended, pairs)), np.int64)
    different = len(np.unique(alike[alike != 0]))  # a blank pair teaches and measures nothing
    among = np.sort(np.unique(hashes, return_index=True)[1]) if different >= _FEW else np.arange(len(hashes))
    filled = among[alike[among] != 0]
    if len(filled) < 2:
        are = counted(len(filled), "pair is", "pairs are")
        raise CorpusError(f"no validation split, and {are} too few to hold any out for one")
    step = len(among) // max(1, min(_LARGEST_HOLD_OUT, len(among) // _HOLD_OUT_DIVISOR))
    places = np.searchsorted(filled, among[step - 1 :: step][:_LARGEST_HOLD_OUT])  # of a blank pair: the next
    is_chosen = np.isin(np.arange(len(hashes)), filled[places.clip(max=len(filled) - 1)])
    rest = Kept(pairs, ~(np.isin(alike, alike[is_chosen]) if different >= _FEW else is_chosen))
    held_out = tuple(Kept(pairs, is_chosen))
    note = f"no validation split: {len(held_out):,} of the {len(hashes):,} training pairs were held out for it"
    copies = len(hashes) - len(rest) - len(held_out)
    if copies:
        note += f", and {counted(copies, 'copy', 'copies')} of these left out of training"
    if different < min(_FEW, len(hashes)):
        note += f". There are only {different} different pairs: copies of those held out stay in training"
    return rest, held_out, note


_HALF = re.compile("[\ud800-\udfff]")  # of a pair of surrogates, which UTF-8 cannot write


def _mended(pair: Pair) -> Pair:
    """What a tokenizer reads of a pair at most, with `nfkc` or without."""
    return mend(pair[0], nfkc=True), mend(pair[1], nfkc=True)


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
        train, validation, notes = rest, list(held_out), (note,)
    else:
        validation = _checked(validation, "validation")
    for name, split in (("pairs", train), ("validation", validation)):
        if not split:
            raise CorpusError(f"`{name}` has no pair: there is nothing to learn from")
    fingerprint = {"train": hash_pairs(list(train)), "validation": hash_pairs(validation)}
    return Corpus("pairs", source_lang, target_lang, train, validation, test, fingerprint, notes, held_out=bool(notes))


def _checked(pairs: Iterable[Pair], name: str) -> list[Pair]:
    checked = []
    for number, pair in enumerate(pairs):
        is_pair = isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        if not is_pair or isinstance(pair, str) or any(map(_HALF.search, pair)):
            raise CorpusError(
                f"`{name}` must hold (source, target) strings of whole characters. Received: {pair!r} at index {number}"
            )
        checked.append((pair[0], pair[1]))
    return checked


class Request(NamedTuple):
    """What a user asks of a corpus of any kind.

    Args:
        spec: str, as the user named the corpus, without a weight; such as `files:data/mine@en-de`.
        name: str, what stands between the kind and the languages; such as `data/mine`.
        source_lang: str, or None for the corpus's own source language.
        target_lang: str, or None for the corpus's own target language.
        seed: int, the seed of random draws.
        skip_bad_lines: bool, whether lines that are no pair are left out instead of refused.
    """

    spec: str
    name: str
    source_lang: str | None = None
    target_lang: str | None = None
    seed: int = 1
    skip_bad_lines: bool = False


class Kind(NamedTuple):
    """A kind of corpus.

    Args:
        form: str, how a user names a corpus of this kind.
        help: str, what such a corpus is.
        open: function of a `Request` that returns the `Corpus`, or raises a CorpusError.
        has_lines: bool, whether `skip_bad_lines` has an effect.
        starts_tensorflow: bool, whether reading such a corpus starts TensorFlow, whose devices are then settled.
    """

    form: str
    help: str
    open: Callable[[Request], Corpus]
    has_lines: bool = False
    starts_tensorflow: bool = False


# The modules of the kinds are imported late: they need this one, and some load much.


def _open_cldr(request: Request) -> Corpus:
    return find_tool("cldr", f"`dataset` {request.spec}").open_cldr(request)


def _open_files(request: Request) -> Corpus:
    from keras_transformer.data.text_files import open_files

    return open_files(request)


def _open_tfds(request: Request) -> Corpus:
    return find_tool("tfds", f"`dataset` {request.spec}").open_tfds(request)


KINDS = {
    "cldr": Kind("cldr:A-B", "phrases from the locale data of Unicode; needs neither files nor network", _open_cldr),
    "files": Kind("files:DIR", "a directory of text files: train.LANG, val.LANG, ...", _open_files, has_lines=True),
    "tfds": Kind(
        "tfds:NAME[/CONFIG]", "a corpus of TensorFlow Datasets, or its directory", _open_tfds, starts_tensorflow=True
    ),
}
"""The kinds of corpora, by what stands before the first colon. A new kind is a row here."""


def kind_of(spec: str) -> Kind | None:
    """Gives the kind of a corpus that the user named; None if there is none."""
    return KINDS.get(spec.partition(":")[0])


def _forms(kinds: Iterable[Kind]) -> str:
    *first, last = (kind.form for kind in kinds)
    return " or ".join([", ".join(first), last]) if first else last


def open_corpora(
    specs: Iterable[str],
    source_lang: str | None = None,
    target_lang: str | None = None,
    seed: int = 1,
    skip_bad_lines: bool = False,
) -> list[Corpus]:
    """Opens each of the corpora that the user named.

    Args:
        specs: iterable of str, see `open_corpus`, each followed by `:WEIGHT` or not.
        source_lang, target_lang, seed, skip_bad_lines: see `open_corpus`.

    Returns:
        list of Corpus.

    Raises:
        CorpusError: as `open_corpus`, for a weight that is not possible, and for `skip_bad_lines` without `files:`.
    """
    specs, opened = list(specs), []
    with_lines = [kind for kind in KINDS.values() if kind.has_lines]
    if skip_bad_lines and not any(kind_of(spec) in with_lines for spec in specs):
        raise CorpusError(f"`skip_bad_lines` needs a corpus {_forms(with_lines)}. Received: {', '.join(specs)}")
    for spec in specs:
        name, weight = split_weight(spec)
        opened.append(replace(open_corpus(name, source_lang, target_lang, seed, skip_bad_lines), weight=weight))
    return opened


def _directory_of(spec: str) -> Path:
    """The place after `KIND:`, as a directory. The `~` of an unknown user stays."""
    return Path(os.path.expanduser(spec.partition(":")[2]))


def are_same(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two lists name the same corpora, in whatever way they write a directory."""
    return [*map(identity_of, some)] == [*map(identity_of, others)]


def identity_of(spec: str) -> tuple:
    """Gives (kind, place, languages, weight): equal for two names of one corpus, `files:a:2` and `files:./a/:2.0`."""
    name, weight = split_weight(spec)
    name, languages = split_pair(name)
    directory = _directory_of(name)
    return name.partition(":")[0], directory.resolve() if os.path.isdir(directory) else name, languages, weight


def split_pair(spec: str) -> tuple[str, tuple[str, str] | None]:
    """Divides `files:DIR@en-de` into the name of the corpus and its languages.

    The text after the last `@` is a pair of languages, unless it has a slash or a directory has the whole name. A `-`
    divides source and target. So a code of several parts is written with `_`: `@pt_BR-en`.

    Args:
        spec: str, without a weight.

    Returns:
        (str, (source, target)); None in place of the languages if there is no `@`.

    Raises:
        CorpusError: for another number of languages than two.
    """
    name, at, text = spec.rpartition("@")
    if not at or "/" in text or os.path.isdir(_directory_of(spec)):
        return spec, None
    if not (found := _LANGUAGES.fullmatch(text)):
        raise CorpusError(
            f"`@` must come before two languages, source-target, such as @en-de or @pt_BR-en, with `_` and not `-` "
            f"within a code. Received: {spec}"
        )
    return name, found.groups()


def split_weight(spec: str) -> tuple[str, Fraction]:
    """Divides `files:DIR:0.3` into the name of the corpus and its weight.

    The text after the last colon is a weight if it is a number and no directory has the whole name.

    Args:
        spec: str.

    Returns:
        (str, Fraction); the weight is 1 if there is none.

    Raises:
        CorpusError: for a weight that is 0, larger than 1,000 or has more than four decimals.
    """
    name, _, text = spec.rpartition(":")
    is_number = re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text)
    if ":" not in name or not is_number or os.path.isdir(_directory_of(spec)):
        return spec, Fraction(1)
    weight = Fraction(text)
    if not 0 < weight <= _LARGEST_WEIGHT or len(text.partition(".")[2]) > _DECIMALS:
        raise CorpusError(
            f"the weight of a corpus must be above 0, at most {_LARGEST_WEIGHT:,}, and have at most {_DECIMALS} "
            f"decimals. Received: {spec}"
        )
    return name, weight


def open_corpus(
    spec: str,
    source_lang: str | None = None,
    target_lang: str | None = None,
    seed: int = 1,
    skip_bad_lines: bool = False,
) -> Corpus:
    """Opens the corpus that the user named.

    Args:
        spec: str, `KIND:NAME` with one of `KINDS`, and then `@A-B` or not: its languages, in place of `source_lang` and
            `target_lang`, see `split_pair`.
        source_lang: str, or None for the corpus's own source language. `files:` needs a language.
        target_lang: str, or None for the corpus's own target language. `files:` needs a language.
        seed: int, the seed of the random draws of `cldr:`.
        skip_bad_lines: bool, whether lines of `files:` that are no pair are left out instead of refused.

    Returns:
        Corpus.

    Raises:
        CorpusError: if `spec` has another form, or if the corpus cannot be opened.
    """
    name, languages = split_pair(spec)
    source_lang, target_lang = languages or (source_lang, target_lang)
    kind, _, name = name.partition(":")
    if not name or kind not in KINDS:
        raise CorpusError(f"unknown corpus {spec!r}: use {_forms(KINDS.values())}")
    if source_lang is not None and source_lang == target_lang:
        raise CorpusError(f"`source_lang` and `target_lang` must differ. Received: both are {source_lang!r}")
    return KINDS[kind].open(Request(spec, name, source_lang, target_lang, seed, skip_bad_lines))


def mix(corpora: Sequence[Corpus], before: dict[str, str] | None = None) -> Corpus:
    """Makes one corpus of several. Training is validated on the first one; the other ones are measured, too.

    No corpus trains on pairs that another one holds out, see `kept_apart`. Only a run that began with such pairs, as
    earlier versions did with a single direction, goes on with them.

    Args:
        corpora: sequence of Corpus, at least one.
        before: dict, the `identity` of the mixture in a run that is resumed; None for a new run.

    Returns:
        Corpus: the only one, or one with `others`.

    Raises:
        CorpusError: if a corpus is there twice in the same direction, or a TSV file without a header in two directions;
            and if the others hold out all pairs of a corpus.
    """
    if len(corpora) == 1:
        return corpora[0]
    names = [(*identity_of(corpus.name)[:2], corpus.source_lang, corpus.target_lang) for corpus in corpora]
    for number, corpus in enumerate(corpora):
        if names[number] in names[:number]:
            if corpus.is_replayed:
                raise CorpusError(f"{corpus.name} is in `dataset`, and `replay` would add it again: leave out `replay`")
            raise CorpusError(f"{corpus.name} is named twice: name it once, with a weight, such as {corpus.name}:2")
    _check_columns(corpora)
    is_multilingual = len({(corpus.source_lang, corpus.target_lang) for corpus in corpora}) > 1
    if is_multilingual:
        corpora = [_of_own_name(corpus, corpora) for corpus in corpora]
    goes_on = before is not None and not any(part.startswith(LEFT_OUT) for part in before)
    apart = list(corpora) if goes_on and not is_multilingual else kept_apart(corpora)
    first, *others = apart
    fingerprint = {f"{each.name} {part}": content for each in apart for part, content in each.fingerprint.items()}
    if not is_multilingual:  # with several directions, earlier versions left them out, too, without such a part
        fingerprint |= {
            f"{LEFT_OUT} {after.name}": hashlib.sha256(after.train.keep.tobytes()).hexdigest()[:HASH_DIGITS]
            for before, after in zip(corpora, apart, strict=True)
            if after is not before
        }
    train = InTurn({corpus.name: corpus.train for corpus in apart})
    notes = tuple(f"{corpus.name}: {note}" for corpus in apart for note in corpus.notes)
    return replace(first, train=train, fingerprint=fingerprint, notes=notes, others=tuple(others))


def _check_columns(corpora: Sequence[Corpus]) -> None:
    """Refuses a TSV file without a header in two directions: in one of them, its columns have the wrong languages."""
    first = {}
    for corpus in corpora:
        for path, content in corpus.headerless.items():
            one = first.setdefault(content, corpus)
            if (one.source_lang, one.target_lang) != (corpus.source_lang, corpus.target_lang):
                raise CorpusError(
                    f"{path} has no header, and {one.name} and {corpus.name} would both take its first column for the "
                    f"source: put a first line with the two codes, such as {one.source_lang} TAB {one.target_lang}"
                )


def _of_own_name(corpus: Corpus, corpora: Sequence[Corpus]) -> Corpus:
    """The corpus, with its direction in its name if a replayed one of another direction has the same name."""
    if [each.name for each in corpora].count(corpus.name) == 1:
        return corpus
    return replace(corpus, name=f"{corpus.name}@{corpus.source_lang}-{corpus.target_lang}")


def kept_apart(corpora: Sequence[Corpus]) -> list[Corpus]:
    """Leaves out of the training of each corpus the pairs that another one holds out, in either direction.

    Pairs are held out if they are in the validation or the test split of a corpus, and not in its training split.

    Args:
        corpora: sequence of Corpus.

    Returns:
        list of Corpus, with a note where pairs are left out.

    Raises:
        CorpusError: if a corpus has no other pairs.
    """
    of_languages = Counter(frozenset((corpus.source_lang, corpus.target_lang)) for corpus in corpora)
    related = [of_languages[frozenset((corpus.source_lang, corpus.target_lang))] > 1 for corpus in corpora]
    held = [_held_out(corpus) if is_related else set() for corpus, is_related in zip(corpora, related, strict=True)]
    kept = []
    for corpus in corpora:
        left_out: set[Pair] = set()
        direction = (corpus.source_lang, corpus.target_lang)
        for other, pairs in zip(corpora, held, strict=True):
            if direction == (other.target_lang, other.source_lang):
                left_out.update((target, source) for source, target in pairs)
            elif direction == (other.source_lang, other.target_lang) and other is not corpus:
                left_out |= pairs
        kept.append(_without(left_out, corpus) if left_out else corpus)
    return kept


def _held_out(corpus: Corpus) -> set[Pair]:
    return set(map(_mended, chain(corpus.validation, corpus.test or ()))).difference(map(_mended, corpus.train))


def _without(left_out: set[Pair], corpus: Corpus) -> Corpus:
    keep = np.fromiter((pair not in left_out for pair in map(_mended, corpus.train)), bool)
    if keep.all():
        return corpus
    if not keep.any():
        raise CorpusError(f"{corpus.name} has no pair to train on that another corpus does not hold out: leave it out")
    are = counted(len(keep) - np.count_nonzero(keep), "pair is", "pairs are")
    note = f"{are} left out of training, because another corpus holds the same out"
    return replace(corpus, train=Kept(corpus.train, keep), notes=(*corpus.notes, note))


def epoch_weights(
    corpora: Sequence[Corpus], sizes: Sequence[int], replay: float, temperature: float = 1.0
) -> list[Fraction]:
    """Says how often an epoch takes each pair of each corpus.

    With a temperature T, the share of corpus i in an epoch is in proportion to (weight_i * size_i)^(1 / T), and the
    epoch keeps its size (Arivazhagan et al. 2019, arXiv:1907.05019). So small corpora are taken more often.

    Replayed corpora together get `replay` of the pairs of an epoch, rounded to a pair. The weights of the replayed
    corpora divide this share among them.

    Args:
        corpora: sequence of Corpus.
        sizes: sequence of int, the number of pairs of each.
        replay: float, the share of the pairs of an epoch that come from replayed corpora.
        temperature: float, at least 1; not beside `replay`. With 1, the weights are those of the corpora.

    Returns:
        list of Fraction.
    """
    if temperature != 1:
        amounts = [corpus.weight * size for corpus, size in zip(corpora, sizes, strict=True)]
        return _tempered(amounts, sizes, temperature)
    share = Fraction(str(replay))
    new, old = (
        [corpus.weight * size * (corpus.is_replayed == side) for corpus, size in zip(corpora, sizes, strict=True)]
        for side in (False, True)
    )
    scale = sum(new) * share / (1 - share) / sum(old) if any(old) else Fraction(0)
    counts = _whole([amount * scale for amount in old])
    return [
        Fraction(count, size) if corpus.is_replayed else corpus.weight
        for corpus, size, count in zip(corpora, sizes, counts, strict=True)
    ]


def _tempered(amounts: list[Fraction], sizes: Sequence[int], temperature: float) -> list[Fraction]:
    """The weights with which an epoch takes sum(amounts) pairs, in proportion to amounts^(1 / temperature)."""
    exponent = 1 / Decimal(str(temperature))  # decimals are the same on every machine
    powers = [Fraction((Decimal(a.numerator) / Decimal(a.denominator)) ** exponent) for a in amounts]
    counts = _whole([sum(amounts) * power / sum(powers) for power in powers])
    return [Fraction(max(1, count), size) for count, size in zip(counts, sizes, strict=True)]


def _whole(amounts: list[Fraction]) -> list[int]:
    """Rounds amounts to integers. Their sum is rounded, too."""
    return [round(after) - round(before) for before, after in pairwise(accumulate(amounts, initial=Fraction(0)))]
