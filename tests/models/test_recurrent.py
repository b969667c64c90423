from keras_transformer.models.recurrent import RecurrentNetwork
from tests.models.contract import ModelContract


class RecurrentContract(ModelContract):
    arguments = {}

    def make(self, **kwargs):
        arguments = {"vocabulary_size": self.source_size, "d_model": 22, "attention_window": 2, **self.arguments}
        return RecurrentNetwork(**arguments, **kwargs)


class TestGruWithAdditiveAttention(RecurrentContract):
    pass


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


class TestSimpleNetworkWithoutAttention(RecurrentContract):
    arguments = {"cell": "rnn", "attention": "none", "bidirectional": False}


class TestHardAttentionToAPredictedSpan(RecurrentContract):
    arguments = {"attention": "concat", "attention_span": "local_p", "hard_attention": True}
