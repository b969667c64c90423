"""Embeddings, logits, and the positions that are added to embeddings."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.embedding import (
    SINUSOIDAL,
    LearnedPositions,
    Logits,
    NoPositions,
    OutputMatrix,
    PositionalEncoding,
    TokenEmbedding,
    columns_of,
    logits_of,
    sinusoids,
)
from tests import reference
from tests.layers.contract import NORM_WEIGHTS, D, LayerContract, S, T, V, some

LONG = 1031  # positions; bfloat16 cannot count past 256
SUM = {"dropout_rate": 0.3, "norm": True, "layer_norm_epsilon": 1e-3}


class TestTokenEmbeddingContract(LayerContract):
    layer_class = TokenEmbedding
    arguments = {"vocabulary_size": V, "d_model": D, "scale": False}
    inputs, output = {"ids": "BT"}, "BTD"
    weight_count = V * D


class TestSharedLogitsContract(LayerContract):
    layer_class, config_keys = Logits, ["source", "use_bias"]
    inputs, output = {"states": "BTD"}, "BTV"
    output_dtype = "float32"
    weight_count = V * D  # the embedding's, and none of its own
    source_class, use_bias = TokenEmbedding, False

    def make(self, dtype=None, **kwargs):
        return Logits(self.source_class(V, D, name="source", dtype=dtype), self.use_bias, dtype=dtype, **kwargs)


class TestUnsharedLogitsWithABiasContract(TestSharedLogitsContract):
    source_class, weight_count = OutputMatrix, V * D + V
    use_bias = True


class TestPositionalEncodingContract(LayerContract):
    layer_class = PositionalEncoding
    arguments = {"d_model": D, "kind": "sinusoidal_tensor2tensor", "first_position": 2, **SUM}
    inputs, output = {"x": "BTD"}, "BTD"
    weight_count = NORM_WEIGHTS


class TestLearnedPositionsContract(TestPositionalEncodingContract):
    layer_class = LearnedPositions
    arguments = {"num_positions": S, "d_model": D, "scale": False, **SUM}
    weight_count = S * D + NORM_WEIGHTS


class TestNoPositionsContract(TestPositionalEncodingContract):
    layer_class, arguments = NoPositions, SUM


@pytest.mark.parametrize("layer", [TokenEmbedding(1009, D), OutputMatrix(1009, D), LearnedPositions(1009, d_model=D)])
def test_matrices_start_normal_with_variance_one_over_d_model(layer):
    layer.build((None, None, D))
    matrix = layer.weights[0].numpy().astype("float64") * D**0.5  # should be N(0, 1)
    assert abs(matrix.mean()) < 5 / matrix.size**0.5 and abs(matrix.std() - 1) < 5 / (2 * matrix.size) ** 0.5
    assert np.mean(np.abs(matrix) < 1) == pytest.approx(0.6827, abs=0.02)  # normal, not uniform
    assert np.abs(matrix).max() > 3  # nor truncated


@pytest.mark.parametrize("axes", ["BD", "BHTD"])
def test_logits_of_a_layout_made_once_are_products_with_the_matrix_and_float32(axes):
    states, matrix = some("states", axes), some("matrix", "VD")
    expected = np.asarray(states, "float64") @ np.asarray(matrix, "float64").T
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 0.2), ("float16", 0.02)):
        columns = columns_of(matrix, dtype)
        found = logits_of(tf.cast(states, dtype), columns)
        assert columns.shape == (D, V) and columns.dtype == dtype and found.dtype == "float32"
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", SINUSOIDAL)
def test_sinusoids_of_near_and_far_positions_from_any_first_position(kind):
    table, expected = sinusoids(tf.range(LONG), D, kind), reference.sinusoids(LONG, D, kind)
    assert table.dtype == tf.float32
    np.testing.assert_allclose(table[:T], expected[:T], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(table, expected, atol=1e-3)
    x, layer = some("x", "BTD"), PositionalEncoding(D, kind, first_position=2)
    np.testing.assert_allclose(layer(x), x + reference.sinusoids(T, D, kind, first=2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_knows_positions_past_256(policy):
    layer = PositionalEncoding(D, dtype=policy)
    rounding = 2**-9 if policy == "mixed_bfloat16" else 2**-12
    encoding = tf.cast(layer(tf.zeros((1, LONG, D), layer.compute_dtype)), "float32")[0]
    np.testing.assert_allclose(encoding, reference.sinusoids(LONG, D), atol=rounding + 1e-3)
    at = tf.cast(layer.at(tf.zeros((1, 1, D), layer.compute_dtype), LONG - 1), "float32")[0, 0]
    np.testing.assert_array_equal(at, encoding[-1])


def learned_positions():
    layer = LearnedPositions(5, d_model=D)
    layer.build((None, None, D))
    return reference.randomise(layer)


@pytest.mark.parametrize("make", [lambda: PositionalEncoding(D, first_position=2), learned_positions, NoPositions])
def test_one_position_at_a_time_is_all_positions_at_once(make):
    layer, x = make(), some("x", "BTD")
    steps = [layer.at(x[:, t : t + 1], tf.constant(t)) for t in range(T)]
    np.testing.assert_allclose(tf.concat(steps, axis=1), layer(x), rtol=1e-6, atol=1e-6)


def test_dropout_falls_on_the_sum():
    layer = PositionalEncoding(D, dropout_rate=0.5)
    y = np.asarray(layer(10.0 + 0.0 * some("x", "BTD"), training=True))
    assert 0.3 < np.mean(y == 0) < 0.7
    expected = np.broadcast_to(2.0 * (10.0 + reference.sinusoids(T, D)), y.shape)
    np.testing.assert_allclose(y[y != 0], expected[y != 0], rtol=1e-5)
