"""Several corpora as one: their pairs in turn, and how much of each an epoch takes."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

from keras_transformer.data.corpus import Corpus, InTurn
from keras_transformer.errors import CorpusError


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
