"""The versions of a model, as TensorFlow Serving numbers them."""

import re
from pathlib import Path


def version_of(name):
    """Reads the number of a version: ASCII digits of an int64, with or without zeros before. Else returns None."""
    match = re.fullmatch("0*([0-9]{1,19})", name)  # Python refuses to convert thousands of digits.
    return int(match[1]) if match and int(match[1]) < 2**63 else None


def versions_in(base_path):
    """Returns version -> directory of the versions in a directory. Raises OSError if it cannot be read."""
    paths = ((version_of(path.name), path) for path in sorted(Path(base_path).iterdir()))
    return {number: path for number, path in paths if number is not None and path.is_dir()}
