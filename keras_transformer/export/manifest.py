"""The manifest export.json: it tells people and scripts the format, the origin and the proof of an export."""

import contextlib
import hashlib
import json
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml

from keras_transformer.config import Config
from keras_transformer.translation.options import LANGUAGE_INPUTS

MANIFEST = "export.json"  # in the directory of an export
LIBRARIES = ("tensorflow", "tensorflow-text", "keras", "sentencepiece")


def describe_run(run):
    """Describes the exported run for the manifest.

    Args:
        run: `RunDirectory`.

    Returns:
        dict: the corpus (None for an imported run), the languages, the evaluation at the end of training (or None),
        and all settings.
    """
    settings = asdict(Config.load(run.config))
    evaluation = yaml.safe_load(run.results.read_text(encoding="utf-8")) if run.results.exists() else {}
    return {
        "corpus": settings["dataset"] if run.corpus.exists() else None,
        **{side: code or evaluation.get(side) for side, code in zip(LANGUAGE_INPUTS, run.languages(), strict=True)},
        "evaluation": evaluation or None,
        "settings": settings,
    }


def write_manifest(directory, number, export, origin, parity, loading, libraries=()):
    """Writes export.json beside the files of an export.

    Args:
        directory: the directory of the export. All other files must be there already.
        number: int, the version.
        export: dict, the description of the format.
        origin: dict, from `describe_run`.
        parity: `Parity`.
        loading: `Loading`.
        libraries: names of packages that the export needs besides `LIBRARIES`.
    """
    directory = Path(directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    manifest = {
        "version": number,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **export,
        "run": origin,
        "parity": asdict(parity),
        "loading": asdict(loading),
        "files": {path.relative_to(directory).as_posix(): _describe_file(path) for path in files},
        "libraries": installed([*LIBRARIES, *libraries]),
    }
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(directory):
    """Reads export.json from the directory of an export: dict."""
    return json.loads((Path(directory) / MANIFEST).read_text(encoding="utf-8"))


def _describe_file(path):
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def installed(libraries):
    """Returns name -> version of the installed libraries."""
    found = {}
    for name in libraries:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
