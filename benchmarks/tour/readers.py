"""Models that read a text and give one answer, for the pages recurrence.md and latent_attention.md of docs/tour/."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.layers.embedding import PositionalEncoding, TokenEmbedding
from keras_transformer.layers.kernels import Linear
from keras_transformer.layers.stacks import Encoder
from keras_transformer.recurrent.attention import LatentAttention
from keras_transformer.recurrent.cells import run
from keras_transformer.recurrent.stacks import RecurrentEncoder


def story_reader(kind, num_words, num_answers, d_model=32):
    """A model that answers from the last state: ids int32 (B, S) without padding -> logits (B, num_answers).

    Args:
        kind: "rnn", "lstm" or "gru" for a recurrent layer, "transformer" for one encoder layer with two heads.
        num_words: size of the vocabulary.
        num_answers: number of classes.
        d_model: D.
    """
    ids = keras.Input((None,), dtype="int32")
    x = TokenEmbedding(num_words, d_model, name="embedding")(ids)
    if kind == "transformer":
        x = PositionalEncoding(d_model, name="positions")(x)
        last = Encoder(num_layers=1, d_model=d_model, num_heads=2, d_ff=2 * d_model, name="encoder")(x)[:, -1]
    else:
        encoder = RecurrentEncoder(cell=kind, d_model=d_model, bidirectional=False, name="encoder")
        last = encoder(x, ops.not_equal(ids, 0))["last"][0][0]
    return compiled(keras.Model(ids, Linear(num_answers, name="answer")(last)), rate=0.003)


def recipe_reader(pooling, num_words, num_services, d_model=16):
    """A BiLSTM that finds trigger and action: ids int32 (B, S) -> {"trigger", "action"}, logits (B, num_services) each.

    Args:
        pooling: "latent" for a `LatentAttention` for each of the two, "mean" for the mean of all states.
        num_words: size of the vocabulary.
        num_services: number of classes.
        d_model: D.
    """
    ids = keras.Input((None,), dtype="int32")
    mask = ops.not_equal(ids, 0)
    x = TokenEmbedding(num_words, d_model, name="embedding")(ids)
    states = RecurrentEncoder(cell="lstm", d_model=d_model, name="encoder")(x, mask)["states"]
    logits = {}
    for name in ("trigger", "action"):
        if pooling == "latent":
            pooled = LatentAttention(d_model, name=f"{name}_attention")(states, mask)
        else:
            pooled = keras.layers.GlobalAveragePooling1D(name=f"{name}_mean")(states, mask=mask)
        logits[name] = Linear(num_services, name=name)(pooled)
    return compiled(keras.Model(ids, logits), rate=0.005)


def compiled(model, rate):
    """The model, ready for `fit` with Adam and the cross-entropy of its logits."""
    loss = keras.tree.map_structure(
        lambda logits: keras.losses.SparseCategoricalCrossentropy(from_logits=True), model.output
    )
    model.compile(optimizer=keras.optimizers.Adam(rate, clipnorm=1.0), loss=loss, jit_compile=False)
    return model


def accuracy(logits, answers):
    """The share of rows whose largest logit is the answer: logits (B, C), answers int (B,)."""
    return float(np.mean(np.argmax(logits, axis=-1) == answers))


def gradient_norms(cell, x, lengths):
    """The largest factor by which a change of the state h_1 can grow, or must shrink, until h_T: |d h_T / d h_1|.

    Args:
        cell: a built cell of `keras_transformer.recurrent.cells`, U wide.
        x: (1, S, D), its inputs; h_1 is its state after the first one.
        lengths: list of T, at most S.

    Returns:
        for each T the spectral norm of the matrix (U, U) of derivatives; 1 at T = 1.
    """
    rows = tf.repeat(x, cell.units, axis=0)  # row i asks for the gradient of component i of h_T
    h, *rest = (tensor[:, 0] for tensor in run(cell, rows[:, :1], cell.zero_state(cell.units)))

    @tf.function(reduce_retracing=True)
    def derivatives(inputs):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = run(cell, inputs, (h, *rest))[0][:, -1]
            components = tf.linalg.diag_part(last)
        return tape.gradient(components, h)

    return [1.0 if T == 1 else float(np.linalg.norm(derivatives(rows[:, 1:T]), 2)) for T in lengths]
