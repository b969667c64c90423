import dataclasses

import keras
import numpy as np
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


def test_a_subclass_is_connected_by_its_methods():
    model = Counting(7)
    source_ids, target_ids = np.array([[3, 4, 0]]), np.array([[2, 5]])
    expected = model.logits(model.decode(target_ids, model.encode(source_ids)))
    np.testing.assert_array_equal(model({"source_ids": source_ids, "target_ids": target_ids}), expected)
    assert model.output.shape == (None, None, 7)


def test_config_holds_the_arguments_of_the_subclass_and_the_policy_and_the_name():
    config = Counting(7, dtype="mixed_bfloat16", name="some").get_config()
    assert keras.dtype_policies.get(config.pop("dtype")).name == "mixed_bfloat16"
    assert config == {"vocabulary_size": 7, "extra": 3, "name": "some"}


def test_the_policy_of_the_model_is_that_of_its_layers():
    assert Counting(7, dtype="mixed_bfloat16").dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("method", "arguments"), [("start", (None, 1)), ("step", (None, None, 0, None)), ("align", (None, None))]
)
def test_a_missing_method_is_named(method, arguments):
    with pytest.raises(AttributeError, match=f"Counting has no `{method}`: a SequenceToSequence must define it"):
        getattr(Counting(7), method)(*arguments)


def test_a_missing_output_matrix_is_named():
    with pytest.raises(AttributeError, match="Counting has no `output_matrix`"):
        Counting(7).output_matrix  # noqa: B018


@pytest.mark.parametrize("method", ["encode", "decode", "logits"])
def test_without_the_methods_of_the_forward_pass_no_model_can_be_made(method):
    lacking = type("Lacking", (Counting,), {method: getattr(SequenceToSequence, method)})
    with pytest.raises(AttributeError, match=f"Lacking has no `{method}`"):
        lacking(7)


def test_a_saved_model_is_loaded_without_its_compilation(tmp_path):
    model = tiny.transformer()
    model.compile(optimizer="sgd", loss="mse")
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and not loaded.compiled
    for one, other in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_keras_model_is_refused_by_its_name(tmp_path):
    path = tmp_path / "other.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(path)
    with pytest.raises(UserError, match=r"other\.keras holds a Sequential, not a SequenceToSequence$"):
        load_model(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut short"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "broken.keras"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"^cannot read a model from .*broken\.keras: the file is damaged \("):
        load_model(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"^cannot read a model from .*absent\.keras: there is no such file$"):
        load_model(tmp_path / "absent.keras")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_damaged(tmp_path, share):
    path = tmp_path / "model.keras"
    tiny.transformer().save(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match="the file is damaged .* train again with the same command") as caught:
        load_model(path)
    assert "trust" not in str(caught.value)


def test_code_in_a_file_is_never_offered_to_be_run(tmp_path):
    path = tmp_path / "lambda.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x + 1)]).save(path)
    with pytest.raises(UserError, match="it holds Python code, which is never run") as caught:
        load_model(path)
    assert "trust" not in str(caught.value)


def test_a_class_that_is_not_imported_is_named(tmp_path):
    path = tmp_path / "unknown.keras"
    keras.Sequential([keras.Input((3,)), type("Unknown", (keras.layers.Layer,), {})()]).save(path)
    with pytest.raises(UserError, match="the class Unknown is not known; import its module first"):
        load_model(path)


@pytest.mark.parametrize(("model", "preset"), [(Transformer, "gru"), (RecurrentNetwork, "tiny")])
def test_a_preset_of_another_model_is_refused(model, preset):
    with pytest.raises(ConfigError, match=f"the preset {preset} has the architecture"):
        model.from_preset(preset, vocabulary_size=11)
