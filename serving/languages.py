"""The languages of a model, which export.json names in the directory of each version."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

from babel import Locale

from serving.codes import ARGOS, IDENTIFIED, find_code, likely_script, locale_of, parts_of, plain, spellings_of
from serving.versions import versions_in


class Languages(NamedTuple):
    """The codes of the languages that a model reads and writes by default, and of all of a model of many languages."""

    source: str
    target: str
    sources: tuple = ()
    targets: tuple = ()

    def codes(self):
        """Returns all codes, those of the default first: dict with them as keys."""
        return dict.fromkeys([self.source, self.target, *self.sources, *self.targets])

    @functools.cache  # noqa: B019  One for each version of a model.
    def directions(self):
        """Returns a dict from each source language to a list of its targets. The default comes first."""
        if not self.sources:
            return {self.source: [self.target]}
        sources, targets = dict.fromkeys([self.source, *self.sources]), dict.fromkeys([self.target, *self.targets])
        return {source: [target for target in targets if target != source] for source in sources}


def languages_of(directory):
    """Reads the `Languages` of a version. Returns None if the version has no export.json that names them."""
    try:
        manifest = json.loads((Path(directory) / "export.json").read_text(encoding="utf-8"))
        many = manifest.get("languages") or {"sources": (), "targets": ()}
        default = many.get("default") or [manifest["run"][side] for side in ("source_lang", "target_lang")]
        every = (tuple(map(written, many[side])) for side in ("sources", "targets"))
        found = Languages(*map(written, default), *every)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found if all(found[:2]) else None


def newest_languages(base_path):
    """Reads the `Languages` of the newest version in a directory that names them, or of the directory of a version.

    Raises ValueError, or OSError.
    """
    if found := languages_of(base_path):
        return found
    for _, version in sorted(versions_in(base_path).items(), reverse=True):
        if found := languages_of(version):
            return found
    raise ValueError(f"no export.json in {base_path} names the languages; give them by --source_lang and --target_lang")


def written(code):
    """Writes a code as LibreTranslate does, in short: pt_br is pt-BR, deu_Latn is de, and zh is zh-Hans."""
    if locale_of(code) is None:
        return plain(code)
    language, script, territory = parts_of(code)
    if language == "zh":
        return f"zh-{script}"
    return "-".join(filter(None, (language, script * (script != likely_script(language)), territory)))


def find_language(codes, code):
    """Returns the one of a tuple of codes that a user means, or None. LibreTranslate's and Argos' own names count."""
    return find_code(spellings_of(codes), ARGOS.get(plain(code), code))


@functools.cache
def name_of(code):
    """Returns the English name of a language, or its code if Unicode's locale data has no name."""
    return {written(known): name for known, name in Locale("en").languages.items()}.get(code, code)


def detect(text, codes):
    """Finds the language of a text among some codes.

    A language that py3langid does not know is as likely as all languages that are not among these codes. So without
    the package, it is the first one.

    Returns:
        list of (code, probability), the most likely one first. The probabilities sum to 1.
    """
    likely, found = dict(_identify(text)), {}
    for code in codes:
        language, *_ = parts_of(code)
        found.setdefault(IDENTIFIED.get(language, language), code)
    shares = {code: likely[label] for label, code in found.items() if label in likely}
    unknown = [code for code in found.values() if code not in shares]
    if unknown:
        shares[unknown[0]] = max(0.0, 1 - sum(shares.values()))
    total = sum(shares.values())
    return sorted(((code, share / total) for code, share in shares.items()), key=lambda each: -each[1])


def _identify(text):
    identifier = _identifier()
    return identifier.rank(text) if identifier else []


@functools.cache  # Loads in a second.
def _identifier():
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
