"""Training pairs with placeholders, which hide words that both sides of a pair have. Each epoch draws other pairs."""

from dataclasses import replace

import numpy as np
import regex as re
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data.encoded import EncodedPairs, Sentences
from keras_transformer.protection import FIXED, PLACEHOLDERS
from keras_transformer.tools.lexicon import by_direction, translation_probabilities
from keras_transformer.tools.words import SPACED_COMPOUND, letters
from keras_transformer.words import COMPOUND, NUMBER, SPACED, UNSPACED

MOST_HIDDEN = 4  # words of a pair
KEPT_SHARE = 0.75  # of the drawn pairs keep the hidden words in the source; the others lose them, as longer terms do
MOST_COUNTED = 50_000  # pairs from which terms are learnt, evenly spaced
LEAST_OCCURRENCES, LEAST_PROBABILITY = 4, 0.3  # of a term
# A name in Latin letters is a word of its own beside a script without spaces.
_UNITS = re.compile(rf"{FIXED}|(?<!{SPACED}){NUMBER}(?!{SPACED})|{SPACED_COMPOUND}|(?:{UNSPACED})+")


class PairProtection:
    """Replaces words that both sides of a pair have by numbered placeholders, in some pairs of a batch.

    Each pair is drawn with probability `rate`. A random number of its shared words, 1 to `MOST_HIDDEN`, become
    placeholders (see `find_shared`). Half of the drawn pairs number their placeholders from 0, as most texts do. The
    other half start at a random number, so that the model learns all placeholders. In `KEPT_SHARE` of the drawn pairs,
    a hidden word also stays in the source, before its placeholder. A pair does not change if it has no word to hide, or
    if it would become longer than `max_length`.

    Args:
        pairs: `EncodedPairs`, the corpus from which words that translate each other are learnt, in each direction.
        source_model, target_model: SentencePiece models with the placeholders, bytes.
        rate: probability, in [0, 1).
        max_length: most pieces of either side, eos not counted.
    """

    def __init__(self, pairs, source_model, target_model, rate, max_length):
        self._processors = [
            sentencepiece.SentencePieceProcessor(model_proto=model) for model in (source_model, target_model)
        ]
        self.rate = rate
        self.max_length = max_length
        counted = np.arange(0, len(pairs), -(-len(pairs) // MOST_COUNTED))
        self.terms = [self._learn_terms(pairs, rows) for rows in by_direction(pairs, counted)]

    def __call__(self, pairs, rng):
        """Returns the `EncodedPairs` of a batch with placeholders drawn from `rng`, a NumPy generator."""
        rows = [side.lists() for side in (pairs.source, pairs.target)]
        for row in np.flatnonzero(rng.random(len(pairs)) < self.rate):
            hidden = self._hide([side[row] for side in rows], rng)
            for side, ids in zip(rows, hidden, strict=True):
                side[row] = ids
        return replace(pairs, source=Sentences.of_lists(rows[0]), target=Sentences.of_lists(rows[1]))

    def _hide(self, pair, rng):
        """One pair, two lists of ids, with placeholders; the same lists if nothing can be hidden."""
        texts = [processor.decode(ids) for processor, ids in self._with(pair)]
        shared = max((find_shared(*texts, terms) for terms in self.terms), key=len)
        most = min(len(shared), MOST_HIDDEN)
        first = int(rng.integers(len(PLACEHOLDERS)) * rng.integers(2))
        chosen = np.sort(rng.permutation(len(shared))[: rng.integers(most) + 1 if most else 0])
        if not most:
            return pair
        keep_words = rng.random() < KEPT_SHARE
        texts = hide_pair(*texts, [shared[place] for place in chosen], first, keep_words)
        source, target = (processor.encode(text) for processor, text in self._with(texts))
        return pair if max(len(source), len(target)) > self.max_length else (source, [*target, EOS_ID])

    def _learn_terms(self, pairs, rows):
        sides = (pairs.source.of(rows), pairs.target.of(rows))
        return learn_terms(*(map(processor.decode, side.lists()) for processor, side in self._with(sides)))

    def _with(self, sides):
        return zip(self._processors, sides, strict=True)


def learn_terms(sources, targets):
    """Words of a corpus that translate each other: each is the likeliest translation of the other, see `lexicon`.

    Args:
        sources: iterable of str.
        targets: iterable of str, their translations.

    Returns:
        dict, word -> its translation.
    """
    sides = [[compounds_of(text) for text in texts] for texts in (sources, targets)]
    rows = [row for row, both in enumerate(zip(*sides, strict=True)) if all(both)]
    if not rows:
        return {}
    words, encoded = zip(*(_numbered([side[row] for row in rows]) for side in sides), strict=True)
    counts = [np.bincount(side.ids) for side in encoded]
    usable = [count >= LEAST_OCCURRENCES for count in counts]
    there, back = (_likeliest(EncodedPairs(*both, dropped={})) for both in (encoded, encoded[::-1]))
    return {
        words[0][source]: words[1][target]
        for source, target in there.items()
        if back.get(target) == source and usable[0][source] and usable[1][target]
    }


def _numbered(rows):
    """The words of rows, list of list of str, and the rows as `Sentences` of their numbers."""
    numbers = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in row] for row in rows]
    return list(numbers), Sentences.of_lists(rows)


