import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tools.analysis.gates import attentions_of, count_heads, divide_by_attention, gated, silenced
from keras_transformer.tools.analysis.pruning import prune, to_prune
from keras_transformer.tools.analysis.silencing import curve, least_important, losses
from tests import tiny

B, S, T, H, N = 3, 7, 5, 2, 2
ATTENTIONS, HEADS = 3 * N, 3 * N * H


@pytest.fixture(scope="module")
def model():
    """One for all tests: each leaves it as it was, which is a promise of the contexts."""
    return tiny.transformer(num_layers=N)


def inputs():
    rng = np.random.default_rng(2)
    source_ids, target_ids = rng.integers(4, tiny.VOCABULARY, (B, S)), rng.integers(4, tiny.VOCABULARY, (B, T))
    source_ids[1, 4:] = 0
    return {"source_ids": source_ids.astype(np.int32), "target_ids": target_ids.astype(np.int32)}


def logits(model):
    x = inputs()
    return np.asarray(model.logits(model.decode(x["target_ids"], model.encode(x["source_ids"]))))


def ones():
    return [tf.ones([B, H])] * ATTENTIONS


def test_gates_of_1_change_nothing_and_note_the_weights(model):
    expected = logits(model)
    with gated(attentions_of(model), ones()) as weights:
        np.testing.assert_array_equal(logits(model), expected)
    found = [(a.kind, a.layer, a.num_heads, *w.shape) for a, w in zip(attentions_of(model), weights, strict=True)]
    kinds = {"encoder": (S, S), "decoder": (T, T), "cross": (T, S)}
    assert found == [(kind, layer, H, B, H, *sizes) for kind, sizes in kinds.items() for layer in range(N)]
    assert count_heads(model) == HEADS
    for w in weights:
        np.testing.assert_allclose(np.sum(w, axis=-1), 1, rtol=1e-5)
    # After the context, the layers are as they were, even after an error.
    with pytest.raises(ZeroDivisionError), gated(attentions_of(model), [tf.zeros([B, H])] * ATTENTIONS):
        raise ZeroDivisionError
    assert not any("weigh" in vars(a.sublayer) for a in attentions_of(model))
    np.testing.assert_array_equal(logits(model), expected)


