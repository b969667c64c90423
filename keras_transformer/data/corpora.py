"""Opens the corpora that a user names (`cldr:A-B`, `files:DIR`, `tfds:NAME[/CONFIG]`), and makes one of several.

Every corpus may say its own languages: `files:DIR@en-de`. With several directions, a run is multilingual.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, chain, pairwise
from pathlib import Path

import numpy as np

from keras_transformer.data.corpus import Corpus, InTurn, Kept, Pair
from keras_transformer.data.text_files import languages_in, text_files_corpus
from keras_transformer.data.tfds_corpus import tfds_corpus
from keras_transformer.errors import CorpusError, counted

_FORMS = "cldr:A-B, files:DIR or tfds:NAME[/CONFIG]"
_PAIR = re.compile(r"([^-]+)-([^-]+)")  # two languages; a code of several parts has "_" between them
_LARGEST_WEIGHT, _DECIMALS = 1000, 4


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
    if skip_bad_lines and not any(spec.startswith("files:") for spec in specs):
        raise CorpusError(f"`skip_bad_lines` needs a corpus files:DIR. Received: {', '.join(specs)}")
    for spec in specs:
        name, weight = split_weight(spec)
        opened.append(replace(open_corpus(name, source_lang, target_lang, seed, skip_bad_lines), weight=weight))
    return opened


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
    if not at or "/" in text or Path(spec.partition(":")[2]).expanduser().is_dir():
        return spec, None
    if not (found := _PAIR.fullmatch(text)):
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
    path = Path(spec.partition(":")[2]).expanduser()
    if ":" not in name or not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) or path.is_dir():
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
        spec: str, one of

            * `cldr:A-B`, phrases from the locale data of Unicode; needs neither files nor network;
            * `files:DIR`, a directory of text files, see `text_files`;
            * `tfds:NAME[/CONFIG]` or `tfds:DIR`, a corpus of TensorFlow Datasets, see `tfds_corpus`;

            and then `@A-B` or not: its languages, in place of `source_lang` and `target_lang`, see `split_pair`.
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
    if languages:
        corpus = open_corpus(name, *languages, seed, skip_bad_lines)
        return corpus if name.startswith("cldr:") else replace(corpus, name=spec)  # `cldr:` names its direction
    scheme, _, rest = spec.partition(":")
    if not rest or scheme not in ("cldr", "files", "tfds"):
        raise CorpusError(f"unknown corpus {spec!r}: use {_FORMS}")
    if source_lang is not None and source_lang == target_lang:
        raise CorpusError(f"`source_lang` and `target_lang` must differ. Received: both are {source_lang!r}")
    if scheme == "cldr":
        return _open_cldr(spec, rest, source_lang, target_lang, seed)
    if scheme == "files":
        return _open_files(rest, source_lang, target_lang, skip_bad_lines)
    return tfds_corpus(rest, source_lang, target_lang)


def _open_cldr(spec: str, locales: str, source_lang: str | None, target_lang: str | None, seed: int) -> Corpus:
    first, _, second = locales.partition("-")
    if not first or not second or first == second:
        raise CorpusError(f"{spec!r} must name two different locales: cldr:A-B, such as cldr:en-de")
    for direction in ((first, second), (second, first)):
        if source_lang in (None, direction[0]) and target_lang in (None, direction[1]):
            from keras_transformer.data.cldr import cldr_corpus  # Imported late: the import loads all locale data.

            return cldr_corpus(*direction, seed)
    raise CorpusError(
        f"{spec} translates {first} to {second} or {second} to {first}, "
        f"not {source_lang or 'any language'} to {target_lang or 'any language'}"
    )


def _open_files(directory: str, source_lang: str | None, target_lang: str | None, skip_bad_lines: bool) -> Corpus:
    endings = languages_in(directory)
    if source_lang is None or target_lang is None:
        found = ", ".join(endings) or "no train.LANG"
        raise CorpusError(
            f"files:{directory} needs its languages: files:{directory}@SOURCE-TARGET, or both `source_lang` and "
            f"`target_lang`. The directory has {found}."
        )
    # `@pt_BR-en` means the files train.pt-BR, too.
    hyphened = {ending.replace("-", "_"): ending for ending in endings}
    codes = (hyphened.get(code, code) if code not in endings else code for code in (source_lang, target_lang))
    return text_files_corpus(directory, *codes, skip_bad_lines)


def mix(corpora: Sequence[Corpus]) -> Corpus:
    """Makes one corpus of several. Training is validated on the first one; the other ones are measured, too.

    If they have several directions, no corpus trains on pairs that another one holds out, see `kept_apart`.

    Args:
        corpora: sequence of Corpus, at least one.

    Returns:
        Corpus: the only one, or one with `others`.

    Raises:
        CorpusError: if a corpus is there twice in the same direction.
    """
    if len(corpora) == 1:
        return corpora[0]
    names = [(split_pair(corpus.name)[0], corpus.source_lang, corpus.target_lang) for corpus in corpora]
    for number, corpus in enumerate(corpora):
        if names[number] in names[:number]:
            if corpus.is_replayed:
                raise CorpusError(f"{corpus.name} is in `dataset`, and `replay` would add it again: leave out `replay`")
            raise CorpusError(f"{corpus.name} is named twice: name it once, with a weight, such as {corpus.name}:2")
    if len({(corpus.source_lang, corpus.target_lang) for corpus in corpora}) > 1:
        corpora = kept_apart([_of_own_name(corpus, corpora) for corpus in corpora])
    first, *others = corpora
    fingerprint = {f"{each.name} {part}": content for each in corpora for part, content in each.fingerprint.items()}
    train = InTurn({corpus.name: corpus.train for corpus in corpora})
    notes = tuple(f"{corpus.name}: {note}" for corpus in corpora for note in corpus.notes)
    return replace(first, train=train, fingerprint=fingerprint, notes=notes, others=tuple(others))


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
    return set(chain(corpus.validation, corpus.test or ())).difference(corpus.train)


def _without(left_out: set[Pair], corpus: Corpus) -> Corpus:
    keep = np.fromiter((pair not in left_out for pair in corpus.train), bool)
    if keep.all():
        return corpus
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
    marks = accumulate(amounts, initial=Fraction(0))
    return [round(after) - round(before) for before, after in pairwise(marks)]
