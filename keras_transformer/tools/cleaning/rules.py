"""The rules that need no more than one pair: each says whether the pair is to be dropped."""

import functools
import re
from collections.abc import Callable

import regex

from keras_transformer.errors import UserError
from keras_transformer.tools.cleaning.settings import (
    ADDED_TO_LENGTHS,
    FEWEST_LETTERS,
    FEWEST_WORDS,
    SURE,
    CleaningSettings,
)
from keras_transformer.tools.cleaning.text import letter_share, script_of, script_share, skeleton, width, words
from keras_transformer.words import letters

Rule = Callable[[str, str], str | bool]

_NUMBER = re.compile(r"\d+")
_GROUPS = re.compile(r"(?<!\d)\d{1,3}([.,'’\u00a0\u202f ])\d{3}(?:\1\d{3})*(?!\d)")  # 1,000 and 1.000 and 1 000
_URL = regex.compile(
    r"(?:https?://|www\.)[^\s<>\"“”„«»…、。，；：！？（）「」]+"
    r"|(?<![\p{L}\p{M}\p{N}_.+\-])[\p{L}\p{M}\p{N}_.+\-]+@[\p{L}\p{M}\p{N}_\-]+\.[\p{L}\p{M}\p{N}_.\-]+",
    regex.IGNORECASE,
)
_SIGNS_OF_URLS = ("@", "://", "www.", "WWW.", "Www.")
_AFTER_URL = ".,;:!?)]}'‘’"
_BRACKET = re.compile(r"[()\[\]{}（）［］｛｝]")
_HALF_WIDTH = dict(zip("（）［］｛｝", "()[]{}", strict=True))
_MOST_DIGITS = 100  # of a number; Python reads no integer of many thousands


def numbers(text: str) -> list[int]:
    """Sorts the integers of a text, in the digits of any script. Separators of thousands do not count."""
    if not _NUMBER.search(text):
        return []
    found = _NUMBER.findall(_GROUPS.sub(lambda group: group[0].replace(group[1], ""), text))
    return sorted(int(number) for number in found if len(number) <= _MOST_DIGITS)


def urls(text: str) -> list[str]:
    """Sorts the URLs and e-mail addresses of a text, without punctuation after them."""
    if not any(sign in text for sign in _SIGNS_OF_URLS):
        return []
    return sorted(url.rstrip(_AFTER_URL).casefold() for url in _URL.findall(text))


def brackets(text: str) -> list[str]:
    """Sorts the brackets of a text. A full-width bracket counts as an ordinary one."""
    return sorted(_HALF_WIDTH.get(bracket, bracket) for bracket in _BRACKET.findall(text))


def length_ratio(source: str, target: str) -> float:
    """Divides the greater `width` by the smaller one, with `ADDED_TO_LENGTHS` added to both."""
    shorter, longer = sorted((width(source), width(target)))
    return (longer + ADDED_TO_LENGTHS) / (shorter + ADDED_TO_LENGTHS)


def overlap(source: str, target: str) -> float:
    """Computes the number of different words that both sides have, divided by the number on the side with more words.

    The result is 0 if a side has fewer than `FEWEST_WORDS`.
    """
    ones, others = set(words(source)), set(words(target))
    if min(len(ones), len(others)) < FEWEST_WORDS:
        return 0.0
    return len(ones & others) / max(len(ones), len(others))


def rules_of(settings: CleaningSettings, source_lang: str, target_lang: str) -> dict[str, Rule]:
    """Makes the rules of the steps that are switched on.

    Args:
        settings: CleaningSettings.
        source_lang, target_lang: str, codes of the languages.

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
        "max_ratio": lambda source, target: length_ratio(source, target) > settings.max_ratio,
        "min_letters": lambda source, target: min(letter_share(source), letter_share(target)) < settings.min_letters,
        "max_overlap": lambda source, target: overlap(source, target) > settings.max_overlap,
        "numbers": lambda source, target: _differ(numbers(source), numbers(target)),
        "urls": lambda source, target: urls(source) != urls(target),
        "brackets": lambda source, target: brackets(source) != brackets(target),
    }
    if settings.min_script:
        rules["min_script"] = _script_rule(settings.min_script, script_of(source_lang), script_of(target_lang))
    if settings.language_odds:
        rules["language_odds"] = _language_rule(settings.language_odds, source_lang, target_lang)
    return {name: rule for name, rule in rules.items() if getattr(settings, name)}


def _are_copies(source: str, target: str) -> bool:
    return source == target or bool(words(source)) and skeleton(source) == skeleton(target)


def _differ(ones: list[int], others: list[int]) -> bool:
    """Whether both sides have numbers, but not the same. A number that the other side spells out is no mistake."""
    return bool(ones and others) and ones != others


def _script_rule(least: float, of_source: str, of_target: str) -> Rule:
    def rule(source, target):
        return min(script_share(source, of_source), script_share(target, of_target)) < least

    return rule


@functools.cache  # its model takes a second to load
def _identifier():
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise UserError(
            "language identification needs py3langid, which is not installed: pip install py3langid, or set "
            "`language_odds` to 0"
        ) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _language_rule(odds: float, source_lang: str, target_lang: str) -> Rule:
    identifier = _identifier()
    of_source, of_target = (_known_to(identifier, language) for language in (source_lang, target_lang))

    def rule(source, target):
        found = _another_language(identifier, source, of_source, odds)
        return found or _another_language(identifier, target, of_target, odds)

    return rule


def _known_to(identifier, language: str) -> str:
    """The identifier's name of a language."""
    name = re.split("[-_]", language)[0].lower()
    name = {"nb": "no"}.get(name, name)
    if name not in identifier.labels:
        raise UserError(f"py3langid does not know the language {language!r}: set `language_odds` to 0")
    return name


def _another_language(identifier, text: str, expected: str, odds: float) -> str:
    """The name of the likeliest language if it is not the expected one and these odds speak for it, else ""."""
    if letters(text) < FEWEST_LETTERS:
        return ""
    start = text[:SURE]
    found, probability = identifier.classify(start)
    if found == expected or probability < odds * dict(identifier.rank(start))[expected]:
        return ""
    return found
