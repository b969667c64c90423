import itertools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    UNFILLED_SCORE,
    Hypotheses,
    drawn_tokens,
    largest,
    last_repeated,
    next_tokens,
    penalty,
    per_row,
    search,
    uniform,
)


def test_length_penalty_by_hand_for_all_rows_or_one_for_each():
    assert penalty(1, 0.6) == 1.0 and penalty(7, 1.0) == 2.0
    np.testing.assert_allclose(penalty([7, 19], 0.5), [2**0.5, 2.0])
    np.testing.assert_allclose(penalty([7, 19], 0.0), [1.0, 1.0])
    np.testing.assert_allclose(penalty(19, -1.0), 0.25)
    lengths = tf.constant([[1, 7], [7, 19], [19, 1]])
    np.testing.assert_allclose(penalty(lengths, per_row(1.0, [0, 0, 0])), [[1, 2], [2, 4], [4, 1]])
    np.testing.assert_allclose(penalty(lengths, per_row([0.0, 1.0, 2.0], [0, 0, 0])), [[1, 1], [2, 4], [16, 1]])


def test_alternatives_that_were_not_found_are_the_last_that_was():
    """A hypothesis scored below an unfilled slot is still a hypothesis."""
    ids, low = tf.reshape(tf.range(12), [3, 4, 1]), 3 * UNFILLED_SCORE
    scores = [[-1.0, -2.0, UNFILLED_SCORE, UNFILLED_SCORE], [-1.0, -2.0, -3.0, -4.0], [-1.0, low, low, UNFILLED_SCORE]]
    found = last_repeated(Hypotheses(ids, tf.constant(scores), tf.ones([3, 4], tf.int32)))
    assert found.ids.numpy().ravel().tolist() == [0, 1, 1, 1, 4, 5, 6, 7, 8, 9, 10, 10]
    assert found.scores.numpy()[:2].tolist() == [[-1.0, -2.0, -2.0, -2.0], [-1.0, -2.0, -3.0, -4.0]]


def test_most_likely_are_the_best_log_probabilities():
    logits = np.random.default_rng(0).normal(size=(2, 3, 7)).astype("float32")
    log_probs, tokens = next_tokens(logits, None, {}, 5)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_array_equal(tokens, np.argsort(-logits, axis=-1)[..., :5])
    np.testing.assert_allclose(log_probs, -np.sort(-expected, axis=-1)[..., :5], rtol=1e-5)
    log_probs, tokens = next_tokens(tf.zeros([2, 3, 5], tf.float16), None, {}, 7)  # of a small vocabulary, all of it
    np.testing.assert_array_equal(tokens[..., :5], np.broadcast_to(range(5), [2, 3, 5]))
    assert log_probs.dtype == tf.float32
    np.testing.assert_allclose(log_probs[0, 0], [-np.log(5)] * 5 + [IMPOSSIBLE] * 2, rtol=1e-6)


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [IMPOSSIBLE] * 331])
def test_without_a_distribution_there_is_no_next_token(poison):
    for count in (1, 331):
        logits = np.random.default_rng(0).normal(size=(2, 3, 331)).astype("float32")
        clean, _ = next_tokens(logits, None, {}, count)
        logits[1, 2, : len(poison)] = poison
        log_probs = next_tokens(logits, None, {}, count)[0].numpy()
        assert (log_probs[1, 2] == IMPOSSIBLE).all()
        log_probs[1, 2] = clean[1, 2]
        np.testing.assert_array_equal(log_probs, clean)
    assert (allowed([5, 0], 1, logits=logits[1, 2, :11]) == IMPOSSIBLE).all()


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 331])
@pytest.mark.parametrize(("count", "is_known"), [(1, True), (5, False), (400, False)])
def test_the_largest_are_those_of_a_full_sort(size, count, is_known):
    x = np.random.default_rng(size).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
    specs = [tf.TensorSpec(x.shape if is_known else [None, 3, None])]
    values, indices = tf.function(lambda x: largest(x, count), input_signature=specs)(x)
    assert values.shape == indices.shape == (2, 3, count)
    np.testing.assert_array_equal(indices[..., :size], np.argsort(-x, axis=-1)[..., :count])
    np.testing.assert_array_equal(values[..., :size], -np.sort(-x, axis=-1)[..., :count])
    assert (values.numpy()[..., size:] == IMPOSSIBLE).all()
    assert np.max(largest(tf.fill([2, 3, size], IMPOSSIBLE), size)[1]) < size  # still tokens


def allowed(ids, length, prefix=(), penalty=1.0, ngram=0, logits=None):
    """Log-probabilities (V,) of the tokens after one hypothesis, under options."""
    logits = np.zeros(11, "float32") if logits is None else logits
    hypotheses = Hypotheses(tf.constant([[ids]], tf.int32), tf.zeros([1, 1]), tf.constant([[length]]))
    options = {
        "prefix": tf.constant([[*prefix, 0]], tf.int32),
        "repetition_penalty": tf.constant([[penalty]]),
        "no_repeat_ngram": tf.constant([[ngram]]),
    }
    found, tokens = next_tokens(tf.constant(logits[None, None]), hypotheses, options, len(logits))
    by_token = dict(zip(tokens[0, 0].numpy().tolist(), found[0, 0].numpy().tolist(), strict=True))
    return np.array([by_token[token] for token in range(len(logits))])


def forbidden_by_hand(ids, n):
    """The tokens that would repeat a sequence of n."""
    there = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}
    return {token for token in range(11) if n > 0 and (*ids[len(ids) - n + 1 :], token) in there}


