import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.search import UNFILLED_SCORE
from keras_transformer.decoding.single import sample
from tests.decoding.scripted import (
    BOS,
    ENTRIES,
    EOS,
    IDS,
    Asked,
    Script,
    as_lists,
    assert_same,
    endless_beam_search,
    exhaustive,
    options_of,
    plain_beam_search,
    score,
)

ALPHAS = [0.0, 0.6, 1.0]
LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")
WIDE = 331  # more than the 5 * 4**3 continuations that V = 5 has at the fourth step: nothing is ever dropped


def beam(script, limits, width=3, alpha=0.6, **how):
    how = {"width": width, "length_penalty": alpha, **IDS, **how}
    return beam_search(how.pop("step", script.step), script.start(width), limits, **how)


def many_rows(count, *per_row):
    """`count` different seeds, and every one of them with every combination of the values `per_row`, a list for each.

    A search over many rows takes little longer than a search over one, so tests search all their cases at once.
    """
    seeds = [37 * n % ENTRIES for n in range(count)]  # all different, because ENTRIES is prime
    cases = zip(*itertools.product(seeds, *per_row), strict=True)
    seeds, *columns = (list(column) for column in cases)
    return np.array(seeds, "int32"), *columns


def test_a_wide_beam_finds_the_best_of_all_sequences():
    seeds, limits, alphas = many_rows(3, [4, 3, 2], [*ALPHAS, 1.8, -1.0])
    script = Script(seeds, vocabulary=5, eos_bias=-1.0)
    for row, found in enumerate(as_lists(beam(script, limits, WIDE, alphas))):
        everything = exhaustive(script, row, limits[row], alphas[row])
        assert_same(found[:1], everything[:1])
        scores = {ids: s for s, ids in everything}
        assert_same(found, [(scores[ids], ids) for _, ids in found])


@pytest.mark.parametrize(("beam_size", "spread"), [(2, 1.0), (3, 5.0), (11, 5.0)])
def test_without_a_reward_for_length_stopping_early_never_costs_the_best(beam_size, spread):
    seeds, limits, alphas = many_rows(23, LIMITS, [0.0, -1.0])
    script = Script(seeds, spread=spread)
    for row, found in enumerate(as_lists(beam(script, limits, beam_size, alphas))):
        steps = [([], [(0.0, ())]), *endless_beam_search(script, row, limits[row], alphas[row], beam_size)]
        finished, live = steps[-1]
        assert_same(found[:1], (finished or live)[:1])


def test_no_hypothesis_of_the_beam_is_ahead_of_the_result_when_the_search_ends():
    """All of the beam's hypotheses, at the step at which it has ended, are in the endless search at that step."""
    seeds, alphas, beam_sizes = many_rows(3, [0.6, 1.8], [2, 5])
    early, limit = 0, 11
    for row, beam_size in enumerate(beam_sizes):
        script = Script(seeds[row : row + 1], spread=5.0)
        (found,) = as_lists(beam(script, [limit], beam_size, alphas[row]))
        steps = list(endless_beam_search(script, 0, limit, alphas[row], beam_size))
        finished, live = steps[len(script.seen) - 1]
        assert_same(found[:1], (finished or live)[:1])
        if len(script.seen) < limit:
            early += 1
            assert live[0][0] <= found[0][0] + 1e-6
    assert early > len(seeds) // 3


def test_a_beam_of_one_is_greedy_search():
    seeds, limits, alphas = many_rows(7, LIMITS, [*ALPHAS, 1.8, -1.0])
    script = Script(seeds)
    greedy = sample(script.step, script.start(1), limits, {}, length_penalty=alphas, **IDS)
    for one, other in zip(as_lists(greedy), as_lists(beam(script, limits, 1, alphas)), strict=True):
        assert_same(one, other)


ASKED = [
    Asked(),
    Asked(prefix=(3, 4)),
    Asked(repetition_penalty=1.7),
    Asked(no_repeat_ngram=2),
    Asked(no_repeat_ngram=3),
    Asked(no_repeat_ngram=1_000_000),
    Asked(prefix=(4, 4, 4), repetition_penalty=1.3, no_repeat_ngram=1),
]


