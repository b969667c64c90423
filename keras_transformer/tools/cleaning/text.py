"""The text of one side: how it is mended, its skeleton for comparisons, and the scripts of its letters."""

import functools
import unicodedata

import regex
from babel.core import get_global
from babel.localedata import locale_identifiers

from keras_transformer.errors import UserError
from keras_transformer.languages import likely_script, locale_of
from keras_transformer.tools.words import letters, words_of
from keras_transformer.words import LETTER_WITH_MARKS, LETTERS

_IDEOGRAPH = regex.compile(r"\p{Ideographic}")  # says as much as three letters
_SYLLABLE = regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Hangul}]")  # says as much as two
# A number with its signs, which are no letters, and no symbols in the place of letters: "$ 1,250.50", "१२%".
_MARKS = r"[\p{Sc}%％٪‰°]"
_QUANTITY = regex.compile(
    rf"(?:{_MARKS}|[+±~～〜\p{{Pd}}])?\s?\d+(?:[^{LETTERS}\p{{Z}}\p{{S}}]?\d+)*(?:\s?{_MARKS})?[.,:;]?"
)
_LONGEST_UNIT = 3  # letters of units, codes and the like, which stand in texts of all scripts
_PARTS_OF_SCRIPTS = {
    "Jpan": ("Hira", "Kana", "Hani"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}


@functools.lru_cache(16)  # several rules need the words of the same pair
def words(text: str) -> tuple[str, ...]:
    """Lists the words of a text without regard to case, punctuation and compatibility forms (NFKC)."""
    return tuple(words_of(unicodedata.normalize("NFKC", text).casefold()))


def skeleton(text: str) -> str:
    """Gives the `words` of a text, with a space between them. Copies of a sentence have the same skeleton."""
    return " ".join(words(text))


def width(text: str) -> int:
    """Counts the characters of a text. An ideograph counts as three, and a Japanese or Korean syllable as two."""
    return len(text) + (0 if text.isascii() else 2 * len(_IDEOGRAPH.findall(text)) + len(_SYLLABLE.findall(text)))


def letter_share(text: str) -> float:
    """Computes the share of `letters` among the characters that are no white space and no part of a number.

    The share is 1 if there are only numbers, and 0 for a blank text.
    """
    visible = sum(map(len, _QUANTITY.sub(" ", text).split()))
    return letters(text) / visible if visible else float(bool(text.strip()))


def script_share(text: str, script: str, other: str = "") -> float:
    """Computes the share of the words that are in a script. In a script without spaces, every letter counts as a word.

    Args:
        text: str.
        script: str, a code of ISO 15924, such as "Latn" or "Jpan".
        other: str, the other side. Its words are names where they stand in a text of another script, and do not count.
            Words in capitals and short ones, such as USB, XIX and mL, do not count either.

    Returns:
        float, 1 for a text without letters.
    """
    if script == "Latn" and text.isascii():
        return 1.0
    words_of = _words_by_script(script)
    names = {word["foreign"] for word in words_of.finditer(other.casefold())}
    found = [word["foreign"] for word in words_of.finditer(text)]
    foreign = [word for word in found if word]
    long = [word for word in foreign if len(word) > _LONGEST_UNIT]
    if not long or len(foreign) == len(found):
        return float(not long)
    return 1 - sum(word.casefold() not in names and not word.isupper() for word in long) / len(found)


@functools.cache
def _words_by_script(script: str) -> regex.Pattern:
    """Finds the words in a script and, as the group `foreign`, the words in others.

    A letter that several scripts share, such as the sign "ー", is in each. By Unicode's rules for word breaks, every
    letter of a script without spaces is a word.
    """
    parts = (*_PARTS_OF_SCRIPTS.get(script, (script,)), "Common", "Inherited")
    own = "".join(rf"\p{{Script={part}}}" for part in parts)
    spaced = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}]"
    runs = (rf"(?:[\p{{L}}{sign}[{own}]&&{spaced}]\p{{M}}*)+" for sign in ("--", "&&"))
    foreign_run, own_run = runs
    foreign = rf"(?P<foreign>{foreign_run}|[\p{{L}}--[{own}]]\p{{M}}*)"
    return regex.compile(rf"{foreign}|{own_run}|\p{{WB=Katakana}}+|{LETTER_WITH_MARKS}", regex.V1)


@functools.cache  # 0.2 s
def scripts_of(code: str) -> list[str]:
    """Gives the scripts in which a language is written, the usual one first.

    A code with a script names its only one. The others are the usual scripts of countries, by Unicode's table of likely
    subtags, and the scripts for which CLDR has data. But data in Latin script may be those of a transcription.

    Args:
        code: str, such as "sr" or "sr_Latn".

    Returns:
        list of codes of ISO 15924: ["Cyrl", "Latn"] for "sr", ["Latn"] for "sr_Latn", [] for an unknown code.
    """
    usual, locale = likely_script(code), locale_of(code)
    if not usual or not locale or regex.search(r"[_-][A-Za-z]{4}\b", code):
        return [usual] if usual else []
    tags = get_global("likely_subtags")
    of_countries = {
        tags[key].split("_")[1] for key in tags if regex.fullmatch(f"{locale.language}_([A-Z]{{2}}|[0-9]+)", key)
    }
    of_data = set(regex.findall(rf"\b{locale.language}_([A-Z][a-z]{{3}})\b", " ".join(locale_identifiers())))
    return [usual, *sorted((of_countries | of_data - {"Latn"}) - {usual})]


def scripts_to_keep(language: str) -> list[str]:
    """Finds the scripts in which a language is written, see `scripts_of`.

    Args:
        language: str, such as "en", "sr_Latn" or "zh-TW".

    Returns:
        list of codes of ISO 15924, such as ["Latn"].

    Raises:
        UserError: if Unicode does not know the language.
    """
    scripts = scripts_of(language)
    if not scripts:
        raise UserError(f"no language is called {language!r}: use a code such as en, or set `min_script` to 0")
    return scripts
