"""The versions EXPORT_DIR/1, EXPORT_DIR/2, ...: a version has its name only when the files are complete and proven."""

import contextlib
import errno
import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.errors import ExportError, FileError, ToolError
from keras_transformer.export.manifest import read_manifest, write_manifest
from keras_transformer.export.parity import prove
from keras_transformer.files import versions_in, whole_directory
from keras_transformer.process import find_tool


def version_directory(export_dir, version=None):
    """The directory of a new version.

    Args:
        export_dir: the directory of all versions; it need not exist.
        version: positive int below 2^63; by default, one more than the largest. A version is never overwritten.

    Returns:
        Path of EXPORT_DIR/VERSION.

    Raises:
        ExportError: if the version exists or is no such number.
    """
    if version is None:
        version = max(versions_in(export_dir), default=0) + 1
    if not hasattr(version, "__index__") or not 0 < version < 2**63:
        raise ExportError(f"`version` must be a positive integer below 2^63. Received: {version!r}")
    final = Path(export_dir, str(version))
    if final.exists():
        raise ExportError(f"{final} exists and is never overwritten: choose another `version`, or leave it out")
    return final


@contextlib.contextmanager
def new_version(export_dir, version=None):
    """Gives the block a temporary directory, and renames the directory to EXPORT_DIR/VERSION at the end of the block.

    If the block raises, the directory is removed. TensorFlow Serving polls EXPORT_DIR and ignores the temporary name,
    so the server never loads an incomplete version.

    Args:
        export_dir, version: see `version_directory`.

    Yields:
        (Path of the empty temporary directory, Path of the final directory).

    Raises:
        ExportError: see `version_directory`.
        FileError: if the disk is full, or something else forbids to write.
    """
    final = version_directory(export_dir, version)
    with whole_directory(final) as temporary:
        try:
            yield temporary, final
        except tf.errors.ResourceExhaustedError as error:
            if os.strerror(errno.ENOSPC) not in error.message:
                raise
            raise FileError(f"cannot write {final}: {os.strerror(errno.ENOSPC)}") from error


def export_version(export, export_dir, version=None, sentences=(), origin=None):
    """Writes EXPORT_DIR/VERSION, proves that the version translates as the run does, and writes its export.json.

    If the settings of the run are known, it writes a model card, too.

    Args:
        export: `SavedModelExport`, or the export for another engine, with
            `reference`, the `Translator` of the run;
            `libraries`, the names of the packages that the manifest lists besides those of every export;
            `least_equal`, the share of translations that must be equal;
            `score_tolerance`, the largest difference of two scores of the same translation;
            `write(directory)`, and it may have `probes`, texts for its proof alone;
            `expected(sentences)`, which returns the translations of the run, or their pieces, and their scores;
            `opened(directory)`, a context manager that gives the function of the export that does the same;
            `advice`, a str for the error if the two differ;
            `describe(directory)`, which returns a dict about the format for the manifest.
        export_dir: see `new_version`.
        version: see `new_version`.
        sentences: list of str to translate for the proof, besides `PROBES`.
        origin: dict from `describe_run`; empty by default.

    Returns:
        Path of the version.

    Raises:
        ExportError: if the version exists or is not positive, or if the export translates differently.
    """
    with new_version(export_dir, version) as (directory, final):
        export.write(directory)
        parity, loading = prove(export, directory, sentences)
        facts = export.describe(directory), origin or {}, parity, loading
        write_manifest(directory, int(final.name), *facts, export.libraries)
        if origin and "settings" in origin:
            with contextlib.suppress(ToolError):  # without its tool, an export has no card
                find_tool("cards.card", "a model card").write_card(directory, read_manifest(directory))
    return final
