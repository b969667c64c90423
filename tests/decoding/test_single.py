import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.single import follow
from tests.decoding.scripted import BOS, EOS, Script, as_lists, score

LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")
RANKS = np.array([0, 2, 1, 3, 2], "int32")


def nth(logits, position, rank):
    """The token of that rank among the most likely ones, and its log-probability."""
    log_probs, tokens = tf.math.top_k(tf.nn.log_softmax(logits), logits.shape[-1])  # (B, 1, V)
    return tuple(tf.gather(x, rank[:, None, None], batch_dims=2) for x in (log_probs, tokens))


def followed(script, limits, alpha=0.6, ranks=RANKS, step=None, **options):
    options = {"bos_id": BOS, "eos_id": EOS, "length_penalty": alpha, **options}
    return follow(nth, tf.constant(ranks), step or script.step, script.cache(), limits, **options)


def by_hand(script, row, limit):
    ids = ()
    while len(ids) < limit and EOS not in ids:
        ids = (*ids, int(np.argsort(-script.log_probs(row, ids))[RANKS[row]]))
    return ids


@pytest.mark.parametrize("table_seed", range(5))
def test_every_token_is_the_choice_under_the_options_of_its_row(table_seed):
    script = Script(SEEDS, table_seed=table_seed)
    for row, (found,) in enumerate(as_lists(followed(script, LIMITS))):
        assert found[1] == by_hand(script, row, LIMITS[row])
        assert found[0] == pytest.approx(score(script.log_prob(row, found[1]), len(found[1]), 0.6), abs=1e-5)


def test_the_result_has_its_shapes_and_dtypes():
    ids, scores, lengths = followed(Script(SEEDS, eos_bias=-50.0), LIMITS, pad_id=4)
    assert (ids.shape, ids.dtype) == ((5, 1, 13), tf.int32)
    assert (scores.shape, scores.dtype) == ((5, 1), tf.float32)
    assert (lengths.shape, lengths.dtype) == ((5, 1), tf.int32)
    assert (ids.numpy()[0, 0, 5:] == 4).all()


def test_a_row_stops_at_its_limit_without_eos():
    assert followed(Script(SEEDS, eos_bias=-50.0), LIMITS).lengths[:, 0].numpy().tolist() == LIMITS


def test_limit_zero_gives_an_empty_hypothesis():
    ids, scores, lengths = followed(Script(SEEDS[:2]), [0, 0], ranks=RANKS[:2])
    assert ids.shape == (2, 1, 0)
    assert scores.numpy().tolist() == [[0.0], [0.0]]
    assert lengths.numpy().tolist() == [[0], [0]]


def test_no_rows_give_no_hypotheses():
    ids, scores, lengths = followed(Script(SEEDS[:0]), tf.zeros([0], tf.int32), ranks=RANKS[:0])
    assert (ids.shape, scores.shape, lengths.shape) == ((0, 1, 0), (0, 1), (0, 1))


def test_a_row_alone_gives_what_it_gives_among_others():
    together = as_lists(followed(Script(SEEDS), LIMITS))
    for row, limit in enumerate(LIMITS):
        ((alone,),) = as_lists(followed(Script(SEEDS[row : row + 1]), [limit], ranks=RANKS[row : row + 1]))
        assert alone[1] == together[row][0][1]
        assert alone[0] == pytest.approx(together[row][0][0], abs=1e-6)


def test_the_search_ends_with_its_longest_row():
    script = Script(SEEDS, eos_bias=50.0)
    assert followed(script, [50] * 5, ranks=0 * RANKS).lengths.numpy().tolist() == [[1]] * 5
    assert len(script.seen) == 1


def test_length_penalty_changes_the_score_alone():
    alphas = [0.0, 0.6, 1.0, -1.0, 2.0]
    plain, penalised = (
        followed(Script(SEEDS), LIMITS, alpha=0.0),
        followed(Script(SEEDS), LIMITS, alpha=tf.constant(alphas)),
    )
    np.testing.assert_array_equal(plain.ids, penalised.ids)
    by_hand = [score(s, n, a) for s, n, a in zip(plain.scores[:, 0], plain.lengths[:, 0].numpy(), alphas, strict=True)]
    np.testing.assert_allclose(penalised.scores[:, 0], by_hand, rtol=1e-5)


@pytest.mark.parametrize("poisoned", [0, 2])
def test_nan_ends_a_row_with_what_it_has(poisoned):
    script, clean = Script(SEEDS, eos_bias=-50.0), as_lists(followed(Script(SEEDS, eos_bias=-50.0), LIMITS))

    def step(ids, position, history, cache):
        logits, cache = script.step(ids, position, history, cache)
        bad = (cache["seed"] == SEEDS[2]) & (position == poisoned)
        return tf.where(bad[:, None, None], np.nan, logits), cache

    found = followed(script, LIMITS, step=step)
    assert np.isfinite(found.scores).all()
    for row, (one,) in enumerate(as_lists(found)):
        assert one[1] == clean[row][0][1][: poisoned if row == 2 else None]
