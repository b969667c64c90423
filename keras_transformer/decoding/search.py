"""The loop that every search runs in: step by step, until all rows are done."""

import tensorflow as tf


def search(advance, state, results):
    """Advances the rows of a state until all are done; as soon as half of them are, only the others go on.

    A batch would otherwise cost as much as its longest row, times its rows.

    Args:
        advance: function from state to state.
        state: a NamedTuple of nests of tensors (B, ...) and scalars, with `done`, bool (B,). An axis that grows from
            step to step (one that the cache is appended to) must start out empty, or of unknown size: the other axes
            keep their static size.
        results: function from a state to what is wanted of it in the end, a nest of tensors (B, ...).

    Returns:
        the results of every row after the step in which it was done.
    """
    unfinished = tf.where(~state.done)[:, 0]

    def go_on(rows, state, found):
        state = _loop(_most_are_under_way, lambda state: (advance(state),), (state,))[0]
        found = tf.nest.map_structure(
            lambda all_rows, some: tf.tensor_scatter_nd_update(all_rows, rows[:, None], some), found, results(state)
        )
        left = tf.where(~state.done)[:, 0]
        return tf.gather(rows, left), take_rows(state, left), found

    start = (unfinished, take_rows(state, unfinished), results(state))
    return _loop(lambda rows, *_: tf.size(rows) > 0, go_on, start)[-1]


def take_rows(state, rows):
    """The rows named by `rows`, int (R,), of every tensor (B, ...) of a nest; scalars as they are."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows) if x.shape.rank else x, state)


def _most_are_under_way(state):
    return 2 * tf.math.count_nonzero(state.done, dtype=tf.int32) < tf.size(state.done)


def _loop(cond, body, start):
    def invariant(tensor):
        sizes = [None, *(size or None for size in tensor.shape[1:])]
        return tf.TensorShape(sizes[: tensor.shape.rank])

    return tf.while_loop(cond, body, start, shape_invariants=tf.nest.map_structure(invariant, start))
