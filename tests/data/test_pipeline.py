import itertools
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data.encoded import EncodedPairs, Sentences, Share
from keras_transformer.data.pipeline import (
    batch_shapes,
    batch_sizes,
    count_batches,
    deal,
    evaluation_batches,
    make_batch,
    plan_batches,
    plan_epoch,
    rows_of_epoch,
    sort_by_length,
    teacher_forced,
    training_batches,
)
from keras_transformer.errors import CorpusError
from tests import tiny

PAD, BOS, EOS = 0, 2, 3
BUDGET = 113
WEIGHTS = [Fraction(text) for text in ("1", "3", "0.3", "0.5", "1.5", "2.25", "0.01", "0.999")] + [Fraction(5, 29)]


def random_corpus(count, longest, seed=0):
    """A list of (source, target) tuples of token ids; lengths are mixed, the target's near the source's."""
    draw = np.random.default_rng(seed)
    lengths = np.minimum(draw.geometric(5 / longest, count), longest)
    others = np.clip(np.round(lengths * draw.normal(1.1, 0.2, count)), 1, longest).astype(int)
    return [tuple(tuple(draw.integers(4, 97, n).tolist()) for n in pair) for pair in zip(lengths, others, strict=True)]


def encode(corpus):
    sources, targets = zip(*corpus, strict=True)
    targets = [(*target, EOS) for target in targets]
    return EncodedPairs(Sentences.of_lists(sources), Sentences.of_lists(targets), dropped={})


CORPUS = random_corpus(97, longest=31)
CORPUS += CORPUS[:3]  # pairs that occur twice are learned from twice


@pytest.fixture(scope="module")
def pairs():
    return encode(CORPUS)


@pytest.fixture(scope="module")
def mixed():
    """Three corpora in turn: whole, three tenths of it, and twice."""
    whole = encode(CORPUS)
    return EncodedPairs(whole.source, whole.target, {}, (Share(40), Share(31, Fraction("0.3")), Share(29, Fraction(2))))


def plain(batch):
    inputs, labels = batch
    return tuple(np.asarray(x) for x in (inputs["source_ids"], inputs["target_ids"], labels))


def read(dataset, count=None):
    """The first `count` batches, or all, as tuples (source_ids, target_ids, labels) of arrays."""
    return [plain(batch) for batch in itertools.islice(dataset, count)]


def pairs_in(batches):
    """The pairs in the batches, read off the sources and the labels alone: a list of (source, target) tuples."""
    found = []
    for source_ids, _, labels in batches:
        for source, label in zip(source_ids.tolist(), labels.tolist(), strict=True):
            found.append((tuple(x for x in source if x != PAD), tuple(label[: label.index(EOS)])))
    return found


def equal(batches, others):
    return len(batches) == len(others) and all(
        all(map(np.array_equal, batch, other)) for batch, other in zip(batches, others, strict=True)
    )


def test_every_epoch_has_every_pair_exactly_once_and_does_not_go_from_short_to_long(pairs):
    count = count_batches(pairs, BUDGET)
    batches = read(training_batches(pairs, BUDGET, seed=1), 2 * count)
    assert Counter(pairs_in(batches[:count])) == Counter(pairs_in(batches[count:])) == Counter(CORPUS)
    widths = [batch[1].shape[1] for batch in batches[:count]]
    assert widths != sorted(widths) and widths != sorted(widths, reverse=True)


def test_evaluation_has_every_pair_exactly_once_in_shapes_that_are_known_before(pairs):
    dataset = evaluation_batches(pairs, BUDGET)
    batches = read(dataset)
    assert Counter(pairs_in(batches)) == Counter(CORPUS) and len(batches) == count_batches(pairs, BUDGET) > 2
    assert equal(batches, read(dataset))
    assert batch_shapes(pairs, BUDGET) == [(*source.shape, labels.shape[1]) for source, _, labels in batches]


