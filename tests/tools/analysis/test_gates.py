import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.tools.analysis.gates import attentions_of, count_heads, divide_by_attention, gated, silenced
from tests import reference, tiny

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


def test_the_attentions_are_those_of_the_encoder_then_self_attention_then_attention_to_memory(model):
    found = [(a.kind, a.layer, a.num_heads) for a in attentions_of(model)]
    assert found == [(kind, layer, H) for kind in ("encoder", "decoder", "cross") for layer in range(N)]
    paths = [a.sublayer.output_projection.kernel.path.split("/") for a in attentions_of(model)]
    parts = [("encoder", "self_attention"), ("decoder", "self_attention"), ("decoder", "cross_attention")]
    assert [(p[-5:-2]) for p in paths] == [[s, f"layer_{i}", name] for s, name in parts for i in range(N)]
    assert count_heads(model) == HEADS


def test_gates_of_1_change_nothing_and_note_the_weights_of_the_paper(model):
    expected = logits(model)
    with gated(attentions_of(model), ones()) as weights:
        np.testing.assert_array_equal(logits(model), expected)
    assert [w.shape for w in weights] == [(B, H, *sizes) for sizes in ((S, S), (T, T), (T, S)) for _ in range(N)]
    alignment = reference.alignment(reference.weights_of(model), **inputs(), num_heads=H, residual=reference.post_norm)
    squares = np.sum(np.square(weights[-N + 1 :]), axis=(0, 2))  # to memory, of all layers but the first
    np.testing.assert_allclose(squares / squares.sum(axis=-1, keepdims=True), alignment, rtol=1e-5, atol=1e-6)
    for w in weights:
        np.testing.assert_allclose(np.sum(w, axis=-1), 1, rtol=1e-5)


def test_after_the_context_the_layers_are_as_they_were_even_after_an_error(model):
    before = logits(model)
    with pytest.raises(ZeroDivisionError), gated(attentions_of(model), [tf.zeros([B, H])] * ATTENTIONS):
        raise ZeroDivisionError
    assert not any("weigh" in vars(a.sublayer) for a in attentions_of(model))
    np.testing.assert_array_equal(logits(model), before)


@pytest.mark.parametrize("head", [0, 5, HEADS - 1])  # of the encoder, of the decoder and to memory
def test_a_gate_of_0_for_all_sentences_is_a_silent_head(model, head):
    silent = np.arange(HEADS) == head
    of_each = divide_by_attention(model, 1 - silent.astype(float))
    gates = [tf.constant(np.tile(of_one, (B, 1)), tf.float32) for of_one in of_each]
    with gated(attentions_of(model), gates):
        expected = logits(model)
    with silenced(model, silent):
        np.testing.assert_allclose(logits(model), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected - logits(model)).max() > 1e-3


def test_a_gate_is_of_its_sentence_alone(model):
    before, gates = logits(model), ones()
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


def test_there_must_be_a_value_for_each_head_and_heads(model):
    with pytest.raises(UserError, match="only a Transformer has heads. Received: a model of type RecurrentNetwork"):
        attentions_of(RecurrentNetwork(vocabulary_size=11, d_model=6))
    with pytest.raises(UserError, match=f"Received: 5 values, {HEADS} heads"), silenced(model, np.zeros(5, bool)):
        pass
