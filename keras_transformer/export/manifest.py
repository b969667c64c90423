"""export.json: what an export is, where it comes from, and how it was proven; for people and for scripts."""

import hashlib
import json
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml

from keras_transformer.config import Config

NAME = "export.json"
LIBRARIES = ("tensorflow", "tensorflow-text", "keras", "sentencepiece", "ctranslate2")


def describe_run(run):
    """What the manifest says of the run that was exported.

    Args:
        run: `RunDirectory`.

    Returns:
        dict: corpus, languages, the evaluation that training ended with (None if there is none), all settings.
    """
    settings = asdict(Config.load(run.config))
    evaluation = yaml.safe_load(run.results.read_text(encoding="utf-8")) if run.results.exists() else {}
    return {
        "corpus": settings["dataset"],
        **{side: settings[side] or evaluation.get(side) for side in ("source_lang", "target_lang")},
        "evaluation": evaluation or None,
        "settings": settings,
    }


def write_manifest(directory, number, export, origin, parity, loading):
    """Writes export.json beside the files of an export.

    Args:
        directory: of the export, all other files written.
        number: int, the version.
        export: dict, what its format says of it.
        origin: dict, from `describe_run`.
        parity: `Parity`.
        loading: `Loading`.
    """
    directory = Path(directory)
    manifest = {
        "version": number,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **export,
        "run": origin,
        "parity": asdict(parity),
        "loading": asdict(loading),
        "files": {path.relative_to(directory).as_posix(): describe_file(path) for path in files_of(directory)},
        "libraries": installed(LIBRARIES),
    }
    (directory / NAME).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(directory):
    """What `write_manifest` wrote, a dict."""
    return json.loads((Path(directory) / NAME).read_text(encoding="utf-8"))


def summarise(manifest):
    """What a person wants to see of a manifest at once, str of three lines."""
    parity, loading = manifest["parity"], manifest["loading"]
    memory = f"{loading['memory_bytes'] / 1e6:.0f} MB"
    beam_size, equal, sentences = parity["beam_size"], parity["equal"], parity["sentences"]
    warm_up = " with its warm-up" if "warm_up" in manifest else ""
    size = sum(file["bytes"] for file in manifest["files"].values())
    return (
        f"translates  {equal} of {sentences} sentences as the run does, with a beam of {beam_size}\n"
        f"size        {size / 1e6:.1f} MB on disk\n"
        f"loads       in {loading['seconds']:.1f} s{warm_up}; {memory} of memory after translating"
    )


def files_of(directory):
    """The files below a directory, sorted."""
    return sorted(path for path in Path(directory).rglob("*") if path.is_file())


def describe_file(path):
    """Size and checksum of a file, a dict."""
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def installed(libraries):
    """name -> version of those that are."""
    found = {}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
