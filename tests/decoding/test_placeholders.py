import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.beam import beam_search
from keras_transformer.decoding.placeholders import Required, constrained
from keras_transformer.decoding.single import sample
from tests.decoding.scripted import EOS, IDS, Script, as_lists, assert_same, exhaustive, plain_beam_search

FIRST, NUMBER, PLAIN = EOS + 1, 2, 5  # two placeholders behind eos, and tokens that are none
SOURCES = [[PLAIN, PLAIN], [FIRST, PLAIN], [FIRST + 1, FIRST], [FIRST, FIRST], [PLAIN, FIRST + 1], [PLAIN, PLAIN]]
LIMITS = [4, 3, 4, 2, 1, 0]
SEEDS = np.array([2, 3, 5, 7, 11, 13], "int32")
WIDE = 625  # continuations that V = 6 has at the fourth step: nothing is ever dropped


class Constrained(Script):
    """A script whose `log_probs` are those of the tokens that may come: every placeholder as often as in the source."""

    def log_probs(self, row, ids):
        missing = [SOURCES[row].count(x) - ids.count(x) for x in range(FIRST, FIRST + NUMBER)]
        log_probs = super().log_probs(row, ids).copy()
        if sum(missing):
            log_probs[EOS] = -np.inf
            if sum(missing) >= LIMITS[row] - len(ids):
                log_probs[np.delete(np.arange(len(log_probs)), range(FIRST, FIRST + NUMBER))] = -np.inf
        for place, count in enumerate(missing):
            if count <= 0:
                log_probs[FIRST + place] = -np.inf
        return log_probs - np.logaddexp.reduce(log_probs)


@pytest.fixture
def script():
    return Constrained(SEEDS, vocabulary=6)


def required(rows=slice(None), prefix=((),)):
    prefix = tf.constant(prefix, tf.int32, shape=[len(SEEDS[rows]), len(prefix[0])])
    return Required.of(tf.constant(SOURCES[rows]), prefix, tf.constant(LIMITS[rows]), FIRST, NUMBER)


def beam(script, width, required, **how):
    step, state = constrained(script.step, EOS), required.state(script.start(width), width)
    return as_lists(beam_search(step, state, required.limits, width=width, length_penalty=0.6, **IDS, **how))


def counts(ids):
    return [ids.count(x) for x in range(FIRST, FIRST + NUMBER)]


def test_a_wide_beam_finds_the_best_of_all_sequences_with_every_placeholder_exactly_once(script):
    found = beam(script, WIDE, required())
    for row, limit in enumerate(LIMITS):
        everything = exhaustive(script, row, limit, 0.6)
        assert_same(found[row][:1], everything[:1] or found[row][:1])
        assert all(counts(ids) == counts(SOURCES[row]) for _, ids in found[row])
    assert all(len(exhaustive(script, row, LIMITS[row], 0.6)) > 1 for row in range(3))  # not the limit decides


@pytest.mark.parametrize("width", [1, 3])
def test_a_narrow_beam_finds_the_best_of_plain_beam_search(script, width):
    for row, found in enumerate(beam(script, width, required())):
        assert_same(found[:1], plain_beam_search(script, row, LIMITS[row], 0.6, width)[:1])


def test_greedy_search_and_sampling_have_every_placeholder_exactly_once(script):
    given = required()
    inputs = constrained(script.step, EOS), given.state(script.start(1), 1), given.limits
    assert as_lists(sample(*inputs, {}, length_penalty=0.6, **IDS)) == beam(script, 1, given)
    options = {"temperature": 9.0, "top_k": 0, "top_p": 1.0}
    options = {name: tf.fill([len(SEEDS)], x) for name, x in options.items()}
    for seed in range(3):
        options["seed"] = tf.fill([len(SEEDS)], tf.constant(seed, tf.int64))
        for row, [(found, ids)] in enumerate(as_lists(sample(*inputs, options, length_penalty=0.0, **IDS))):
            assert counts(ids) == counts(SOURCES[row]) and found == pytest.approx(script.log_prob(row, ids), abs=1e-4)


def test_a_limit_has_room_for_the_placeholders_and_a_prefix_for_its_own():
    given = required(prefix=[[0, 0], [PLAIN, PLAIN], [PLAIN, 0], [PLAIN, FIRST + 1], [0, 0], [FIRST, 0]])
    np.testing.assert_array_equal(given.limits, [4, 3, 4, 5, 1, 2])
    np.testing.assert_array_equal(given.counts, [[0, 0], [1, 0], [1, 1], [2, 1], [0, 1], [1, 0]])