def test_rows_are_bos_sentence_eos_and_padding_up_to_the_longest_and_types_are_those_documented(pairs):
    corpus = [((5, 7, 11), (13,)), ((17,), (19, 23, 29, 31)), ((37, 41, 43, 47, 53), (59, 61))]
    found_ids, found_labels = make_batch(encode(corpus), np.array([1, 0]))
    source_ids, target_ids, labels = plain(teacher_forced(found_ids, found_labels))
    assert np.array_equal(source_ids, found_ids) and np.array_equal(labels, found_labels)
    assert found_ids.dtype == found_labels.dtype == target_ids.dtype == np.int32
    assert source_ids.tolist() == [[17, 0, 0], [5, 7, 11]]
    assert target_ids.tolist() == [[2, 19, 23, 29, 31], [2, 13, 0, 0, 0]]
    assert labels.tolist() == [[19, 23, 29, 31, 3], [13, 3, 0, 0, 0]]
    inputs, labels = training_batches(pairs, BUDGET, seed=1).element_spec
    assert (inputs, labels) == evaluation_batches(pairs, BUDGET).element_spec
    assert set(inputs) == {"source_ids", "target_ids"}
    assert {(*spec.shape, spec.dtype) for spec in (*inputs.values(), labels)} == {(None, None, tf.int32)}


@pytest.mark.parametrize("budget", [37, 1009])
def test_no_side_of_a_batch_has_more_positions_than_the_budget(pairs, budget):
    sources, targets = pairs.source.lengths, pairs.target.lengths
    for rows in (*plan_batches(sources, targets, budget), *plan_epoch(pairs, batch_sizes(pairs, budget), 17, epoch=3)):
        assert len(rows) * max(sources[rows].max(), targets[rows].max()) <= budget


def test_a_pair_longer_than_the_budget_is_a_batch_of_its_own():
    corpus = [*CORPUS[:29], ((5,) * 211, (7,)), ((11,), (13,) * 113)]  # 113 and eos are one too many
    batches = read(training_batches(encode(corpus), BUDGET, seed=1), count_batches(encode(corpus), BUDGET))
    over = [batch for batch in batches if max(batch[0].size, batch[1].size) > BUDGET]
    assert Counter(pairs_in(over)) == Counter(corpus[-2:]) and all(len(batch[0]) == 1 for batch in over)
    assert Counter(pairs_in(batches)) == Counter(corpus)


def test_little_is_padded_and_batches_are_full():
    corpus = encode(random_corpus(4001, longest=101))
    sources, targets = corpus.source.lengths, corpus.target.lengths
    plan = plan_batches(sources, targets, 2003)
    positions = [(len(rows) * sources[rows].max(), len(rows) * targets[rows].max()) for rows in plan]
    padding = 1 - (sources.sum() + targets.sum()) / np.sum(positions)
    assert padding < 0.15 and np.mean([max(sides) for sides in positions]) > 0.9 * 2003


def test_the_order_and_the_company_depend_on_seed_and_epoch_alone(pairs):
    count, orders = count_batches(pairs, BUDGET), []
    for seed in (5, 7):
        once, again = (read(training_batches(pairs, BUDGET, seed), 2 * count) for _ in range(2))
        assert equal(once, again)
        orders += [[frozenset(pairs_in([batch])) for batch in epoch] for epoch in (once[:count], once[count:])]
    for one, other in itertools.combinations(orders, 2):
        assert one != other and set(one) != set(other)


class SixReplicas:
    """A strategy as `deal` sees it."""

    num_replicas_in_sync = 6

    def experimental_distribute_values_from_function(self, share):
        return [share(tf.distribute.experimental.ValueContext(replica, 6)) for replica in range(6)]


def test_every_row_of_a_batch_is_dealt_to_one_replica(pairs):
    shapes = set()
    for batch in evaluation_batches(pairs, BUDGET):
        for replica, share in enumerate(deal(batch, SixReplicas())):
            for part, whole in zip(tf.nest.flatten(share), tf.nest.flatten(batch), strict=True):
                np.testing.assert_array_equal(part, whole.numpy()[replica::6])
                shapes.add(len(part))
    assert {0, 1} <= shapes  # of a batch of fewer rows than replicas


