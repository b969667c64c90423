import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.recurrent.cells import CELLS, GRUCell, LSTMCell, SimpleCell, run
from tests import reference
from tests.layers.contract import B, D, T, some
from tests.reference import randomise, weights_of

U = 23
KINDS = pytest.mark.parametrize("kind", CELLS)


def cell_of(kind, **kwargs):
    cell = CELLS[kind](U, **kwargs)
    cell.build((None, D))
    return randomise(cell, seed=7)


def random_state(cell, batch=B):
    rng = np.random.default_rng(3)
    return tuple(tf.constant(0.5 * rng.normal(size=(batch, U)), "float32") for _ in range(cell.tensors))


@KINDS
def test_a_cell_is_its_equations(kind):
    cell, x = cell_of(kind), some("x", "BTD")
    state = random_state(cell)
    states = run(cell, x, state)
    for row in range(B):
        start = tuple(tensor.numpy()[row].astype("float64") for tensor in state)
        h, last = reference.recurrence(kind, weights_of(cell), x.numpy()[row], start)
        np.testing.assert_allclose(states[0][row], h, atol=1e-5)
        for found, expected in zip(states, last, strict=True):
            np.testing.assert_allclose(found[row, -1], expected, atol=1e-5)


def keras_weights(cell):
    """The weights of a cell as Keras lays them out."""
    kernel, bias = np.array(cell.input_map.kernel), np.array(cell.input_map.bias)
    recurrent = np.array(cell.recurrent_kernel)
    if isinstance(cell, GRUCell):
        recurrent = np.concatenate([recurrent, cell.candidate_kernel], axis=1)
        for array in (kernel, recurrent, bias):
            array[..., :U] *= -1  # Keras has h' = z * h + (1 - z) * h~, and 1 - sigmoid(x) is sigmoid(-x)
    return [kernel, recurrent, bias]


@pytest.mark.parametrize(
    ("kind", "arguments", "keras_cell"),
    [
        ("rnn", {}, keras.layers.SimpleRNNCell(U)),
        ("rnn", {"activation": "sigmoid"}, keras.layers.SimpleRNNCell(U, activation="sigmoid")),
        ("lstm", {}, keras.layers.LSTMCell(U)),
        ("gru", {}, keras.layers.GRUCell(U, reset_after=False)),
    ],
)
def test_a_cell_is_that_of_keras_with_the_same_weights(kind, arguments, keras_cell):
    cell, x = cell_of(kind, **arguments), some("x", "BTD")
    state = random_state(cell)
    layer = keras.layers.RNN(keras_cell, return_sequences=True)
    layer.build((None, None, D))
    layer.set_weights(keras_weights(cell))
    np.testing.assert_allclose(run(cell, x, state)[0], layer(x, initial_state=list(state)), atol=1e-5)


@KINDS
def test_gradients_are_those_of_keras(kind):
    """Of a loop, its gradient is the part that is easy to get wrong."""
    cell, x = cell_of(kind), some("x", "BTD")
    step = {"rnn": keras.layers.SimpleRNNCell, "lstm": keras.layers.LSTMCell, "gru": keras.layers.GRUCell}[kind]
    layer = keras.layers.RNN(step(U, **({"reset_after": False} if kind == "gru" else {})), return_sequences=True)
    layer.build((None, None, D))
    layer.set_weights(keras_weights(cell))
    state, gradients = random_state(cell), []
    for outputs in (lambda: run(cell, x, state)[0], lambda: layer(x, initial_state=list(state))):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(outputs()[:, -1] ** 2)
        gradients.append(tape.gradient(loss, x))
    np.testing.assert_allclose(*gradients, atol=1e-5)


@KINDS
def test_a_new_cell_keeps_the_length_of_its_state(kind):
    cell = CELLS[kind](U)
    cell.build((None, D))
    for matrix in [weight for weight in cell.weights if "recurrent" in weight.path or "candidate" in weight.path]:
        rows = np.array(matrix)
        np.testing.assert_allclose(rows @ rows.T, np.eye(U), atol=1e-5)


def test_a_new_lstm_remembers_and_other_biases_are_zero():
    cell = LSTMCell(U)
    cell.build((None, D))
    np.testing.assert_array_equal(cell.input_map.bias, np.repeat([0.0, 1.0, 0.0, 0.0], U))
    for other in (SimpleCell(U), GRUCell(U)):
        other.build((None, D))
        assert not np.any(other.input_map.bias)


@KINDS
def test_the_config_of_a_cell_makes_the_same_cell_again(kind):
    cell = CELLS[kind](U, dtype="mixed_bfloat16", name="some")
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cell))
    assert type(twin) is type(cell) and twin.get_config() == cell.get_config()
    for each in (cell, twin):
        each.build((None, D))
    assert [(w.path, w.shape) for w in twin.weights] == [(w.path, w.shape) for w in cell.weights]


@KINDS
def test_half_precision_computes_in_half_and_keeps_weights_in_float32(kind):
    cell, half = cell_of(kind), cell_of(kind, dtype="mixed_bfloat16")
    x = some("x", "BTD")
    states = run(half, tf.cast(x, "bfloat16"), half.zero_state(B))
    assert {tensor.dtype.name for tensor in states} == {"bfloat16"}
    assert {weight.dtype for weight in half.weights} == {"float32"}
    np.testing.assert_allclose(tf.cast(states[0], "float32"), run(cell, x, cell.zero_state(B))[0], atol=0.1)


@KINDS
def test_it_runs_over_batches_and_lengths_that_the_graph_does_not_know(kind):
    cell, x = cell_of(kind), some("x", "BTD")
    graph = tf.function(
        lambda x: run(cell, x, cell.zero_state(tf.shape(x)[0])), input_signature=[tf.TensorSpec((None, None, D))]
    )
    for part in (x, x[:2, : T - 3]):
        for found, expected in zip(graph(part), run(cell, part, cell.zero_state(len(part))), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)