def _likeliest(pairs):
    """The likeliest target number of every source number that has a likely one: dict."""
    sources, targets, t = translation_probabilities(pairs)
    order = np.argsort(t, kind="stable")
    order = order[t[order] >= LEAST_PROBABILITY]
    return dict(zip(sources[order].tolist(), targets[order].tolist(), strict=True))  # the likeliest is the last


def find_shared(source, target, terms=None):
    """Finds the words that both sides of a pair have: numbers, URLs, addresses, names, and translations of each other.

    A word is a name unless all its letters are lower-case. A word that one side has twice is left out.

    Args:
        source: str.
        target: str.
        terms: dict, word -> its translation; None for none.

    Returns:
        list of ((start, stop) in the source, (start, stop) in the target), in the order of the source.
    """
    places, partners = _places(source), _places(target)
    shared = []
    for unit, place in places.items():
        is_copied = unit in partners and not (letters(unit) == len(unit) and unit.islower())
        partner = unit if is_copied else (terms or {}).get(unit)
        if place and partners.get(partner):
            shared.append((place, partners.pop(partner)))
    return shared


def _places(text):
    """The units of a text, dict str -> (start, stop); None for a unit that occurs several times."""
    places = {}
    for found in _UNITS.finditer(text):
        places[found[0]] = None if found[0] in places else found.span()
    return places


def compounds_of(text):
    """The words of a text with their apostrophes and hyphens, a list of str, as `find_shared` knows them."""
    return [found[0] for found in _UNITS.finditer(text) if re.fullmatch(COMPOUND, found[0])]


def hide_pair(source, target, shared, first=0, keep_words=False):
    """A pair with the same placeholders on both sides.

    Args:
        source: str.
        target: str.
        shared: list of at most 10 pairs of spans, from `find_shared`.
        first: number of the first placeholder.
        keep_words: whether words of the source stay, each before its placeholder, as `Protection` writes them.

    Returns:
        (str, str).
    """
    if keep_words:
        is_word = [re.fullmatch(COMPOUND, source[slice(*span)]) for span, _ in shared]
        shared = [((span[1], span[1]) if word else span, of) for word, (span, of) in zip(is_word, shared, strict=True)]
    names = [PLACEHOLDERS[(first + place) % len(PLACEHOLDERS)] for place in range(len(shared))]
    return tuple(
        _replaced(text, sorted(zip((spans[side] for spans in shared), names, strict=True)))
        for side, text in enumerate((source, target))
    )


def _replaced(text, spans):
    stop, parts = 0, []
    for (start, end), name in spans:
        parts += [text[stop:start], name]
        stop = end
    return "".join([*parts, text[stop:]])
