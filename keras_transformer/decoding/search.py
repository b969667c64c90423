"""The parts of every search: hypotheses, the choice of the next token, and the loop over the positions.

Shapes: B rows, W hypotheses per row, L tokens at most, V vocabulary.

While a search runs, a score of `IMPOSSIBLE` marks a slot that holds no hypothesis. Minus infinity survives sums,
divisions and maxima, so no search treats an empty slot apart. Results never contain an infinity.
"""

from typing import NamedTuple

import tensorflow as tf

IMPOSSIBLE = float("-inf")
LOGITS_AT_A_TIME = 1024  # tokens: the (B, T, V) of a large batch would be gigabytes
UNFILLED_SCORE = -1e9  # finite, because infinity is not JSON
BLOCK = 64  # tokens compared together in the search for the most likely ones


class Hypotheses(NamedTuple):
    """W hypotheses per row, best first.

    As a result: the score is the log-probability divided by the GNMT length penalty. The first of every row is always
    a hypothesis, which may be empty. A later slot without one has `UNFILLED_SCORE`, length 0 and only padding.
    """

    ids: tf.Tensor  # int32 (B, W, L): without bos, with eos where it was reached, then padding
    scores: tf.Tensor  # float32 (B, W)
    lengths: tf.Tensor  # int32 (B, W): tokens, eos included


def no_hypotheses(limits, width, pad_id, room=None):
    """`width` slots per row without a hypothesis, with `room` columns: None for the largest of `limits`, int32 (B,)."""
    rows = tf.shape(limits)[0]
    if room is None:
        room = tf.maximum(tf.reduce_max(limits), 0)  # the maximum over no rows is the smallest int32
    return Hypotheses(
        ids=tf.fill([rows, width, room], pad_id),
        scores=tf.fill([rows, width], IMPOSSIBLE),
        lengths=tf.zeros([rows, width], tf.int32),
    )


def empty_hypotheses(limits, width, pad_id, room=None):
    """The start of a search: one empty hypothesis of log-probability 0 per row, and `width` - 1 slots without one.

    `width` equal starts would fill the beam with copies of the same hypothesis.
    """
    none = no_hypotheses(limits, width, pad_id, room)
    scores = tf.one_hot(0, width, on_value=0.0, off_value=IMPOSSIBLE)  # (W,)
    return none._replace(scores=tf.broadcast_to(scores, tf.shape(none.scores)))


def append(hypotheses, tokens, scores):
    """Appends tokens int32 (B, W) to the hypotheses; scores float32 (B, W) are those of the longer hypotheses."""
    ids, _, lengths = hypotheses
    here = tf.range(tf.shape(ids)[-1]) == lengths[..., None]  # (B, W, L)
    return Hypotheses(tf.where(here, tokens[..., None], ids), scores, lengths + 1)


def is_finished(tokens, eos_id):
    """Whether a hypothesis that ends in each of these tokens is finished, bool in their shape.

    Eos finishes it. A row that reaches its limit ends, too, but its hypotheses have no eos.
    """
    return tokens == eos_id


def penalty(lengths, length_penalty):
    """((5 + n) / 6)^alpha (Wu et al. 2016, equation 14).

    Args:
        lengths: n, int32, broadcastable with `length_penalty`.
        length_penalty: alpha, float32, finite; 0 compares log-probabilities, larger values favour longer hypotheses.
    """
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, length_penalty)


def normalised(hypotheses, length_penalty):
    """The hypotheses with their summed log-probabilities divided by the penalty of their length."""
    return hypotheses._replace(scores=hypotheses.scores / penalty(hypotheses.lengths, length_penalty))


def presented(hypotheses, pad_id):
    """The hypotheses as a result: no infinities, nothing left in empty slots, no more columns than needed."""
    ids, scores, lengths = hypotheses
    filled = scores > IMPOSSIBLE
    lengths = tf.where(filled, lengths, 0)
    columns = tf.maximum(tf.reduce_max(lengths), 0)
    ids = tf.where(filled[..., None], ids, pad_id)[..., :columns]
    return Hypotheses(ids, tf.where(filled, scores, UNFILLED_SCORE), lengths)


def last_repeated(hypotheses):
    """The hypotheses with the last one of every row repeated in the slots that hold none."""
    # A negative length penalty can make the score of a real hypothesis lower than `UNFILLED_SCORE`.
    found = tf.math.count_nonzero(hypotheses.scores != UNFILLED_SCORE, axis=1, keepdims=True, dtype=tf.int32)
    return take(hypotheses, tf.minimum(tf.range(hypotheses.scores.shape[1]), tf.maximum(found - 1, 0)))


