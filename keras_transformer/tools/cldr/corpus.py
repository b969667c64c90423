"""The default corpus: phrases made from Unicode CLDR through Babel, so that a first run needs no download.

Babel writes the same value in both locales, so every source phrase has exactly one right translation. Every form and
every word of the validation and test phrases also occurs in the training split, with other values.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice
from random import Random
from typing import NamedTuple

import regex
from babel import Locale, UnknownLocaleError

from keras_transformer.data.corpora import Corpus, Pair, Request, hash_pairs
from keras_transformer.errors import CorpusError
from keras_transformer.tools.cldr import times, wordings
from keras_transformer.tools.cldr.wordings import Form, isolated_locale, unambiguous
from keras_transformer.words import UNSPACED

# The share of each family in every 32 phrases. A family with many names has a larger share, to repeat each name.
SHARES = {
    "dates": 5,
    "times": 2,
    "intervals": 4,
    "relative times": 2,
    "numbers": 3,
    "currencies": 5,
    "units": 5,
    "lists": 6,
}
MAX_CHARACTERS = 64
# A phrase is held out only if training keeps other phrases with its form and with each of its words. Training must keep
# one such phrase per 7,000 phrases in all, and at least one.
PHRASES_PER_SIGHTING = 7_000


class Phrase(NamedTuple):
    """A pair, and the key of the `Form` that wrote the pair."""

    source: str
    target: str
    key: str


def open_cldr(request: Request) -> Corpus:
    """Opens `cldr:A-B` in the direction that is asked for, by default from A to B. Its name has this direction.

    Raises:
        CorpusError: for other languages than A and B, and as `cldr_corpus`.
    """
    first, _, second = request.name.partition("-")
    if not first or not second or first == second:
        raise CorpusError(f"'cldr:{request.name}' must name two different locales: cldr:A-B, such as cldr:en-de")
    source_lang, target_lang = request.source_lang, request.target_lang
    for direction in ((first, second), (second, first)):
        if source_lang in (None, direction[0]) and target_lang in (None, direction[1]):
            return cldr_corpus(*direction, request.seed)
    raise CorpusError(
        f"cldr:{request.name} translates {first} to {second} or {second} to {first}, "
        f"not {source_lang or 'any language'} to {target_lang or 'any language'}"
    )


def cldr_corpus(
    source_lang: str,
    target_lang: str,
    seed: int = 0,
    train_size: int = 36_000,
    validation_size: int = 500,
    test_size: int = 500,
) -> Corpus:
    """Writes dates, times, intervals, numbers, money, measures and names in two of Babel's locales.

    The result depends only on the arguments and on the version of Babel.

    Args:
        source_lang: str, a locale of Babel such as `en`, `pt_BR` or `zh_Hant`.
        target_lang: str, another locale.
        seed: int, the seed of all random draws.
        train_size: int, the number of training pairs, including all bare names.
        validation_size: int, the number of validation pairs.
        test_size: int, the number of test pairs.

    Returns:
        A `Corpus` of three lists. No source occurs in two of the lists.

    Raises:
        CorpusError: if a locale is unknown, if the locales are equal, or if CLDR has too few phrases for the sizes.
    """
    source, target = _locale(source_lang), _locale(target_lang)
    if source == target:
        raise CorpusError(f"A corpus needs two different locales. Received: `{source_lang}` and `{target_lang}`.")
    names, forms = phrase_forms(source, target)
    dictionary = {name.say(None, source): name.say(None, target) for name in names}
    if train_size < len(dictionary):
        raise CorpusError(f"Training needs all {len(dictionary)} bare names. Received: train_size={train_size}.")

    rng = Random(seed)
    held_size = validation_size + test_size
    phrases = _draw_phrases(forms, source, target, train_size - len(dictionary) + held_size, dictionary, rng)
    train, held = _hold_out(phrases, held_size)
    train += dictionary.items()
    rng.shuffle(train)
    validation, test = held[:validation_size], held[validation_size:]
    return Corpus(
        name=f"cldr:{source_lang}-{target_lang}",
        source_lang=source_lang,
        target_lang=target_lang,
        train=train,
        validation=validation,
        test=test,
        fingerprint={"train": hash_pairs(train), "validation": hash_pairs(validation)},
    )


def phrase_forms(source: Locale, target: Locale) -> tuple[list[Form], list[Form]]:
    """Returns the bare names, and the forms of all families. Each wording in `source` has one translation only."""
    names = list(unambiguous(wordings.name_forms(), source, target))
    forms = chain(
        times.date_forms(),
        times.time_forms(),
        times.interval_forms(),
        times.relative_time_forms(),
        wordings.number_forms(),
        wordings.currency_forms(),
        wordings.unit_forms(),
        wordings.list_forms(names),
    )
    return names, list(unambiguous(forms, source, target))


def _locale(code: str) -> Locale:
    try:
        return isolated_locale(code.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        raise CorpusError(
            f"Unknown locale `{code}`. Use one of Babel's, such as en, de, fr, es, ru, ja, ar, pt_BR or zh_Hant. "
            "`pybabel --list-locales` lists all locales."
        ) from None


def _draw_phrases(
    forms: list[Form], source: Locale, target: Locale, size: int, taken: Iterable[str], rng: Random
) -> list[Phrase]:
    """Draws `size` phrases in random order. All sources are different, and none is in `taken`."""
    phrases: dict[str, Phrase] = {}
    refused = set(taken)
    for form in islice(_turns(forms, rng), 20 * size):
        if len(phrases) == size:
            break
        value = form.draw(rng)
        phrase = Phrase(form.say(value, source) or "", form.say(value, target) or "", form.key)
        lengths = len(phrase.source), len(phrase.target)
        if phrase.source in refused or min(lengths) == 0 or max(lengths) > MAX_CHARACTERS:
            continue
        if phrases.setdefault(phrase.source, phrase).target != phrase.target:
            # Two forms share this source but have different translations. The probes of the forms did not show this.
            refused.add(phrase.source)
            del phrases[phrase.source]
    if len(phrases) < size:
        raise CorpusError(f"CLDR gave only {len(phrases)} of {size} phrases for {source}-{target}. Ask for fewer.")
    return rng.sample(list(phrases.values()), size)


def _turns(forms: list[Form], rng: Random) -> Iterator[Form]:
    """Yields forms without end: families by their `SHARES`, and the forms of a family in turn."""
    families: dict[str, list[Form]] = defaultdict(list)
    for form in rng.sample(forms, len(forms)):
        families[form.family].append(form)
    members = {family: cycle(its_forms) for family, its_forms in families.items()}
    for family in cycle([name for name in families for _ in range(SHARES[name])]):
        yield next(members[family])


def _hold_out(phrases: list[Phrase], size: int) -> tuple[list[Pair], list[Pair]]:
    """Splits off `size` pairs whose forms and words stay in training: see `PHRASES_PER_SIGHTING`."""
    enough = max(1, len(phrases) // PHRASES_PER_SIGHTING)
    left = Counter(chain.from_iterable(map(_traits, phrases)))
    train, held = [], []
    for phrase in phrases:
        traits = _traits(phrase)
        if len(held) < size and all(left[trait] > enough for trait in traits):
            left.subtract(traits)
            held.append((phrase.source, phrase.target))
        else:
            train.append((phrase.source, phrase.target))
    if len(held) < size:
        raise CorpusError(
            f"{len(phrases)} phrases are too few to hold out {size}: only {len(held)} phrases would have all their "
            "words in training. Ask for more training pairs, or for fewer validation and test pairs."
        )
    return train, held


def _traits(phrase: Phrase) -> set[tuple[str, str]]:
    """Returns all that training must contain before the phrase is held out: its form, and its words without digits."""
    return {("form", phrase.key), *_words("source", phrase.source), *_words("target", phrase.target)}


def _words(side: str, text: str) -> Iterable[tuple[str, str]]:
    parted = regex.sub(UNSPACED, r" \g<0> ", text)  # in scripts without spaces, each character counts as a word
    return ((side, word) for word in parted.split() if not any(map(str.isdecimal, word)))
