import math

import keras
import numpy as np
import pytest
from keras_transformer.training.metrics import Perplexity


def test_perplexity_is_exp_of_the_mean_per_token_over_all_batches():
    perplexity = Perplexity()
    perplexity.update_state(np.log([2.0, 4.0, 7.0]), sample_weight=[1.0, 1.0, 0.0])  # 7 is padding
    assert float(perplexity.result()) == pytest.approx(math.sqrt(2 * 4))
    perplexity.update_state(np.log([16.0]), sample_weight=[1.0])
    assert float(perplexity.result()) == pytest.approx((2 * 4 * 16) ** (1 / 3))


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary():
    perplexity = Perplexity()
    perplexity.update_state(np.full(13, math.log(37)))
    assert float(perplexity.result()) == pytest.approx(37, rel=1e-5)


def test_reset_forgets():
    perplexity = Perplexity()
    perplexity.update_state([5.0])
    perplexity.reset_state()
    perplexity.update_state([math.log(3)])
    assert float(perplexity.result()) == pytest.approx(3)


def test_config_makes_the_same_metric_again():
    twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Perplexity(name="some")))
    assert type(twin) is Perplexity and twin.name == "some"
