"""Training pairs as people type them: in capitals, in title case, with slips, with symbols.

Each epoch changes other pairs. The scripts of Unicode decide, no language: scripts without case keep their letters, and
a letter is one that a reader sees, with its marks.
"""

import functools
import random
import sys
import unicodedata
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import regex
import sentencepiece

from keras_transformer.config import EOS_ID
from keras_transformer.data.encoded import Sentences
from keras_transformer.normalization import mend
from keras_transformer.words import LETTER_WITH_MARKS, LETTERS_AND_DIGITS

MOST_GROWTH = 4  # A pair may become this many times as long as the longest one of its batch.
TYPOS_PER_WORD = 0.1  # beside the first one of a pair
LEAST_LETTERS = 3  # of a word with a typo
_CLUSTER = regex.compile(r"\X")
_LONG_WORD = regex.compile(rf"(?:{LETTER_WITH_MARKS}){{{LEAST_LETTERS},}}")
_WORD_START = regex.compile(rf"(?<![{LETTERS_AND_DIGITS}'’])\p{{Ll}}")
_LAST_STOP = regex.compile(r"\p{Sentence_Terminal}\s*$")


class TypedPairs:
    """Changes some pairs of a batch.

    Capitals and symbols need many pieces, and padding makes all pairs of a batch as long as the longest one. If single
    pairs were changed, nearly every batch would become longer. So these changes are drawn for whole batches. A pair
    stays as it is if it would become longer than `max_length`, or than `MOST_GROWTH` times the longest of its batch.

    Args:
        source_model, target_model: SentencePiece models, bytes.
        changes: list of `UpperCase`, `TitleCase`, `Typos` and `Noise`, which are made in this order.
        max_length: most pieces of either side, eos not counted.
    """

    def __init__(self, source_model, target_model, changes, max_length):
        models = (source_model, target_model)
        self._processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
        self.changes = changes
        self.max_length = max_length

    def __call__(self, pairs, rng):
        """Returns the `EncodedPairs` of a batch with changes drawn from `rng`, a NumPy generator."""
        count = len(pairs)
        drawn = [rng.random(1 if change.of_batch else count) < change.rate for change in self.changes]
        made = np.stack([np.broadcast_to(each, count) for each in drawn])  # (changes, pairs)
        rows = np.flatnonzero(made.any(axis=0))
        if not len(rows):
            return pairs
        sides = [side.lists() for side in (pairs.source, pairs.target)]
        longest = min(self.max_length, MOST_GROWTH * max(len(ids) for side in sides for ids in side))
        texts = [p.decode([side[row] for row in rows]) for p, side in zip(self._processors, sides, strict=True)]
        changed = [self._changed(*pair, made[:, row], rng) for row, *pair in zip(rows, *texts, strict=True)]
        encoded = [p.encode(list(side)) for p, side in zip(self._processors, zip(*changed, strict=True), strict=True)]
        for row, source, target in zip(rows, *encoded, strict=True):
            if 0 < len(source) <= longest and 0 < len(target) <= longest:
                sides[0][row], sides[1][row] = source, [*target, EOS_ID]
        source, target = map(Sentences.of_lists, sides)
        return replace(pairs, source=source, target=target)

    def _changed(self, source, target, made, rng):
        for change, is_made in zip(self.changes, made, strict=True):
            if is_made:
                source, target = change(source, target, rng)
        return source, target


@dataclass
class Change:
    """Changes a pair. A call with (source, target, rng), two str and a NumPy generator, returns the changed sides.

    Args:
        rate: share of the pairs.
    """

    rate: float
    of_batch: ClassVar = True  # drawn for a whole batch, or for each of its pairs


class UpperCase(Change):
    """Writes both sides in capitals. A pair whose source has no case stays as it is."""

    def __call__(self, source, target, rng):
        return (source.upper(), target.upper()) if source != source.upper() else (source, target)


class TitleCase(Change):
    """Writes The First Letter Of Every Word As A Capital, on both sides. Other letters stay."""

    def __call__(self, source, target, rng):
        changed = in_title_case(source)
        return (changed, in_title_case(target)) if changed != source else (source, target)


