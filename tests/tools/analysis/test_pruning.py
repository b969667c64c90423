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
    return {
        "source_ids": rng.integers(4, tiny.VOCABULARY, (B, S)).astype(np.int32),
        "target_ids": rng.integers(4, tiny.VOCABULARY, (B, T)).astype(np.int32),
    }


def make_pair(**arguments):
    """A model, and the same without `GONE`. Rotary positions need an even width of keys."""
    model = tiny.transformer(num_layers=N, d_key=14, d_value=11, **arguments)
    return model, prune(model, GONE)


@pytest.fixture(scope="module")
def pair():
    return make_pair()


@pytest.mark.parametrize(
    ("positions", "pre_norm", "attention_bias"),
    [
        ("relative", True, False),
        ("rotary", False, True),
        pytest.param("sinusoidal", True, True, marks=pytest.mark.slow),
        pytest.param("learned", False, False, marks=pytest.mark.slow),
    ],
)
def test_a_pruned_model_computes_what_the_model_with_silent_heads_computes(positions, pre_norm, attention_bias):
    model, smaller = make_pair(positions=positions, pre_norm=pre_norm, attention_bias=attention_bias)
    with silenced(model, GONE):
        expected = np.asarray(model(inputs()))
    np.testing.assert_allclose(smaller(inputs()), expected, rtol=1e-4, atol=1e-4)
    assert smaller.heads == "1,2/0,2/0,1" and count_heads(smaller) == HEADS - GONE.sum()


def test_its_matrices_are_smaller(pair):
    model, smaller = pair
    of_a_head = 2 * model.d_model * (14 + 11)
    assert model.count_params() - smaller.count_params() == GONE.sum() * of_a_head
    kernels = [a.sublayer.output_projection.kernel.shape for a in attentions_of(smaller)]
    assert kernels == [(11 * heads, model.d_model) for heads in (1, 2, 2, 1)]


def test_a_pruned_model_can_be_saved_and_loaded(pair, tmp_path):
    _, smaller = pair
    smaller.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs()), smaller(inputs()))


def test_a_pruned_model_can_be_pruned_again(pair):
    model, smaller = pair
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


def test_the_least_important_heads_go_but_one_of_the_last_attention_to_memory():
    model = tiny.transformer()
    chosen = to_prune(model, [0.5, 0.6, 0.7, 0.8, 0.1, 0.2], 3)
    assert np.flatnonzero(chosen).tolist() == [0, 1, 4]
    assert np.flatnonzero(to_prune(model, [5, 4, 3, 2, 1, 1], 5)).tolist() == [0, 1, 2, 3, 5]


def test_a_curve_has_a_model_of_every_size():
    class Echo:
        """Stands for a translator: says how many heads its model has."""

        def __init__(self, model, batch_size=3):
            self.model, self.batch_size = model, batch_size

        def with_model(self, model, batch_size):
            return Echo(model, batch_size)

        def translate(self, texts):
            return [str(count_heads(self.model))] * len(texts)

    done = []
    rows = pruned_curve(
        Echo(tiny.transformer()), ["a", "b"], ["x", "y"], lambda a, b: float(a[0]), np.arange(6), [0, 1, 3], done.append
    )
    assert [(count, score, model.heads) for count, score, _, model in rows] == [
        (0, 6, "2/2/2"),
        (1, 5, "1/2/2"),
        (3, 3, "0/1/2"),
    ]
    assert all(speed > 0 for _, _, speed, _ in rows) and done == [1, 1, 1]
