"""The text of one side: how it is mended, its skeleton for comparisons, and the scripts of its letters."""

import functools
import re
import unicodedata

import regex
from babel import Locale, UnknownLocaleError
from babel.core import get_global

from keras_transformer.errors import UserError
from keras_transformer.words import letters, words_of

_WIDE = re.compile("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003fffd]")
_WIDTH = 3  # of a Chinese, Japanese or Korean character, which says as much as three letters
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
    """Counts the characters of a text. A Chinese, Japanese or Korean one counts as three."""
    return len(text) if text.isascii() else len(text) + (_WIDTH - 1) * len(_WIDE.findall(text))


def letter_share(text: str) -> float:
    """Computes the share of `letters` among the characters that are no white space; 0 if there is none."""
    visible = sum(map(len, text.split()))
    return letters(text) / visible if visible else 0.0


def script_share(text: str, script: str) -> float:
    """Computes the share of the `letters` that belong to a script.

    Args:
        text: str.
        script: str, a code of ISO 15924, such as "Latn" or "Jpan".

    Returns:
        float, 1 for a text without letters.
    """
    others = 0 if script == "Latn" and text.isascii() else sum(map(len, _letters_outside(script).findall(text)))
    return 1 - others / letters(text) if others else 1.0


@functools.cache
def _letters_outside(script: str) -> regex.Pattern:
    """The letters of other scripts. A mark belongs to the script of its letter."""
    parts = "".join(rf"\p{{Script={part}}}" for part in _PARTS_OF_SCRIPTS.get(script, (script,)))
    return regex.compile(rf"[\p{{L}}--[{parts}]]\p{{M}}*", regex.VERSION1)


def script_of(language: str) -> str:
    """Finds the script in which a language is usually written, by Unicode's table of likely subtags.

    Args:
        language: str, such as "en", "sr_Latn" or "zh-TW".

    Returns:
        str, a code of ISO 15924, such as "Latn".

    Raises:
        UserError: if Unicode does not know the language.
    """
    code = language.replace("-", "_")
    try:
        locale = Locale.parse(code)
    except (UnknownLocaleError, ValueError):
        raise UserError(
            f"no language is called {language!r}: use a code such as en, or set `min_script` to 0"
        ) from None
    likely = get_global("likely_subtags")
    return locale.script or likely.get(code, likely[locale.language]).split("_")[1]
