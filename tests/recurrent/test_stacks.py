import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.recurrent.attention import SCORES, FixedContext, RecurrentAttention
from keras_transformer.recurrent.cells import CELLS
from keras_transformer.recurrent.stacks import RecurrentDecoder, RecurrentEncoder
from tests import reference
from tests.layers.contract import D, S, some
from tests.reference import randomise, weights_of

LENGTHS = [11, 7, 5, 3, 1]
LAYERS, WINDOW = 2, 2
TENSORS = {"rnn": 1, "lstm": 2, "gru": 1}
SHARED = {"cell": "lstm", "d_model": D, "num_layers": 3, "dropout_rate": 0.3}


def made(layer_class, kind, **arguments):
    layer = layer_class(cell=kind, d_model=D, **{"num_layers": LAYERS, "dropout_rate": 0.3, **arguments})
    layer.build((None, None, D))
    return randomise(layer)


@pytest.mark.parametrize("kind", TENSORS)
def test_the_encoder_is_two_recurrences_for_each_layer(kind):
    layer, x = made(RecurrentEncoder, kind), some("x", "BSD")
    memory = layer(x, tf.sequence_mask(LENGTHS, S))
    for row, length in enumerate(LENGTHS):
        states, last = reference.recurrent_encoder(
            kind, weights_of(layer), x.numpy()[row, :length], LAYERS, TENSORS[kind]
        )
        np.testing.assert_allclose(memory["states"][row, :length], states, atol=1e-5)
        for found, expected in zip(memory["last"], last, strict=True):
            np.testing.assert_allclose([tensor[row] for tensor in found], expected, atol=1e-5)


def test_one_direction_is_one_recurrence_of_the_whole_width():
    layer, x = made(RecurrentEncoder, "gru", num_layers=1, bidirectional=False), some("x", "BSD")
    memory = layer(x, tf.sequence_mask(LENGTHS, S))
    for row, length in enumerate(LENGTHS):
        weights = reference.part(weights_of(layer), "forward_0")
        states, (last,) = reference.recurrence("gru", weights, x.numpy()[row, :length], (np.zeros(D),))
        np.testing.assert_allclose(memory["states"][row, :length], states, atol=1e-5)
        np.testing.assert_allclose(memory["last"][0][0][row], last, atol=1e-5)


@pytest.mark.parametrize(("kind", "input_feeding"), [("rnn", False), ("lstm", True), ("gru", True)])
def test_the_decoder_reads_attends_and_combines(kind, input_feeding):
    arguments = {"attention": "general", "attention_span": "local_p", "attention_window": WINDOW}
    reader, layer = made(RecurrentEncoder, kind), made(RecurrentDecoder, kind, input_feeding=input_feeding, **arguments)
    memory, x = reader(some("x", "BSD"), tf.sequence_mask(LENGTHS, S)), some("y", "BTD")
    found, alignment = layer.align(x, memory)
    np.testing.assert_allclose(layer(x, memory), found, atol=1e-6)
    for row, length in enumerate(LENGTHS):
        last = [tuple(tensor.numpy()[row] for tensor in state) for state in memory["last"]]
        states = memory["states"].numpy()[row, :length]
        outputs, weights = reference.recurrent_decoder(
            kind, weights_of(layer), x.numpy()[row], states, last, "general", "local_p", WINDOW, input_feeding
        )
        np.testing.assert_allclose(found[row], outputs, atol=1e-5)
        np.testing.assert_allclose(alignment[row, :, :length], weights, atol=1e-5)


def test_dropout_acts_in_training_only():
    reader, layer = made(RecurrentEncoder, "gru"), made(RecurrentDecoder, "gru")
    x, mask = some("x", "BSD"), tf.sequence_mask(LENGTHS, S)
    memory, dropped = reader(x, mask), reader(x, mask, training=True)["states"].numpy()
    assert 0.15 < np.mean(dropped == 0) < 0.45 and np.all(reader(x, mask)["states"] == memory["states"])
    assert 0.15 < np.mean(layer(some("y", "BTD"), memory, training=True) == 0) < 0.45


def test_two_directions_need_an_even_width():
    with pytest.raises(ValueError, match="`d_model` must be even: .* Received: d_model=7"):
        RecurrentEncoder(cell="gru", d_model=7)
    RecurrentEncoder(cell="gru", d_model=7, bidirectional=False)


OF_A_DECODER = {"attention": "dot", "attention_span": "local_m", "attention_window": 5, "context": "mean"}
OF_A_DECODER |= {"hard_attention": True, "input_feeding": True}


@pytest.mark.parametrize(
    "layer",
    [
        RecurrentEncoder(**SHARED, bidirectional=False, name="some", dtype="mixed_bfloat16"),
        RecurrentDecoder(**SHARED, **OF_A_DECODER, name="some"),
        *(cell(23, dtype="mixed_bfloat16", name="some") for cell in CELLS.values()),
        *(RecurrentAttention(D, score, "local_p", 3, True) for score in SCORES),
        FixedContext("mean"),
    ],
)
def test_the_config_makes_the_same_layer_again(layer):
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(twin) is type(layer) and twin.get_config() == layer.get_config()
    if isinstance(layer, RecurrentEncoder | RecurrentDecoder):
        for each in (layer, twin):
            each.build((None, None, D))
        assert [(w.path, w.shape) for w in twin.weights] == [(w.path, w.shape) for w in layer.weights]
