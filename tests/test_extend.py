"""What docs/extend.md promises: a new kind of positions and a new model are one row each. (A new preset, setting and
optimizer: tests/test_presets.py. A new kind of corpus: tests/data/test_corpora.py.)
"""

import keras
import numpy as np

from keras_transformer import models
from keras_transformer.layers import stacks
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.embedding import AddedPositions, sinusoids
from keras_transformer.models.transformer import Transformer
from keras_transformer.training import train
from tests import tiny


@keras.saving.register_keras_serializable(package="tests")
class Twice(AddedPositions):
    """Sinusoids of twice the size."""

    def encode(self, positions):
        return 2 * sinusoids(positions, self.d_model, "sinusoidal")


def test_a_new_kind_of_positions_is_a_row(monkeypatch):
    monkeypatch.setitem(stacks.POSITIONS, "twice", (Twice, MultiHeadAttention))
    sizes = {"vocabulary_size": 37, "d_model": 26, "num_heads": 2, "d_ff": 17, "num_layers": 1}
    model, usual = (Transformer(**sizes, positions=kind) for kind in ("twice", "sinusoidal"))
    usual.set_weights(model.get_weights())
    ids = {"source_ids": np.array([[5, 7, 11]]), "target_ids": np.array([[2, 13]])}
    assert np.abs(model(ids) - usual(ids)).max() > 0.01
    again = Transformer.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(model(ids), again(ids))


class Second(Transformer):
    """Another model of the same arguments."""

    architectures = ("second",)


def test_a_new_model_is_a_row(monkeypatch):
    monkeypatch.setattr(train, "MODELS", (*models.MODELS, Second))
    config = tiny.config("none", "none")
    object.__setattr__(config, "architecture", "second")  # a value of the setting, which cannot be added at run time
    data = type("Data", (), {"source_tokenizer": tiny.tokenizer()})
    network = train.make_network(config, data, "float32")
    assert isinstance(network, Second) and network.d_model == config.d_model and network.name == "second"
