"""What a corpus teaches about its sentences: which words keep or end a sentence by their full stop.

`translation/sentences.py` divides text by a rule. A full stop ends a sentence by the rule if it comes after
`WORD_BEFORE`. A corpus knows the exceptions, see `FullStops`. Its lines are sentences for the most part.

A run may have several languages on a side. The lines of a language speak for this language alone: "art." is an
abbreviation in one language and the end of a sentence in another.
"""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import regex

from keras_transformer.files import reading
from keras_transformer.words import WORD_CHARACTER

WORD_BEFORE = r"(?:[\p{Ll}\p{M}]{3}|\p{Lo}{2}|(?:\p{Lo}\p{M}*){3}|\p{Nd}{4})"  # a full stop that ends a sentence
BEGINNING = r"[\pP\pS]*[\p{Lu}\p{Lt}\p{Lo}\p{Georgian}]"  # of a sentence

MOST_LINES = 1_000_000  # of all corpora together: more would fill the memory, and teach little
LONGEST_TOKEN = 40  # characters between two spaces
MOST_WORDS, LONGEST_WORD = 400, 16  # words of each kind, and characters of one: the patterns stay small
LEAST_AT_END, LEAST_SEEN = 3, 10  # times, before a short word is known to end sentences
MOST_BY_CHANCE = 0.05  # probability that a word that can end lines never did
SIDES = ("source", "target")
_TOKEN = regex.compile(rf"(.*?)({WORD_CHARACTER}+)(\.?)((?:(?!\.)[\p{{P}}\p{{S}}])*)")
_NONE = regex.match("()()()()", "")
_BEGINNING = regex.compile(BEGINNING)
_ENDS_BY_RULE = regex.compile(rf".*{WORD_BEFORE}")


class FullStops(NamedTuple):
    """The exceptions to the rule that a corpus of sentences knows. A 0 in a word stands for any digit.

    Args:
        abbreviations: tuple of str, words whose full stop ends no sentence, such as "vgl".
        ends: tuple of str, words and numbers whose full stop ends a sentence, such as "us".
    """

    abbreviations: tuple = ()
    ends: tuple = ()

    def extended(self, other):
        """The words of both. If both know a word, this one decides its kind."""
        known = {*self.abbreviations, *self.ends}
        added = ([word for word in words if word not in known] for words in other)
        return FullStops(*(tuple([*own, *new][:MOST_WORDS]) for own, new in zip(self, added, strict=True)))


class Known(NamedTuple):
    """What a corpus says about text.

    Args:
        source, target: `FullStops` of the two sides.
        copies_unknown: bool, whether training has enough characters without a piece, so that the model copies them.
    """

    source: FullStops = FullStops()
    target: FullStops = FullStops()
    copies_unknown: bool = True

    def extended(self, other):
        """Joins two lists. Where they differ, this one decides."""
        stops = (self.source.extended(other.source), self.target.extended(other.target))
        return Known(*stops, self.copies_unknown or other.copies_unknown)


UNKNOWN = Known()  # of a run without a corpus


@dataclass(frozen=True)
class SpacedLines:
    """Evenly spaced lines of one language; like a split, it can be iterated again.

    Attributes:
        splits: list of (iterable of `(source, target)` strings, step): every `step`-th pair is taken.
        side: 0 for the source, 1 for the target.
    """

    splits: list
    side: int

    def __iter__(self):
        return (pair[self.side] for pairs, step in self.splits for pair in islice(pairs, 0, None, step))


def learn_known(corpus, copies_unknown):
    """What the training pairs of a corpus say about text, each language by its own lines.

    Args:
        corpus: `Corpus`. If it has more than `MOST_LINES` pairs, evenly spaced ones are read.
        copies_unknown: see `Known`.

    Returns:
        `Known`.
    """
    source, target = lines_of_languages(corpus)
    return Known(learn_full_stops(*source), learn_full_stops(*target), copies_unknown)


