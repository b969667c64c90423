"""Low-rank adapters (Hu et al. 2021), which Keras has: training changes two narrow matrices of each projection alone.

A projection becomes W + A B, with W (D, U) frozen, A (D, R) random and B (R, U) zero at the start. Gradients, moments
of the optimizer and checkpoints have the size of A and B.
"""

import keras
from keras import ops

ADAPTERS = ("lora_kernel_a", "lora_kernel_b")  # as Keras names A and B


def add_adapters(network, rank):
    """Freezes the weights of a model, and adds A and B to its projections. It computes what it did before.

    Args:
        network: `Transformer`, built.
        rank: R.
    """
    for weight in network.weights:
        weight.trainable = False
    for projection in projections_of(network):
        projection.enable_lora(rank)


def projections_of(network):
    """The dense layers of the attentions and feed-forward networks, a list."""
    return [each for layer in (*network.encoder.layers, *network.decoder.layers) for each in dense_layers_in(layer)]


def dense_layers_in(layer):
    """All dense layers inside of a layer, a list."""
    inner = [each for each in vars(layer).values() if isinstance(each, keras.layers.Layer)]
    found = ([each] if isinstance(each, keras.layers.Dense) else dense_layers_in(each) for each in inner)
    return [dense for some in found for dense in some]


def own_weights(network):
    """The weights of a model without A and B: a list of Keras variables."""
    return [weight for weight in network.weights if weight.name not in ADAPTERS]


def frozen_weights(network):
    """The weights that training does not change; [] if there are no adapters."""
    return [weight for weight in network.weights if not weight.trainable]


def trained_weights(network):
    """The weights that training changes."""
    return [weight for weight in network.weights if weight.trainable]


def trained_variables(network):
    """The weights that training changes, and the seeds of dropout."""
    frozen = {id(weight) for weight in frozen_weights(network)}
    return [variable for variable in network.variables if id(variable) not in frozen]


def merged_weights(network):
    """The values of `own_weights`, with W + A B in place of W: a list of arrays."""
    adapted = projections_of(network) if frozen_weights(network) else []
    merged = {f"{projection.path}/kernel": projection.kernel for projection in adapted}
    return [ops.convert_to_numpy(merged.get(weight.path, weight)) for weight in own_weights(network)]
