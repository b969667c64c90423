import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer
from keras_transformer.tools.ensemble import Ensemble
from keras_transformer.training.teacher_forcing import TeacherForcing
from tests.models.contract import VariantContract
from tests.reference import randomise

SIZES = {"vocabulary_size": 19, "d_model": 6, "num_heads": 2, "d_ff": 7, "num_layers": 1, "dropout_rate": 0.0}


def members():
    """A Transformer, and a recurrent network of another width."""
    recurrent = RecurrentNetwork(19, d_model=10, num_layers=1, dropout_rate=0.0, name="other")
    return [randomise(Transformer(**SIZES, name="one")), randomise(recurrent)]


@pytest.mark.slow
class TestContract(VariantContract):
    def make(self, **kwargs):
        return Ensemble(members(), **kwargs)


def test_the_probabilities_are_the_mean_of_those_of_the_members():
    models, inputs = members(), TestContract().batch()
    expected = sum(tf.nn.softmax(model(inputs)) for model in models) / 2
    np.testing.assert_allclose(tf.exp(Ensemble(models)(inputs)), expected, rtol=1e-5, atol=1e-6)


def test_one_model_and_other_vocabularies_are_refused_and_an_ensemble_is_no_member_and_is_not_trained():
    one, other = (Transformer(**{**SIZES, "vocabulary_size": size}) for size in (19, 23))
    for models in ([one], [one, other]):
        with pytest.raises(ValueError, match="two or more models of the same vocabulary. Received: "):
            Ensemble(models)
    ensemble = Ensemble(members())
    with pytest.raises(ValueError, match="members are no ensembles: give the models themselves. Received: 1 ensemble"):
        Ensemble([ensemble, *members()])
    with pytest.raises(ValueError, match="an ensemble only translates: train each of its 2 members by itself"):
        TeacherForcing(ensemble)
