import numpy as np
import pytest

from keras_transformer.errors import UserError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tools.analysis.gates import attentions_of, count_heads, silenced
from keras_transformer.tools.analysis.pruning import prune, pruned_curve, to_prune
from tests import tiny

H, N, B, S, T = 2, 2, 3, 7, 5
HEADS = 3 * N * H
GONE = np.isin(np.arange(HEADS), [0, 4, 5, 8, 9, 11])  # all of a self-attention, and of an attention to memory


def inputs():
    rng = np.random.default_rng(2)
    sizes = {"source_ids": (B, S), "target_ids": (B, T)}
    return {name: rng.integers(4, tiny.VOCABULARY, size).astype(np.int32) for name, size in sizes.items()}


VARIANTS = [{"positions": "relative", "pre_norm": True}, {"positions": "rotary", "attention_bias": True}]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_pruned_model_computes_what_the_model_with_silent_heads_computes_and_can_be_pruned_again(variant, tmp_path):
    model = tiny.transformer(num_layers=N, d_key=14, d_value=11, **variant)  # rotary positions need an even d_key
    smaller = prune(model, GONE)
    with silenced(model, GONE):
        expected = np.asarray(model(inputs()))
    np.testing.assert_allclose(smaller(inputs()), expected, rtol=1e-4, atol=1e-4)
    assert smaller.heads == "1,2/0,2/0,1" and count_heads(smaller) == HEADS - GONE.sum()
    kernels = [a.sublayer.output_projection.kernel.shape for a in attentions_of(smaller)]
    assert kernels == [(11 * heads, model.d_model) for heads in (1, 2, 2, 1)]
    if "attention_bias" in variant:
        return
    assert model.count_params() - smaller.count_params() == GONE.sum() * 2 * model.d_model * (14 + 11)
    smaller.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs()), smaller(inputs()))
    rest = np.flatnonzero(~GONE)  # the heads of the model that the smaller one has
    again = prune(smaller, rest == 1)
    with silenced(model, GONE | (np.arange(HEADS) == 1)):
        np.testing.assert_allclose(again(inputs()), model(inputs()), rtol=1e-4, atol=1e-4)
    assert again.heads == "0,2/0,2/0,1"


def test_what_cannot_be_pruned_is_refused():
    with pytest.raises(UserError, match="the last attention to memory needs a head. Received: 2 heads"):
        prune(tiny.transformer(), np.arange(6) > 3)
    with pytest.raises(UserError, match="heads that share their keys and values"):
        prune(tiny.transformer(num_key_value_heads=1), np.zeros(6, bool))


def test_a_curve_has_a_model_of_every_size():
    class Echo:
        """Stands for a translator: says how many heads its model has."""

        def __init__(self, model, batch_size=3):
            self.model, self.batch_size = model, batch_size

        def with_model(self, model, batch_size):
            return Echo(model, batch_size)

        def translate(self, texts):
            return [str(count_heads(self.model))] * len(texts)

    done, model = [], tiny.transformer()
    corpus = ["a", "b"], ["x", "y"], lambda a, b: float(a[0])
    rows = pruned_curve(Echo(model), *corpus, np.arange(6), [0, 1, 3], done.append)
    found = [(count, score, model.heads) for count, score, _, model in rows]
    assert found == [(0, 6, "2/2/2"), (1, 5, "1/2/2"), (3, 3, "0/1/2")]
    assert all(speed > 0 for _, _, speed, _ in rows) and done == [1, 1, 1]
    # One head of the last attention to memory stays.
    assert np.flatnonzero(to_prune(model, [0.5, 0.6, 0.7, 0.8, 0.1, 0.2], 3)).tolist() == [0, 1, 4]
    assert np.flatnonzero(to_prune(model, [5, 4, 3, 2, 1, 1], 5)).tolist() == [0, 1, 2, 3, 5]
