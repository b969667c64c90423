"""The memory that a training needs, before anything of the training is made for it.

The weights, the gradients, the optimizer's slots, and what the forward pass keeps for the gradient are counted. So the
estimate knows no kind of layer. tests/tools/planning/test_memory.py has the memory of whole processes beside it.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.data.pipeline import batch_shapes
from keras_transformer.errors import ConfigError
from keras_transformer.private_api import loop_body
from keras_transformer.tools.planning.available import MIB, available_memory
from keras_transformer.training.decide import POLICIES
from keras_transformer.training.losses import make_loss
from keras_transformer.training.teacher_forcing import TeacherForcing
from keras_transformer.training.train import make_network

FLOAT32 = 4  # bytes
SLOTS = {"lion": 1, "adafactor": 1}  # variables of an optimizer for each weight, where they are not two
GRAPH = 64 * MIB  # of the traced functions
WEIGHTS = {"ReadVariableOp", "VarHandleOp", "Const"}  # operations whose results are no activations
VIEWS = {
    "Reshape",
    "Identity",
    "IdentityN",
    "ExpandDims",
    "Squeeze",
    "StopGradient",
}  # whose results are in the memory of their input


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
    copies, changed = (
        FLOAT32 * sharing * sum(math.prod(weight.shape) for weight in weights)
        for weights in (network.weights, network.trainable_weights)
    )
    rows, source, target = max(batch_shapes(data.train, config.batch_tokens), key=_size_of(config.d_model))
    policy = POLICIES[config.precision if on_gpu else "float32"]  # CPUs compute in float32
    return Memory(
        weights=copies + (0 if config.ema_decay is None else changed),
        optimizer=changed * SLOTS.get(config.optimizer, 2),
        gradients=changed * (1 if config.accumulate_steps == 1 else 2),
        activations=sharing * count_activations(config, data, -(-rows // replicas), source, target, policy),
    )


def _size_of(d_model):
    """A key that finds the largest batch: most results are (B, S, D), and those of attentions (B, S, S)."""
    return lambda shape: shape[0] * max(shape[1:]) * (d_model + max(shape[1:]))


def count_activations(config, data, rows, source, target, policy):
    """The bytes that the forward pass of one batch keeps for the gradient.

    They are counted in a graph of both passes, which never runs: the results of the one that the other one reads. A
    loop keeps its results in lists, for each of its steps.

    Args:
        config: `Config`.
        data: `Data`.
        rows: B.
        source: S.
        target: T.
        policy: name of the dtype policy.
    """
    with tf.Graph().as_default() as graph:
        trainer, loss = TeacherForcing(make_network(config, data, policy)), make_loss(config)
        inputs = {"source_ids": tf.ones((rows, source), tf.int32), "target_ids": tf.ones((rows, target), tf.int32)}
        inputs |= {"links": tf.zeros((rows, target, source))} if loss.reads_alignment else {}
        states = [tf.reshape(each, (rows * target, -1)) for each in loss.run(trainer.model_for(loss), inputs)]
        network, labels = trainer.network, tf.ones((rows * target,), tf.int32)
        bias = [] if network.output_bias is None else [network.output_bias]
        losses, _ = loss.of_tokens(states, network.output_matrix, labels, *bias)
        forward = {operation.name for operation in graph.get_operations()}
        tf.gradients(losses, [weight.value.handle for weight in network.trainable_weights])
        both = graph.get_operations()
    backward = (operation for operation in both if operation.name not in forward)
    read = {_viewed(tensor).ref() for operation in backward for tensor in operation.inputs if tensor.op.name in forward}
    kept = [ref.deref() for ref in read if ref.deref().op.type not in WEIGHTS]
    steps = [step for loop in both if loop.type == "While" for step in loop_body(loop).get_operations()]
    kept += [step.inputs[1] for step in steps if step.type == "TensorListPushBack"] * max(source, target)
    return sum(_bytes_of(tensor, rows) for tensor in kept)


def _viewed(tensor):
    """The tensor whose memory this one is a view of, or the tensor itself."""
    while tensor.op.type in VIEWS:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _bytes_of(tensor, rows):
    """The bytes of a tensor, whose first axis is as long as a batch if its length is not known; 0 for a list."""
    sizes = [size or rows for size in tensor.shape.as_list()] if tensor.shape.rank is not None else [0]
    return math.prod(sizes) * tensor.dtype.size


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
