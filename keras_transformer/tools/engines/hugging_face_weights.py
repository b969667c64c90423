"""The weights of a `Transformer` by the names that all translation models of transformers have from BART."""

import numpy as np
from keras import ops

PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
FIRST_ROW = 2  # of their table of learned positions


def tensors_of(model, tables, positions):
    """The weights of a model.

    Args:
        model: `Transformer`.
        tables: `IdTable` of the source and of the target.
        positions: int, rows of a table of learned positions.

    Returns:
        dict from their names to float32 arrays.
    """
    axis = coordinates(model)
    stacks = (
        ("encoder", model.encoder, model.position_layer),
        ("decoder", model.decoder, model.target_position_layer),
    )
    found = {}
    for side, stack, position_layer in stacks:
        for number, layer in enumerate(stack.layers):
            found |= tensors_of_layer(f"model.{side}.layers.{number}", layer, axis)
        if model.pre_norm:
            found |= norm(f"model.{side}.layer_norm", stack.norm, axis)
        if model.embedding_norm:
            found |= norm(f"model.{side}.layernorm_embedding", position_layer.sum_norm, axis)
        if model.positions == "learned":
            rows = ops.convert_to_numpy(position_layer.encode(ops.arange(positions)))
            found[f"model.{side}.embed_positions.weight"] = np.pad(rows, ((FIRST_ROW, 0), (0, 0)))
    found |= tensors_of_vocabularies(model, tables, axis)
    return {name: np.ascontiguousarray(array, "float32") for name, array in found.items()}


def tensors_of_vocabularies(model, tables, axis):
    """The matrices of the embeddings and of the logits, and the bias of the logits."""

    def matrix(variable, table):
        return ops.convert_to_numpy(variable)[table.rows][:, axis]

    source, target = model.source_embedding, model.target_embedding
    if source is target:
        found = {"model.shared.weight": matrix(source.matrix, tables[0])}
    else:
        found = {"model.encoder.embed_tokens.weight": matrix(source.matrix, tables[0])}
        found["model.decoder.embed_tokens.weight"] = matrix(target.matrix, tables[1])
    if not model.tie_embeddings:
        found["lm_head.weight"] = matrix(model.output_matrix, tables[1])
    return {**found, "final_logits_bias": tables[1].bias[None]}


def coordinates(model):
    """The order of our D coordinates there: int (D,).

    The paper's sinusoids take turns, sin, cos, sin, cos; theirs are all sines, then all cosines. The same order of all
    vectors of width D changes no result.
    """
    every = np.arange(model.d_model)
    return np.concatenate([every[::2], every[1::2]]) if model.positions == "sinusoidal" else every


def tensors_of_layer(place, layer, axis):
    """The weights of an encoder layer or a decoder layer; `place` is its name there."""
    found = {}
    for theirs, ours in ATTENTIONS.items():
        if hasattr(layer, ours):
            attention = getattr(layer, ours)
            for name, projection in PROJECTIONS.items():
                found |= linear(f"{place}.{theirs}.{name}", getattr(attention, projection), inputs=axis)
            found |= linear(f"{place}.{theirs}.out_proj", attention.output_projection, outputs=axis)
            found |= norm(f"{place}.{theirs}_layer_norm", getattr(layer, f"{ours}_residual").norm, axis)
    found |= linear(f"{place}.fc1", layer.feed_forward.inner, inputs=axis)
    found |= linear(f"{place}.fc2", layer.feed_forward.outer, outputs=axis)
    return found | norm(f"{place}.final_layer_norm", layer.feed_forward_residual.norm, axis)


def linear(name, layer, inputs=slice(None), outputs=slice(None)):
    """A dense layer: its matrix as (outputs, inputs), in another order, and its bias, of zeros if it has none."""
    kernel = ops.convert_to_numpy(layer.kernel)
    bias = ops.convert_to_numpy(layer.bias) if layer.use_bias else np.zeros(kernel.shape[1])
    return {f"{name}.weight": kernel[inputs].T[outputs], f"{name}.bias": bias[outputs]}


def norm(name, layer, axis):
    """Gain and bias of a layer normalisation, in another order."""
    gamma, beta = ops.convert_to_numpy(layer.gamma), ops.convert_to_numpy(layer.beta)
    return {f"{name}.weight": gamma[axis], f"{name}.bias": beta[axis]}