def lines_of_languages(corpus):
    """The lines that are counted: for each side, a list of the `SpacedLines` of each of its languages.

    Small corpora are read whole. The larger ones have an equal share of the lines that are left.
    """
    sizes = [len(pairs) if hasattr(pairs, "__len__") else sum(1 for _ in pairs) for _, pairs in corpus.parts]
    share = _largest_share(sizes)
    languages = {}, {}
    for (each, pairs), size in zip(corpus.parts, sizes, strict=True):
        step = max(1, -(-size // share))
        for splits, language in zip(languages, (each.source_lang, each.target_lang), strict=True):
            splits.setdefault(language, []).append((pairs, step))
    return [[SpacedLines(splits, side) for splits in languages[side].values()] for side in (0, 1)]


def _largest_share(sizes):
    """The most lines of one corpus such that all corpora have at most `MOST_LINES` together."""
    left = MOST_LINES
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return MOST_LINES


def learn_full_stops(*languages):
    """Finds the exceptions in a corpus.

    An abbreviation stands with a full stop inside lines and hardly ever at their end. It seldom stands without a full
    stop, or no beginning follows it. Where lines have several sentences, every word can have a full stop inside a line;
    so an abbreviation must have more of them than chance gives. A short word or a number ends sentences if it does so
    in the corpus. So does a frequent short word that never has a full stop inside a line.

    Text does not say its language. So an abbreviation of one language counts in all. A word that ends sentences must
    not have a full stop inside the lines of a language where it ends none: a wrong break costs more than a missed one.

    Args:
        languages: for each language, an iterable of str, lines of one sentence each for the most part.

    Returns:
        `FullStops`, the most frequent words of each language first, in turn; at most `MOST_WORDS` of each kind.
    """
    abbreviations, ends, others = zip(*map(_judged_words, languages), strict=True)
    no_ends = set().union(*others)
    return FullStops(_in_turn(abbreviations), _in_turn([word for word in own if word not in no_ends] for own in ends))


def _in_turn(lists):
    """The first words of each list, then the second ones, and so on: a tuple of at most `MOST_WORDS`."""
    words = dict.fromkeys(chain.from_iterable(zip_longest(*lists)))
    return tuple(islice((word for word in words if word is not None), MOST_WORDS))


def _judged_words(lines):
    """The words of one language.

    Returns:
        list of abbreviations; list of short words that end sentences, both the most frequent first; set of other words
        with a full stop inside a line.
    """
    inside, small, end, bare = _count(lines)

    def is_abbreviation(word):
        is_whole = bare[word] <= 10 * (inside[word] - 1) or 2 * small[word] > max(inside[word], 2)
        return is_whole and inside[word] > 9 * end[word] and share ** inside[word] <= MOST_BY_CHANCE

    def is_end(word):
        if end[word] >= max(LEAST_AT_END, 10 * inside[word]):
            return len(word) > 1 or not word.isupper()  # a capital is an initial
        return bare[word] >= LEAST_SEEN and not inside[word] and len(word) > 1 and not word.isdecimal()

    frequent = [word for word, _ in (inside + end + bare).most_common() if len(word) <= LONGEST_WORD]
    by_rule = set(filter(_ENDS_BY_RULE.fullmatch, frequent))
    stops = [(inside[word], end[word]) for word in by_rule if end[word]]  # of the words that end sentences
    share = sum(there for there, _ in stops) / max(1, sum(map(sum, stops)))
    abbreviations = [word for word, _ in inside.most_common() if word in by_rule and is_abbreviation(word)]
    ends = [word for word in frequent if word not in by_rule and is_end(word)]
    return abbreviations, ends, inside.keys() - set(ends)


def _count(lines):
    """Counts words in four `Counter`s.

    The words with a full stop inside a line; those of them that no beginning follows; the words with a full stop at the
    end of a line; the words without a full stop.
    """
    tokens = Counter()  # (token, whether it is the last one, whether a beginning follows)
    for line in lines:
        row = line.split()
        for token, other in zip(row, [*row, ""][1:], strict=True):
            if len(token) <= LONGEST_TOKEN:  # a script without spaces has whole sentences
                has_stop = "." in token
                tokens[token, has_stop and not other, has_stop and _BEGINNING.match(other) is not None] += 1
    inside, small, end, bare = counters = [Counter() for _ in range(4)]
    for (token, is_last, is_before_beginning), count in tokens.items():
        before, word, stop, after = (_TOKEN.fullmatch(token) or _NONE).groups()
        word = regex.sub(r"\p{Nd}", "0", word)
        if not stop:
            bare[word] += count
        elif not is_last:
            inside[word] += count
            small[word] += 0 if is_before_beginning and not after.startswith((",", ";", ":")) else count
        elif not before.endswith("."):  # the end "p.m." says nothing about "m"
            end[word] += count
    return counters


def save_known(path, known):
    """Writes a `Known`."""
    facts = known._asdict() | {side: getattr(known, side)._asdict() for side in SIDES}
    path.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load_known(path):
    """Reads the `Known` of `save_known`. `UNKNOWN` if there is no such file, as in old runs.

    Raises:
        FileError: if the file cannot be read or is damaged.
    """
    if not path.exists():
        return UNKNOWN
    with reading(path, "put a copy of it back, or remove it"):
        facts = json.loads(path.read_text(encoding="utf-8"))
        sides = (FullStops(**{kind: tuple(words) for kind, words in facts[side].items()}) for side in SIDES)
        return Known(*sides, facts.get("copies_unknown", True))
