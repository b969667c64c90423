"""The languages of a model, which export.json names in the directory of each version."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

from babel import Locale


class Languages(NamedTuple):
    """The codes of the language that a model reads and of the language that it writes, such as en and de."""

    source: str
    target: str


def languages_of(directory):
    """Reads the `Languages` of a version. Returns None if the version has no export.json that names them."""
    try:
        run = json.loads((Path(directory) / "export.json").read_text(encoding="utf-8"))["run"]
        found = Languages(normalized(run["source_lang"]), normalized(run["target_lang"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found if all(found) else None


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
    names = {normalized(known): name for known, name in Locale("en").languages.items()}
    return names.get(code, code)
