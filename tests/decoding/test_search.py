from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    UNFILLED_SCORE,
    Hypotheses,
    append,
    drawn_tokens,
    empty_hypotheses,
    is_finished,
    largest,
    last_repeated,
    next_tokens,
    no_hypotheses,
    normalised,
    penalty,
    per_row,
    presented,
    search,
    take,
    uniform,
    where_rows,
)

# Hypotheses


def test_length_penalty_by_hand():
    assert penalty(1, 0.6) == 1.0
    assert penalty(7, 1.0) == 2.0
    np.testing.assert_allclose(penalty([7, 19], 2.0), [4.0, 16.0])
    np.testing.assert_allclose(penalty([7, 19], 0.5), [2**0.5, 2.0])
    np.testing.assert_allclose(penalty([7, 19], 0.0), [1.0, 1.0])
    np.testing.assert_allclose(penalty(19, -1.0), 0.25)


def test_an_option_is_the_same_for_all_rows_or_one_for_each():
    lengths = tf.constant([[1, 7], [7, 19], [19, 1]])
    np.testing.assert_allclose(penalty(lengths, per_row(1.0, [0, 0, 0])), [[1, 2], [2, 4], [4, 1]])
    np.testing.assert_allclose(penalty(lengths, per_row([0.0, 1.0, 2.0], [0, 0, 0])), [[1, 1], [2, 4], [16, 1]])


def test_normalised_divides_by_the_penalty():
    given = Hypotheses(tf.zeros([1, 3, 2], tf.int32), tf.constant([[-3.0, 0.0, IMPOSSIBLE]]), tf.constant([[7, 0, 1]]))
    np.testing.assert_allclose(normalised(given, per_row(1.0, [0])).scores, [[-1.5, 0.0, IMPOSSIBLE]])


def test_the_start_is_one_empty_hypothesis():
    start = empty_hypotheses(tf.constant([5, 0]), 3, pad_id=9)
    np.testing.assert_array_equal(start.scores, [[0, IMPOSSIBLE, IMPOSSIBLE]] * 2)
    np.testing.assert_array_equal(start.lengths, np.zeros([2, 3]))
    np.testing.assert_array_equal(start.ids, np.full([2, 3, 5], 9))


def test_append_writes_behind_the_last_token():
    before = Hypotheses(tf.constant([[[5, 6, 0], [7, 0, 0]]]), tf.constant([[-1.0, -2.0]]), tf.constant([[2, 1]]))
    after = append(before, tf.constant([[8, 9]]), tf.constant([[-3.0, -4.0]]))
    np.testing.assert_array_equal(after.ids, [[[5, 6, 8], [7, 9, 0]]])
    np.testing.assert_array_equal(after.scores, [[-3, -4]])
    np.testing.assert_array_equal(after.lengths, [[3, 2]])


def test_take_selects_slots_of_every_tensor():
    nest = {"a": tf.range(6), "b": tf.range(12)}
    nest = {"a": tf.reshape(nest["a"], [2, 3]), "b": tf.reshape(nest["b"], [2, 3, 2])}
    taken = take(nest, tf.constant([[2, 2], [0, 1]]))
    np.testing.assert_array_equal(taken["a"], [[2, 2], [3, 4]])
    np.testing.assert_array_equal(taken["b"], [[[4, 5], [4, 5]], [[6, 7], [8, 9]]])


