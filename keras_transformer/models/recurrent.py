"""The recurrent network with attention, which the Transformer replaced."""

import dataclasses

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.layers.embedding import make_embeddings
from keras_transformer.layers.recurrence import of_parents
from keras_transformer.models.sequence_to_sequence import SequenceToSequence
from keras_transformer.recurrent.stacks import (
    RecurrentDecoder,
    RecurrentDecoderShape,
    RecurrentEncoder,
    RecurrentEncoderShape,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentNetworkShape(RecurrentEncoderShape, RecurrentDecoderShape):
    """The arguments of a `RecurrentNetwork`: those of its encoder and decoder, with other defaults, and

    Args:
        vocabulary_size: number of source tokens, and of target tokens unless `target_vocabulary_size` is given.
        target_vocabulary_size: V, number of target tokens. None: both sides share one vocabulary.
        tie_embeddings: use one matrix for all embeddings that have the same vocabulary, and for the logits. False gives
            source, target and logits a matrix each.
    """

    vocabulary_size: int
    target_vocabulary_size: int | None = None
    tie_embeddings: bool = True
    cell: str = "gru"
    d_model: int = 256
    dropout_rate: float = 0.1


@keras.saving.register_keras_serializable(package="keras_transformer")
class RecurrentNetwork(SequenceToSequence):
    """A recurrent encoder and decoder (Sutskever et al. 2014), with or without attention (Bahdanau et al. 2015).

    Methods, call arguments and result: see `SequenceToSequence`. Its `memory` is that of `RecurrentEncoder`. Its
    decoding state is {"decoder": that of `RecurrentDecoder.start`, "keys": of attention, "memory": memory}.

    Args:
        vocabulary_size: V, the number of pieces.
        **numbers: the other fields of `RecurrentNetworkShape`.
        dtype: name of a dtype policy, such as "mixed_bfloat16".
        name: of the model.

    Raises:
        ValueError: for an unknown cell, attention, span or context.

    Example:

    ```python
    model = RecurrentNetwork(vocabulary_size=8000, cell="lstm", d_model=128, attention="general")
    logits = model({"source_ids": [[7, 8, 9]], "target_ids": [[2, 7]]})  # (1, 2, 8000)
    ```
    """

    shape_class, architectures = RecurrentNetworkShape, ("rnn", "lstm", "gru")

    def __init__(self, vocabulary_size, *, dtype=None, name=None, **numbers):
        shape = RecurrentNetworkShape(vocabulary_size=vocabulary_size, **numbers)
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        self.source_embedding, self.target_embedding, self.logits_layer = make_embeddings(shape, policy)
        self.encoder = RecurrentEncoder(shape=shape, name="encoder", dtype=policy)
        self.decoder = RecurrentDecoder(shape=shape, name="decoder", dtype=policy)
        super().__init__(shape, policy=policy, name=name)

    @classmethod
    def from_settings(cls, config, **arguments):
        return super().from_settings(config, **{"cell": config.architecture, **arguments})

    def encode(self, source_ids):
        return self.encoder(self.source_embedding(source_ids), ops.not_equal(source_ids, PAD_ID))

    def decode(self, target_ids, memory):
        return self.decoder(self.target_embedding(target_ids), memory)

    def align(self, target_ids, memory, training=False):
        """As in the contract: the weights of attention; without attention, those of the fixed context."""
        return self.decoder.align(self.target_embedding(target_ids), memory, training)

    def start(self, memory, width, room=None):
        return {
            "decoder": self.decoder.start(memory, width),
            "keys": self.decoder.attention_mechanism.project(memory),
            "memory": memory,
        }

    def step(self, ids, parents, position, state, has_room=False):
        x, decoder = self.target_embedding(ids), of_parents(state["decoder"], parents)  # (B, W, D)
        states, decoder, _ = self.decoder.step(x, position, decoder, state["keys"], state["memory"])
        return states, {**state, "decoder": decoder}

    def logits(self, states):
        return self.logits_layer(states)

    @property
    def output_matrix(self):
        return self.logits_layer.source.matrix
