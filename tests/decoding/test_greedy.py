import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.decoding.greedy import greedy_search

from tests.decoding.scripted import BOS, EOS, Script, as_lists, score

LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")


def greedy(script, limits, alpha=0.6, **options):
    return greedy_search(script.step, script.cache(), limits, bos_id=BOS, eos_id=EOS, length_penalty=alpha, **options)


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


def test_graph_with_unknown_batch_equals_eager():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32)])
    def graph(seeds, limits):
        return greedy(Script(seeds), limits)

    for eager, traced in zip(greedy(Script(SEEDS), LIMITS), graph(SEEDS, LIMITS), strict=True):
        np.testing.assert_allclose(eager, traced, rtol=1e-6)
    assert graph(SEEDS[:0], SEEDS[:0]).ids.shape == (0, 1, 0)
