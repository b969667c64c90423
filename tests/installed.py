"""What is installed beside a few distributions and all that they need: tests keep it from a program."""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# A program that begins with this cannot import the modules of the set `MISSING`.
WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
"""


def modules_beside(names):
    """The modules, a set of str, of all installed distributions but the named ones and those that they need."""
    needed, waiting = set(), [*names]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in needed:
            needed.add(name)
            requirements = map(Requirement, metadata.requires(name) or [])
            waiting += [each.name for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
    owners = {module: {*map(canonicalize_name, names)} for module, names in metadata.packages_distributions().items()}
    return {module for module, names in owners.items() if not names & needed}