@pytest.mark.parametrize("wanted", [1, 3])
def test_every_row_is_searched_under_its_own_options(wanted):
    seeds, asked = many_rows(7, ASKED)
    beam_sizes, alphas = np.resize([3, 1, 2], 49), np.resize([0.0, 0.6, 1.0, -1.0], 49).astype("float32")
    script = Script(seeds)
    options = {**options_of(asked), "beam_size": tf.constant(beam_sizes, tf.int32)}
    found = as_lists(beam(script, [7] * 49, alpha=alphas, options=options, wanted=wanted))
    for row in range(49):
        expected = plain_beam_search(script, row, 7, alphas[row], beam_sizes[row], asked[row])
        wanted_here = min(wanted, beam_sizes[row])
        assert_same(found[row][:wanted_here], expected[:wanted_here])
        assert len(found[row]) <= beam_sizes[row]


def test_the_result_has_its_shapes_and_dtypes_and_live_hypotheses_without_eos():
    ids, scores, lengths = beam(Script(SEEDS, eos_bias=-50.0), LIMITS, pad_id=4)
    assert (ids.shape, ids.dtype) == ((5, 3, 13), tf.int32) and (scores.shape, scores.dtype) == ((5, 3), tf.float32)
    assert (lengths.shape, lengths.dtype) == ((5, 3), tf.int32)
    assert (ids.numpy()[0, :, 5:] == 4).all() and (np.diff(scores, axis=1) <= 0).all()
    assert scores.numpy()[1].tolist() == [0.0, UNFILLED_SCORE, UNFILLED_SCORE]  # one empty hypothesis
    assert lengths.numpy().tolist() == [[5] * 3, [0] * 3, [13] * 3, [3] * 3, [7] * 3]
    assert [x.shape for x in beam(Script(SEEDS[:2]), [0, 0])] == [(2, 3, 0), (2, 3), (2, 3)]
    assert [x.shape for x in beam(Script(SEEDS[:0]), tf.zeros([0], tf.int32))] == [(0, 3, 0), (0, 3), (0, 3)]


def test_the_search_stops_when_nothing_can_overtake_the_best():
    script = Script(SEEDS, eos_bias=50.0)
    assert beam(script, [50] * 5, alpha=[*ALPHAS, -1.0, 0.3]).lengths[:, 0].numpy().tolist() == [1] * 5
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    ("now", "alpha", "limit", "expected"),
    [
        (0.6, 3.0, 2, (EOS,)),  # log 0.6 = -0.511; log 0.4 / (7 / 6)^3 = -0.577
        (0.6, 4.0, 2, (3, EOS)),  # log 0.4 / (7 / 6)^4 = -0.495
        (0.4, -1.0, 50, (3, EOS)),  # log 0.4 = -0.916; log 0.6 / (7 / 6)^-1 = -0.596, but -4.682 at the limit
    ],
)
def test_the_search_goes_on_while_a_longer_one_can_overtake(now, alpha, limit, expected):
    """eos now, or one more token and then eos for certain."""
    table = np.full([2, 7], 1e-9, "float32")
    table[0, EOS], table[0, 3], table[1, EOS] = now, 1 - now, 1.0

    def step(ids, parents, position, state):
        return tf.gather(np.log(table), tf.where(ids == BOS, 0, 1)), state

    found = beam_search(step, (), [limit], width=3, length_penalty=alpha, **IDS)
    by_hand = score(np.log(now if expected == (EOS,) else 1 - now), len(expected), alpha)
    assert as_lists(found)[0][0] == (pytest.approx(by_hand, abs=1e-5), expected)


@pytest.mark.parametrize(("poisoned", "slots"), [(0, [0]), (2, [0]), (2, [0, 1, 2])])
def test_nan_ends_a_hypothesis_and_no_other(poisoned, slots):
    script, clean = Script(SEEDS, eos_bias=-50.0), as_lists(beam(Script(SEEDS, eos_bias=-50.0), LIMITS))

    def step(ids, parents, position, state):
        logits, state = script.step(ids, parents, position, state)
        bad = (state["seed"][:, None, None] == SEEDS[2]) & np.isin([[0], [1], [2]], slots)
        return tf.where(bad & (position == poisoned), np.nan, logits), state

    found = beam(script, LIMITS, step=step)
    assert np.isfinite(found.scores).all()
    found = as_lists(found)
    dead = poisoned == 0 or len(slots) == 3  # at first there is one hypothesis only
    assert {len(ids) for _, ids in found[2]} == {poisoned if dead else LIMITS[2]}
    assert len(found[2]) == (1 if poisoned == 0 else 3)
    for row in (0, 1, 3, 4):
        assert_same(found[row], clean[row])
