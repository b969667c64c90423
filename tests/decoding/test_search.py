from typing import NamedTuple

import pytest
import tensorflow as tf

from keras_transformer.decoding.search import search


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
