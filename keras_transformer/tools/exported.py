"""The files of an export, for programs and tools."""

import json
from pathlib import Path

from keras_transformer.errors import UserError
from keras_transformer.export.manifest import MANIFEST
from keras_transformer.files import reading, versions_in
from keras_transformer.tags import LanguageTags


def find_saved_model(path):
    """The directory of a SavedModel.

    Args:
        path: EXPORT_DIR/VERSION, or EXPORT_DIR for its latest version.

    Returns:
        pathlib.Path.

    Raises:
        UserError: if there is no SavedModel.
    """
    path = Path(path)
    if versions := versions_in(path):
        path = versions[max(versions)]
    if not (path / "saved_model.pb").exists():
        raise UserError(f"no SavedModel at {path}: `export.py --format saved_model` writes one")
    return path


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
