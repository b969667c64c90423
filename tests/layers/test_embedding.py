import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.embedding import Logits, OutputMatrix, TokenEmbedding, columns_of, logits_of
from tests.layers.contract import D, LayerContract, V, some


class TestTokenEmbeddingContract(LayerContract):
    layer_class = TokenEmbedding
    arguments = {"vocabulary_size": V, "d_model": D, "scale": False}
    inputs = {"ids": "BT"}
    output = "BTD"
    weight_count = V * D


class TestSharedLogitsContract(LayerContract):
    layer_class = Logits
    config_keys = ["source", "use_bias"]
    inputs = {"states": "BTD"}
    output = "BTV"
    output_dtype = "float32"
    weight_count = V * D  # the embedding's, and none of its own
    source_class = TokenEmbedding
    use_bias = False

    def make(self, dtype=None, **kwargs):
        return Logits(self.source_class(V, D, name="source", dtype=dtype), self.use_bias, dtype=dtype, **kwargs)


class TestUnsharedLogitsWithABiasContract(TestSharedLogitsContract):
    source_class = OutputMatrix
    weight_count = V * D + V
    use_bias = True


def token_embedding(vocabulary_size=V, **kwargs):
    layer = TokenEmbedding(vocabulary_size, D, **kwargs)
    layer.build((None, None))
    return layer


def test_a_token_is_its_row_times_the_root_of_d_model_if_it_is_scaled():
    ids = some("ids", "BT")
    for scale, factor in ((True, D**0.5), (False, 1)):
        layer = token_embedding(scale=scale)
        np.testing.assert_allclose(layer(ids), layer.matrix.numpy()[np.asarray(ids)] * factor, rtol=1e-6)


@pytest.mark.parametrize("layer_class", [TokenEmbedding, OutputMatrix])
def test_matrix_starts_normal_with_variance_one_over_d_model(layer_class):
    layer = layer_class(1009, D)
    layer.build()
    matrix = layer.matrix.numpy().astype("float64") * D**0.5  # should be N(0, 1)
    assert abs(matrix.mean()) < 5 / matrix.size**0.5
    assert abs(matrix.std() - 1) < 5 / (2 * matrix.size) ** 0.5
    assert np.mean(np.abs(matrix) < 1) == pytest.approx(0.6827, abs=0.02)  # normal, not uniform
    assert np.abs(matrix).max() > 3  # nor truncated


@pytest.mark.parametrize("source_class", [TokenEmbedding, OutputMatrix])
def test_logits_are_products_with_the_rows_of_their_source_plus_a_bias(source_class):
    layer, states = Logits(source_class(V, D), use_bias=True), some("states", "BTD")
    without = np.asarray(layer(states))  # a new bias is 0
    expected = np.asarray(states, "float64") @ layer.source.matrix.numpy().astype("float64").T
    np.testing.assert_allclose(without, expected, rtol=1e-5, atol=1e-5)
    layer.bias.assign(np.arange(V) / 7)
    np.testing.assert_allclose(layer(states), without + np.arange(V) / 7, rtol=1e-5, atol=1e-5)
    assert [id(w) for w in layer.weights] == [id(layer.bias), id(layer.source.matrix)]


@pytest.mark.parametrize("axes", ["BD", "BTD", "BHTD"])
def test_logits_of_a_layout_made_once_are_products_with_the_matrix_and_float32(axes):
    states, matrix = some("states", axes), some("matrix", "VD")
    columns = columns_of(matrix, "float32")
    assert columns.shape == (D, V)
    expected = np.asarray(states, "float64") @ np.asarray(matrix, "float64").T
    np.testing.assert_allclose(logits_of(states, columns), expected, rtol=1e-5, atol=1e-5)
    for dtype in ("bfloat16", "float16"):
        columns = columns_of(matrix, dtype)
        assert columns.dtype == dtype and logits_of(tf.cast(states, dtype), columns).dtype == "float32"
