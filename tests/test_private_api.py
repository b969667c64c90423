"""No module but `private_api` uses private names of other packages. That they still do their work is proven where they
are used, such as in tests/training/test_updates.py.
"""

import ast

import keras
import numpy as np

from keras_transformer.private_api import decays
from tests.test_architecture import MODULES, imported


def test_weight_decay_is_for_all_variables_but_the_excluded_ones():
    matrix, bias = keras.Variable(np.zeros((2, 3)), name="matrix"), keras.Variable(np.zeros(3), name="bias")
    optimizer = keras.optimizers.AdamW(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    assert decays(optimizer, matrix) and not decays(optimizer, bias) and not decays(keras.optimizers.Adam(), matrix)


def private_names(tree):
    """The private attributes that a module takes from anything but itself: `x._name`, x not `self` or `cls`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }


PUBLIC = {"_replace", "_asdict", "_exit"}  # of named tuples and of `os`, documented despite the underscore
# Parts of Apache Beam that call themselves "for internal use only", or are no part of its documented interface.
INTERNAL = ("apache_beam.portability", "apache_beam.runners", "apache_beam.transforms.environments")


def test_no_other_module_uses_a_private_name_or_internals_of_beam():
    names = {str(path): private_names(tree) - PUBLIC for path, tree in MODULES.items() if path.name != "private_api.py"}
    assert {path: found for path, found in names.items() if found} == {}
    assert private_names(ast.parse("a.b._c + self._d + f()._e + x._replace()")) == {"_c", "_e", "_replace"}
    of_beam = {str(path) for path, tree in MODULES.items() if any(x.startswith(INTERNAL) for x in imported(tree))}
    assert of_beam == {"keras_transformer/tools/beam/private_api.py"}
