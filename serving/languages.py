"""The languages of a model, which export.json names in the directory of each version."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

from babel import Locale


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
        every = (tuple(map(normalized, many[side])) for side in ("sources", "targets"))
        found = Languages(*map(normalized, default), *every)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found if all(found[:2]) else None


def newest_languages(base_path):
    """Reads the `Languages` of the newest version in a directory that names them. Raises ValueError, or OSError."""
    versions = [path for path in Path(base_path).iterdir() if path.name.isdecimal()]
    for version in sorted(versions, key=lambda path: -int(path.name)):
        if found := languages_of(version):
            return found
    raise ValueError(f"no export.json in {base_path} names the languages; give them by --source_lang and --target_lang")


def normalized(code):
    """Writes a code as it is compared and shown: pt_BR and PT-br are pt-br."""
    return code.lower().replace("_", "-")


@functools.cache
def name_of(code):
    """Returns the English name of a language, or its code if Unicode's locale data has no name."""
    return {normalized(known): name for known, name in Locale("en").languages.items()}.get(code, code)
