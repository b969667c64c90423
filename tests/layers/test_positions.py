import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.embedding import SINUSOIDAL, LearnedPositions, NoPositions, PositionalEncoding, sinusoids
from tests import reference
from tests.layers.contract import NORM_WEIGHTS, B, D, LayerContract, S, T, W, some

LONG = 1031  # positions; bfloat16 cannot count past 256
SUM = {"dropout_rate": 0.3, "norm": True, "layer_norm_epsilon": 1e-3}


class TestPositionalEncodingContract(LayerContract):
    layer_class = PositionalEncoding
    arguments = {"d_model": D, "kind": "sinusoidal_tensor2tensor", "first_position": 2, **SUM}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = NORM_WEIGHTS


class TestLearnedPositionsContract(TestPositionalEncodingContract):
    layer_class = LearnedPositions
    arguments = {"num_positions": S, "d_model": D, "scale": False, **SUM}
    weight_count = S * D + NORM_WEIGHTS


class TestNoPositionsContract(TestPositionalEncodingContract):
    layer_class = NoPositions
    arguments = SUM


KINDS = pytest.mark.parametrize("kind", SINUSOIDAL)


@KINDS
def test_sinusoids_of_near_and_far_positions(kind):
    table, expected = sinusoids(tf.range(LONG), D, kind), reference.sinusoids(LONG, D, kind)
    assert table.dtype == tf.float32
    np.testing.assert_allclose(table[:T], expected[:T], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(table, expected, atol=1e-3)


@KINDS
def test_the_first_position_has_its_number(kind):
    x, layer = some("x", "BTD"), PositionalEncoding(D, kind, first_position=2)
    expected = np.asarray(x) + reference.sinusoids(T, D, kind, first=2)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.at(x[:, :1], tf.constant(3)), x[:, :1] + expected[:, 3:4] - x[:, 3:4], atol=1e-5)


def test_sinusoids_of_other_programs():
    """As Hugging Face writes them: sin(angles[:, 0::2]), then cos(angles[:, 1::2]). Tensor2tensor ends at 10000."""
    paper, halves = (sinusoids(tf.range(T), D, kind).numpy() for kind in SINUSOIDAL[:2])
    np.testing.assert_array_equal(halves, np.concatenate([paper[:, 0::2], paper[:, 1::2]], axis=1))
    row = sinusoids(tf.constant([7]), D, "sinusoidal_tensor2tensor").numpy()[0]
    assert row[0] == pytest.approx(np.sin(7)) and row[D // 2] == pytest.approx(np.cos(7))
    assert row[D // 2 - 1] == pytest.approx(np.sin(7 / 10000), rel=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_knows_positions_past_256(policy):
    layer = PositionalEncoding(D, dtype=policy)
    rounding = 2**-9 if policy == "mixed_bfloat16" else 2**-12
    encoding = tf.cast(layer(tf.zeros((1, LONG, D), layer.compute_dtype)), "float32")[0]
    np.testing.assert_allclose(encoding, reference.sinusoids(LONG, D), atol=rounding + 1e-3)
    at = tf.cast(layer.at(tf.zeros((1, 1, D), layer.compute_dtype), LONG - 1), "float32")[0, 0]
    np.testing.assert_array_equal(at, encoding[-1])


def learned_positions(num_positions, **kwargs):
    layer = LearnedPositions(num_positions, d_model=D, **kwargs)
    layer.build((None, None, D))
    return reference.randomise(layer)


def test_learned_positions_are_added_and_past_their_end_the_last_row_is():
    layer, x = learned_positions(5), some("x", "BTD")
    rows = D**0.5 * layer.table.numpy()[[0, 1, 2, 3, 4, 4, 4]]
    np.testing.assert_allclose(layer(x), np.asarray(x) + rows, rtol=1e-5, atol=1e-6)
    at = layer.at(tf.zeros((B, W, D)), LONG)
    np.testing.assert_allclose(at, np.broadcast_to(rows[-1], (B, W, D)), rtol=1e-6)


def test_learned_positions_start_with_variance_one():
    layer = LearnedPositions(1009, d_model=D)
    layer.build((None, None, D))
    rows = layer.encode(tf.range(1009)).numpy()
    assert abs(rows.std() - 1) < 5 / (2 * rows.size) ** 0.5 and abs(rows.mean()) < 5 / rows.size**0.5


@pytest.mark.parametrize("make", [lambda: PositionalEncoding(D), lambda: learned_positions(5), NoPositions])
def test_one_position_at_a_time_is_all_positions_at_once(make):
    layer, x = make(), some("x", "BTD")
    at = tf.function(layer.at)
    steps = [at(x[:, t : t + 1], tf.constant(t)) for t in range(T)]
    np.testing.assert_allclose(tf.concat(steps, axis=1), layer(x), rtol=1e-6, atol=1e-6)


def test_dropout_falls_on_the_sum():
    layer = PositionalEncoding(D, dropout_rate=0.5)
    y = np.asarray(layer(10.0 + 0.0 * some("x", "BTD"), training=True))
    assert 0.3 < np.mean(y == 0) < 0.7
    expected = np.broadcast_to(2.0 * (10.0 + reference.sinusoids(T, D)), y.shape)
    np.testing.assert_allclose(y[y != 0], expected[y != 0], rtol=1e-5)


def test_tensor2tensor_has_no_timescales_for_one_pair():
    with pytest.raises(ValueError, match=r"`d_model` must be at least 4 .* Received: 2$"):
        PositionalEncoding(2, "sinusoidal_tensor2tensor")
