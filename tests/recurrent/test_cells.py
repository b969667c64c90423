import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.recurrent.cells import CELLS, GRUCell, run
from tests.layers.contract import B, D, some
from tests.reference import randomise

U = 23


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
def test_a_cell_and_its_gradients_are_those_of_keras_with_the_same_weights(kind, arguments, keras_cell):
    cell, x, rng = CELLS[kind](U, **arguments), some("x", "BTD"), np.random.default_rng(3)
    cell.build((None, D))
    randomise(cell, seed=7)
    state = tuple(tf.constant(0.5 * rng.normal(size=(B, U)), "float32") for _ in range(cell.tensors))
    layer = keras.layers.RNN(keras_cell, return_sequences=True)
    layer.build((None, None, D))
    layer.set_weights(keras_weights(cell))
    found, gradients = [], []
    for outputs in (lambda: run(cell, x, state)[0], lambda: layer(x, initial_state=list(state))):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found.append(outputs())
            loss = tf.reduce_sum(found[-1][:, -1] ** 2)
        gradients.append(tape.gradient(loss, x))
    np.testing.assert_allclose(*found, atol=1e-5)
    np.testing.assert_allclose(*gradients, atol=1e-5)


@pytest.mark.parametrize("kind", CELLS)
def test_a_new_cell_keeps_the_length_of_its_state_and_a_new_lstm_remembers(kind):
    cell = CELLS[kind](U)
    cell.build((None, D))
    for matrix in [weight for weight in cell.weights if "recurrent" in weight.path or "candidate" in weight.path]:
        rows = np.array(matrix)
        np.testing.assert_allclose(rows @ rows.T, np.eye(U), atol=1e-5)
    bias = np.array(cell.input_map.bias)
    np.testing.assert_array_equal(bias, np.repeat([0.0, 1.0, 0.0, 0.0], U) if kind == "lstm" else 0 * bias)