def test_no_sequence_of_tokens_comes_twice():
    rng = np.random.default_rng(7)
    for n, length in itertools.product([-1, 0, 1, 2, 3, 5, 13, 1_000_000], [0, 1, 2, 5, 9]):
        ids = rng.integers(4, 6, length).tolist()
        found = allowed([*ids, 0, 0], length, ngram=n)
        assert {token for token in range(11) if found[token] == IMPOSSIBLE} == forbidden_by_hand(ids, n)


def test_no_repeated_sequences_need_no_memory_of_the_square_of_the_length():
    rows, width, length, size = 5, 3, 101, 11
    text = tf.TensorSpec([rows, width, length], tf.int32)

    @tf.function(input_signature=[text, tf.TensorSpec([rows, 1], tf.int32)])
    def find(ids, sizes):
        hypotheses = Hypotheses(ids, tf.zeros([rows, width]), tf.fill([rows, width], length - 2))
        options = {"prefix": tf.zeros([rows, 0], tf.int32), "repetition_penalty": tf.ones([rows, 1])}
        return next_tokens(tf.zeros([rows, width, size]), hypotheses, {**options, "no_repeat_ngram": sizes}, size)

    graph = find.get_concrete_function().graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    shapes = [[dim.size for dim in shape.dim] for node in nodes for shape in node.attr["_output_shapes"].list.shape]
    assert [rows, width, length] in shapes
    assert not [shape for shape in shapes if length in shape and len(shape) > 3]
    for n in (99, 100, 2**31 - 1):  # of 99 tokens that are all 1
        forbidden = np.isneginf(find(tf.ones(text.shape, tf.int32), tf.fill([rows, 1], n))[0]).sum()
        assert forbidden == (rows * width if n == 99 else 0)


ROWS = 20_000
PROBS = np.array([0.05, 0.4, 0.15, 0.1, 0.3])


def draw(logits, position=0, **options):
    """What `drawn_tokens` draws from logits (V,) in `ROWS` rows, with another seed in each."""
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **options}
    columns = {name: tf.fill([ROWS, 1], value) for name, value in given.items()}
    columns["seed"] = tf.range(ROWS, dtype=tf.int64)[:, None]
    logits = tf.broadcast_to(np.asarray(logits, "float32"), [ROWS, 1, len(logits)])
    return (x.numpy()[:, 0, 0] for x in drawn_tokens(logits, columns, tf.constant(position)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PROBS),
        ({"temperature": 0.5}, PROBS**2 / (PROBS**2).sum()),
        ({"temperature": 2.0}, PROBS**0.5 / (PROBS**0.5).sum()),
        ({"top_k": 2}, [0, 4 / 7, 0, 0, 3 / 7]),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_k": 99}, PROBS),
        ({"top_p": 0.65}, [0, 4 / 7, 0, 0, 3 / 7]),
        ({"top_p": 0.75}, [0, 40 / 85, 15 / 85, 0, 30 / 85]),
        ({"top_p": 0.0}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.75, "top_k": 2}, [0, 4 / 7, 0, 0, 3 / 7]),
    ],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options, expected):
    log_probs, tokens = draw(np.log(PROBS), **options)
    frequencies = np.bincount(tokens, minlength=len(PROBS)) / ROWS
    np.testing.assert_allclose(frequencies, expected, atol=4 * (0.25 / ROWS) ** 0.5)
    np.testing.assert_allclose(log_probs, np.log(PROBS)[tokens], rtol=1e-4)  # the model's own, whatever the options


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nothing_is_drawn_where_there_is_no_distribution(poison):
    log_probs, _ = draw([0.0, poison, 0.0])
    assert (log_probs == IMPOSSIBLE).all()


def test_random_numbers_are_uniform_and_of_their_own_seed_and_position():
    numbers = np.array([uniform(tf.range(5000, dtype=tf.int64)[:, None], position)[:, 0] for position in range(3)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    np.testing.assert_allclose(np.histogram(numbers, 10)[0] / numbers.size, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.06


class Countdown(NamedTuple):
    """Rows that are done after so many steps, with all they have been through."""

    step: tf.Tensor  # int32 ()
    left: tf.Tensor  # int32 (B,)
    path: tf.Tensor  # int32 (B, steps)
    done: tf.Tensor  # bool (B,)


def countdown(steps):
    """The results of a search over rows that take `steps`, and how many rows each step was given."""
    given = []

    def advance(state):
        given.append(state.left.shape[0])
        left = state.left - 1
        path = tf.concat([state.path, tf.where(state.done, -1, left)[:, None]], axis=1)
        return Countdown(state.step + 1, left, path, state.done | (left <= 0))

    steps = tf.constant(steps, tf.int32)
    start = Countdown(tf.constant(0), steps, tf.zeros([steps.shape[0], 0], tf.int32), steps <= 0)

    def results(state):
        total = tf.reduce_sum(tf.where(state.path < 0, 0, state.path), axis=1)
        return {"total": total, "last": tf.fill([tf.shape(state.left)[0]], state.step)}

    return search(advance, start, results), given


@pytest.mark.parametrize("steps", [[5], [3, 1, 7, 2, 2], [0, 4, 0], [0, 0], [], [13, 1, 1, 1, 1, 1, 1]])
def test_every_row_goes_through_all_its_steps_whatever_the_others_do(steps):
    results, given = countdown(steps)
    assert results["total"].numpy().tolist() == [n * (n - 1) // 2 for n in steps]
    assert len(given) == max(steps, default=0)


def test_rows_that_are_done_are_left_out_when_they_are_half_with_the_results_of_that_step():
    _, given = countdown([1, 7, 2, 3, 7, 2, 3])
    assert given == [7, 7, 7, 2, 2, 2, 2]  # 3 of 7 are done after two steps, not yet half; after three steps 5 are
    assert countdown([1, 1, 5])[0]["last"].numpy().tolist() == [1, 1, 5]
