"""A SavedModel with compiled searches: XLA programs of fixed sizes. On a CPU, a sentence takes less time than op by op.

A program is for so many rows and so long a source. It reads the source, and takes all the steps for which its caches
have room. The steps are those of every other search: the same functions, compiled. A batch goes through the smallest
program that holds it. When so few rows are left that a smaller one holds them, that one goes on. A row that needs more
room goes on without a program, and so does a batch that no program holds.
"""

import functools
import inspect
import itertools
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding import search
from keras_transformer.errors import ExportError, UserError
from keras_transformer.export.saved_model import SavedModelExport
from keras_transformer.export.warmup import TEXT
from keras_transformer.presets import PROGRAM_LENGTHS, PROGRAM_ROWS
from keras_transformer.tools import check_ascending
from keras_transformer.tools.words import words_of

MOST_TIES = 0.02  # share of the translations that may differ where their scores are equal
LARGEST = 1024  # rows, and pieces of a source: programs of more take minutes, and gigabytes, to compile


class CompiledExport(SavedModelExport):
    """An export for TensorFlow Serving whose `translate` and `alternatives` run XLA programs.

    Args:
        translator, precision, shortlist: see `SavedModelExport`.
        programs: `Programs`.
    """

    def __init__(self, translator, precision="float32", shortlist=None, *, programs):
        super().__init__(translator, precision, shortlist)
        self.programs = programs
        self.warm_up_texts = texts_of_programs(programs, translator.source_tokenizer)

    def describe(self, directory):
        """The entries of the manifest for this format, a dict."""
        return {**super().describe(directory), "programs": self.programs.listed()}

    def check(self, translate_batch, sentences):
        """Raises ExportError if a program, or the way around it, translates otherwise than the run.

        Every program gets as many texts as it takes, and one more text or a longer one goes past each.
        """
        rows = []
        for batch in batches_of_programs(self.programs, self.reference.source_tokenizer, sentences):
            sizes = [len(batch)] * len(batch)
            rows += zip(batch, sizes, *self.expected(batch), *translate_batch(batch), strict=True)
        faults = [row for row in rows if not abs(row[3] - row[5]) <= self.score_tolerance]
        others = [row for row in rows if row[2] != row[4]]
        most = max(MOST_TIES, 2 * (1 - self.least_equal))  # these texts are no sentences: rounding changes more of them
        faults += others if len(others) > most * len(rows) else []
        if faults:
            text, size, expected, expected_score, found, score = faults[0]
            raise ExportError(
                f"a compiled program translates {text!r} in a batch of {size} to {found!r} (score {score:.4f}), the "
                f"run directory to {expected!r} ({expected_score:.4f}): {self.advice}"
            )


def batches_of_programs(programs, tokenizer, sentences):
    """Texts that go through every program, and just past it: yields lists of str.

    Args:
        programs: `Programs`.
        tokenizer: `Tokenizer` of the sentences.
        sentences: list of str with words, of which the texts are made.
    """
    words = [word for sentence in sentences for word in words_of(sentence)]
    numbers = tokenizer.encode(tf.constant(words)).row_lengths().numpy().tolist()

    def text_of(first, most):
        chosen, left = [], most
        for word, number in itertools.islice(itertools.cycle(zip(words, numbers, strict=True)), first, first + most):
            left -= number
            if left < 0 and chosen:
                break
            chosen.append(word)
        return " ".join(chosen)

    for length in programs.lengths:
        for rows in programs.rows:
            yield [text_of(row, length) for row in range(rows)]
    yield [text_of(0, programs.lengths[-1] + 5)]
    yield [text_of(row, programs.lengths[0]) for row in range(programs.rows[-1] + 1)]


def texts_of_programs(programs, tokenizer):
    """The requests that reach each compiled program: a text of its length, and its rows. List of (str, int).

    Args:
        programs: `Programs`.
        tokenizer: `Tokenizer` of the texts.
    """
    words = TEXT.rstrip(".").split()
    texts = [" ".join(itertools.islice(itertools.cycle(words), n)) for n in range(1, programs.lengths[-1] + 1)]
    numbers = [len(ids) for ids in tokenizer.encode(tf.constant(texts)).to_list()]
    found = []
    for length, shorter in zip(programs.lengths, (0, *programs.lengths), strict=False):
        fitting = [text for text, number in zip(texts, numbers, strict=True) if shorter < number <= length]
        found += [(text, rows) for text in fitting[-1:] for rows in programs.rows]
    return found


