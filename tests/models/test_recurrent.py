import pytest

from keras_transformer.models.recurrent import RecurrentNetwork
from tests.models.contract import ModelContract, VariantContract


class RecurrentContract(VariantContract):
    arguments = {}

    def make(self, **kwargs):
        arguments = {"vocabulary_size": self.source_size, "d_model": 22, "attention_window": 2, **self.arguments}
        return RecurrentNetwork(**arguments, **kwargs)


class TestGruWithAdditiveAttention(RecurrentContract, ModelContract):
    pass


@pytest.mark.slow
class TestTwoLayersOfLstmWithInputFeeding(RecurrentContract):
    source_size, target_size = 19, 23
    arguments = {
        "target_vocabulary_size": 23,
        "tie_embeddings": False,
        "cell": "lstm",
        "num_layers": 2,
        "attention": "general",
        "attention_span": "local_m",
        "input_feeding": True,
    }


@pytest.mark.slow
class TestSimpleNetworkWithoutAttention(RecurrentContract):
    arguments = {"cell": "rnn", "attention": "none", "bidirectional": False}


@pytest.mark.slow
class TestHardAttentionToAPredictedSpan(RecurrentContract):
    arguments = {"attention": "concat", "attention_span": "local_p", "hard_attention": True}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cell": "rnm"}, "`cell` must be one of rnn, lstm, gru. Received: cell='rnm'"),
        ({"attention": "mul"}, "`attention` must be one of dot, general, additive, concat, none. Received: .*'mul'"),
        ({"attention_span": "local"}, "`span` must be one of global, local_m, local_p. Received: span='local'"),
        ({"attention": "none", "context": "first"}, "`kind` must be one of last, mean. Received: kind='first'"),
    ],
)
def test_an_argument_that_is_none_of_the_choices_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        RecurrentNetwork(vocabulary_size=19, d_model=22, **wrong)
