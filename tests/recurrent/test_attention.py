import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.recurrent.attention import FixedContext, LatentAttention, RecurrentAttention
from tests import reference
from tests.layers.contract import B, D, LayerContract, S, T, some
from tests.reference import randomise, weights_of

WINDOW = 2
LENGTHS = [11, 7, 5, 3, 1]  # of B rows


def attention(**arguments):
    layer = RecurrentAttention(**{"d_model": D, "window": WINDOW, **arguments})
    layer.build((None, None, D))
    return randomise(layer, seed=5)


def memory_of(lengths=LENGTHS):
    states, mask = some("states", "BSD"), tf.sequence_mask(lengths, S)
    last = tf.gather(states, tf.maximum(tf.constant(lengths) - 1, 0), batch_dims=1)
    return {"states": states, "mask": mask, "last": ((last,),)}


def attend(layer, queries, memory, **kwargs):
    return layer(queries, tf.range(queries.shape[1]), layer.project(memory), memory, **kwargs)


@pytest.mark.parametrize(
    ("score", "span"), [("dot", "global"), ("general", "local_m"), ("additive", "local_p"), ("concat", "local_p")]
)
def test_weights_are_the_equations_of_the_papers_and_contexts_are_sums_by_them(score, span):
    layer, queries, memory = attention(score=score, span=span), some("queries", "BTD"), memory_of()
    contexts, weights = attend(layer, queries, memory)
    assert weights.dtype == "float32"
    for row, length in enumerate(LENGTHS):
        states = memory["states"].numpy()[row, :length]
        for t in range(T):
            arguments = (queries.numpy()[row, t], t, states, score, span, WINDOW)
            expected = reference.recurrent_attention(weights_of(layer), *arguments)
            np.testing.assert_allclose(weights[row, t, :length], expected, atol=1e-5)
            np.testing.assert_allclose(contexts[row, t], expected @ states, atol=1e-5)
    assert not np.any(weights.numpy()[~np.repeat(memory["mask"][:, None], T, axis=1)])


def test_hard_attention_takes_the_most_likely_position_and_in_training_draws_with_the_probabilities():
    hard, soft = attention(is_hard=True), attention()
    queries, memory = some("queries", "BTD")[:, :2], memory_of()
    (contexts, weights), (_, likely) = attend(hard, queries, memory), attend(soft, queries, memory)
    np.testing.assert_allclose(weights, np.eye(S)[np.argmax(likely, axis=-1)], atol=1e-6)
    chosen = np.take_along_axis(memory["states"].numpy(), np.argmax(likely, axis=-1)[..., None], axis=1)
    np.testing.assert_allclose(contexts, chosen, atol=1e-5)
    many = [tf.nest.map_structure(lambda x: tf.repeat(x, 1000, axis=0), each) for each in (queries, memory)]
    draws = np.reshape(attend(hard, *many, training=True)[1], (B, 1000, 2, S))
    np.testing.assert_allclose(draws.max(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(draws.mean(axis=1), likely, atol=5 * 0.5 / 1000**0.5)  # five standard errors


def test_the_gradient_of_hard_attention_is_that_of_soft_attention_at_its_context():
    queries, memory, gradients = some("queries", "BTD"), memory_of(), []
    upstream = tf.constant(np.random.default_rng(2).normal(size=(B, T, D)), "float32")
    for is_hard in (True, False):
        layer = attention(is_hard=is_hard)
        with tf.GradientTape() as tape:
            tape.watch(queries)
            loss = tf.reduce_sum(attend(layer, queries, memory)[0] * upstream)  # linear in the weights
        gradients.append(tape.gradient(loss, queries))
    np.testing.assert_allclose(*gradients, atol=1e-4)


@pytest.mark.parametrize("kind", ["last", "mean"])
def test_a_fixed_context_is_the_last_state_or_the_mean_of_all(kind):
    memory = memory_of()
    contexts, weights = attend(FixedContext(kind), some("queries", "BTD"), memory)
    for row, length in enumerate(LENGTHS):
        states = memory["states"].numpy()[row, :length]
        expected = states[-1] if kind == "last" else states.mean(axis=0)
        np.testing.assert_allclose(contexts[row], np.repeat(expected[None], T, axis=0), atol=1e-5)
        shares = np.eye(S)[length - 1] if kind == "last" else (np.arange(S) < length) / length
        np.testing.assert_allclose(weights[row], np.repeat(shares[None], T, axis=0), atol=1e-6)


class TestLatentAttentionContract(LayerContract):
    layer_class, arguments = LatentAttention, {"d_model": D, "num_positions": T}
    inputs, output = {"x": "BSD", "mask": "BS"}, "BD"
    weight_count = D + T * D


@pytest.mark.parametrize("num_positions", [T, S + 1])  # fewer than tokens, more
def test_latent_attention_is_the_equations_of_the_paper_and_sums_to_1_in_half_precision_too(num_positions):
    layer, half = LatentAttention(D, num_positions), LatentAttention(D, num_positions, dtype="mixed_bfloat16")
    x, mask = some("x", "BSD"), tf.sequence_mask(LENGTHS, S)
    for each in (layer, half):
        each.build((None, None, D))
        randomise(each, seed=5)
    (latent, active), output = layer.weigh(x, mask), layer(x, mask)
    for row, length in enumerate(LENGTHS):
        found = latent[row, :length], active[row, :length], output[row]
        expected = reference.latent_attention(weights_of(layer), x.numpy()[row, :length])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        assert not np.any(latent[row, length:]) and not np.any(active[row, length:])
    for weights in half.weigh(tf.cast(x, "bfloat16"), mask):
        assert weights.dtype == latent.dtype == active.dtype == "float32"
        np.testing.assert_allclose(tf.reduce_sum(weights, axis=1), 1, rtol=1e-5)
