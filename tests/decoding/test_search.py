from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import search as search_module
from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    UNFILLED_SCORE,
    Hypotheses,
    drawn_tokens,
    largest,
    last_repeated,
    log_probs_of,
    next_tokens,
    search,
    uniform,
)
from tests.decoding.scripted import Asked, options_of


def test_alternatives_that_were_not_found_are_the_last_that_was():
    """A hypothesis scored below an unfilled slot is still a hypothesis."""
    ids, low = tf.reshape(tf.range(12), [3, 4, 1]), 3 * UNFILLED_SCORE
    scores = [[-1.0, -2.0, UNFILLED_SCORE, UNFILLED_SCORE], [-1.0, -2.0, -3.0, -4.0], [-1.0, low, low, UNFILLED_SCORE]]
    found = last_repeated(Hypotheses(ids, tf.constant(scores), tf.ones([3, 4], tf.int32)))
    assert found.ids.numpy().ravel().tolist() == [0, 1, 1, 1, 4, 5, 6, 7, 8, 9, 10, 10]
    assert found.scores.numpy()[:2].tolist() == [[-1.0, -2.0, -2.0, -2.0], [-1.0, -2.0, -3.0, -4.0]]


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [IMPOSSIBLE] * 331])
def test_without_a_distribution_there_is_no_next_token(poison):
    options = {name: option[:, None] for name, option in options_of([Asked()] * 2).items()}
    hypotheses = Hypotheses(tf.fill([2, 3, 2], 5), tf.zeros([2, 3]), tf.ones([2, 3], tf.int32))
    for count, given in ((1, {}), (331, {}), (331, {**options, "prefix": tf.zeros([2, 0], tf.int32)})):
        logits = np.random.default_rng(0).normal(size=(2, 3, 331)).astype("float32")
        clean, _ = next_tokens(logits, hypotheses, given, count)
        logits[1, 2, : len(poison)] = poison
        log_probs = next_tokens(logits, hypotheses, given, count)[0].numpy()
        assert (log_probs[1, 2] == IMPOSSIBLE).all()
        log_probs[1, 2] = clean[1, 2]
        np.testing.assert_array_equal(log_probs, clean)


@pytest.mark.parametrize("count", [1, 5, 400])
def test_the_largest_are_those_of_a_full_sort(count):
    """Whether the graph knows the size or not."""
    of_any_size = tf.function(lambda x: largest(x, count), input_signature=[tf.TensorSpec([None, 3, None])])
    for size in (1, 63, 64, 65, 128, 331):
        x = np.random.default_rng(size).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
        for values, indices in (largest(tf.constant(x), count), of_any_size(x)):
            assert values.shape == indices.shape == (2, 3, count)
            np.testing.assert_array_equal(indices[..., :size], np.argsort(-x, axis=-1)[..., :count])
            np.testing.assert_array_equal(values[..., :size], -np.sort(-x, axis=-1)[..., :count])
            assert (values.numpy()[..., size:] == IMPOSSIBLE).all()
        assert np.max(largest(tf.fill([2, 3, size], IMPOSSIBLE), size)[1]) < size  # still tokens


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
    assert [rows, width, length] in shapes and not [shape for shape in shapes if length in shape and len(shape) > 3]
    for n in (99, 100, 2**31 - 1):  # of 99 tokens that are all 1
        forbidden = np.isneginf(find(tf.ones(text.shape, tf.int32), tf.fill([rows, 1], n))[0]).sum()
        assert forbidden == (rows * width if n == 99 else 0)


def test_log_probabilities_of_labels_are_made_of_few_tokens_at_a_time(monkeypatch):
    monkeypatch.setattr(search_module, "LOGITS_AT_A_TIME", 5)
    rng, made = np.random.default_rng(3), []
    states, matrix, labels = rng.normal(size=(13, 3)), rng.normal(size=(3, 7)), rng.integers(0, 7, 13)

    def logits(states):
        made.append(states.shape[0])
        return states @ tf.constant(matrix, tf.float32)

    found = log_probs_of(logits, tf.constant(states, tf.float32), tf.constant(labels, tf.int32))
    expected = [row[label] - np.logaddexp.reduce(row) for row, label in zip(states @ matrix, labels, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert made == [5, 5, 3] and log_probs_of(logits, tf.zeros([0, 3]), tf.zeros([0], tf.int32)).shape == (0,)


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
    for poison in (np.nan, np.inf):  # no distribution
        assert (next(draw([0.0, poison, 0.0], **options)) == IMPOSSIBLE).all()


def test_random_numbers_are_uniform_and_of_their_own_seed_and_position():
    numbers = np.array([uniform(tf.range(5000, dtype=tf.int64)[:, None], position)[:, 0] for position in range(3)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    np.testing.assert_allclose(np.histogram(numbers, 10)[0] / numbers.size, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.06


class Countdown(NamedTuple):
    """Rows that are done after so many steps, with all they have been through."""

    left: tf.Tensor  # int32 (B,)
    path: tf.Tensor  # int32 (B, steps)
    done: tf.Tensor  # bool (B,)


def countdown(steps):
    """The results of a search over rows that take `steps`, and how many rows each step was given."""
    given, steps = [], tf.constant(steps, tf.int32)

    def advance(state):
        given.append(state.left.shape[0])
        left = state.left - 1
        path = tf.concat([state.path, tf.where(state.done, 0, left)[:, None]], axis=1)
        return Countdown(left, path, state.done | (left <= 0))

    def results(state):
        return {"total": tf.reduce_sum(state.path, axis=1), "last": tf.zeros_like(state.left) + tf.shape(state.path)[1]}

    start = Countdown(steps, tf.zeros([steps.shape[0], 0], tf.int32), steps <= 0)
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
