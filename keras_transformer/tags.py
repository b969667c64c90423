"""Tags: the tokens that tell a model of many languages which languages it translates between.

A run of one direction has none. A run of several keeps them in `languages.json`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from babel.core import get_global

from keras_transformer.config import BOS_ID
from keras_transformer.errors import UserError
from keras_transformer.files import reading, write_whole
from keras_transformer.languages import language_of, likely_script, likely_territory, locale_of

FILE = "languages.json"  # in the directory of a run
MANIFEST = "export.json"  # in that of an export


@dataclass(frozen=True)
class LanguageTags:
    """The languages of a model, by its own codes, and the id of the tag of each.

    `place` says where tags stand:

    - "source": the tag of the target language is the first token of the source (Johnson et al. 2017).
    - "both": the tag of the source language is the first token of the source, and the decoder begins with the tag of
      the target language in place of bos (M2M-100, Fan et al. 2020).

    Attributes:
        place: str.
        sources: dict from the code of each source language to the id of its tag. With "source", the ids do nothing.
        targets: dict from the code of each target language to the id of its tag.
        default: (source, target), codes of the direction of a text for which no languages are given.
    """

    place: str
    sources: dict
    targets: dict
    default: tuple

    def ids(self, source_lang, target_lang):
        """The ids for a direction: (first token of the source, first token of the decoder), two int."""
        if self.place == "source":
            return self.targets[target_lang], BOS_ID
        return self.sources[source_lang], self.targets[target_lang]

    def find(self, source_lang=None, target_lang=None):
        """The model's own codes for codes that a user gives, in any form of `spellings_of`; None takes the default.

        Returns:
            (source, target), two str.

        Raises:
            UserError: for a language that the model does not have. It lists those that it has.
        """
        found = []
        sides = (("source_lang", source_lang, self.sources), ("target_lang", target_lang, self.targets))
        for (name, given, codes), default in zip(sides, self.default, strict=True):
            code = spellings_of(codes).get(plain(given)) if given else default
            if code is None:
                known = ", ".join(sorted(short_codes(codes).values()))
                raise UserError(f"the model has no `{name}` {given}, only {known}")
            found.append(code)
        return tuple(found)

    @property
    def default_codes(self):
        """(source, target), the default as codes of BCP 47."""
        return tuple(short_codes(codes)[own] for codes, own in zip(self.sides.values(), self.default, strict=True))

    @property
    def sides(self):
        """{"sources": ..., "targets": ...}, both as the attributes."""
        return {"sources": self.sources, "targets": self.targets}

    def listed(self):
        """The languages for the manifest of an export: dict of {short code: own code} of each side, and "default"."""
        listed = {side: {tag: code for code, tag in short_codes(codes).items()} for side, codes in self.sides.items()}
        return {**listed, "default": list(self.default_codes)}

    def save(self, directory):
        """Writes `languages.json` into a directory."""
        about = {"place": self.place, "default": self.default, **self.sides}
        text = json.dumps(about, indent=1)
        write_whole(Path(directory, FILE), lambda path: path.write_text(text, encoding="utf-8"))


def load_tags(directory):
    """The `LanguageTags` of a run; None for a run of one direction.

    Raises:
        FileError: if the file cannot be read or is damaged.
    """
    path = Path(directory, FILE)
    if not path.exists():
        return None
    with reading(path):
        about = json.loads(path.read_text(encoding="utf-8"))
        tags = LanguageTags(about["place"], about["sources"], about["targets"], tuple(about["default"]))
        tags.ids(*tags.default)
    return tags


def piece_of(code):
    """The piece that tags a language in our own tokenizers: `<2de>`."""
    return f"<2{code}>"


def read_export(directory):
    """The languages of an export.

    Args:
        directory: Path, of a version.

    Returns:
        `LanguageTags` without ids and place, None for a model of one direction; and (source, target), the codes of the
        default direction, each None if it is not known.

    Raises:
        FileError: if export.json cannot be read or is damaged.
    """
    path, sides = Path(directory, MANIFEST), ("sources", "targets")
    if not path.exists():
        return None, (None, None)
    with reading(path):
        about = json.loads(path.read_text(encoding="utf-8"))
        origin, listed = about.get("run") or {}, about.get("languages")
        if not listed:
            return None, (origin.get("source_lang"), origin.get("target_lang"))
        default = tuple(listed[side][code] for side, code in zip(sides, listed["default"], strict=True))
        return LanguageTags(None, *(dict.fromkeys(listed[side].values()) for side in sides), default), default


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
