"""Codes of languages, in any form in which users and models write them: "zh", "zh-CN", "zho_Hans", "cmn".

This file imports Babel alone. `serving/codes.py` is a copy of it, byte for byte.
"""

import functools
import re

from babel import Locale, UnknownLocaleError
from babel.core import get_global

ARGOS = {"zt": "zh-Hant", "pb": "pt-BR"}  # the own names of Argos Translate and of LibreTranslate
IDENTIFIED = {"nb": "no", "fil": "tl"}  # those of py3langid


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
    """A code for comparison: small letters, and "-" between its parts."""
    return code.lower().replace("_", "-")


# A user's code in simpler forms, by patterns of Python and of RE2. Extensions and variants go first: de-1996-x-formal.
# Some programs write the script behind the region. At last the region goes: "zh-" is Chinese in its likely script.
SIMPLER = (
    (
        (r"-[a-z0-9](?:-[a-z0-9]+)+$|(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))+$", ""),
        (r"^([a-z]+)-([a-z]{2}|[0-9]{3})-([a-z]{4})$", r"\1-\3-\2"),
    ),
    ((r"-(?:[a-z]{2}|[0-9]{3})$", "-"),),
)
LONGEST_CODE = 64  # characters: a pattern can take long for a longer text
_OLD = {"zh-chs": "zh-hans", "zh-cht": "zh-hant"}  # of .NET
_BOKMAL = {"no": "nb"}  # Norwegian without more


def find_code(forms, code):
    """The model's own code that a user means; None if the model does not have the language.

    Language and script decide. A region chooses among several, and tells the script: "zh-TW" is not "zh", and any
    "de-AT" is "de".

    Args:
        forms: those of `spellings_of`.
        code: str.
    """
    form = plain(code)
    if len(form) > LONGEST_CODE:
        return None
    for rules in ((), *SIMPLER):
        for pattern, simpler in rules:
            form = re.sub(pattern, simpler, form)
        if form in forms:
            return forms[form]
    return None


def spellings_of(codes):
    """The `plain` forms that `find_code` looks up: dict from form to the model's own code.

    For `deu_Latn`, they are its own code, its shortest tag `de`, and the names of its language, with and without the
    script: `deu`, `ger-latn`. A form that ends in "-" has lost its region: `de-` stands for `de-AT`. A region with
    another script than usual has a form of its own, such as `zh-tw`. It means None if the model lacks this script.

    Args:
        codes: iterable of str, the model's own.
    """
    return _spellings_of(tuple(codes))


@functools.lru_cache(maxsize=64)  # a fifteenth of a second for 200 languages
def _spellings_of(codes):
    parts = {code: parts_of(code) for code in codes}
    best_first = sorted(parts, key=lambda code: _unlikeliness(*parts[code]))
    forms = {plain(code): code for code in codes}
    named = [(short, code) for code, short in short_codes(codes).items()]
    for form, code in (*named, *((code.replace("_", "-").split("-")[0], code) for code in best_first)):
        forms.setdefault(plain(form), code)
    for code in best_first:
        language, script, territory = parts[code]
        for name in _names_of(language):
            likely = [name, f"{name}-"] if script == likely_script(language) else [name]
            written = [f"{name}-{script}", f"{name}-{script}-"] if script else []
            local = [f"{each}-{territory}" for each in (name, f"{name}-{script}")] if territory else []
            for form in (*local, *likely, *written):
                forms.setdefault(plain(form), code)
    for place, (language, script) in _other_scripts().items():
        if language in {each for each, *_ in parts.values()}:
            forms.setdefault(place, forms.get(plain(f"{language}-{script}-")))
    for place, nearest in _nearest_places(forms).items():
        forms.setdefault(place, forms[nearest])
    others = {name: plain(meant) for name, meant in get_global("language_aliases").items() if "_" in meant}
    return {name: forms[meant] for name, meant in (_OLD | others).items() if meant in forms} | forms


def parts_of(code):
    """The parts of a code: (language, script, territory), three str.

    The language is the shortest code, as it stands if CLDR does not know it. The script is the likely one if the code
    names none. The territory is "" if the code names none.
    """
    form = plain(code)
    form = _OLD.get(form, form)
    for pattern, simpler in SIMPLER[0]:
        form = re.sub(pattern, simpler, form)
    language, *rest = form.split("-")
    language, *other = get_global("language_aliases").get(language, language).split("_")
    language = _BOKMAL.get(language, language)
    script = next((part.title() for part in [*rest, *other] if len(part) == 4 and not part[0].isdecimal()), "")
    territory = next((part.upper() for part in rest if len(part) == 2 or part.isdecimal()), "")
    territory = territory.replace("XX", "")  # en_XX of mBART
    return language, script or likely_script("_".join(filter(None, (language, territory)))), territory


def _unlikeliness(language, script, territory):
    """Orders the codes of a language: the usual script before others, no region before the usual one, then others."""
    return script != likely_script(language), territory != "", territory != likely_territory(language)


@functools.cache
def _names_of(language):
    """The codes of a language: "de", "deu" and "ger" for "de"."""
    names = [language, *(name for name, meant in _BOKMAL.items() if meant == language)]
    return [*names, *(name for name, meant in get_global("language_aliases").items() if meant in names)]


def _nearest_places(forms):
    """For regions, the one of `forms` that CLDR puts above them or beside them: "es-419" for "es-mx"."""
    above = {plain(place): plain(parent) for place, parent in get_global("parent_exceptions").items() if "_" in parent}
    beside = {parent: place for place, parent in above.items() if place in forms} | {form: form for form in forms}
    nearest = {}
    for place in above:
        parent = place
        while parent in above and place not in nearest:
            parent = above[parent]
            if parent in beside:
                nearest[place] = beside[parent]
    return nearest


@functools.cache
def _other_scripts():
    """The regions where a language has another script than usual: dict from form to (language, script)."""
    scripts = {}
    for place, likely in get_global("likely_subtags").items():
        language, _, territory = place.partition("_")
        script = likely.split("_")[1]
        if territory.isupper() and len(territory) == 2 and script != likely_script(language):
            scripts[plain(place)] = language, script
    return scripts


def own_codes(known, codes):
    """Finds the codes by which a model knows languages.

    Args:
        known: iterable of str, the model's own codes.
        codes: iterable of str, in any form of `find_code`, or None.

    Returns:
        list of str. A language that the model does not have keeps its code, and None stays.
    """
    forms = spellings_of(known)
    return [code and (find_code(forms, code) or code) for code in codes]


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
    """The tags of BCP 47 that a code may have, the shortest first, and the code itself: tuple of str.

    The language alone is a tag of its usual script: `zh_TW` may be `zh-TW`, and never `zh`.
    """
    parts = code.replace("_", "-").split("-")
    alias = get_global("language_aliases").get(parts[0], parts[0])
    alone = (alias,) * (parts_of(code)[1] == likely_script(alias))
    return (*alone, "-".join([alias, *parts[1:]]), code) if locale_of(alias) else (code,)


def _is_likely(code):
    """Whether a code has the script and the territory that its language has most often, or names none."""
    language, *rest = code.replace("_", "-").split("-")
    language = get_global("language_aliases").get(language, language)
    usual = (likely_script(language), likely_territory(language), "XX")  # en_XX of mBART
    return not rest or locale_of(code) is not None and all(part in usual for part in rest)
