import random

import keras
import numpy as np
import pytest

from keras_transformer.models.recurrent import RecurrentNetwork, select
from keras_transformer.models.sequence_to_sequence import load_model
from tests.models.contract import ModelContract


class RecurrentContract(ModelContract):
    arguments = {}

    def make(self, **kwargs):
        arguments = {"vocabulary_size": self.source_size, "d_model": 22, "attention_window": 2, **self.arguments}
        return RecurrentNetwork(**arguments, **kwargs)


class TestGruWithAdditiveAttention(RecurrentContract):
    pass


@pytest.mark.slow
class TestTwoLayersOfLstmWithInputFeeding(RecurrentContract):
    source_size, target_size = 19, 23
    arguments = {
        "target_vocabulary_size": 23,
        "tie_embeddings": False,
        "cell": "lstm",
        "num_layers": 2,
        "attention": "general",
        "attention_span": "local_m",
        "input_feeding": True,
    }


@pytest.mark.slow
class TestSimpleNetworkWithoutAttention(RecurrentContract):
    arguments = {"cell": "rnn", "attention": "none", "bidirectional": False}


@pytest.mark.slow
class TestHardAttentionToAPredictedSpan(RecurrentContract):
    arguments = {"attention": "concat", "attention_span": "local_p", "hard_attention": True}


def test_keras_trains_saves_and_loads_it(tmp_path):
    random.seed(1)  # Keras draws initial weights from it
    model = RecurrentNetwork(vocabulary_size=19, cell="rnn", d_model=22, attention="dot", dropout_rate=0.0)
    ids = np.random.default_rng(1).integers(4, 19, (29, 5))
    inputs = {"source_ids": ids, "target_ids": np.pad(ids, ((0, 0), (1, 0)), constant_values=2)[:, :-1]}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)  # XLA would take most of the time
    losses = model.fit(inputs, ids, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs), model(inputs))


def test_a_preset_gives_its_cell():
    model = RecurrentNetwork.from_preset("lstm", vocabulary_size=19, d_model=22)
    assert (model.cell, model.d_model, model.dropout_rate) == ("lstm", 22, 0.3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cell": "rnm"}, "`cell` must be one of rnn, lstm, gru. Received: cell='rnm'"),
        ({"attention": "mul"}, "`attention` must be one of dot, general, additive, concat, none. Received: .*'mul'"),
        ({"attention_span": "local"}, "`span` must be one of global, local_m, local_p. Received: span='local'"),
        ({"attention": "none", "context": "first"}, "`kind` must be one of last, mean. Received: kind='first'"),
    ],
)
def test_an_argument_that_is_none_of_the_choices_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        RecurrentNetwork(vocabulary_size=19, d_model=22, **wrong)


def test_hypotheses_are_gathered_by_their_parents():
    h, parents = np.arange(2 * 3 * 5).reshape(2, 3, 5), np.array([[2, 2, 0], [1, 0, 1]])
    ((found,),) = select(((h,),), parents)
    np.testing.assert_array_equal(found, [[h[row, w] for w in parents[row]] for row in range(2)])
