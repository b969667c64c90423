"""Private names of other packages still do their work; no module but `private_api` uses one.

`adam_moments` and `own_update`: tests/training/test_updates.py. `unit_patterns`: tests/tools/cldr/test_corpus.py.
"""

import ast

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.private_api import AlwaysBuilt, decays, loop_body, made_from
from tests import tiny
from tests.test_architecture import MODULES, imported


class CountsRows(AlwaysBuilt):
    """Its training step says how many rows a replica has got."""

    def __init__(self):
        super().__init__()
        self.built = True

    def train_step(self, batch):
        return {"rows": tf.cast(tf.shape(batch)[0], tf.float32)}


def test_fit_takes_replicas_whose_shares_have_different_numbers_of_rows():
    def shares(context):
        return tf.data.Dataset.from_generator(
            lambda: iter([np.zeros((2, 3)), np.zeros((1, 3))]), output_signature=tf.TensorSpec((None, 3))
        )

    strategy = tiny.two_replicas()
    with strategy.scope():
        model = CountsRows()
        model.compile("sgd", jit_compile=False)
    batches = strategy.distribute_datasets_from_function(shares)
    history = model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0).history
    assert history["rows"] == [1.5]  # the mean of the replicas


def test_a_model_starts_from_given_values_and_no_random_ones_are_drawn():
    def make():
        model = keras.Sequential([keras.layers.Dense(3, name="one"), keras.layers.Dense(2, name="two")])
        model.build((None, 5))
        return model

    def check(weight):
        shapes[weight.path.split("/", 1)[1]] = tuple(weight.shape)
        if weight.shape == failing:
            raise KeyError(weight.path)

    shapes, failing = {}, None
    model = made_from(make, check, lambda path: np.full(shapes[path.split("/", 1)[1]], len(path)))
    for weight in model.weights:
        np.testing.assert_array_equal(weight, np.full(weight.shape, len(weight.path)))
    failing = (3, 2)
    with pytest.raises(KeyError):
        made_from(make, check, np.zeros)
    assert make().count_params() == model.count_params()  # Keras is in order again


def test_weight_decay_is_for_all_variables_but_the_excluded_ones():
    matrix, bias = keras.Variable(np.zeros((2, 3)), name="matrix"), keras.Variable(np.zeros(3), name="bias")
    optimizer = keras.optimizers.AdamW(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    assert decays(optimizer, matrix) and not decays(optimizer, bias)
    assert not decays(keras.optimizers.Adam(), matrix)


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


def test_a_loop_has_a_graph_of_one_step():
    with tf.Graph().as_default() as graph:
        tf.while_loop(lambda x: x < 7.0, tf.sin, [tf.constant(1.0)])
        (loop,) = (each for each in graph.get_operations() if each.type in ("While", "StatelessWhile"))
    assert "Sin" in {step.type for step in loop_body(loop).get_operations()}