LARGEST = 97


def disguise(pairs, rng, number):
    """Tokens of the source that are the same modulo LARGEST."""
    ids = pairs.source.ids + LARGEST * rng.integers(0, 5, len(pairs.source.ids))
    return replace(pairs, source=Sentences(ids, pairs.source.starts))


def test_pairs_are_varied_anew_in_every_epoch(pairs):
    count = count_batches(pairs, BUDGET)
    batches = read(training_batches(pairs, BUDGET, seed=3, vary=disguise), 2 * count)
    epochs = pairs_in(batches[:count]), pairs_in(batches[count:])
    for epoch in epochs:
        undisguised = [(tuple(token % LARGEST for token in source), target) for source, target in epoch]
        assert Counter(undisguised) == Counter(CORPUS) != Counter(epoch)
    assert Counter(epochs[0]) != Counter(epochs[1])


@pytest.mark.parametrize(("name", "vary"), [("pairs", None), ("mixed", disguise)])
def test_a_resumed_run_sees_the_batches_of_an_uninterrupted_one(request, name, vary):
    pairs = request.getfixturevalue(name)
    count = count_batches(pairs, BUDGET)
    whole = read(training_batches(pairs, BUDGET, 3, vary=vary), 3 * count)
    for epoch, batch in ((0, count - 2), (1, count - 3), (2, 0)):
        start = epoch * count + batch
        assert equal(read(training_batches(pairs, BUDGET, 3, epoch, batch, vary), 3 * count - start), whole[start:])


def test_ten_epochs_take_every_pair_of_each_corpus_as_its_weight_says(mixed):
    count = count_batches(mixed, BUDGET)
    batches = read(training_batches(mixed, BUDGET, seed=3), 10 * count)
    expected = Counter({pair: 0 for pair in CORPUS})
    for pair, times in zip(CORPUS, [10] * 40 + [3] * 31 + [20] * 29, strict=True):
        expected[pair] += times
    assert Counter(pairs_in(batches)) == expected
    taken = [len(pairs_in(batches[start : start + count])) for start in range(0, 10 * count, count)]
    assert set(taken) == {40 + 9 + 58, 40 + 10 + 58} and sum(taken) == 400 + 93 + 580
    assert mixed.tokens_per_epoch == pytest.approx(sum(np.sum(labels != PAD) for *_, labels in batches) / 10)
    assert encode(CORPUS).tokens_per_epoch == sum(len(target) + 1 for _, target in CORPUS)


@pytest.mark.parametrize("seed", range(4))
def test_every_epoch_of_a_mixture_has_as_many_batches_as_known_before_and_none_wider(pairs, seed):
    weights = [WEIGHTS[i] for i in np.random.default_rng(seed).integers(0, len(WEIGHTS), 3)]
    mixed = replace(pairs, shares=tuple(map(Share, (40, 31, 29), weights)))
    sides = mixed.source.lengths, mixed.target.lengths
    for budget in (37, 1009):
        sizes = batch_sizes(mixed, budget)
        bound = sorted(max(source, target) for _, source, target in batch_shapes(mixed, budget))
        for epoch in range(31):
            plan = plan_epoch(mixed, sizes, 5, epoch)
            assert len(plan) == count_batches(mixed, budget) and min(map(len, plan)) > 0
            widths = [max(side[rows].max() for side in sides) for rows in plan]
            assert all(len(rows) * width <= max(budget, width) for rows, width in zip(plan, widths, strict=True))
            assert all(width <= most for width, most in zip(sorted(widths), bound, strict=True))


