import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.search import uniform
from keras_transformer.decoding.single import sample
from tests.decoding.scripted import EOS, IDS, Script, as_lists, score

LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")
OPTIONS = {
    "temperature": np.array([0.5, 1.0, 2.0, 1.0, 1.0], "float32"),
    "top_k": np.array([0, 3, 0, 5, 2], "int32"),
    "top_p": np.array([1.0, 1.0, 0.9, 0.5, 1.0], "float32"),
    "seed": np.array([17, 17, 19, 23, -5], "int64"),
}


def greedy(script, limits, alpha=0.6, step=None, **how):
    return sample(step or script.step, script.start(1), limits, {}, length_penalty=alpha, **{**IDS, **how})


def drawn(script, limits, alpha=0.6, step=None, **how):
    options = {name: tf.constant(option[: len(script.seeds)]) for name, option in OPTIONS.items()}
    return sample(step or script.step, script.start(1), limits, options, length_penalty=alpha, **{**IDS, **how})


SEARCHES = pytest.mark.parametrize("found_by", [greedy, drawn])


def most_likely_by_hand(script, row, limit):
    """The most likely token again and again."""
    ids = ()
    while len(ids) < limit and EOS not in ids:
        ids = (*ids, int(np.argmax(script.log_probs(row, ids))))
    return ids


def drawn_by_hand(script, row, limit):
    """The token at which the cumulated probability of those that may be drawn passes a random number."""
    temperature, top_k, top_p, seed = (option[row] for option in OPTIONS.values())
    ids = ()
    while len(ids) < limit and EOS not in ids:
        order = np.argsort(-script.log_probs(row, ids))
        shares = np.exp(script.log_probs(row, ids)[order] / temperature)
        shares /= shares.sum()
        count = min([n for n in range(1, len(order) + 1) if n == len(order) or shares[:n].sum() >= top_p])
        shares = shares[: min(count, top_k or count)]
        mark = float(uniform(tf.constant([[seed]]), len(ids))[0, 0]) * shares.sum()
        ids = (*ids, int(order[np.searchsorted(np.cumsum(shares), mark, side="right")]))
    return ids


@pytest.mark.parametrize(("found_by", "by_hand"), [(greedy, most_likely_by_hand), (drawn, drawn_by_hand)])
def test_every_token_is_the_choice_under_the_options_of_its_row(found_by, by_hand):
    for script in (Script(SEEDS, table_seed=table_seed) for table_seed in range(3)):
        for row, (found,) in enumerate(as_lists(found_by(script, LIMITS))):
            assert found[1] == by_hand(script, row, LIMITS[row])
            assert found[0] == pytest.approx(score(script.log_prob(row, found[1]), len(found[1]), 0.6), abs=1e-5)


@SEARCHES
def test_the_result_has_its_shapes_and_dtypes_and_a_row_ends_with_eos_or_at_its_limit(found_by):
    ids, scores, lengths = found_by(Script(SEEDS, eos_bias=-50.0), LIMITS, pad_id=4)
    assert (ids.shape, ids.dtype) == ((5, 1, 13), tf.int32) and (scores.shape, scores.dtype) == ((5, 1), tf.float32)
    assert (lengths.shape, lengths.dtype) == ((5, 1), tf.int32) and (ids.numpy()[0, 0, 5:] == 4).all()
    assert lengths[:, 0].numpy().tolist() == LIMITS and scores[1, 0] == 0
    empty = found_by(Script(SEEDS[:2]), [0, 0])
    assert [x.shape for x in empty] == [(2, 1, 0), (2, 1), (2, 1)]
    nothing = found_by(Script(SEEDS[:0]), tf.zeros([0], tf.int32))
    assert [x.shape for x in nothing] == [(0, 1, 0), (0, 1), (0, 1)]
    script = Script(SEEDS, eos_bias=50.0)
    assert found_by(script, [50] * 5).lengths.numpy().tolist() == [[1]] * 5 and len(script.seen) == 1


@SEARCHES
@pytest.mark.parametrize("poisoned", [0, 2])
def test_nan_ends_a_row_with_the_hypothesis_that_it_has(poisoned, found_by):
    script, clean = Script(SEEDS, eos_bias=-50.0), as_lists(found_by(Script(SEEDS, eos_bias=-50.0), LIMITS))

    def step(ids, parents, position, state):
        logits, state = script.step(ids, parents, position, state)
        bad = (state["seed"] == SEEDS[2]) & (position == poisoned)
        return tf.where(bad[:, None, None], np.nan, logits), state

    found = found_by(script, LIMITS, step=step)
    assert np.isfinite(found.scores).all()
    for row, (one,) in enumerate(as_lists(found)):
        assert one[1] == clean[row][0][1][: poisoned if row == 2 else None]
