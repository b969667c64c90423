"""A second model, which shares no layer with the Transformer: the proof that the house knows only the contract.

The encoder averages embeddings. The decoder is an Elman cell, h' = tanh(W x + U h), with dot-product attention.
"""

import keras
from keras import ops

from keras_transformer.models.sequence_to_sequence import SequenceToSequence


@keras.saving.register_keras_serializable(package="tests")
class OutputProduct(keras.layers.Layer):
    """states matrix^T, with a matrix (V, D) of its own."""

    def __init__(self, vocabulary_size, d_model, **kwargs):
        super().__init__(**kwargs)
        self.matrix = self.add_weight(shape=(vocabulary_size, d_model), initializer="glorot_uniform", name="matrix")

    def call(self, states):
        return ops.cast(ops.matmul(states, ops.transpose(ops.cast(self.matrix, self.compute_dtype))), "float32")


@keras.saving.register_keras_serializable(package="tests")
class Elman(SequenceToSequence):
    """Memory is {"states": (B, S, D), "mask": (B, S), "first": (B, D)}; the decoding state adds "h", (B, W, D)."""

    def __init__(self, vocabulary_size, target_vocabulary_size=None, d_model=16, *, dtype=None, **kwargs):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        target_size = target_vocabulary_size or vocabulary_size
        self.read = keras.layers.Embedding(vocabulary_size, d_model, dtype=policy, name="read")
        self.write = keras.layers.Embedding(target_size, d_model, dtype=policy, name="write")
        self.input_map = keras.layers.Dense(d_model, dtype=policy, name="input_map")
        self.cell = keras.layers.SimpleRNN(d_model, return_sequences=True, unroll=False, dtype=policy, name="cell")
        self.mix = keras.layers.Dense(d_model, activation="tanh", dtype=policy, name="mix")
        self.product = OutputProduct(target_size, d_model, dtype=policy, name="product")
        super().__init__(policy=policy, **kwargs)
        self.vocabulary_size, self.target_vocabulary_size = vocabulary_size, target_vocabulary_size
        self.d_model = d_model

    def encode(self, source_ids):
        mask = ops.not_equal(source_ids, 0)
        states = self.read(source_ids)
        weights = ops.cast(mask, states.dtype)[:, :, None]
        return {"states": states, "mask": mask, "first": ops.sum(states * weights, 1) / (ops.sum(weights, 1) + 1e-3)}

    def decode(self, target_ids, memory):
        return self.align(target_ids, memory)[0]

    def align(self, target_ids, memory):
        h = self.cell(self.input_map(self.write(target_ids)), initial_state=memory["first"])  # (B, T, D)
        return self.attend(h, memory)

    def attend(self, h, memory):
        """h (B, T, D) -> states (B, T, D), and its attention to memory, float32 (B, T, S)."""
        scores = ops.cast(ops.matmul(h, ops.swapaxes(memory["states"], 1, 2)), "float32")
        weights = ops.softmax(ops.where(memory["mask"][:, None], scores, -1e9))
        context = ops.matmul(ops.cast(weights, h.dtype), memory["states"])
        return self.mix(ops.concatenate([h, context], axis=-1)), weights

    def start(self, memory, width):
        return {**memory, "h": ops.repeat(memory["first"][:, None], width, axis=1)}

    def step(self, ids, parents, position, state):
        h = ops.matmul(ops.one_hot(parents, parents.shape[1], dtype=state["h"].dtype), state["h"])  # of the parents
        x = self.input_map(self.write(ids))
        kernel, recurrent, bias = (ops.cast(weight, x.dtype) for weight in self.cell.weights)
        h = ops.tanh(ops.matmul(x, kernel) + ops.matmul(h, recurrent) + bias)
        return self.attend(h, state)[0], {**state, "h": h}

    def logits(self, states):
        return self.product(states)

    @property
    def output_matrix(self):
        return self.product.matrix
