"""The languages that users name, in any form of their codes: "zh", "zh-CN", "zho_Hans", "cmn"."""

import functools

from babel import Locale, UnknownLocaleError


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
