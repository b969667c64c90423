"""Compiled searches: XLA programs of fixed sizes. On a CPU, a sentence takes less time than op by op.

A program is for so many rows and so long a source. It reads the source, and takes all the steps for which its caches
have room. The steps are those of every other search: the same functions, compiled. A batch goes through the smallest
program that holds it. When so few rows are left that a smaller one holds them, that one goes on. A row that needs more
room goes on without a program, and so does a batch that no program holds.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.search import loop, no_hypotheses, presented, search, take_rows, with_columns


def room_of(length):
    """The steps that a program takes for sources of so many tokens."""
    return length + length // 2


class Programs(NamedTuple):
    """The sizes of compiled searches, and the search through them.

    For each number of rows and each length, one program reads the source, and another takes the steps.

    Args:
        rows: tuple of int, numbers of rows, ascending.
        lengths: tuple of int, most tokens of a source, ascending.
    """

    rows: tuple
    lengths: tuple

    def listed(self):
        """The sizes of every program, for a manifest: list of {"rows": int, "length": int, "steps": int}."""
        return [
            {"rows": rows, "length": length, "steps": room_of(length)} for length in self.lengths for rows in self.rows
        ]

    def find(self, make, source_ids, limits, wanted, options):
        """The result of a search.

        Args:
            make: function from `has_room`, bool, to a `ModelSearch`.
            source_ids, limits, wanted, options: see `ModelSearch.begin`. Options are tags, (B,).

        Returns:
            `Hypotheses`.
        """
        count, length = tf.unstack(tf.shape(source_ids))
        inputs, plain = (source_ids, limits, wanted, options), make(False)

        def op_by_op():
            return search(plain.advance, plain.begin(*inputs), plain.results)

        fits = (count <= self.rows[-1]) & (length <= self.lengths[-1])
        found = tf.cond(fits, lambda: self._find(make(True), plain, *inputs), op_by_op)
        return presented(found, plain.pad_id)

    def _find(self, searching, plain, *inputs):
        """Runs the programs, and then op by op the rows that need more room."""
        # A program is traced once, for all sizes. XLA compiles it for every size that comes.
        begin = tf.function(searching.begin, jit_compile=True, autograph=False)
        take_steps = tf.function(functools.partial(until, searching), jit_compile=True, autograph=False)
        count, length = tf.unstack(tf.shape(inputs[0]))
        length = _smallest(self.lengths, length)

        def goes_on(owners, state, found):
            return tf.reduce_any(~state.done) & (state.position < tf.shape(found.ids)[2])

        def go_on(owners, state, found):
            rows = _smallest(self.rows, tf.math.count_nonzero(~state.done, dtype=tf.int32))
            owners, state = tf.cond(
                rows == tf.size(owners), lambda: (owners, state), lambda: _compacted(owners, state, rows, count)
            )
            fewer = tf.reduce_max(tf.where(tf.constant(self.rows) < rows, self.rows, 0))
            state, more = take_steps(state, fewer)
            return owners, state, _scattered(found, owners, more)

        rows = _smallest(self.rows, count)
        state = begin(*tf.nest.map_structure(lambda x: _fitted(x, rows, length), inputs))
        # The row of the batch to which each row of the state belongs; `count` is none of them.
        owners = tf.minimum(tf.range(rows), count)
        found = no_hypotheses(tf.zeros([count + 1], tf.int32), searching.width, plain.pad_id, room_of(length))
        owners, state, found = loop(goes_on, go_on, (owners, state, found))
        found = tf.cond(tf.reduce_all(state.done), lambda: found, lambda: _go_on(plain, owners, state, found))
        return tf.nest.map_structure(lambda x: x[:count], found)


def until(searching, state, fewer):
    """Advances until at most `fewer` rows are left or the room is full: the state, and the results so far."""
    room = tf.shape(searching.results(state).ids)[2]

    def goes_on(state):
        return (tf.math.count_nonzero(~state.done, dtype=tf.int32) > fewer) & (state.position < room)

    state = loop(goes_on, lambda state: (searching.advance(state),), (state,))[0]
    return state, searching.results(state)


def _go_on(plain, owners, state, found):
    """Goes on op by op with the rows whose programs had no more room."""
    left = tf.where(~state.done)[:, 0]
    columns = tf.maximum(tf.reduce_max(state.limits), tf.shape(found.ids)[2])
    state = plain.with_columns(take_rows(state, left), columns)
    more = search(plain.advance, state, plain.results)
    return _scattered(with_columns(found, columns, plain.pad_id), tf.gather(owners, left), more)


def _compacted(owners, state, rows, nobody):
    """The rows that are not done, and so many rows of `nobody` that all are `rows`."""
    left = tf.where(~state.done)[:, 0]
    missing = [[0, rows - tf.size(left)]]
    owners = tf.pad(tf.gather(owners, left), missing, constant_values=nobody)
    state = tf.nest.map_structure(lambda x: _fitted(x, rows), take_rows(state, left))
    return owners, state._replace(done=owners == nobody)


def _scattered(found, owners, more):
    """The `Hypotheses` of a batch, with those of some rows in their places."""
    return tf.nest.map_structure(lambda x, some: tf.tensor_scatter_nd_update(x, owners[:, None], some), found, more)


def _smallest(sizes, number):
    """The smallest of the sizes that is at least the number, int32 scalar."""
    return tf.gather(sizes, tf.searchsorted(tf.constant(sizes), number[None])[0])


def _fitted(x, rows, length=None):
    """x (B, ...) with more rows of zeros; a source (B, S) with more padding, too."""
    if not x.shape.rank:
        return x
    missing = [[0, rows - tf.shape(x)[0]], *[[0, 0]] * (x.shape.rank - 1)]
    if length is not None and x.shape.rank == 2:
        missing[1] = [0, length - tf.shape(x)[1]]
    return tf.pad(x, missing)
