import numpy as np
from keras_transformer.layers.feed_forward import FeedForward

from tests import reference
from tests.layers.contract import FEED_FORWARD_WEIGHTS, B, D, F, LayerContract, T, some


class TestContract(LayerContract):
    layer_class = FeedForward
    arguments = {"d_model": D, "d_ff": F, "dropout_rate": 0.3}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = FEED_FORWARD_WEIGHTS


def feed_forward(**kwargs):
    layer = FeedForward(D, F, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


def test_equation_2():
    layer, x = feed_forward(), some("x", "BTD")
    expected = reference.feed_forward(reference.weights_of(layer), np.asarray(x, "float64"))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_every_position_by_itself():
    layer, x = feed_forward(), np.asarray(some("x", "BTD"))
    changed = x.copy()
    changed[:, 3] += 1.0
    unchanged = np.arange(T) != 3
    before, after = np.asarray(layer(x)), np.asarray(layer(changed))
    np.testing.assert_allclose(after[:, unchanged], before[:, unchanged], atol=1e-6)
    assert np.all(np.abs(after[:, 3] - before[:, 3]).max(axis=-1) > 0.01)


def test_dropout_falls_on_the_inner_activations():
    layer, x = feed_forward(dropout_rate=0.5), some("x", "BTD")
    seen = []
    layer.dropout.call = lambda inner, training=False: seen.append((inner.shape, training)) or inner
    layer(x, training=True)
    assert seen == [((B, T, F), True)]
