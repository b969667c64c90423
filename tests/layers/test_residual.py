import numpy as np
import pytest
from keras_transformer.layers.residual import PostNorm, PreNorm

from tests import reference
from tests.layers.contract import NORM_WEIGHTS, D, LayerContract, some


class Contract(LayerContract):
    arguments = {"dropout_rate": 0.3}
    inputs = {"x": "BTD", "update": "BTD"}
    output = "BTD"
    weight_count = NORM_WEIGHTS


class TestPostNormContract(Contract):
    layer_class = PostNorm


class TestPreNormContract(Contract):
    layer_class = PreNorm


def made(layer_class, dropout_rate=0.0):
    layer = layer_class(dropout_rate)
    layer.build((None, None, D))
    return reference.randomise(layer)


@pytest.mark.parametrize(
    ("layer_class", "expected"), [(PostNorm, reference.post_norm), (PreNorm, reference.pre_norm)], ids=["post", "pre"]
)
@pytest.mark.parametrize("size", [1.0, 1e-3], ids=["unit", "small enough for epsilon to count"])
def test_residual_connection(layer_class, expected, size):
    layer, x = made(layer_class), size * np.asarray(some("x", "BTD"), "float64")

    def sublayer(h):
        return 0.7 * h[..., ::-1]

    entering = np.asarray(layer.enter(x.astype("float32")))
    np.testing.assert_allclose(
        layer(x.astype("float32"), sublayer(entering)),
        expected(reference.weights_of(layer), x, sublayer),
        rtol=1e-5,
        atol=1e-5,
    )


def test_post_norm_hands_the_sublayer_x_itself():
    x = some("x", "BTD")
    assert made(PostNorm).enter(x) is x


def test_pre_norm_leaves_the_residual_path_alone():
    x = some("x", "BTD")
    np.testing.assert_array_equal(made(PreNorm)(x, np.zeros(x.shape, "float32")), x)


@pytest.mark.parametrize("layer_class", [PostNorm, PreNorm])
def test_dropout_falls_on_the_update_and_not_on_the_residual(layer_class):
    layer, x, update = made(layer_class, 0.5), some("x", "BTD"), some("update", "BTD")
    seen = []

    def nothing_left(update, training=False):
        seen.append(training)
        return 0.0 * update

    layer.dropout.call = nothing_left
    np.testing.assert_array_equal(layer(x, update, training=True), layer(x, 0.0 * update))
    assert seen == [True, False]
