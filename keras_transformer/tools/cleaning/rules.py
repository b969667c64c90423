"""The rules that need no more than one pair: each says whether the pair is to be dropped."""

import copy
import functools
import math
import re
from collections.abc import Callable, Iterable

import numpy as np
import regex

from keras_transformer.data.corpora import Pair
from keras_transformer.errors import UserError
from keras_transformer.languages import IDENTIFIED, locale_of, parts_of
from keras_transformer.tools.cleaning.numerals import NumberForms
from keras_transformer.tools.cleaning.settings import (
    ADDED_TO_LENGTHS,
    FEWEST_LETTERS,
    FEWEST_WORDS,
    PAIRS_BY_CHARACTER,
    RICH,
    SURE,
    CleaningSettings,
)
from keras_transformer.tools.cleaning.text import letter_share, script_share, scripts_to_keep, skeleton, width, words
from keras_transformer.tools.words import letters

Rule = Callable[[str, str], str | bool]

# A URL ends at the first character that is not ASCII: text of another script follows it without a space.
_URL = re.compile(
    r"""(?:https?://|www\.)[!#$%&'()*+,./0-9:;=?@A-Z\[\]_a-z~-]*|[0-9A-Z_.+-]+@[0-9A-Z-]+\.[0-9A-Z.-]+""", re.IGNORECASE
)
_SIGNS_OF_URLS = ("@", "://", "www.", "WWW.", "Www.")
_AFTER_URL = ".,;:!?)]}'/"
_BRACKETS = ("()", "[]", "{}")
_HALF_WIDTH = str.maketrans("（）［］｛｝", "()[]{}")
_SIGN = regex.compile(r"\(\p{Lo}\)")  # a letter without case
_OTHER_BRACKET = regex.compile(r"[\p{Ps}--[(\[{（［｛]]", regex.V1)


def urls(text: str) -> list[str]:
    """Sorts the URLs and e-mail addresses of a text, without punctuation after them."""
    return sorted(url.rstrip(_AFTER_URL).casefold() for url in _URL.findall(text)) if _can_have_urls(text) else []


def _can_have_urls(text: str) -> bool:
    return any(sign in text for sign in _SIGNS_OF_URLS)  # faster than the pattern


def _without_urls(text: str) -> str:
    return _URL.sub(" ", text) if _can_have_urls(text) else text


def brackets(text: str) -> list[int]:
    """Counts the pairs of round, square and curly brackets. A full-width bracket counts as an ordinary one.

    A single ideograph or syllable in brackets does not count: it is a sign for a word, such as "（日）" for Sunday.
    """
    plain = _SIGN.sub("", text.translate(_HALF_WIDTH))
    return [min(plain.count(opening), plain.count(closing)) for opening, closing in _BRACKETS]


def length_ratio(source: str, target: str, usual: float = 1.0) -> float:
    """Divides the greater `width` by the smaller one, with `ADDED_TO_LENGTHS` added to both.

    Args:
        source, target: str.
        usual: float, how many times as wide as a source the targets of the corpus are.

    Returns:
        float, at least 1.
    """
    shorter, longer = sorted((width(source) * usual**0.5, width(target) / usual**0.5))
    return (longer + ADDED_TO_LENGTHS) / (shorter + ADDED_TO_LENGTHS)


def usual_ratio(pairs: Iterable[Pair]) -> float:
    """Finds how many times as wide as a source the targets of a corpus are: the median.

    A median of a few pairs says little. So `PAIRS_BY_CHARACTER` more pairs are assumed, whose sides are equally wide.

    Args:
        pairs: iterable of pairs.

    Returns:
        float, which does not depend on the order of the pairs.
    """
    widths = (tuple(map(width, pair)) for pair in pairs)
    ratios = np.fromiter((math.log(target / source) for source, target in widths if source and target), np.float64)
    return math.exp(np.median(ratios) * len(ratios) / (len(ratios) + PAIRS_BY_CHARACTER)) if len(ratios) else 1.0


def overlap(source: str, target: str) -> float:
    """Computes the number of different words that both sides have, divided by the number on the side with more words.

    Numbers and URLs are no words. The result is 0 if a side has fewer than `FEWEST_WORDS`.
    """
    texts = (_without_urls(text) for text in (source, target))
    ones, others = ({word for word in words(text) if not word.isnumeric()} for text in texts)
    if min(len(ones), len(others)) < FEWEST_WORDS:
        return 0.0
    return len(ones & others) / max(len(ones), len(others))


