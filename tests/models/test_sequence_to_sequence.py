import dataclasses

import keras
import pytest

from keras_transformer.errors import ConfigError, UserError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.sequence_to_sequence import SequenceToSequence, load_model
from keras_transformer.models.transformer import Transformer
from tests import tiny


@dataclasses.dataclass(frozen=True)
class CountingShape:
    vocabulary_size: int
    extra: int = 3


class Counting(SequenceToSequence):
    """It reads nothing, and predicts by the target token alone."""

    shape_class = CountingShape

    def __init__(self, vocabulary_size, *, dtype=None, name=None, **numbers):
        policy = keras.dtype_policies.get(dtype or "float32")
        self.embedding = keras.layers.Embedding(vocabulary_size, 5, dtype=policy, name="embedding")
        self.product = keras.layers.Dense(vocabulary_size, dtype=policy, name="product")
        super().__init__(CountingShape(vocabulary_size, **numbers), policy=policy, name=name)

    def encode(self, source_ids):
        return {"mask": source_ids != 0}

    def decode(self, target_ids, memory):
        return self.embedding(target_ids)

    def logits(self, states):
        return self.product(states)


def test_a_missing_method_is_named_and_without_those_of_the_forward_pass_no_model_can_be_made():
    model, nothing = Counting(7), None
    for method, use in {
        "start": lambda: model.start(nothing, 1),
        "step": lambda: model.step(nothing, nothing, 0, nothing),
        "align": lambda: model.align(nothing, nothing),
        "output_matrix": lambda: model.output_matrix,
    }.items():
        with pytest.raises(AttributeError, match=f"Counting has no `{method}`: a SequenceToSequence must define it"):
            use()
    for method in ("encode", "decode", "logits"):
        lacking = type("Lacking", (Counting,), {method: getattr(SequenceToSequence, method)})
        with pytest.raises(AttributeError, match=f"Lacking has no `{method}`"):
            lacking(7)


def test_a_saved_model_is_loaded_without_its_compilation_and_a_file_that_is_damaged_or_not_there_is_named(tmp_path):
    model, path = tiny.transformer(), tmp_path / "model.keras"
    with pytest.raises(UserError, match=r"^cannot read a model from .*model\.keras: there is no such file$"):
        load_model(path)
    model.compile(optimizer="sgd", loss="mse")
    model.save(path)
    assert not load_model(path).compiled
    whole = path.read_bytes()
    message = r"^cannot read a model from .*model\.keras: the file is damaged \(.* train again with the same command"
    for content in (b"", b"no archive", *(whole[: int(share * len(whole))] for share in (0.1, 0.5, 0.99))):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message) as caught:
            load_model(path)
        assert "trust" not in str(caught.value)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (keras.layers.Dense(2), r"other\.keras holds a Sequential, not a SequenceToSequence$"),
        (keras.layers.Lambda(lambda x: x + 1), "it holds Python code, which is never run"),
        (type("Unknown", (keras.layers.Layer,), {})(), "the class Unknown is not known; import its module first"),
    ],
)
def test_another_keras_model_is_refused_and_its_code_is_never_offered_to_be_run(tmp_path, layer, message):
    path = tmp_path / "other.keras"
    keras.Sequential([keras.Input((3,)), layer]).save(path)
    with pytest.raises(UserError, match=message) as caught:
        load_model(path)
    assert "trust" not in str(caught.value)


def test_a_preset_gives_the_sizes_and_arguments_go_before_and_that_of_another_model_is_refused():
    model = Transformer.from_preset("tiny", vocabulary_size=19, num_layers=1)
    found = (model.vocabulary_size, model.d_model, model.d_ff, model.num_heads, model.num_layers, model.pre_norm)
    assert found == (19, 128, 256, 4, 1, True) and model.dropout_rate == 0.3
    model = RecurrentNetwork.from_preset("lstm", vocabulary_size=19, d_model=22)
    assert (model.cell, model.d_model, model.dropout_rate) == ("lstm", 22, 0.3)
    for model, preset in ((Transformer, "gru"), (RecurrentNetwork, "tiny")):
        with pytest.raises(ConfigError, match=f"the preset {preset} has the architecture"):
            model.from_preset(preset, vocabulary_size=11)
    with pytest.raises(ConfigError, match="unknown preset 'tyni'"):
        Transformer.from_preset("tyni")