def take(nest, indices):
    """Row by row the slots named by `indices`, int32 (B, W'), of every tensor (B, W, ...) of the nest."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices, batch_dims=1), nest)


def where_rows(rows, nest, otherwise):
    """`nest` in the rows where `rows`, bool (B,), is true, else `otherwise`; both nests of tensors (B, ...)."""

    def pick(x, y):
        return tf.where(tf.reshape(rows, [-1] + [1] * (x.shape.rank - 1)), x, y)

    return tf.nest.map_structure(pick, nest, otherwise)


def per_row(option, limits, dtype=tf.float32):
    """An option, a scalar or (B,), as a column (B, 1), which broadcasts over (B, W); `limits` is (B,)."""
    return tf.broadcast_to(tf.reshape(tf.cast(option, dtype), [-1, 1]), [tf.shape(limits)[0], 1])


# The next token


def next_tokens(logits, hypotheses, options, count):
    """The most likely next tokens of every hypothesis, under the options of its row.

    A hypothesis whose logits are not a distribution (a NaN, an infinity, nothing but minus infinity) is a dead end:
    all its continuations are `IMPOSSIBLE`.

    Args:
        logits: float (B, W, V).
        hypotheses: `Hypotheses` (B, W), which the logits continue.
        options: dict; {} for none, else with all of

            - "prefix": int32 (B, P), tokens that every hypothesis must start with, then 0;
            - "repetition_penalty": float32 (B, 1), positive; log-probabilities of tokens used already are multiplied
              by it;
            - "no_repeat_ngram": int32 (B, 1), no sequence of this many tokens comes twice; below 1, any may.
        count: number of tokens.

    Returns:
        log-probabilities float32 (B, W, count), best first, and their tokens, int32 (B, W, count). If V is less than
        `count`, the last ones are `IMPOSSIBLE`.
    """
    if not options:
        return _most_likely(logits, count)
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    log_probs = tf.where(tf.math.is_nan(log_probs), IMPOSSIBLE, log_probs)
    size = _size_of_last_axis(log_probs)

    is_used = marked(hypotheses.ids, _are_read(hypotheses), size)
    free = tf.where(is_used, log_probs * options["repetition_penalty"][..., None], log_probs)
    would_repeat = marked(hypotheses.ids, _end_repetitions(hypotheses, options["no_repeat_ngram"]), size)
    free = tf.where(would_repeat, IMPOSSIBLE, free)

    prefix = tf.pad(options["prefix"], [[0, 0], [0, 1]])  # never without a column
    is_forced = hypotheses.lengths < tf.math.count_nonzero(prefix, axis=1, keepdims=True, dtype=tf.int32)  # (B, W)
    forced = tf.gather(prefix, tf.where(is_forced, hypotheses.lengths, 0), batch_dims=1)
    only = tf.where(tf.range(size) == forced[..., None], log_probs, IMPOSSIBLE)
    return largest(tf.where(is_forced[..., None], only, free), count)


def drawn_tokens(logits, options, position):
    """One next token of every hypothesis, drawn at random.

    Args:
        logits: float (B, 1, V).
        options: dict with all of

            - "temperature": float32 (B, 1), positive; below 1, likely tokens become even likelier;
            - "top_k": int32 (B, 1), only this many of the most likely tokens may be drawn; below 1, all;
            - "top_p": float32 (B, 1), only the most likely tokens that have this probability together may be drawn, one
              at least;
            - "seed": int64 (B, 1), the same seed draws the same tokens, whatever rows share the batch.
        position: int32 scalar.

    Returns:
        log-probabilities float32 (B, 1, 1), those of the model before the options, and tokens, int32 (B, 1, 1).
    """
    log_probs, tokens = tf.math.top_k(tf.nn.log_softmax(tf.cast(logits[:, 0], tf.float32)), logits.shape[-1])  # (B, V)
    shares = tf.nn.softmax(log_probs / options["temperature"])
    ranks, before = tf.range(shares.shape[1]), tf.math.cumsum(shares, axis=1, exclusive=True)
    in_top_k = (ranks < options["top_k"]) | (options["top_k"] < 1)
    is_left = (ranks == 0) | (in_top_k & (before < options["top_p"]))
    mark = uniform(options["seed"], position) * tf.reduce_sum(tf.where(is_left, shares, 0.0), axis=1, keepdims=True)
    drawn = tf.math.count_nonzero(is_left & (before <= mark), axis=1, keepdims=True) - 1  # the last that starts before
    log_prob, token = (tf.gather(x, tf.maximum(drawn, 0), batch_dims=1)[..., None] for x in (log_probs, tokens))
    return tf.where(tf.math.is_nan(log_prob), IMPOSSIBLE, log_prob), token


def uniform(seed, position):
    """A random number that depends on seed and position alone: their hash, float32 in [0, 1), in the shape of seed."""
    text = tf.strings.join([tf.strings.as_string(seed), tf.strings.as_string(position)], separator=" ")
    return tf.cast(tf.strings.to_hash_bucket_fast(text, 1 << 24), tf.float32) / (1 << 24)


def _most_likely(logits, count):
    """`next_tokens` without options.

    A log-softmax of all tokens, of which few are needed, would be written to memory and searched: that takes longer.
    """
    logits = tf.cast(logits, tf.float32)
    chosen, tokens = largest(logits, count)
    best = tf.reduce_max(logits, axis=-1, keepdims=True)
    # Not less the logsumexp: that of a likely token would be a small difference of large numbers.
    log_probs = chosen - best - tf.math.log(tf.reduce_sum(tf.exp(logits - best), axis=-1, keepdims=True))
    return tf.where(tf.math.is_nan(log_probs), IMPOSSIBLE, log_probs), tokens


def largest(x, count):
    """The result of `tf.math.top_k`, with equal values in another order, by way of the maxima of blocks.

    Args:
        x: float32 (B, W, V); W is static.
        count: number of values. If V is less, the last values are `IMPOSSIBLE`.

    Returns:
        values float32 (B, W, count), largest first, and their indices, int32.
    """
    width, size = x.shape[1], _size_of_last_axis(x)
    fewest = -(-count // BLOCK)
    number = tf.maximum(-(-size // BLOCK), fewest) if tf.is_tensor(size) else max(-(-size // BLOCK), fewest)
    if tf.is_tensor(size) or size != number * BLOCK:
        x = tf.pad(x, [[0, 0], [0, 0], [0, number * BLOCK - size]], constant_values=IMPOSSIBLE)
    blocks = tf.reshape(x, [-1, width, number, BLOCK])
    _, first = tf.math.top_k(tf.reduce_max(blocks, axis=-1), tf.minimum(count, number))  # (B, W, C)
    few = tf.reshape(tf.gather(blocks, first, batch_dims=2), [-1, width, tf.minimum(count, number) * BLOCK])
    values, index = tf.math.top_k(few, count)
    index = tf.gather(first, index // BLOCK, batch_dims=2) * BLOCK + index % BLOCK
    return values, tf.minimum(index, size - 1)  # padding is chosen where nothing else is left


def _size_of_last_axis(x):
    """An int where the graph knows it, else an int32 scalar: a search among some pieces has V of its own."""
    return tf.shape(x)[-1] if x.shape[-1] is None else x.shape[-1]


def _are_read(hypotheses):
    """Which of the tokens are not padding, bool (B, W, L)."""
    return tf.range(tf.shape(hypotheses.ids)[-1]) < hypotheses.lengths[..., None]


def marked(ids, which, size):
    """Whether each of `size` tokens is among those of ids, int32 (B, W, L), that `which`, bool, marks: (B, W, V)."""
    shape = [tf.shape(ids)[0], ids.shape[1], size]
    hypothesis = tf.reshape(tf.range(shape[0] * shape[1]), [-1, shape[1], 1])
    cells = tf.reshape(hypothesis * size + ids, [-1, 1])
    marks = tf.scatter_nd(cells, tf.reshape(tf.cast(which, tf.int32), [-1]), [tf.reduce_prod(shape)])
    return tf.reshape(marks > 0, shape)


def _end_repetitions(hypotheses, sizes):
    """Which tokens, if they came next, would end a sequence of `sizes` tokens that has occurred before.

    These tokens follow an earlier occurrence of the last `sizes` - 1 tokens.

    Args:
        hypotheses: `Hypotheses` (B, W).
        sizes: int32 (B, 1).

    Returns:
        bool (B, W, L), for each token of the hypotheses.
    """
    ids, _, lengths = hypotheses
    positions, sizes = tf.range(tf.shape(ids)[-1]), sizes[..., None]  # (L,), (B, 1, 1)
    # No sequence longer than the hypothesis is in it.
    can_repeat = (sizes >= 1) & (sizes <= lengths[..., None])  # (B, W, 1)
    most = tf.reduce_max(tf.where(can_repeat, sizes, 0))

    def compare(back, agree):
        newest = tf.gather(ids, tf.maximum(lengths - back, 0)[..., None], batch_dims=2)  # (B, W, 1)
        is_same = (tf.roll(ids, back, axis=2) == newest) & (positions >= back)
        return back + 1, agree & (is_same | (back >= sizes))

    start = tf.constant(1), _are_read(hypotheses) & can_repeat
    # One position after the other: all at once would be (B, W, L, L).
    return tf.while_loop(lambda back, agree: (back < most) & tf.reduce_any(agree), compare, start)[1]


# The loop


def log_probs_of(logits, states, labels):
    """The log-probabilities of given tokens.

    Args:
        logits: function from states (n, D) to (n, V).
        states: (N, D), those that predict the tokens.
        labels: int32 (N,), the tokens.

    Returns:
        float32 (N,).
    """

    def log_probs(some):
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels[some], logits(states[some]))

    return in_turn(log_probs, tf.size(labels), LOGITS_AT_A_TIME, tf.zeros([0]))


def in_turn(work, count, at_a_time, nothing):
    """Does some rows after the other, so that memory does not grow with their number.

    Args:
        work: function from the slice of some rows to a nest of tensors (n, ...).
        count: number of rows, an int scalar.
        at_a_time: most rows of a slice, an int of the same type.
        nothing: the nest for no rows, of tensors (0, ...). Axes may be of unknown size.

    Returns:
        the nest for all rows.
    """

    def body(start, found):
        more = work(slice(start, start + at_a_time))
        found = tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), found, more)
        return start + at_a_time, found

    start = tf.zeros_like(count), nothing
    return loop(lambda start, _: start < count, body, start, parallel_iterations=1)[1]


def search(advance, state, results):
    """Advances the rows of a state until all are done. When half of them are done, only the others go on.

    A batch would otherwise cost as much as its longest row, times its rows.

    Args:
        advance: function from state to state.
        state: a NamedTuple of nests of tensors (B, ...) and scalars, with `done`, bool (B,). An axis that grows from
            step to step (such as the positions of a cache) must start out empty, or of unknown size: the other axes
            keep their static size.
        results: function from a state to the result of the search, a nest of tensors (B, ...).

    Returns:
        the results of every row after the step in which it was done.
    """
    unfinished = tf.where(~state.done)[:, 0]

    def go_on(rows, state, found):
        state = loop(_most_are_under_way, lambda state: (advance(state),), (state,))[0]
        found = tf.nest.map_structure(
            lambda all_rows, some: tf.tensor_scatter_nd_update(all_rows, rows[:, None], some), found, results(state)
        )
        left = tf.where(~state.done)[:, 0]
        return tf.gather(rows, left), take_rows(state, left), found

    start = (unfinished, _free_to_grow(take_rows(state, unfinished)), results(state))
    return loop(lambda rows, *_: tf.size(rows) > 0, go_on, start)[-1]


def run(searching, state):
    """The result of a search from its first state: `Hypotheses`.

    Args:
        searching: `BeamSearch`, `SingleSearch`, or another object with their `advance`, `results` and `pad_id`.
        state: what its `begin` gives.
    """
    return presented(search(searching.advance, state, searching.results), searching.pad_id)


def take_rows(state, rows):
    """The rows named by `rows`, int (R,), of every tensor (B, ...) of a nest; scalars as they are."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows) if x.shape.rank else x, state)


def _free_to_grow(state):
    """The same state, in which no empty axis of a tensor (B, ...) has a static size.

    TensorFlow's loop uses the declared shapes. A converter for another engine may use the shapes of the tensors before
    the loop, and an axis of static size 0 would never grow there.
    """
    zero = tf.minimum(tf.size(state.done), 0)  # no compiler knows its value

    def without_empty_axes(x):
        axes = [slice(zero) if size == 0 else slice(None) for size in x.shape]
        return x[tuple(axes)] if 0 in x.shape else x

    return tf.nest.map_structure(without_empty_axes, state)


def _most_are_under_way(state):
    return 2 * tf.math.count_nonzero(state.done, dtype=tf.int32) < tf.size(state.done)


def loop(cond, body, start, **how):
    """A `tf.while_loop` over nests of tensors (B, ...) and scalars, whose rows may become more or fewer."""
    shapes = tf.nest.map_structure(lambda x: tf.TensorShape([None, *x.shape[1:]][: x.shape.rank]), start)
    return tf.while_loop(cond, body, start, shape_invariants=shapes, **how)
