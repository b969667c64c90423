import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.embedding import (
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
from tests.layers.contract import B, D, LayerContract, S, T, V, W, some

LONG = 1031  # positions; bfloat16 cannot count past 256


class TestTokenEmbeddingContract(LayerContract):
    layer_class = TokenEmbedding
    arguments = {"vocabulary_size": V, "d_model": D}
    inputs = {"ids": "BT"}
    output = "BTD"
    weight_count = V * D


class TestPositionalEncodingContract(LayerContract):
    layer_class = PositionalEncoding
    arguments = {"d_model": D, "dropout_rate": 0.3}
    inputs = {"x": "BTD"}
    output = "BTD"
    weight_count = 0


class TestLearnedPositionsContract(TestPositionalEncodingContract):
    layer_class = LearnedPositions
    arguments = {"num_positions": S, "d_model": D, "dropout_rate": 0.3}
    weight_count = S * D


class TestNoPositionsContract(TestPositionalEncodingContract):
    layer_class = NoPositions
    arguments = {"dropout_rate": 0.3}


class TestSharedLogitsContract(LayerContract):
    layer_class = Logits
    config_keys = ["source"]
    inputs = {"states": "BTD"}
    output = "BTV"
    output_dtype = "float32"
    weight_count = V * D  # the embedding's, and none of its own
    source_class = TokenEmbedding

    def make(self, dtype=None, **kwargs):
        return Logits(self.source_class(V, D, name="source", dtype=dtype), dtype=dtype, **kwargs)


class TestUnsharedLogitsContract(TestSharedLogitsContract):
    source_class = OutputMatrix


def token_embedding(vocabulary_size=V, **kwargs):
    layer = TokenEmbedding(vocabulary_size, D, **kwargs)
    layer.build((None, None))
    return layer


def test_a_token_is_its_row_times_the_root_of_d_model():
    layer, ids = token_embedding(), some("ids", "BT")
    expected = layer.matrix.numpy()[np.asarray(ids)] * D**0.5
    np.testing.assert_allclose(layer(ids), expected, rtol=1e-6)


@pytest.mark.parametrize("layer_class", [TokenEmbedding, OutputMatrix])
def test_matrix_starts_normal_with_variance_one_over_d_model(layer_class):
    layer = layer_class(1009, D)
    layer.build()
    matrix = layer.matrix.numpy().astype("float64") * D**0.5  # should be N(0, 1)
    assert abs(matrix.mean()) < 5 / matrix.size**0.5
    assert abs(matrix.std() - 1) < 5 / (2 * matrix.size) ** 0.5
    assert np.mean(np.abs(matrix) < 1) == pytest.approx(0.6827, abs=0.02)  # normal, not uniform
    assert np.abs(matrix).max() > 3  # nor truncated


def test_output_matrix_is_made_again_from_its_config():
    layer = OutputMatrix(V, D, name="some", dtype="mixed_bfloat16")
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(twin) is OutputMatrix and twin.get_config() == layer.get_config()
    assert {"vocabulary_size": V, "d_model": D}.items() <= layer.get_config().items()


@pytest.mark.parametrize("source_class", [TokenEmbedding, OutputMatrix])
def test_logits_are_products_with_the_rows_of_their_source(source_class):
    layer, states = Logits(source_class(V, D)), some("states", "BTD")
    found = layer(states)
    expected = np.asarray(states, "float64") @ layer.source.matrix.numpy().astype("float64").T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_logits_and_embedding_learn_one_matrix():
    embedding = token_embedding()
    logits = Logits(embedding)
    before = np.asarray(logits(some("x", "BTD")))
    embedding.matrix.assign(2.0 * embedding.matrix)
    np.testing.assert_allclose(logits(some("x", "BTD")), 2.0 * before, rtol=1e-6)
    assert [id(w) for w in logits.weights] == [id(embedding.matrix)]


@pytest.mark.parametrize("axes", ["BD", "BTD", "BHTD"])
def test_logits_of_a_layout_made_once_are_products_with_the_matrix(axes):
    states, matrix = some("states", axes), some("matrix", "VD")
    columns = columns_of(matrix, "float32")
    assert columns.shape == (D, V)
    expected = np.asarray(states, "float64") @ np.asarray(matrix, "float64").T
    np.testing.assert_allclose(logits_of(states, columns), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_layout_is_in_the_compute_dtype_and_its_logits_are_float32(dtype):
    columns = columns_of(some("matrix", "VD"), dtype)
    assert columns.dtype == dtype
    assert logits_of(tf.cast(some("states", "BTD"), dtype), columns).dtype == "float32"


def test_sinusoids_of_the_paper():
    np.testing.assert_allclose(sinusoids(tf.range(T), D), reference.sinusoids(T, D), rtol=1e-5, atol=1e-6)


def test_sinusoids_of_far_positions():
    table = sinusoids(tf.range(LONG), D)
    assert table.dtype == tf.float32
    np.testing.assert_allclose(table, reference.sinusoids(LONG, D), atol=1e-3)


def test_positions_are_added():
    x = some("x", "BTD")
    expected = np.asarray(x) + reference.sinusoids(T, D)
    np.testing.assert_allclose(PositionalEncoding(D)(x), expected, rtol=1e-5, atol=1e-6)


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


def test_no_positions_add_nothing():
    x = some("x", "BTD")
    np.testing.assert_array_equal(NoPositions()(x), x)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_one_position_at_a_time_is_all_positions_at_once(kind, compiled):
    kinds = {"sinusoidal": lambda: PositionalEncoding(D), "learned": lambda: learned_positions(5), "none": NoPositions}
    layer, x = kinds[kind](), some("x", "BTD")
    at = tf.function(layer.at) if compiled else layer.at
    steps = [at(x[:, t : t + 1], tf.constant(t)) for t in range(T)]
    np.testing.assert_allclose(tf.concat(steps, axis=1), layer(x), rtol=1e-6, atol=1e-6)


def test_every_hypothesis_stands_at_the_same_position():
    x = tf.random.stateless_normal((B, W, D), (1, 2))
    encoding = np.asarray(PositionalEncoding(D).at(x, 5)) - np.asarray(x)
    np.testing.assert_allclose(encoding, np.broadcast_to(reference.sinusoids(T, D)[5], (B, W, D)), atol=1e-6)


def test_dropout_falls_on_the_sum():
    layer = PositionalEncoding(D, dropout_rate=0.5)
    y = np.asarray(layer(10.0 + 0.0 * some("x", "BTD"), training=True))
    assert 0.3 < np.mean(y == 0) < 0.7
    expected = np.broadcast_to(2.0 * (10.0 + reference.sinusoids(T, D)), y.shape)
    np.testing.assert_allclose(y[y != 0], expected[y != 0], rtol=1e-5)


def test_an_odd_d_model_is_refused():
    with pytest.raises(ValueError, match=r"`d_model` must be even.* Received: d_model=13$"):
        PositionalEncoding(13)


def test_no_implicit_mask_is_attached():
    assert not token_embedding().supports_masking
    assert getattr(token_embedding()(keras.Input((None,), dtype="int32")), "_keras_mask", None) is None
