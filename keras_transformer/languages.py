"""The languages that users name, in any form of their codes: "zh", "zh-CN", "zho_Hans", "cmn"."""

import functools

import regex
from babel import Locale, UnknownLocaleError
from babel.core import get_global
from babel.localedata import locale_identifiers


@functools.cache
def locale_of(code: str | None) -> Locale | None:
    """Finds what CLDR knows of a language.

    Args:
        code: str, of BCP 47 or ISO 639, with "-" or "_" between its parts; or None.

    Returns:
        babel.Locale; None if CLDR does not know the code.
    """
    try:
        return Locale.parse((code or "").replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None


def language_of(code: str | None) -> str:
    """Gives the shortest code of a language: "zh" for "zho_Hans"; "" if CLDR does not know the code."""
    locale = locale_of(code)
    return locale.language if locale else ""


def likely_script(code: str) -> str:
    """Gives the script in which a language is usually written: "Latn" for "en"; "" if CLDR does not know the code."""
    locale = locale_of(code)
    return (locale and locale.script) or _likely_subtags(code)[0]


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
    if not usual or regex.search(r"[_-][A-Za-z]{4}\b", code):
        return [usual] if usual else []
    tags = get_global("likely_subtags")
    of_countries = {
        tags[key].split("_")[1] for key in tags if regex.fullmatch(f"{locale.language}_([A-Z]{{2}}|[0-9]+)", key)
    }
    of_data = set(regex.findall(rf"\b{locale.language}_([A-Z][a-z]{{3}})\b", " ".join(locale_identifiers())))
    return [usual, *sorted((of_countries | of_data - {"Latn"}) - {usual})]


def likely_territory(code: str) -> str:
    """Gives the country in which a language is mostly spoken: "IN" for "hi"; "" if CLDR does not know the code."""
    locale = locale_of(code)
    return (locale and locale.territory) or _likely_subtags(code)[1]


def _likely_subtags(code: str) -> tuple[str, str]:
    """(script, territory) by Unicode's table of likely subtags."""
    table = get_global("likely_subtags")
    likely = table.get(code.replace("-", "_")) or table.get(language_of(code), "__")
    _, script, territory = likely.split("_")
    return script, territory
