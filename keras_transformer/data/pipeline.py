"""From token ids to padded batches: few lengths a batch, a token budget, a new order every epoch."""

import functools
import itertools

import numpy as np
import tensorflow as tf

from keras_transformer.data.encoded import Share
from keras_transformer.data.links import as_weights
from keras_transformer.errors import CorpusError
from keras_transformer.private_api import WholeDataset
from keras_transformer.tokenizer import shift_right

SOURCE_STEP = 4  # source lengths this close may share a batch
PREFETCHED = 4  # batches that are ready before the trainer asks for them


def sort_by_length(source_lengths, target_lengths, ties):
    """The order in which pairs of about the same length stand together.

    Args:
        source_lengths: int (N,).
        target_lengths: int (N,).
        ties: int (N,), which decides between pairs of the same length.

    Returns:
        int64 (N,): row numbers, sorted by the longer side, then by the source length in steps of `SOURCE_STEP`.
    """
    widths = np.maximum(source_lengths, target_lengths)
    narrow = np.min_scalar_type(widths.max())  # NumPy sorts 16 bits by radix: 2.5 times as fast for millions of pairs
    return np.lexsort((ties, (source_lengths // SOURCE_STEP).astype(narrow), widths.astype(narrow)))


def rows_of_epoch(shares, source_lengths, target_lengths, seed, epoch):
    """The pairs that an epoch takes.

    Args:
        shares: list of `Share`, of all N pairs in their order.
        source_lengths: int (N,).
        target_lengths: int (N,).
        seed: int. Together with the cycle of q epochs, it decides which pairs of the same length go together.
        epoch: int.

    Returns:
        int64 (M,): row numbers, each as often as the epoch takes the row.
    """
    rows = []
    for number, (share, part) in enumerate(_parts(shares)):
        order = np.arange(share.size)
        if share.weight.denominator > 1:
            ties = np.random.default_rng((seed, epoch // share.weight.denominator, number)).permutation(share.size)
            order = sort_by_length(source_lengths[part], target_lengths[part], ties)
        rows.append(part.start + np.repeat(order, share.times(epoch)))
    return np.concatenate(rows)


def widest_rows(shares, source_lengths, target_lengths):
    """The pairs of the widest epoch. Sorted by length, its n-th last pair is at least as long as that of any epoch.

    Args:
        shares, source_lengths, target_lengths: as for `rows_of_epoch`.

    Returns:
        int64 (M,): row numbers, as many as the largest epoch has.
    """
    rows = []
    for share, part in _parts(shares):
        order = sort_by_length(source_lengths[part], target_lengths[part], np.arange(share.size))
        rows.append(part.start + order[share.latest_places()])
    return np.concatenate(rows)


def _parts(shares):
    """Every share with the slice of its rows."""
    stops = np.cumsum([share.size for share in shares]).tolist()
    return [(share, slice(stop - share.size, stop)) for share, stop in zip(shares, stops, strict=True)]


def plan_batches(source_lengths, target_lengths, batch_tokens):
    """Decides which pairs form which batch: pairs of about the same length, so that little is padded.

    A batch holds as many rows as fit `batch_tokens` at the length of its longest side.

    Args:
        source_lengths: int (N,).
        target_lengths: int (N,), eos counted.
        batch_tokens: most positions of either side of a batch, padding included.

    Returns:
        A list of int (B,) arrays of row numbers, sorted by length; every row is in exactly one.
    """
    order = sort_by_length(source_lengths, target_lengths, np.arange(len(source_lengths)))
    sorted_widths = np.maximum(source_lengths, target_lengths)[order]
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, batch_tokens // int(sorted_widths[start]))
        while stop > start + 1 and (stop > len(order) or sorted_widths[stop - 1] * (stop - start) > batch_tokens):
            stop = min(stop - 1, len(order))
        batches.append(order[start:stop])
        start = stop
    return batches


def plan_epoch(pairs, sizes, seed, epoch):
    """Decides which pairs form which batch in an epoch.

    Args:
        pairs: `EncodedPairs`.
        sizes: list of int, from `batch_sizes`.
        seed: int. It orders pairs of the same length, and the batches.
        epoch: int.

    Returns:
        A list of int (B,) arrays of row numbers, as many as `sizes`. A row is in them as often as the epoch takes it.
    """
    lengths = pairs.lengths
    rows = rows_of_epoch(_shares(pairs), *lengths, seed, epoch)
    rng = np.random.default_rng((seed, epoch))
    rows = rows[sort_by_length(*(side[rows] for side in lengths), rng.permutation(len(rows)))]
    # The sizes are those of the widest epoch. This epoch may have fewer pairs: then its first batches are smaller.
    missing = sum(sizes) - len(rows)
    cuts = np.maximum(np.cumsum([0, *sizes]) - missing, np.arange(len(sizes) + 1))
    batches = [rows[start:stop] for start, stop in itertools.pairwise(cuts)]
    rng.shuffle(batches)
    return batches


def batch_sizes(pairs, batch_tokens):
    """The number of pairs in every batch of an epoch, in the order of their lengths: a list.

    The numbers are the same in every epoch, so every epoch has equally many batches.

    Args:
        pairs: `EncodedPairs`.
        batch_tokens: most positions of either side of a batch, padding included.

    Raises:
        CorpusError: if an epoch may have fewer pairs than batches.
    """
    shapes, fewest = batch_shapes(pairs, batch_tokens), sum(share.fewest for share in _shares(pairs))
    if fewest < len(shapes):
        raise CorpusError(
            f"with these weights, an epoch may have only {fewest:,} pairs for {len(shapes):,} batches: raise the "
            "weight after the last colon of `dataset`, or raise `batch_tokens`"
        )
    return [rows for rows, _, _ in shapes]


def _shares(pairs):
    return pairs.shares or (Share(len(pairs)),)


def make_batch(pairs, rows, vary=None):
    """The pairs `rows` as padded arrays.

    Args:
        pairs: `EncodedPairs`.
        rows: int (B,).
        vary: function `EncodedPairs` -> `EncodedPairs` that changes the pairs, which it gets without tags.

    Returns:
        source_ids int32 (B, S), a tag first if pairs have tags, and labels int32 (B, T) = y1 ... yn eos; and behind
        them, if pairs have links, these as float32 (B, T, S), see `as_weights`.
    """
    source_tags = pairs.source_tags(rows)
    if vary is not None:
        pairs = vary(pairs.of(rows))
        rows = np.arange(len(rows))
    source_ids, labels = np.hstack([source_tags, pairs.source.padded(rows)]), pairs.target.padded(rows)
    if pairs.links is None:
        return source_ids, labels
    links = as_weights(pairs.links.of(rows), labels.shape[1], source_ids.shape[1], source_tags.shape[1])
    return source_ids, labels, links


def teacher_forced(source_ids, labels, first_ids=None, links=None):
    """A batch as `fit` takes it: every label is predicted from the labels before it.

    Args:
        source_ids: int32 (B, S).
        labels: int32 (B, T) = y1 ... yn eos.
        first_ids: int32 (B,), in place of bos.
        links: float32 (B, T, S), for `GuidedAlignment`.

    Returns:
        ({"source_ids": int32 (B, S), "target_ids": int32 (B, T) = bos y1 ... yn}, labels), with "links" in the dict if
        there are any.
    """
    inputs = {"source_ids": source_ids, "target_ids": shift_right(labels, first_ids)}
    return (inputs if links is None else {**inputs, "links": links}), labels


def _dataset(pairs, batches):
    """The dataset of `batches`, a generator function of (rows, vary): batches of the pairs."""

    def generate():
        for rows, vary in batches():
            source_ids, labels, *links = make_batch(pairs, rows, vary)
            yield source_ids, labels, pairs.first_ids(rows), *links

    ids, first_ids = tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int32)
    links = () if pairs.links is None else (tf.TensorSpec((None, None, None), tf.float32),)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(ids, ids, first_ids, *links))
    options = tf.data.Options()
    # In TensorFlow 2.21, the thread of the autotuner can sleep through the end of an iterator, for as long as it lived.
    options.autotune.enabled = False
    return dataset.map(teacher_forced).prefetch(PREFETCHED).with_options(options)


def training_batches(pairs, batch_tokens, seed, first_epoch=0, first_batch=0, vary=None):
    """Batches without end, every epoch in an order of its own that depends on (seed, epoch) alone.

    Every epoch takes as much of each corpus as its weight says, see `Share`.

    Args:
        pairs: `EncodedPairs`.
        batch_tokens: most positions of either side of a batch.
        seed: int.
        first_epoch: epoch to begin with, so that a resumed run sees the batches of an uninterrupted one.
        first_batch: batch of `first_epoch` to begin with.
        vary: function (`EncodedPairs`, rng, number) -> `EncodedPairs` that changes the pairs of a batch. The NumPy
            generator `rng` depends on seed, epoch and batch. `number` counts the batches from the start of the run.
            None leaves pairs as they are.

    Returns:
        tf.data.Dataset of `teacher_forced` batches.
    """

    sizes = batch_sizes(pairs, batch_tokens)

    def batches():
        skip = first_batch
        for epoch in itertools.count(first_epoch):
            plan = plan_epoch(pairs, sizes, seed, epoch)
            for number in range(skip, len(plan)):
                rows, rng = plan[number], np.random.default_rng((seed, epoch, number))
                change = vary and functools.partial(vary, rng=rng, number=epoch * len(plan) + number)
                yield rows, change
            skip = 0

    return _dataset(pairs, batches)


class Undivided(WholeDataset, tf.distribute.DistributedDataset):
    """Batches for `fit` and `evaluate` that Keras leaves whole: `TeacherForcing` deals their rows to the replicas.

    Keras has a strategy divide any other dataset. In TensorFlow 2.21, the iterators of a strategy can take as long to
    end as they have lived: no option turns their autotuner off.

    Args:
        dataset: tf.data.Dataset, the same on every worker of the strategy.
    """


def deal(batch, strategy):
    """Deals out the rows of a batch to the replicas of a strategy.

    Of n replicas, replica i gets the rows i, i + n, ..., or no row if there are too few.

    Args:
        batch: nested tensors (B, ...).
        strategy: tf.distribute.Strategy.

    Returns:
        the same nest of tensors, or of values for each replica.
    """
    count = strategy.num_replicas_in_sync
    if count == 1:
        return batch

    def share(context):
        return tf.nest.map_structure(lambda x: x[context.replica_id_in_sync_group :: count], batch)

    return strategy.experimental_distribute_values_from_function(share)


def count_batches(pairs, batch_tokens):
    """The number of batches in an epoch, the same in every one."""
    return len(batch_sizes(pairs, batch_tokens))


@functools.lru_cache(4)  # it sorts the whole corpus, and a start asks for the same several times
def batch_shapes(pairs, batch_tokens):
    """(B, S, T) of every batch of an epoch, a list. If a corpus has a weight, this is the widest epoch."""
    sides = pairs.lengths
    widest = widest_rows(_shares(pairs), *sides)
    batches = plan_batches(*(side[widest] for side in sides), batch_tokens)
    return [(len(batch), *(int(side[widest[batch]].max()) for side in sides)) for batch in batches]


def evaluation_batches(pairs, batch_tokens):
    """Every pair once, sorted by length. Arguments and batches as in `training_batches`."""
    plan = plan_batches(*pairs.lengths, batch_tokens)
    return _dataset(pairs, lambda: ((rows, None) for rows in plan))


def validation_batches(pairs, batch_tokens):
    """Pairs for `evaluate` again and again: `Undivided` without end, and the number of batches to take."""
    return Undivided(evaluation_batches(pairs, batch_tokens).repeat()), count_batches(pairs, batch_tokens)
