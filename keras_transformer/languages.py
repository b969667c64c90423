"""Codes of languages, in any form in which users and models write them: "zh", "zh-CN", "zho_Hans", "cmn"."""

import functools

from babel import Locale, UnknownLocaleError
from babel.core import get_global

from keras_transformer.errors import UserError


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


def plain(code):
    """A code for comparison: small letters, and "-" between its parts. Raises UserError for a value that is no str."""
    if not isinstance(code, str):
        raise UserError(f"the code of a language must be a str, such as fr. Received: {code!r}")
    return code.lower().replace("_", "-")


def spellings_of(codes):
    """All `plain` forms by which a user may name each language: dict from form to the model's own code.

    The forms are the model's own code, the shortest tag of BCP 47 and longer forms of this tag. For `deu_Latn`, they
    are `deu-latn`, `de`, `deu`, `ger`, `de-latn` and `de-de`. The model's own code always means its language.

    Args:
        codes: iterable of str, the model's own.
    """
    forms = {}
    for code, short in sorted(short_codes(codes).items(), key=lambda each: "-" in each[1]):  # `zh` before `zh-Hant`
        language, *rest = short.split("-")
        likely = [] if rest else [likely_script(short), likely_territory(short)]
        longer = [f"{language}-{part}" for part in likely if part]
        long = [alias for alias, meant in get_global("language_aliases").items() if meant == language]  # `deu`, `ger`
        for form in (short, language, code.replace("_", "-").split("-")[0], *longer, *long):
            forms.setdefault(plain(form), code)
    return forms | {plain(code): code for code in codes}


def own_codes(known, codes):
    """Finds the codes by which a model knows languages.

    Args:
        known: iterable of str, the model's own codes.
        codes: iterable of str, in any form of `spellings_of`, or None.

    Returns:
        list of str. A language that the model does not have keeps its code, and None stays.
    """
    forms = spellings_of(known)
    return [code and forms.get(plain(code), code) for code in codes]


def short_codes(codes):
    """The shortest tag of BCP 47 that tells each language from the others: dict from own code to tag.

    A code that CLDR does not know stays as it is. Examples: `eng_Latn` is `en`; beside `zho_Hans`, which is `zh`,
    `zho_Hant` is `zh-Hant`.

    Args:
        codes: iterable of str, the model's own.
    """
    forms = {code: _forms_of(code) for code in codes}
    short, taken = {}, set()
    # The usual script has the shortest tag, and before other codes those that are such a tag: `fr` before `fr_FR`.
    for code in sorted(codes, key=lambda code: (not _is_likely(code), forms[code].index(code))):
        short[code] = next(form for form in forms[code] if form not in taken)
        taken.add(short[code])
    return {code: short[code] for code in codes}


def _forms_of(code):
    """The tags of BCP 47 that a code may have, the shortest first, and the code itself: tuple of str."""
    parts = code.replace("_", "-").split("-")
    alias = get_global("language_aliases").get(parts[0], parts[0])
    return (alias, "-".join([alias, *parts[1:]]), code) if locale_of(alias) else (code,)


def _is_likely(code):
    """Whether a code has the script and the territory that its language has most often, or names none."""
    language, *rest = code.replace("_", "-").split("-")
    language = get_global("language_aliases").get(language, language)
    usual = (likely_script(language), likely_territory(language), "XX")  # en_XX of mBART
    return not rest or locale_of(code) is not None and all(part in usual for part in rest)


def check_direction(languages, source_lang=None, target_lang=None):
    """Checks languages that a user gives to a model of one direction.

    Args:
        languages: (source, target), the codes of the model; None for each that is not known. Every code is right for a
            language that is not known, or whose code CLDR does not know.
        source_lang, target_lang: codes that a user gives; None for none.

    Raises:
        UserError: for another language than that of the model.
    """
    given = {"source_lang": source_lang, "target_lang": target_lang}
    for (name, code), own in zip(given.items(), languages, strict=True):
        if code and language_of(own) and plain(code) != plain(own) and language_of(code) != language_of(own):
            raise UserError(f"the model has one direction, and its `{name}` is {own}. Received: {name}={code}")