def in_title_case(text):
    """The text with a capital at the start of every word."""
    return _WORD_START.sub(lambda letter: letter[0].title(), text)


class Typos(Change):
    """Makes slips of the hand in the source: letters that are swapped, left out, doubled or wrong, a stop left out.

    The target stays. A wrong letter is another one of the same text, so no script needs a keyboard. Some words of Indic
    scripts are one grapheme cluster. They stay.
    """

    of_batch = False

    def __call__(self, source, target, rng):
        words = [word for word in _LONG_WORD.finditer(source) if len(_CLUSTER.findall(word[0])) > 1]
        if not words or rng.random() < 1 / 5 and _LAST_STOP.search(source):
            return _LAST_STOP.sub("", source) or source, target
        count = min(len(words), 1 + rng.binomial(len(words), TYPOS_PER_WORD))
        letters = _CLUSTER.findall("".join(word[0] for word in words))
        for place in sorted(rng.permutation(len(words))[:count], reverse=True):  # the last word first: places stay
            start, stop = words[place].span()
            source = source[:start] + self._mistyped(words[place][0], letters, rng) + source[stop:]
        return source, target

    def _mistyped(self, word, letters, rng):
        """A word with one typo."""
        own = _CLUSTER.findall(word)
        place = rng.integers(len(own) - 1)
        kind = rng.integers(4)
        if kind == 0:
            own[place : place + 2] = own[place + 1], own[place]
        elif kind == 1:
            del own[place]
        elif kind == 2:
            own[place] *= 2
        else:
            own[place] = letters[rng.integers(len(letters))]
        return "".join(own)


class Noise(Change):
    """Puts the same random symbol into both sides: at the start, at the end, or between words at about the same place.

    So the model learns to copy what it has never seen, and to translate the rest as if the symbol were not there. Half
    of the symbols are signs such as emoji. The others are any visible characters of Unicode.
    """

    def __call__(self, source, target, rng):
        pools = visible_characters()
        pool = pools[rng.integers(len(pools))]
        joint = ("", "\ufe0f", "\u200d")[rng.integers(3)]  # as in sequences of emoji
        symbol = joint.join(pool[rng.integers(len(pool))] for _ in range(rng.integers(1, 3)))
        share = (0, 1, rng.random())[rng.integers(3)]
        gap = (" ", "")[rng.integers(2)]
        return tuple(_with_symbol(text, symbol, share, gap) for text in (source, target))


def _with_symbol(text, symbol, share, gap):
    """A text with a symbol behind a share of its words, after a gap or none."""
    words = text.split(" ")
    place = round(share * len(words))
    if place:
        words[place - 1] += gap + symbol
    else:
        words[0] = symbol + gap + words[0]
    return " ".join(words)


@functools.cache
def visible_characters():
    """The signs of Unicode, and its letters, digits and punctuation: two str. None has another form."""
    signs, others = [], []
    for character in map(chr, range(0xA1, sys.maxunicode + 1)):
        kind = unicodedata.category(character)[0]
        if kind in "LNPS" and character not in "\u2581⟦⟧" and mend(character) == character:
            (signs if kind == "S" else others).append(character)
    return "".join(signs), "".join(others)


def with_cases(sentences, upper_case, title_case):
    """The text from which a tokenizer learns pieces of capitals, too.

    Args:
        sentences: iterable of str.
        upper_case, title_case: the shares of the sentences in capitals and in title case.

    Yields:
        str, each sentence once, the same ones in every call in another case.
    """
    draws = random.Random(0)
    for sentence in sentences:
        draw = draws.random()
        is_upper, is_title = draw < upper_case, draw < upper_case + title_case
        yield sentence.upper() if is_upper else in_title_case(sentence) if is_title else sentence


# Settings, in the order in which their changes are made.
CHANGES = {"title_case": TitleCase, "upper_case": UpperCase, "typos": Typos, "noise": Noise}