def test_where_rows_chooses_row_by_row():
    chosen = where_rows(tf.constant([True, False]), (tf.ones([2, 3]), tf.ones([2])), (tf.zeros([2, 3]), tf.zeros([2])))
    np.testing.assert_array_equal(chosen[0], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(chosen[1], [1, 0])


def test_presented_shows_nothing_of_unfilled_slots():
    given = Hypotheses(tf.fill([1, 2, 5], 7), tf.constant([[-1.5, IMPOSSIBLE]]), tf.constant([[3, 4]]))
    ids, scores, lengths = presented(given, pad_id=9)
    np.testing.assert_array_equal(ids, [[[7, 7, 7], [9, 9, 9]]])
    np.testing.assert_array_equal(scores, [[-1.5, UNFILLED_SCORE]])
    np.testing.assert_array_equal(lengths, [[3, 0]])


def test_alternatives_that_were_not_found_are_the_last_that_was():
    ids = tf.reshape(tf.range(8), [2, 4, 1])
    scores = tf.constant([[-1.0, -2.0, UNFILLED_SCORE, UNFILLED_SCORE], [-1.0, -2.0, -3.0, -4.0]])
    found = last_repeated(Hypotheses(ids, scores, tf.ones([2, 4], tf.int32)))
    assert found.ids.numpy().ravel().tolist() == [0, 1, 1, 1, 4, 5, 6, 7]
    assert found.scores.numpy().tolist() == [[-1.0, -2.0, -2.0, -2.0], [-1.0, -2.0, -3.0, -4.0]]


def test_a_hypothesis_scored_below_an_unfilled_slot_is_still_a_hypothesis():
    ids, scores = tf.reshape(tf.range(3), [1, 3, 1]), tf.constant([[-1.0, 3 * UNFILLED_SCORE, UNFILLED_SCORE]])
    found = last_repeated(Hypotheses(ids, scores, tf.ones([1, 3], tf.int32)))
    assert found.ids.numpy().ravel().tolist() == [0, 1, 1]


def test_no_hypotheses_have_room_for_the_longest_row():
    found = no_hypotheses(tf.constant([2, 5]), 3, pad_id=9)
    assert found.ids.shape == (2, 3, 5) and (found.scores.numpy() == IMPOSSIBLE).all()
    assert no_hypotheses(tf.zeros([0], tf.int32), 3, pad_id=9).ids.shape == (0, 3, 0)


def test_eos_alone_finishes_a_hypothesis():
    np.testing.assert_array_equal(is_finished(tf.constant([[2, 3], [0, 2]]), 2), [[True, False], [False, True]])


# The next token


def test_most_likely_are_the_best_log_probabilities():
    logits = np.random.default_rng(0).normal(size=(2, 3, 7)).astype("float32")
    log_probs, tokens = next_tokens(logits, None, {}, 5)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_array_equal(tokens, np.argsort(-logits, axis=-1)[..., :5])
    np.testing.assert_allclose(log_probs, -np.sort(-expected, axis=-1)[..., :5], rtol=1e-5)


def test_most_likely_of_a_small_vocabulary_are_all_of_it():
    log_probs, tokens = next_tokens(tf.zeros([2, 3, 5]), None, {}, 7)
    np.testing.assert_array_equal(tokens[..., :5], np.broadcast_to(range(5), [2, 3, 5]))
    expected = np.broadcast_to([-np.log(5)] * 5 + [IMPOSSIBLE] * 2, [2, 3, 7])
    np.testing.assert_allclose(log_probs, expected, rtol=1e-6)


def test_most_likely_takes_half_precision():
    assert next_tokens(tf.zeros([2, 3, 5], tf.float16), None, {}, 2)[0].dtype == tf.float32


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [IMPOSSIBLE] * 331])
@pytest.mark.parametrize("count", [1, 3, 331])
def test_without_a_distribution_there_is_no_next_token(poison, count):
    logits = np.random.default_rng(0).normal(size=(2, 3, 331)).astype("float32")
    clean, _ = next_tokens(logits, None, {}, count)
    logits[1, 2, : len(poison)] = poison
    log_probs = next_tokens(logits, None, {}, count)[0].numpy()
    assert (log_probs[1, 2] == IMPOSSIBLE).all()
    log_probs[1, 2] = clean[1, 2]
    np.testing.assert_array_equal(log_probs, clean)


def test_a_forbidden_token_comes_last():
    log_probs, tokens = next_tokens(tf.constant([[[IMPOSSIBLE, 0.0, 0.0]]]), None, {}, 3)
    np.testing.assert_allclose(log_probs[0, 0], [-np.log(2), -np.log(2), IMPOSSIBLE])
    assert tokens[0, 0, 2] == 0


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 331])
@pytest.mark.parametrize("count", [1, 5, 400])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_largest_are_those_of_a_full_sort(size, count, is_known):
    x = np.random.default_rng(size).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
    specs = [tf.TensorSpec(x.shape if is_known else [None, 3, None])]
    values, indices = tf.function(lambda x: largest(x, count), input_signature=specs)(x)
    assert values.shape == indices.shape == (2, 3, count)
    np.testing.assert_array_equal(indices[..., :size], np.argsort(-x, axis=-1)[..., :count])
    np.testing.assert_array_equal(values[..., :size], -np.sort(-x, axis=-1)[..., :count])
    assert (values.numpy()[..., size:] == IMPOSSIBLE).all()