def checked_programs(programs, model, shortlist=None):
    """The `Programs` of an export.

    Args:
        programs: `Programs`, or True for those of the usual sizes.
        model: `SequenceToSequence`.
        shortlist: of the search, or None.

    Raises:
        UserError: for sizes that no programs can have, and for a search that they cannot run.
    """
    programs = Programs(PROGRAM_ROWS, PROGRAM_LENGTHS) if programs is True else programs
    check_ascending(rows=programs.rows, lengths=programs.lengths)
    if (largest := max(*programs.rows, *programs.lengths)) > LARGEST:
        raise UserError(f"`rows` and `lengths` are at most {LARGEST:,}. Received: {largest:,}")
    if shortlist is not None:
        raise UserError("programs have fixed sizes, and a shortlist has another size for each batch: leave out one")
    for member in model.members():
        if "room" not in inspect.signature(member.start).parameters:
            raise UserError(f"the `start` and `step` of {type(member).__name__} need the argument `room` for programs")
    return programs


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
            make: function from `room_of`, or no argument, to a `ModelSearch`.
            source_ids, limits, wanted, options: see `ModelSearch.begin`. Options are tags, (B,).

        Returns:
            `Hypotheses`.
        """
        count, length = tf.unstack(tf.shape(source_ids))
        inputs, plain = (source_ids, limits, wanted, options), make()

        def op_by_op():
            return search.search(plain.advance, plain.begin(*inputs), plain.results)

        fits = (count <= self.rows[-1]) & (length <= self.lengths[-1])
        found = tf.cond(fits, lambda: self._find(make(room_of=room_of), plain, *inputs), op_by_op)
        return search.presented(found, plain.pad_id)

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
        found = search.no_hypotheses(tf.zeros([count + 1], tf.int32), searching.width, plain.pad_id, room_of(length))
        owners, state, found = search.loop(goes_on, go_on, (owners, state, found))
        found = tf.cond(tf.reduce_all(state.done), lambda: found, lambda: _go_on(plain, owners, state, found))
        return tf.nest.map_structure(lambda x: x[:count], found)


def until(searching, state, fewer):
    """Advances until at most `fewer` rows are left or the room is full: the state, and the results so far."""
    room = tf.shape(searching.results(state).ids)[2]

    def goes_on(state):
        return (tf.math.count_nonzero(~state.done, dtype=tf.int32) > fewer) & (state.position < room)

    state = search.loop(goes_on, lambda state: (searching.advance(state),), (state,))[0]
    return state, searching.results(state)


def _go_on(plain, owners, state, found):
    """Goes on op by op with the rows whose programs had no more room."""
    left = tf.where(~state.done)[:, 0]
    columns = tf.maximum(tf.reduce_max(state.limits), tf.shape(found.ids)[2])
    state = search.take_rows(state, left)
    hypotheses = {name: x for name, x in state._asdict().items() if isinstance(x, search.Hypotheses)}
    state = state._replace(**{name: _with_columns(x, columns, plain.pad_id) for name, x in hypotheses.items()})
    more = search.search(plain.advance, state, plain.results)
    return _scattered(_with_columns(found, columns, plain.pad_id), tf.gather(owners, left), more)


def _with_columns(hypotheses, columns, pad_id):
    """The hypotheses with `columns` columns of ids, at least as many as the longest needs."""
    ids = hypotheses.ids[..., :columns]
    missing = [[0, 0], [0, 0], [0, columns - tf.shape(ids)[2]]]
    return hypotheses._replace(ids=tf.pad(ids, missing, constant_values=pad_id))


def _compacted(owners, state, rows, nobody):
    """The rows that are not done, and so many rows of `nobody` that all are `rows`."""
    left = tf.where(~state.done)[:, 0]
    missing = [[0, rows - tf.size(left)]]
    owners = tf.pad(tf.gather(owners, left), missing, constant_values=nobody)
    state = tf.nest.map_structure(lambda x: _fitted(x, rows), search.take_rows(state, left))
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