def test_a_gate_of_0_for_all_sentences_is_a_silent_head_and_a_gate_is_of_its_sentence_alone(model):
    before, gates = logits(model), ones()
    for head in (0, 5, HEADS - 1):  # of the encoder, of the decoder and to memory
        silent = np.arange(HEADS) == head
        of_each = divide_by_attention(model, 1 - silent.astype(float))
        with gated(attentions_of(model), [tf.constant(np.tile(of_one, (B, 1)), tf.float32) for of_one in of_each]):
            expected = logits(model)
        with silenced(model, silent):
            np.testing.assert_allclose(logits(model), expected, rtol=1e-4, atol=1e-5)
        assert np.abs(expected - before).max() > 1e-3
    gates[2] = tf.constant([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    with gated(attentions_of(model), gates):
        changed = np.abs(logits(model) - before).max(axis=(1, 2))
    assert changed[1] > 1e-3 and changed[[0, 2]].tolist() == [0, 0]


def test_graphs_that_were_made_before_see_that_a_head_is_silent_and_speaks_again_even_after_an_error(model):
    graph = tf.function(lambda: model(inputs()), autograph=False)
    before = graph().numpy()
    with pytest.raises(ZeroDivisionError), silenced(model, np.arange(HEADS) == 1):
        assert np.abs(graph().numpy() - before).max() > 1e-3
        raise ZeroDivisionError
    np.testing.assert_array_equal(graph().numpy(), before)


GONE = np.isin(np.arange(HEADS), [0, 4, 5, 8, 9, 11])  # all of a self-attention, and of an attention to memory


def test_a_pruned_model_computes_what_the_model_with_silent_heads_computes_and_can_be_pruned_again(tmp_path):
    variant = {"positions": "relative", "pre_norm": True, "attention_bias": True}
    model = tiny.transformer(num_layers=N, d_key=14, d_value=11, **variant)
    smaller = prune(model, GONE)
    with silenced(model, GONE):
        expected = np.asarray(model(inputs()))
    np.testing.assert_allclose(smaller(inputs()), expected, rtol=1e-4, atol=1e-4)
    assert smaller.heads == "1,2/0,2/0,1" and count_heads(smaller) == HEADS - GONE.sum()
    kernels = [a.sublayer.output_projection.kernel.shape for a in attentions_of(smaller)]
    assert kernels == [(11 * heads, model.d_model) for heads in (1, 2, 2, 1)]
    smaller.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(inputs()), smaller(inputs()))
    rest = np.flatnonzero(~GONE)  # the heads of the model that the smaller one has
    again = prune(smaller, rest == 1)
    with silenced(model, GONE | (np.arange(HEADS) == 1)):
        np.testing.assert_allclose(again(inputs()), model(inputs()), rtol=1e-4, atol=1e-4)
    assert again.heads == "0,2/0,2/0,1"


def test_models_without_heads_and_what_cannot_be_silenced_or_pruned_are_refused(model):
    with pytest.raises(UserError, match="only a Transformer has heads. Received: a model of type RecurrentNetwork"):
        attentions_of(RecurrentNetwork(vocabulary_size=11, d_model=6))
    with pytest.raises(UserError, match=f"Received: 5 values, {HEADS} heads"), silenced(model, np.zeros(5, bool)):
        pass
    with pytest.raises(UserError, match="the last attention to memory needs a head. Received: 2 heads"):
        prune(tiny.transformer(), np.arange(6) > 3)
    with pytest.raises(UserError, match="heads that share their keys and values"):
        prune(tiny.transformer(num_key_value_heads=1), np.zeros(6, bool))


def test_one_head_of_the_last_attention_to_memory_is_never_pruned():
    model = tiny.transformer()
    assert np.flatnonzero(to_prune(model, [0.5, 0.6, 0.7, 0.8, 0.1, 0.2], 3)).tolist() == [0, 1, 4]
    assert np.flatnonzero(to_prune(model, [5, 4, 3, 2, 1, 1], 5)).tolist() == [0, 1, 2, 3, 5]


TEXTS, REFERENCES = ["a", "b", "c"], ["x", "y", "z"]
WORTH = np.array([2, 3, 5, 7, 11, 13])  # of each head of one layer


class Choir:
    """Stands for a translator: says which heads of its model are silent, from the weights alone."""

    def __init__(self):
        self.model = tiny.transformer()

    def translate(self, texts):
        rows = [np.asarray(a.sublayer.output_projection.kernel).reshape(2, -1) for a in attentions_of(self.model)]
        silent = [head for head, of_head in enumerate(np.concatenate(rows)) if not of_head.any()]
        return [f"{text} {silent}" for text in texts]


def score(translations, references):
    """What the heads that speak are worth together."""
    assert references == REFERENCES and len(translations) == len(TEXTS)
    return float(WORTH.sum() - sum(WORTH[head] for head in json.loads(translations[1].partition(" ")[2])))


def test_a_loss_is_that_without_a_head_and_a_curve_silences_the_least_important_ones():
    choir, done = Choir(), []
    full, lost = losses(choir, TEXTS, REFERENCES, score, done.append)
    assert full == WORTH.sum() and lost.tolist() == WORTH.tolist() and done == [1] * (1 + len(WORTH))
    assert choir.translate(["all"]) == ["all []"]
    importance = [0.5, 0.1, 0.9, 0.2, 0.7, 0.3]
    scores = curve(choir, TEXTS, REFERENCES, score, importance, [0, 1, 2, len(WORTH)], done.append)
    assert scores.tolist() == [41, 41 - 3, 41 - 3 - 7, 0] and done == [1] * (1 + len(WORTH) + 4)
    importance = np.array([5, 2, 7, 2, 3])  # of equal ones, the earlier
    chosen = [np.flatnonzero(least_important(importance, count)).tolist() for count in range(6)]
    assert chosen == [[], [1], [1, 3], [1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4]]
