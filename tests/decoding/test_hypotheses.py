import numpy as np
import tensorflow as tf

from keras_transformer.decoding import hypotheses as hyp

NEVER = hyp.IMPOSSIBLE


def test_length_penalty_by_hand():
    assert hyp.penalty(1, 0.6) == 1.0
    assert hyp.penalty(7, 1.0) == 2.0
    np.testing.assert_allclose(hyp.penalty([7, 19], 2.0), [4.0, 16.0])
    np.testing.assert_allclose(hyp.penalty([7, 19], 0.5), [2**0.5, 2.0])
    np.testing.assert_allclose(hyp.penalty([7, 19], 0.0), [1.0, 1.0])
    np.testing.assert_allclose(hyp.penalty(19, -1.0), 0.25)


def test_options_are_for_all_rows_or_one_each():
    lengths = tf.constant([[1, 7], [7, 19], [19, 1]])
    np.testing.assert_allclose(hyp.penalty(lengths, hyp.per_row(1.0, [0, 0, 0])), [[1, 2], [2, 4], [4, 1]])
    np.testing.assert_allclose(hyp.penalty(lengths, hyp.per_row([0.0, 1.0, 2.0], [0, 0, 0])), [[1, 1], [2, 4], [16, 1]])


def test_normalised_divides_by_the_penalty():
    given = hyp.Hypotheses(tf.zeros([1, 3, 2], tf.int32), tf.constant([[-3.0, 0.0, NEVER]]), tf.constant([[7, 0, 1]]))
    np.testing.assert_allclose(hyp.normalised(given, hyp.per_row(1.0, [0])).scores, [[-1.5, 0.0, NEVER]])


def test_the_start_is_one_empty_hypothesis():
    start = hyp.empty_hypotheses(tf.constant([5, 0]), 3, pad_id=9)
    np.testing.assert_array_equal(start.scores, [[0, NEVER, NEVER]] * 2)
    np.testing.assert_array_equal(start.lengths, np.zeros([2, 3]))
    np.testing.assert_array_equal(start.ids, np.full([2, 3, 5], 9))


def test_append_writes_behind_the_last_token():
    before = hyp.Hypotheses(tf.constant([[[5, 6, 0], [7, 0, 0]]]), tf.constant([[-1.0, -2.0]]), tf.constant([[2, 1]]))
    after = hyp.append(before, tf.constant([[8, 9]]), tf.constant([[-3.0, -4.0]]))
    np.testing.assert_array_equal(after.ids, [[[5, 6, 8], [7, 9, 0]]])
    np.testing.assert_array_equal(after.scores, [[-3, -4]])
    np.testing.assert_array_equal(after.lengths, [[3, 2]])


def test_take_selects_slots_of_every_tensor():
    nest = {"a": tf.range(6), "b": tf.range(12)}
    nest = {"a": tf.reshape(nest["a"], [2, 3]), "b": tf.reshape(nest["b"], [2, 3, 2])}
    taken = hyp.take(nest, tf.constant([[2, 2], [0, 1]]))
    np.testing.assert_array_equal(taken["a"], [[2, 2], [3, 4]])
    np.testing.assert_array_equal(taken["b"], [[[4, 5], [4, 5]], [[6, 7], [8, 9]]])


def test_where_rows_chooses_row_by_row():
    chosen = hyp.where_rows(
        tf.constant([True, False]), (tf.ones([2, 3]), tf.ones([2])), (tf.zeros([2, 3]), tf.zeros([2]))
    )
    np.testing.assert_array_equal(chosen[0], [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(chosen[1], [1, 0])


def test_presented_shows_nothing_of_unfilled_slots():
    given = hyp.Hypotheses(tf.fill([1, 2, 5], 7), tf.constant([[-1.5, NEVER]]), tf.constant([[3, 4]]))
    ids, scores, lengths = hyp.presented(given, pad_id=9)
    np.testing.assert_array_equal(ids, [[[7, 7, 7], [9, 9, 9]]])
    np.testing.assert_array_equal(scores, [[-1.5, hyp.UNFILLED_SCORE]])
    np.testing.assert_array_equal(lengths, [[3, 0]])


def test_alternatives_that_were_not_found_are_the_last_that_was():
    ids = tf.reshape(tf.range(8), [2, 4, 1])
    scores = tf.constant([[-1.0, -2.0, hyp.UNFILLED_SCORE, hyp.UNFILLED_SCORE], [-1.0, -2.0, -3.0, -4.0]])
    found = hyp.last_repeated(hyp.Hypotheses(ids, scores, tf.ones([2, 4], tf.int32)))
    assert found.ids.numpy().ravel().tolist() == [0, 1, 1, 1, 4, 5, 6, 7]
    assert found.scores.numpy().tolist() == [[-1.0, -2.0, -2.0, -2.0], [-1.0, -2.0, -3.0, -4.0]]
