"""The tools: folders on top of the core, each of which can be deleted.

The core imports none of them, and a program of `keras_transformer.cli` imports a tool when a user asks for it.
"""

import json
import os
from importlib import resources
from pathlib import Path

from keras_transformer.errors import FileError, UserError


def page_of(package, data):
    """The page of a tool: `report.html` of its package, with data in the place of `{{DATA}}`.

    Args:
        package: name of the package.
        data: dict that JSON can hold. None of its texts can end the HTML element around it.

    Returns:
        str.
    """
    template = resources.files(package).joinpath("report.html").read_text(encoding="utf-8")
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return template.replace("{{DATA}}", written.replace("<", "\\u003c"))


def check_new_directory(path):
    """Raises FileError if a directory has something in it, or if it cannot be made."""
    path = Path(path)
    place = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileError(f"cannot write {path}: it exists already")
    if os.path.ismount(path):
        raise FileError(f"cannot write {path}: nothing can take the place of a mount point. Name a directory in it")
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise FileError(f"cannot write {path}: you may not write to {place}")


def duration(seconds):
    """Seconds in the two largest units that matter, such as "3 h 20 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def check_ascending(**lists):
    """Raises UserError, with its name, for a list of sizes that is empty, or not ascending from 1."""
    for name, sizes in lists.items():
        if not sizes or any(size <= before for before, size in zip([0, *sizes], sizes, strict=False)):
            received = " ".join(map(str, sizes)) or "none"
            raise UserError(f"`{name}` must be ascending numbers from 1. Received: {received}")
