import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.layers.linear import Linear, inner_shape

from tests.layers.contract import B, D, F, H, T, some


@pytest.mark.parametrize("axes", ["BD", "BTD", "BHTD"])
def test_it_is_the_product_with_its_kernel_at_every_position(axes):
    layer, x = Linear(F, activation="relu", bias_initializer="ones"), some("x", axes)
    output = layer(x)
    expected = np.maximum(np.asarray(x) @ np.asarray(layer.kernel) + np.asarray(layer.bias), 0)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_its_graph_has_one_product_and_looks_up_no_shapes_that_are_known():
    layer = Linear(F)
    layer.build((None, T, D))
    graph = tf.function(layer, input_signature=[tf.TensorSpec([None, T, D])]).get_concrete_function().graph
    ops = [op.type for op in graph.get_operations()]
    assert ops.count("MatMul") == 1
    assert not {"Shape", "Prod", "Pack", "ConcatV2"} & set(ops)


def test_it_is_saved_and_loaded(tmp_path):
    model = keras.Sequential([keras.Input((None, D)), Linear(F, name="linear")])
    model.save(tmp_path / "model.keras")
    loaded, x = keras.models.load_model(tmp_path / "model.keras"), some("x", "BTD")
    assert type(loaded.get_layer("linear")) is Linear
    np.testing.assert_array_equal(loaded(x), model(x))


def test_inner_sizes_are_numbers_where_they_are_known():
    assert inner_shape(tf.zeros([B, H, T, D])) == (H, T)

    @tf.function(input_signature=[tf.TensorSpec([None, None, T, D])])
    def sizes(x):
        unknown, known = inner_shape(x)
        assert known == T and isinstance(unknown, tf.Tensor)
        return unknown

    assert sizes(tf.zeros([B, H, T, D])) == H
