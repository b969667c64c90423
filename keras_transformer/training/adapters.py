"""Low-rank adapters (Hu et al. 2021), which Keras has: training changes two narrow matrices of each projection alone.

A projection becomes W + A B, with W (D, U) frozen, A (D, R) random and B (R, U) zero at the start. Gradients, moments
of the optimizer and checkpoints have the size of A and B.
"""

from keras import ops

from keras_transformer.layers.kernels import Linear
from keras_transformer.private_api import layers_in

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
    return [each for stack in (network.encoder, network.decoder) for each in layers_in(stack, Linear)]


def own_weights(network):
    """The weights of a model without A and B: a list of Keras variables."""
    return [weight for weight in network.weights if weight.name not in ADAPTERS]


def trained_variables(network):
    """The weights that training changes, and the seeds of dropout."""
    frozen = {id(weight) for weight in network.non_trainable_weights}
    return [variable for variable in network.variables if id(variable) not in frozen]


def merged_weights(network):
    """The values of `own_weights`, with W + A B in place of W: a list of arrays."""
    adapted = projections_of(network) if network.non_trainable_weights else []
    merged = {f"{projection.path}/kernel": projection.kernel for projection in adapted}
    return [ops.convert_to_numpy(merged.get(weight.path, weight)) for weight in own_weights(network)]
