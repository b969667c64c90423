import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.greedy import greedy_search
from tests.decoding.scripted import BOS, EOS, Script, as_lists, score

LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")


def greedy(script, limits, alpha=0.6, **options):
    return greedy_search(script.step, script.cache(1), limits, bos_id=BOS, eos_id=EOS, length_penalty=alpha, **options)


def expected(script, row, limit):
    """The most likely token again and again."""
    ids = ()
    while len(ids) < limit and EOS not in ids:
        ids = (*ids, int(np.argmax(script.log_probs(row, ids))))
    return ids


@pytest.mark.parametrize("table_seed", range(5))
def test_every_token_is_the_most_likely_one(table_seed):
    script = Script(SEEDS, table_seed=table_seed)
    for row, (found,) in enumerate(as_lists(greedy(script, LIMITS))):
        assert found[1] == expected(script, row, LIMITS[row])
        assert found[0] == pytest.approx(score(script.log_prob(row, found[1]), len(found[1]), 0.6), abs=1e-5)


def test_the_result_has_its_shapes_and_dtypes():
    ids, scores, lengths = greedy(Script(SEEDS, eos_bias=-50.0), LIMITS, pad_id=4)
    assert (ids.shape, ids.dtype) == ((5, 1, 13), tf.int32)
    assert (scores.shape, scores.dtype) == ((5, 1), tf.float32)
    assert (lengths.shape, lengths.dtype) == ((5, 1), tf.int32)
    assert (ids.numpy()[0, 0, 5:] == 4).all()


def test_a_row_stops_at_its_limit_without_eos():
    assert greedy(Script(SEEDS, eos_bias=-50.0), LIMITS).lengths[:, 0].numpy().tolist() == LIMITS


def test_limit_zero_gives_an_empty_hypothesis():
    ids, scores, lengths = greedy(Script(SEEDS[:2]), [0, 0])
    assert ids.shape == (2, 1, 0)
    assert scores.numpy().tolist() == [[0.0], [0.0]]
    assert lengths.numpy().tolist() == [[0], [0]]


def test_no_rows_give_no_hypotheses():
    ids, scores, lengths = greedy(Script(SEEDS[:0]), tf.zeros([0], tf.int32))
    assert (ids.shape, scores.shape, lengths.shape) == ((0, 1, 0), (0, 1), (0, 1))


def test_a_row_alone_gives_what_it_gives_among_others():
    together = as_lists(greedy(Script(SEEDS), LIMITS))
    for row, limit in enumerate(LIMITS):
        ((alone,),) = as_lists(greedy(Script(SEEDS[row : row + 1]), [limit]))
        assert alone[1] == together[row][0][1]
        assert alone[0] == pytest.approx(together[row][0][0], abs=1e-6)


def test_the_search_ends_with_its_longest_row():
    script = Script(SEEDS, eos_bias=50.0)
    assert greedy(script, [50] * 5).lengths.numpy().tolist() == [[1]] * 5
    assert len(script.seen) == 1


def test_length_penalty_changes_the_score_alone():
    alphas = [0.0, 0.6, 1.0, -1.0, 2.0]
    plain, penalised = (
        greedy(Script(SEEDS), LIMITS, alpha=0.0),
        greedy(Script(SEEDS), LIMITS, alpha=tf.constant(alphas)),
    )
    np.testing.assert_array_equal(plain.ids, penalised.ids)
    by_hand = [score(s, n, a) for s, n, a in zip(plain.scores[:, 0], plain.lengths[:, 0].numpy(), alphas, strict=True)]
    np.testing.assert_allclose(penalised.scores[:, 0], by_hand, rtol=1e-5)


@pytest.mark.parametrize("poisoned", [0, 2])
def test_nan_ends_a_row_with_what_it_has(poisoned):
    script, clean = Script(SEEDS, eos_bias=-50.0), as_lists(greedy(Script(SEEDS, eos_bias=-50.0), LIMITS))

    def step(ids, position, cache):
        logits, cache = script.step(ids, position, cache)
        bad = (tf.range(5) == 2) & (position == poisoned)
        return tf.where(bad[:, None, None], np.nan, logits), cache

    found = greedy_search(step, script.cache(1), LIMITS, bos_id=BOS, eos_id=EOS, length_penalty=0.6)
    assert np.isfinite(found.scores).all()
    for row, (one,) in enumerate(as_lists(found)):
        assert one[1] == clean[row][0][1][: poisoned if row == 2 else None]


def test_graph_with_unknown_batch_equals_eager():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)])
    def graph(seeds, limits):
        return greedy(Script(seeds), limits)

    for eager, traced in zip(greedy(Script(SEEDS), LIMITS), graph(SEEDS, LIMITS), strict=True):
        np.testing.assert_allclose(eager, traced, rtol=1e-6)
    assert graph(SEEDS[:0], SEEDS[:0]).ids.shape == (0, 1, 0)
