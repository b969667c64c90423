"""The memory that a training needs, before anything of the training is made for it.

The counts of weights, gradients and the optimizer's slots are exact. The activations are an estimate, fitted to the
memory of whole processes on CPUs (tests/training/test_memory.py has the measured figures). TensorFlow keeps more than
the gradient needs, and the allocator wastes some, so the factors are larger than the equations say.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.data.pipeline import batch_shapes
from keras_transformer.errors import ConfigError
from keras_transformer.process import MIB, available_memory
from keras_transformer.training.losses import loss_class_of

FLOAT32 = 4  # bytes
SLOTS = {"lion": 1, "adafactor": 1}  # variables of an optimizer for each weight, where they are not two
# Arrays that are kept until the gradient has passed: of what a weight gives at each position; of a number for each
# target token and each piece; for each head and pair of positions; and for a pair whose score is made of a vector.
KEPT_OF_WEIGHTS, KEPT_OF_PIECES, KEPT_OF_SCORES, KEPT_OF_VECTORS = 1.2, 3.2, 1.6, 3
KEPT_OF_DISTANCES = 2  # times the scores of self-attention, with relative positions
GRAPH = 64 * MIB  # of the traced functions


class Memory(NamedTuple):
    """The bytes that a training needs on one device, or on all devices of a CPU, which share its memory.

    Args:
        weights: the weights and, with `ema_decay`, their averages.
        optimizer: the slots of the optimizer.
        gradients: the gradients and, with `accumulate_steps`, their sums.
        activations: the largest batch, forth and back.
    """

    weights: int
    optimizer: int
    gradients: int
    activations: int

    @property
    def total(self):
        """All of it, with the graph."""
        return sum(self) + GRAPH

    def describe(self):
        """A line for people: the total, and its parts."""
        parts = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in self._asdict().items())
        return f"about {self.total / MIB:,.0f} MiB, an estimate ({parts}); the process and the corpus come on top"


def estimate(config, data, strategy, network):
    """The `Memory` that the training of a model of ours needs on this machine.

    Args:
        config: `Config`, as decided.
        data: `Data`.
        strategy: tf.distribute.Strategy.
        network: the model of the config, such as `outline` makes it without memory for its weights.
    """
    on_gpu, replicas = bool(tf.config.list_physical_devices("GPU")), strategy.num_replicas_in_sync
    sharing = 1 if on_gpu or replicas == 1 else len(strategy.extended.worker_devices)  # replicas in one memory
    copies = FLOAT32 * network.count_params() * sharing
    size = 2 if on_gpu and config.precision != "float32" else FLOAT32  # CPUs compute in float32
    activations = max(
        -(-rows // replicas) * sharing * count_activations(config, network, source, target)
        for rows, source, target in batch_shapes(data.train, config.batch_tokens)
    )
    return Memory(
        weights=copies * (1 if config.ema_decay is None else 2),
        optimizer=copies * SLOTS.get(config.optimizer, 2),
        gradients=copies * (1 if config.accumulate_steps == 1 else 2),
        activations=size * activations,
    )


def count_activations(config, network, source, target):
    """The numbers that one row of a batch keeps: of every weight, of the scores, and of the target tokens.

    At each position, a matrix or a normalisation gives as many numbers as its last axis is long. A bias is added to
    numbers that its matrix gives.

    Args:
        config: `Config`.
        network: the model of the config.
        source: S.
        target: T.
    """
    given = sum(weight.shape[-1] for weight in network.weights if weight.name != "bias")
    of_weights = KEPT_OF_WEIGHTS * max(source, target) * given
    of_pieces = KEPT_OF_PIECES * target * network.output_matrix.shape[0]
    return loss_class_of(config).passes * round(of_weights + of_pieces + count_scores(config, source, target))


def count_scores(config, source, target):
    """The numbers that one row of a batch keeps of the scores of all attentions. Arguments: see `count_activations`."""
    if config.architecture != "transformer":
        has_vectors = config.attention in ("additive", "concat")
        return KEPT_OF_VECTORS * source * target * (config.d_model if has_vectors else 1)
    times = KEPT_OF_DISTANCES if config.positions == "relative" else 1
    of_decoder = config.decoder_depth * (times * target + source) * target
    return KEPT_OF_SCORES * config.num_heads * (config.num_layers * times * source**2 + of_decoder)


def check_fits(memory):
    """Refuses a training that needs more memory than there is, before it starts.

    Args:
        memory: `Memory`.

    Raises:
        ConfigError: with both numbers, and the settings that make it smaller.
    """
    available, kind = available_memory()
    if available is None or memory.total <= available:
        return
    largest = "batch" if memory.activations >= sum(memory) / 2 else "model"
    advice = {
        "batch": "Lower `batch_tokens`, with more `accumulate_steps` for the same update, or lower `max_length`",
        "model": "Choose a smaller `preset`, `d_model` or `num_layers`",
    }
    raise ConfigError(
        f"the training needs {memory.describe()}. There are {available / MIB:,.0f} MiB of {kind}. {advice[largest]}"
    )