def rules_of(settings: CleaningSettings, source_lang: str, target_lang: str, usual: float = 1.0) -> dict[str, Rule]:
    """Makes the rules of the steps that are switched on.

    Args:
        settings: CleaningSettings.
        source_lang, target_lang: str, codes of the languages.
        usual: float, as for `length_ratio`.

    Returns:
        dict, from the name of a step to a function of the sides of a pair. The function returns False or "" for a pair
        that stays, and True or a str with a detail for a pair to be dropped. The rules are applied in the order of the
        dict.

    Raises:
        UserError: if a step does not know a language, or needs a package that is not installed.
    """
    rules: dict[str, Rule] = {
        "blank": lambda source, target: not (source.strip() and target.strip()),
        "copied": _are_copies,
        "max_characters": lambda source, target: max(width(source), width(target)) > settings.max_characters,
        "max_ratio": lambda source, target: length_ratio(source, target, usual) > settings.max_ratio,
        "min_letters": lambda source, target: min(letter_share(source), letter_share(target)) < settings.min_letters,
        "max_overlap": lambda source, target: overlap(source, target) > settings.max_overlap,
        "numbers": NumberForms((source_lang, target_lang)).differ,
        "urls": lambda source, target: urls(source) != urls(target),
        "brackets": _have_other_brackets,
    }
    if settings.min_script:
        rules["min_script"] = _script_rule(
            settings.min_script, scripts_to_keep(source_lang), scripts_to_keep(target_lang)
        )
    if settings.language_odds:
        rules["language_odds"] = _language_rule(settings.language_odds, source_lang, target_lang)
    return {name: rule for name, rule in rules.items() if getattr(settings, name)}


def unknown_steps(source_lang: str, target_lang: str) -> list[str]:
    """Names the steps that do not know one of two languages. Raises UserError if the package of a step is missing."""
    _identifier()
    found = []
    for step, other in (("min_script", "language_odds"), ("language_odds", "min_script")):
        try:
            rules_of(CleaningSettings(**{other: 0}), source_lang, target_lang)
        except UserError:
            found.append(step)
    return found


def _are_copies(source: str, target: str) -> bool:
    """Whether only case and punctuation differ. In numbers without words, the punctuation is the translation."""
    return source == target or bool(letters(source)) and skeleton(source) == skeleton(target)


def _have_other_brackets(source: str, target: str) -> bool:
    """Whether a side has brackets that the other side lacks. A bracket of another kind, such as 【, can be one."""
    ones, others = brackets(source), brackets(target)
    if ones == others:
        return False
    spare = [len(_OTHER_BRACKET.findall(text)) for text in (source, target)]
    return sum(ones) > sum(others) + spare[1] or sum(others) > sum(ones) + spare[0] or not any(spare)


def _script_rule(least: float, of_source: list[str], of_target: list[str]) -> Rule:
    def is_foreign(text, scripts, other):
        return max(script_share(text, script, other) for script in scripts) < least

    def rule(source, target):
        source, target = (_without_urls(text) for text in (source, target))
        return is_foreign(source, of_source, target) or is_foreign(target, of_target, source)

    return rule


@functools.cache  # it takes a second to load
def _identifier():
    """The model of py3langid, and its names of languages whose data in CLDR are rich."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise UserError(
            "language identification needs py3langid, which is not installed: pip install py3langid, or set "
            "`language_odds` to 0"
        ) from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    rich = [name for name in identifier.labels if (locale := locale_of(name)) and len(locale.languages) >= RICH]
    return identifier, rich


def _language_rule(odds: float, source_lang: str, target_lang: str) -> Rule:
    """Tells apart the languages of the corpus and the rich ones: all others mislead more often."""
    model, rich = _identifier()
    identifier = copy.copy(model)  # for these languages alone
    of_source, of_target = (_known_to(identifier, language) for language in (source_lang, target_lang))
    identifier.set_languages([*rich, of_source, of_target])

    def rule(source, target):
        found = _another_language(identifier, source, of_source, of_target, odds)
        return found or _another_language(identifier, target, of_target, of_source, odds)

    return rule


def _known_to(identifier, language: str) -> str:
    """The identifier's name of a language."""
    name, *_ = parts_of(language)
    name = IDENTIFIED.get(name, name)
    if name not in identifier.labels:
        raise UserError(f"py3langid does not know the language {language!r}: set `language_odds` to 0")
    return name


def _another_language(identifier, text: str, expected: str, other: str, odds: float) -> str:
    """The name of the likeliest language if it is not the expected one and these odds speak for it, else "".

    Names and numbers mislead in a short text. So a language that is not on the `other` side needs higher odds there.
    """
    text = _without_urls(text)
    if letters(text) < FEWEST_LETTERS:
        return ""
    start = text[:SURE]
    found, probability = identifier.classify(start)
    needed = odds if found == other else odds * (SURE / len(start)) ** 2
    return found if found != expected and probability >= needed * dict(identifier.rank(start))[expected] else ""