def test_corpora_share_batches_and_a_weight_that_leaves_too_few_pairs_for_them_is_refused(mixed):
    plan = plan_epoch(mixed, batch_sizes(mixed, BUDGET), 5, 0)
    assert any(len(np.unique(np.searchsorted([40, 71], rows, side="right"))) == 3 for rows in plan)
    whole = encode(CORPUS[:2])
    few = EncodedPairs(whole.source, whole.target, {}, (Share(2, Fraction("0.2")),))
    with pytest.raises(CorpusError, match="only 0 pairs for 1 batches: raise the weight .* or raise `batch_tokens`"):
        count_batches(few, BUDGET)


# Shares of several corpora.


def lengths(size, seed=0):
    """(source, target) lengths of many pairs, in no order."""
    draw = np.random.default_rng(seed)
    return draw.integers(1, 53, size), draw.integers(1, 59, size)


@pytest.mark.parametrize(("size", "weight"), zip([1, 7, 211] * 3, WEIGHTS, strict=True), ids=str)
def test_every_pair_is_taken_as_often_as_the_weight_says_and_every_epoch_takes_its_share(size, weight):
    """As many epochs as the denominator take every pair as often as the numerator; each is right up to one pair."""
    share = Share(size, weight)
    times = np.array([share.times(epoch) for epoch in range(3 * weight.denominator)])
    for cycle in np.split(times, 3):
        assert cycle.sum(axis=0).tolist() == [weight.numerator] * size
    assert times.min() >= int(weight) and times.max() <= -(-weight.numerator // weight.denominator)
    assert set(times.sum(axis=1).tolist()) == {share.fewest, share.most}
    assert abs(share.fewest - size * weight) < 1 and abs(share.most - size * weight) < 1
    expected = np.arange(1, size + 1) * float(weight)
    assert np.abs(np.cumsum(times, axis=1) - expected).max() <= 1  # of the short pairs and of the long ones


def test_the_pairs_that_go_together_depend_on_the_seed_and_change_after_each_cycle():
    shares = [Share(70, Fraction("0.5"))]
    same = np.ones(70, int), np.ones(70, int)  # of one length: only the ties decide
    first = [frozenset(rows_of_epoch(shares, *same, seed, epoch).tolist()) for seed in (5, 7) for epoch in (0, 2)]
    assert len(set(first)) == 4 and frozenset(rows_of_epoch(shares, *same, 5, 0).tolist()) == first[0]


def test_pairs_are_sorted_by_width_then_source_length_in_fours_then_ties():
    ties = np.random.default_rng(3).permutation(101)
    for scale in (1, 53, 10_007):  # widths of 8, 16 and 32 bits
        sources, targets = (side * scale for side in lengths(101))
        expected = sorted(range(101), key=lambda i: (max(sources[i], targets[i]), sources[i] // 4, ties[i]))
        assert sort_by_length(sources, targets, ties).tolist() == expected


@pytest.mark.slow
def test_the_batches_of_a_corpus_are_known_before_tensorflow_starts(tmp_path):
    """So the cores can be divided into devices by the sizes of the batches, which need the tokenised corpus."""
    script = f"""
import tensorflow as tf
from keras_transformer.data.encoded import EncodedPairs, encode_pairs
from keras_transformer.data.pipeline import batch_sizes, count_batches
from keras_transformer.tokenizer import load_tokenizers, save_tokenizers, train_tokenizer, Tokenizer

tokenizer = Tokenizer(train_tokenizer(["one two", "three"] * 50, {tiny.VOCABULARY}))
save_tokenizers("{tmp_path}", tokenizer, tokenizer)
pairs = encode_pairs([("one", "two"), ("two three", "one")] * 50, *load_tokenizers("{tmp_path}"), 31, "{tmp_path}")
assert tokenizer.vocabulary_size and tokenizer.first_bytes and not tokenizer.has_placeholders
assert len(batch_sizes(EncodedPairs.open("{tmp_path}"), 101)) == count_batches(pairs, 101)
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
assert len(tf.config.list_logical_devices("CPU")) == 3
assert tokenizer.encode(["one two"]).to_list() == tokenizer.tokenize(["one two"])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
