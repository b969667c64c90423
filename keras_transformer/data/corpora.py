"""Opens the corpora that a user names (`cldr:A-B`, `files:DIR`, `tfds:NAME[/CONFIG]`), and makes one of several."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

from keras_transformer.data.corpus import Corpus, InTurn
from keras_transformer.data.text_files import languages_in, text_files_corpus
from keras_transformer.data.tfds_corpus import tfds_corpus
from keras_transformer.errors import CorpusError

_FORMS = "cldr:A-B, files:DIR or tfds:NAME[/CONFIG]"
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
            * `tfds:NAME[/CONFIG]` or `tfds:DIR`, a corpus of TensorFlow Datasets, see `tfds_corpus`.
        source_lang: str, or None for the corpus's own source language. `files:` needs a language.
        target_lang: str, or None for the corpus's own target language. `files:` needs a language.
        seed: int, the seed of the random draws of `cldr:`.
        skip_bad_lines: bool, whether lines of `files:` that are no pair are left out instead of refused.

    Returns:
        Corpus.

    Raises:
        CorpusError: if `spec` has another form, or if the corpus cannot be opened.
    """
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
    if source_lang is None or target_lang is None:
        found = ", ".join(languages_in(directory)) or "no train.LANG"
        raise CorpusError(f"files:{directory} needs both `source_lang` and `target_lang`. The directory has {found}.")
    return text_files_corpus(directory, source_lang, target_lang, skip_bad_lines)


def mix(corpora: Sequence[Corpus]) -> Corpus:
    """Makes one corpus of several. Training is validated on the first one; the other ones are measured, too.

    Args:
        corpora: sequence of Corpus, at least one.

    Returns:
        Corpus: the only one, or one with `others`.

    Raises:
        CorpusError: if a corpus is there twice, or translates in another direction.
    """
    first, *others = corpora
    if not others:
        return first
    names = [corpus.name for corpus in corpora]
    for number, corpus in enumerate(corpora):
        if corpus.name in names[:number]:
            if corpus.is_replayed:
                raise CorpusError(f"{corpus.name} is in `dataset`, and `replay` would add it again: leave out `replay`")
            raise CorpusError(f"{corpus.name} is named twice: name it once, with a weight, such as {corpus.name}:2")
    for corpus in others:
        directions = [f"{each.source_lang} to {each.target_lang}" for each in (first, corpus)]
        if directions[0] != directions[1]:
            raise CorpusError(
                f"{first.name} is {directions[0]}, but {corpus.name} is {directions[1]}: give `source_lang` and "
                "`target_lang`"
            )
    fingerprint = {f"{each.name} {part}": content for each in corpora for part, content in each.fingerprint.items()}
    train = InTurn({corpus.name: corpus.train for corpus in corpora})
    notes = tuple(f"{corpus.name}: {note}" for corpus in corpora for note in corpus.notes)
    return replace(first, train=train, fingerprint=fingerprint, notes=notes, others=tuple(others))


def epoch_weights(corpora: Sequence[Corpus], sizes: Sequence[int], replay: float) -> list[Fraction]:
    """Says how often an epoch takes each pair of each corpus.

    Replayed corpora together get `replay` of the pairs of an epoch, rounded to a pair. The weights of the replayed
    corpora divide this share among them.

    Args:
        corpora: sequence of Corpus.
        sizes: sequence of int, the number of pairs of each.
        replay: float, the share of the pairs of an epoch that come from replayed corpora.

    Returns:
        list of Fraction.
    """
    share = Fraction(str(replay))
    new, old = (
        [corpus.weight * size * (corpus.is_replayed == side) for corpus, size in zip(corpora, sizes, strict=True)]
        for side in (False, True)
    )
    scale = sum(new) * share / (1 - share) / sum(old) if any(old) else Fraction(0)
    marks = accumulate((amount * scale for amount in old), initial=Fraction(0))
    counts = [round(after) - round(before) for before, after in pairwise(marks)]
    return [
        Fraction(count, size) if corpus.is_replayed else corpus.weight
        for corpus, size, count in zip(corpora, sizes, counts, strict=True)
    ]