def test_the_largest_of_nothing_possible_are_still_tokens():
    _, indices = largest(tf.fill([2, 3, 131], IMPOSSIBLE), 131)
    assert np.max(indices) <= 130


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


def test_options_that_ask_for_nothing_change_nothing():
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


def test_the_prefix_is_all_there_is_while_it_lasts():
    for length, token in enumerate([7, 8, 7]):
        found = allowed([7, 8, 7, 0, 0], length, prefix=[7, 8, 7], penalty=2.0, ngram=1)
        assert found[token] == pytest.approx(-np.log(11))  # even where it repeats itself
        assert all(found[other] == IMPOSSIBLE for other in range(11) if other != token)
    assert allowed([7, 8, 7, 0, 0], 3, prefix=[7, 8, 7])[9] == pytest.approx(-np.log(11))


def test_options_are_those_of_the_row_and_repetitions_those_of_the_hypothesis():
    hypotheses = Hypotheses(
        tf.constant([[[5, 6, 5], [7, 7, 8]], [[5, 6, 5], [7, 7, 8]]]), tf.zeros([2, 2]), tf.fill([2, 2], 3)
    )
    options = {
        "prefix": tf.zeros([2, 0], tf.int32),
        "repetition_penalty": tf.ones([2, 1]),
        "no_repeat_ngram": tf.constant([[2], [1]]),
    }
    log_probs, tokens = next_tokens(tf.zeros([2, 2, 11]), hypotheses, options, 11)
    left = [
        [set(t[p > IMPOSSIBLE]) for t, p in zip(*row, strict=True)]
        for row in zip(tokens.numpy(), log_probs, strict=True)
    ]
    everything = set(range(11))
    assert left == [[everything - {6}, everything], [everything - {5, 6}, everything - {7, 8}]]


@pytest.mark.parametrize("poison", [[np.nan], [np.inf], [IMPOSSIBLE] * 11])
def test_under_options_there_is_no_next_token_without_a_distribution_either(poison):
    logits = np.zeros(11, "float32")
    logits[: len(poison)] = poison
    assert (allowed([5, 0], 1, logits=logits) == IMPOSSIBLE).all()


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


def test_another_position_draws_other_tokens():
    first, second = (list(draw(np.zeros(7), position))[1] for position in (3, 4))
    assert np.mean(first == second) == pytest.approx(1 / 7, abs=0.02)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nothing_is_drawn_where_there_is_no_distribution(poison):
    log_probs, _ = draw([0.0, poison, 0.0])
    assert (log_probs == IMPOSSIBLE).all()


def test_random_numbers_are_uniform_and_of_their_own_seed_and_position():
    numbers = np.array([uniform(tf.range(5000, dtype=tf.int64)[:, None], position)[:, 0] for position in range(3)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    np.testing.assert_allclose(np.histogram(numbers, 10)[0] / numbers.size, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.06


# The loop


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


@pytest.mark.parametrize("steps", [[5], [3, 1, 7, 2, 2], [1, 1, 1], [0, 4, 0], [0, 0], [], [13, 1, 1, 1, 1, 1, 1]])
def test_every_row_goes_through_all_its_steps_whatever_the_others_do(steps):
    results, given = countdown(steps)
    assert results["total"].numpy().tolist() == [n * (n - 1) // 2 for n in steps]
    assert len(given) == max(steps, default=0)


def test_rows_that_are_done_are_left_out_when_they_are_half():
    _, given = countdown([1, 7, 2, 3, 7, 2, 3])
    assert given == [7, 7, 7, 2, 2, 2, 2]  # 3 of 7 are done after two steps, not yet half; after three steps 5 are


def test_results_are_of_the_step_at_which_rows_were_left_out():
    results, _ = countdown([1, 1, 5])
    assert results["last"].numpy().tolist() == [1, 1, 5]
