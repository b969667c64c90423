import numpy as np
import tensorflow as tf

from keras_transformer.layers.recurrence import SSRU
from tests import reference
from tests.layers.contract import B, D, LayerContract, T, W, some


class TestSSRUContract(LayerContract):
    layer_class = SSRU
    arguments = {"d_model": D}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = 2 * D * D + D


def ssru():
    layer = SSRU(D)
    layer.build((None, None, D))
    return reference.randomise(layer)


def test_it_is_that_of_kim_et_al():
    layer, x = ssru(), some("x", "BTD")
    expected = reference.ssru(reference.weights_of(layer), np.asarray(x, "float64"))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)
    assert 0 < np.count_nonzero(expected) < expected.size


def test_steps_of_several_hypotheses_give_what_all_positions_at_once_give():
    layer, x = ssru(), tf.random.stateless_normal((B, W, T, D), (1, 2))
    cells, steps = layer.empty_cache(B, width=W), []
    for position in range(T):
        step, cells = layer.step(x[:, :, position], position, cells)
        steps.append(step)
    for hypothesis in range(W):
        found = np.stack([step[:, hypothesis] for step in steps], axis=1)
        np.testing.assert_allclose(found, layer(x[:, hypothesis]), rtol=1e-5, atol=1e-6)


def test_it_forgets_nothing_and_takes_nothing_in_with_an_open_gate():
    layer = ssru()
    layer.gate.kernel.assign(tf.zeros((D, D)))
    layer.gate.bias.assign(tf.fill((D,), 100.0))  # f = 1
    cells = tf.ones((B, W, D))
    step, after = layer.step(tf.ones((B, W, D)), 0, cells)
    np.testing.assert_array_equal(after, cells)
    np.testing.assert_array_equal(step, cells)
