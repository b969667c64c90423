"""What is made once and kept on disk: a directory that is there whole, from the wanted ingredients, or is made anew."""

import json
import shutil
import zlib
from pathlib import Path

INDEX = "index.json"  # written last: the ingredients, and the checksum of every other file
_BLOCK_BYTES = 1 << 20


def make_once(directory, ingredients, make):
    """Fills a directory, unless an earlier call has filled it from the same ingredients and it is still intact.

    It is filled under another name and then renamed: an interruption leaves nothing that could be taken for whole. One
    that was made of something else, or is damaged, is replaced, with a line that says so.

    Args:
        directory: path; those above it are made too.
        ingredients: dict of str to str or int: all that the files depend on, under names for people.
        make: function of a path, an empty directory, that writes files into it.

    Raises:
        Whatever `make` raises; then nothing is left.
    """
    directory = Path(directory)
    if directory.exists():
        flaw = _find_flaw(directory, ingredients)
        if flaw is None:
            return
        print(f"            {directory} {flaw}: made anew", flush=True)
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a start that was killed
    unfinished.mkdir(parents=True)
    try:
        make(unfinished)
        checksums = {path.name: _checksum(path) for path in sorted(unfinished.iterdir())}
        index = {"ingredients": ingredients, "checksums": checksums}
        (unfinished / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        shutil.rmtree(directory, ignore_errors=True)
        unfinished.rename(directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _find_flaw(directory, ingredients):
    """Why the directory cannot be used, after its name; None if it can."""
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        other = [name for name in ingredients if index["ingredients"].get(name) != ingredients[name]]
        if other:
            return f"was made from another {' and '.join(other)}"
        damaged = [name for name, checksum in index["checksums"].items() if _checksum(directory / name) != checksum]
    except OSError as error:
        return f"is not whole (no {Path(error.filename).name})"
    except (ValueError, TypeError, KeyError, AttributeError):  # whatever else the index may hold
        return f"is damaged ({INDEX})"
    return f"is damaged ({', '.join(damaged)})" if damaged else None


def _checksum(path):
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
