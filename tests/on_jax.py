"""Runs the models on the JAX backend of Keras: forward, step by step, and a `fit` of each.

Needs jax, keras, pyyaml.

KERAS_BACKEND=jax python -m tests.on_jax
"""

import keras
import numpy as np

from keras_transformer.models.recurrent import RecurrentNetwork
from keras_transformer.models.transformer import Transformer

SOURCE_IDS = np.array([[5, 7, 11, 0], [13, 5, 0, 0]], "int32")
TARGET_IDS = np.array([[2, 5, 7], [2, 11, 13]], "int32")
PARENTS = np.array([[1, 0, 2], [2, 2, 1]], "int32")  # hypotheses change places after the first position
VARIANTS = [
    {},
    {"positions": "relative", "relative_clip": 1, "num_key_value_heads": 1, "num_decoder_layers": 1},
    {"positions": "rotary", "d_key": 10, "attention_bias": True, "activation": "silu"},
    {"autoregression": "ssru", "positions": "rotary", "d_key": 10},
    {"positions": "learned", "tie_positions": False, "embedding_norm": True, "activation": "gelu", "logits_bias": True},
    {"positions": "sinusoidal_halves", "layer_norm_epsilon": 1e-5, "frame": "5/3/7"},
]
RECURRENT = [
    {"cell": "lstm", "num_layers": 2, "attention": "general", "attention_span": "local_p", "attention_window": 2},
    {"input_feeding": True, "attention": "concat", "attention_span": "local_m"},
    {"hard_attention": True, "attention": "dot"},
]


def main():
    if keras.backend.backend() != "jax":
        raise SystemExit("set KERAS_BACKEND=jax")
    for variant in VARIANTS:
        arguments = {"d_model": 26, "num_heads": 2, "d_ff": 19, "num_layers": 2, **variant}
        print(f"on JAX, {variant or 'the Transformer of the paper'}: {check(Transformer, arguments)}")
    for variant in RECURRENT:
        print(f"on JAX, recurrent, {variant}: {check(RecurrentNetwork, {'d_model': 26, **variant})}")


def check(model_class, arguments):
    """Compares the steps with the full pass, and trains; returns the losses in words."""
    keras.utils.set_random_seed(1)
    model = model_class(17, **arguments)
    memory = model.encode(SOURCE_IDS)
    states = np.asarray(model.decode(TARGET_IDS, memory))
    outputs = model({"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS})
    np.testing.assert_allclose(outputs, model.logits(states), atol=1e-5)

    state = model.start(memory, 3)
    for position in range(TARGET_IDS.shape[1]):
        ids = np.repeat(TARGET_IDS[:, position, None], 3, axis=1)  # the W hypotheses of a row are equal
        found, state = model.step(ids, PARENTS, position, state)
        np.testing.assert_allclose(found, np.repeat(states[:, position, None], 3, axis=1), atol=1e-5)

    labels = np.concatenate([TARGET_IDS[:, 1:], np.full((2, 1), 3)], axis=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss)
    inputs = {"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS}
    losses = model.fit(inputs, labels, epochs=20, verbose=0).history["loss"]
    if not losses[-1] < 0.5 * losses[0]:
        raise SystemExit(f"the loss did not halve in 20 updates: {losses[0]:.3f}, then {losses[-1]:.3f}")
    return f"the loss of {losses[0]:.3f} is {losses[-1]:.3f} after 20 updates"


if __name__ == "__main__":
    main()
