import numpy as np
import pytest
import tensorflow as tf
from keras_transformer.decoding.sampling import Sampling, sample, uniform

from tests.decoding.scripted import BOS, EOS, Script, as_lists, score

LIMITS = [5, 0, 13, 3, 7]
SEEDS = np.array([2, 3, 5, 7, 13], "int32")
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=11)
ROWS = 20_000


def draw(script, limits, sampling=PLAIN, alpha=0.6):
    return sample(script.step, script.cache(), limits, sampling, bos_id=BOS, eos_id=EOS, length_penalty=alpha)


def frequencies(probs, **options):
    """How often each token is drawn first from a distribution, in `ROWS` rows with a seed each."""
    sampling = PLAIN._replace(seed=tf.range(ROWS, dtype=tf.int64), **options)

    def step(ids, position, history, cache):
        return tf.broadcast_to(np.log(probs).astype("float32"), [tf.shape(ids)[0], 1, len(probs)]), cache

    found = sample(step, (), tf.ones([ROWS], tf.int32), sampling, bos_id=BOS, eos_id=EOS, length_penalty=0.0)
    return np.bincount(found.ids.numpy().ravel(), minlength=len(probs)) / ROWS


PROBS = np.array([0.05, 0.4, 0.15, 0.1, 0.3])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, PROBS),
        ({"temperature": 0.5}, PROBS**2 / (PROBS**2).sum()),
        ({"temperature": 2.0}, PROBS**0.5 / (PROBS**0.5).sum()),
        ({"top_k": 2}, [0, 4 / 7, 0, 0, 3 / 7]),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_k": 99}, PROBS),
        ({"top_p": 0.65}, [0, 4 / 7, 0, 0, 3 / 7]),
        ({"top_p": 0.75}, [0, 40 / 85, 15 / 85, 0, 30 / 85]),
        ({"top_p": 0.0}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.75, "top_k": 2}, [0, 4 / 7, 0, 0, 3 / 7]),
    ],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options, expected):
    np.testing.assert_allclose(frequencies(PROBS, **options), expected, atol=4 * (0.25 / ROWS) ** 0.5)


def test_random_numbers_are_uniform_and_of_their_own_seed_and_position():
    numbers = np.array([uniform(tf.range(5000, dtype=tf.int64)[:, None], position)[:, 0] for position in range(3)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    np.testing.assert_allclose(np.histogram(numbers, 10)[0] / numbers.size, 0.1, atol=0.01)
    assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 0.06


def test_the_same_seed_draws_the_same_whoever_shares_the_batch():
    options = Sampling(
        tf.constant([0.5, 1.0, 2.0, 1.0, 1.0]),
        tf.constant([0, 3, 0, 5, 2]),
        tf.constant([1.0, 1.0, 0.9, 0.5, 1.0]),
        tf.constant([17, 17, 19, 23, -5], tf.int64),
    )
    together = as_lists(draw(Script(SEEDS), LIMITS, options, np.full([5], 0.6, "float32")))
    for row, limit in enumerate(LIMITS):
        mine = Sampling(*(option[row] for option in options))
        ((alone,),) = as_lists(draw(Script(SEEDS[row : row + 1]), [limit], mine))
        assert alone[1] == together[row][0][1]
        assert alone[0] == pytest.approx(together[row][0][0], abs=1e-6)


def test_another_seed_draws_something_else():
    found = {as_lists(draw(Script(SEEDS[2:3]), [13], PLAIN._replace(seed=seed)))[0][0][1] for seed in range(20)}
    assert len(found) > 10


def test_scores_are_of_the_model_whatever_was_drawn_from():
    script = Script(SEEDS)
    for row, ((found, ids),) in enumerate(as_lists(draw(script, LIMITS, PLAIN._replace(temperature=3.0, top_k=4)))):
        assert found == pytest.approx(score(script.log_prob(row, ids), len(ids), 0.6), abs=1e-5)


def test_nan_ends_a_row_with_what_it_has():
    script = Script(SEEDS, eos_bias=-50.0)

    def step(ids, position, history, cache):
        logits, cache = script.step(ids, position, history, cache)
        return tf.where((cache["seed"] == SEEDS[2])[:, None, None] & (position == 2), np.nan, logits), cache

    found = sample(step, script.cache(), LIMITS, PLAIN, bos_id=BOS, eos_id=EOS, length_penalty=0.6)
    assert found.lengths[:, 0].numpy().tolist() == [5, 0, 2, 3, 7]
    assert np.isfinite(found.scores).all()
