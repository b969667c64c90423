"""The recurrent network with attention, which the Transformer replaced."""

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.layers.embedding import make_embeddings
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.recurrent.stacks import RecurrentDecoder, RecurrentEncoder, take_rows


@keras.saving.register_keras_serializable(package="keras_transformer")
class RecurrentNetwork(SequenceToSequence):
    """A recurrent encoder and decoder (Sutskever et al. 2014), with or without attention (Bahdanau et al. 2015).

    Methods, call arguments and result: see `SequenceToSequence`. Its `memory` is that of `RecurrentEncoder`. Its
    decoding state is {"decoder": that of `RecurrentDecoder.start`, "keys": of attention, "memory": memory}.

    Args:
        vocabulary_size: number of source tokens, and of target tokens unless `target_vocabulary_size` is given.
        target_vocabulary_size: V, number of target tokens. None: both sides share one vocabulary.
        tie_embeddings: use one matrix for all embeddings that have the same vocabulary, and for the logits. False gives
            source, target and logits a matrix each.
        cell: "rnn", "lstm" or "gru".
        d_model: D, width of embeddings and states.
        num_layers: layers of the encoder and of the decoder.
        bidirectional: the encoder reads in both directions, with half the width for each.
        attention: "additive", "dot", "general", "concat" or "none".
        attention_span: "global", "local_m" or "local_p".
        attention_window: source positions on each side of the centre of a local span.
        hard_attention: attend to one source position at a time.
        context: "last" or "mean", of the encoder's states, where there is no attention.
        input_feeding: let the decoder's cell read the last h~.
        dropout_rate: dropout of the input of each layer, and of the states of encoder and decoder.
        dtype: name of a dtype policy, such as "mixed_bfloat16".

    Raises:
        ValueError: for an unknown cell, attention, span or context.

    Example:

    ```python
    model = RecurrentNetwork(vocabulary_size=8000, cell="lstm", d_model=128, attention="general")
    logits = model({"source_ids": [[7, 8, 9]], "target_ids": [[2, 7]]})  # (1, 2, 8000)
    ```
    """

    architectures = ("rnn", "lstm", "gru")

    def __init__(
        self,
        vocabulary_size,
        target_vocabulary_size=None,
        tie_embeddings=True,
        cell="gru",
        d_model=256,
        num_layers=1,
        bidirectional=True,
        attention="additive",
        attention_span="global",
        attention_window=10,
        hard_attention=False,
        context="last",
        input_feeding=False,
        dropout_rate=0.1,
        *,
        dtype=None,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        both = {"cell": cell, "d_model": d_model, "num_layers": num_layers, "dropout_rate": dropout_rate}
        decoder = {
            "attention": attention,
            "attention_span": attention_span,
            "attention_window": attention_window,
            "hard_attention": hard_attention,
            "context": context,
            "input_feeding": input_feeding,
        }
        vocabulary = {
            "vocabulary_size": vocabulary_size,
            "target_vocabulary_size": target_vocabulary_size,
            "tie_embeddings": tie_embeddings,
        }
        layers = make_embeddings(**vocabulary, d_model=d_model, dtype=policy)
        self.source_embedding, self.target_embedding, self.logits_layer = layers
        self.encoder = RecurrentEncoder(**both, bidirectional=bidirectional, name="encoder", dtype=policy)
        self.decoder = RecurrentDecoder(**both, **decoder, name="decoder", dtype=policy)
        super().__init__(policy=policy, **kwargs)
        self.bidirectional = bidirectional
        for name, value in {**vocabulary, **both, **decoder}.items():
            setattr(self, name, value)

    @classmethod
    def from_settings(cls, config, **arguments):
        return super().from_settings(config, **{"cell": config.architecture, **arguments})

    def encode(self, source_ids):
        return self.encoder(self.source_embedding(source_ids), ops.not_equal(source_ids, PAD_ID))

    def decode(self, target_ids, memory):
        return self.decoder(self.target_embedding(target_ids), memory)

    def align(self, target_ids, memory):
        """As in the contract: the weights of attention; without attention, those of the fixed context."""
        return self.decoder.align(self.target_embedding(target_ids), memory)

    def start(self, memory, width):
        return {
            "decoder": self.decoder.start(memory, width),
            "keys": self.decoder.attention_mechanism.project(memory),
            "memory": memory,
        }

    def step(self, ids, parents, position, state):
        decoder = select(state["decoder"], parents) if ids.shape[1] > 1 else state["decoder"]
        x = self.target_embedding(ids)  # (B, W, D)
        states, decoder, _ = self.decoder.step(x, position, decoder, state["keys"], state["memory"])
        return states, {**state, "decoder": decoder}

    def logits(self, states):
        return self.logits_layer(states)

    @property
    def output_matrix(self):
        return self.logits_layer.source.matrix


def select(state, parents):
    """The states of the hypotheses that are continued: a nest of (B, W, D) and parents, int (B, W) -> a nest."""
    return keras.tree.map_structure(lambda x: take_rows(x, parents), state)
