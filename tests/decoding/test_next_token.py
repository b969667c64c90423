import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.decoding.hypotheses import IMPOSSIBLE as NEVER
from keras_transformer.decoding.hypotheses import Hypotheses

from keras_transformer.decoding import next_token


def test_most_likely_are_the_best_log_probabilities():
    logits = np.random.default_rng(0).normal(size=(2, 3, 7)).astype("float32")
    log_probs, tokens = next_token.most_likely(logits, 5)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_array_equal(tokens, np.argsort(-logits, axis=-1)[..., :5])
    np.testing.assert_allclose(log_probs, -np.sort(-expected, axis=-1)[..., :5], rtol=1e-5)


def test_most_likely_of_a_small_vocabulary_are_all_of_it():
    log_probs, tokens = next_token.most_likely(tf.zeros([2, 3, 5]), 7)
    np.testing.assert_array_equal(tokens, np.broadcast_to(range(5), [2, 3, 5]))
    np.testing.assert_allclose(log_probs, np.full([2, 3, 5], -np.log(5)), rtol=1e-6)


def test_most_likely_takes_half_precision():
    assert next_token.most_likely(tf.zeros([2, 3, 5], tf.float16), 2)[0].dtype == tf.float32


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [NEVER] * 331])
@pytest.mark.parametrize("count", [1, 3, 331])
def test_without_a_distribution_there_is_no_next_token(poison, count):
    logits = np.random.default_rng(0).normal(size=(2, 3, 331)).astype("float32")
    clean, _ = next_token.most_likely(logits, count)
    logits[1, 2, : len(poison)] = poison
    log_probs = next_token.most_likely(logits, count)[0].numpy()
    assert (log_probs[1, 2] == NEVER).all()
    log_probs[1, 2] = clean[1, 2]
    np.testing.assert_array_equal(log_probs, clean)


def test_a_forbidden_token_comes_last():
    log_probs, tokens = next_token.most_likely(tf.constant([[[NEVER, 0.0, 0.0]]]), 3)
    np.testing.assert_allclose(log_probs[0, 0], [-np.log(2), -np.log(2), NEVER])
    assert tokens[0, 0, 2] == 0


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 331])
@pytest.mark.parametrize("count", [1, 5, 400])
def test_the_largest_are_those_of_a_full_sort(size, count):
    x = np.random.default_rng(size).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
    values, indices = next_token.largest(tf.constant(x), count)
    np.testing.assert_array_equal(indices, np.argsort(-x, axis=-1)[..., :count])
    np.testing.assert_array_equal(values, -np.sort(-x, axis=-1)[..., :count])


def test_the_largest_of_nothing_possible_are_still_tokens():
    _, indices = next_token.largest(tf.fill([2, 3, 131], NEVER), 131)
    assert np.max(indices) <= 130


def allowed(ids, lengths, prefix=(), prefix_length=0, penalty=1.0, ngram=0, logits=None):
    """Log-probabilities (V,) of one hypothesis under constraints, by token."""
    size = 11
    logits = np.zeros(size, "float32") if logits is None else logits
    hypotheses = Hypotheses(tf.constant([[ids]], tf.int32), tf.zeros([1, 1]), tf.constant([[lengths]]))
    constraints = next_token.Constraints(
        prefix=tf.constant([[*prefix, 0]], tf.int32),
        prefix_lengths=tf.constant([[prefix_length]]),
        repetition_penalty=tf.constant([[penalty]]),
        no_repeat_ngram=tf.constant([[ngram]]),
    )
    found, tokens = next_token.most_likely_allowed(tf.constant(logits[None, None]), hypotheses, constraints, size)
    by_token = dict(zip(tokens[0, 0].numpy().tolist(), found[0, 0].numpy().tolist(), strict=True))
    return np.array([by_token[token] for token in range(size)])


def test_without_a_constraint_all_is_as_it_was():
    logits = np.random.default_rng(3).normal(size=11).astype("float32")
    expected = logits - np.log(np.exp(logits).sum())
    np.testing.assert_allclose(allowed([5, 6, 5, 0, 0], 3, logits=logits), expected, rtol=1e-5)


def test_tokens_used_have_their_log_probability_multiplied():
    expected = np.where(np.isin(range(11), [5, 6]), 1.5, 1.0) * -np.log(11)
    np.testing.assert_allclose(allowed([5, 6, 5, 0, 0], 3, penalty=1.5), expected, rtol=1e-5)


def forbidden_by_hand(ids, n):
    """The tokens that would repeat a sequence of n."""
    there = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}
    return {token for token in range(11) if n > 0 and (*ids[len(ids) - n + 1 :], token) in there}


@pytest.mark.parametrize("n", [-1, 0, 1, 2, 3, 5, 13, 1_000_000])
def test_no_sequence_of_tokens_comes_twice(n):
    rng = np.random.default_rng(7)
    for length in (0, 1, 2, 5, 9):
        ids = rng.integers(4, 6, length).tolist()
        found = allowed([*ids, 0, 0], length, ngram=n)
        assert {token for token in range(11) if found[token] == NEVER} == forbidden_by_hand(ids, n)


def test_the_prefix_is_all_there_is_while_it_lasts():
    for length, token in enumerate([7, 8, 7]):
        found = allowed([7, 8, 7, 0, 0], length, prefix=[7, 8, 7], prefix_length=3, penalty=2.0, ngram=1)
        assert found[token] == pytest.approx(-np.log(11))  # even where it repeats itself
        assert all(found[other] == NEVER for other in range(11) if other != token)
    assert allowed([7, 8, 7, 0, 0], 3, prefix=[7, 8, 7], prefix_length=3)[9] == pytest.approx(-np.log(11))


def test_constraints_are_each_hypothesis_own():
    hypotheses = Hypotheses(
        tf.constant([[[5, 6, 5], [7, 7, 8]], [[5, 6, 5], [7, 7, 8]]]), tf.zeros([2, 2]), tf.fill([2, 2], 3)
    )
    constraints = next_token.Constraints(
        prefix=tf.zeros([2, 1], tf.int32),
        prefix_lengths=tf.zeros([2, 1], tf.int32),
        repetition_penalty=tf.ones([2, 1]),
        no_repeat_ngram=tf.constant([[2], [1]]),
    )
    log_probs, tokens = next_token.most_likely_allowed(tf.zeros([2, 2, 11]), hypotheses, constraints, 11)
    left = [
        [set(t[p > NEVER]) for t, p in zip(*row, strict=True)] for row in zip(tokens.numpy(), log_probs, strict=True)
    ]
    everything = set(range(11))
    assert left == [[everything - {6}, everything], [everything - {5, 6}, everything - {7, 8}]]


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [NEVER] * 11])
def test_constraints_make_no_token_of_what_is_no_distribution(poison):
    logits = np.zeros(11, "float32")
    logits[: len(poison)] = poison
    assert (allowed([5, 0], 1, logits=logits) == NEVER).all()
