"""EXPORT_DIR/1, EXPORT_DIR/2, ...: every version is complete and proven before it has its name."""

import contextlib
import shutil
from pathlib import Path

from keras_transformer.errors import ExportError
from keras_transformer.export.manifest import write_manifest
from keras_transformer.export.parity import prove


def next_version(export_dir):
    """The smallest integer above every version in EXPORT_DIR; 1 in an empty one."""
    versions = [int(path.name) for path in Path(export_dir).glob("*") if path.name.isdigit()]
    return max(versions, default=0) + 1


@contextlib.contextmanager
def new_version(export_dir, version=None):
    """A directory to write a version in, EXPORT_DIR/VERSION when the block ends, and gone if the block raises.

    Until then it has a temporary name, so that TensorFlow Serving, which polls EXPORT_DIR, never sees half a model.

    Args:
        export_dir: directory of all versions; made if there is none.
        version: positive int; the next free one by default. An existing one is never overwritten.

    Yields:
        (Path of the empty directory to write in, Path that it will have).

    Raises:
        ExportError: if the version exists or is not positive.
    """
    export_dir = Path(export_dir)
    version = next_version(export_dir) if version is None else version
    if version < 1:
        raise ExportError(f"--version must be a positive integer. Received: {version}")
    final, temporary = export_dir / str(version), export_dir / f".{version}.partial"
    if final.exists():
        raise ExportError(f"{final} exists; a version is never overwritten: choose another --version or leave it out")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary, final
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def export_version(export, export_dir, version=None, sentences=(), origin=None):
    """Writes EXPORT_DIR/VERSION, proves that it translates as the run does, and describes it in its export.json.

    Args:
        export: `SavedModelExport` or `CTranslate2Export`. It has
            `reference`, the `Translator` that the export is compared with;
            `least_equal`, the share of translations that must be the same, and `score_tolerance`, by which the scores
            of those may differ;
            `write(directory)`;
            `opened(directory)`, a context manager of a function like `Translator.translate_batch`;
            `describe(directory)`, a dict of what the manifest says of the format.
        export_dir: see `new_version`.
        version: see `new_version`.
        sentences: list of str to compare translations on, besides a few of our own.
        origin: what `describe_run` says of the run; nothing by default.

    Returns:
        Path of the version.

    Raises:
        ExportError: if the version exists or is not positive, or the export translates differently.
    """
    with new_version(export_dir, version) as (directory, final):
        export.write(directory)
        parity, loading = prove(export, directory, sentences)
        write_manifest(directory, int(final.name), export.describe(directory), origin or {}, parity, loading)
    return final
