"""The memory that a training needs, by arithmetic: nothing of the training is made for it.

The counts of weights, gradients and the optimizer's slots are exact. The activations are an estimate, fitted to the
memory of whole processes on CPUs (tests/training/test_memory.py measures one). TensorFlow keeps more than the gradient
needs, and the allocator wastes some, so the factors are larger than the equations say.
"""

from typing import NamedTuple

import psutil
import tensorflow as tf

from keras_transformer.data.pipeline import batch_shapes
from keras_transformer.errors import ConfigError
from keras_transformer.presets import split_heads_setting
from keras_transformer.recurrent.cells import CELLS
from keras_transformer.training.strategy import resolve_precision

MIB = 2**20
FLOAT32 = 4  # bytes
SLOTS = {"adam": 2, "adamw": 2, "lion": 1, "adafactor": 1}  # variables of an optimizer for each weight
# Arrays that a layer keeps for each position, until the gradient has passed: of D numbers, outside of its attentions;
# and of the widths of all heads, in each attention.
KEPT_BY_ENCODER, KEPT_BY_DECODER, KEPT_OF_HEADS = 7, 10, 2
KEPT_OF_DISTANCES = 3  # relative positions: weights and scores, and these times the terms of the distances
KEPT_BY_CELL = 8  # arrays of D numbers for each gate and position
KEPT_BY_SCORE = 3  # arrays of D numbers, for additive attention, for each pair of positions
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


def count_parameters(config, source_size, target_size):
    """The number of weights of the model of a config.

    Args:
        config: `Config`.
        source_size: pieces of the source vocabulary.
        target_size: pieces of the target vocabulary; ignored if both share one.
    """
    target_size = source_size if config.share_vocabulary else target_size
    matrices = target_size if config.tie_embeddings else 2 * target_size
    if not (config.share_vocabulary and config.tie_embeddings):
        matrices += source_size
    if config.architecture != "transformer":
        return matrices * config.d_model + _count_recurrent(config)
    return matrices * config.d_model + target_size * config.logits_bias + _count_transformer(config)


def _count_transformer(config):
    """The weights of the layers of a `Transformer`."""
    d, f = config.d_model, config.d_ff
    asking, asked = widths(config)
    attention, feed_forward, norm = d * (asking + asked), 2 * d * f + f + d, 2 * d
    of_head = 2 * d * (asking // config.num_heads)
    if config.attention_bias:
        d_key = config.d_key or d // config.num_heads
        attention += config.num_heads * d_key + asked + d
        of_head += d_key + asking // config.num_heads
    tables = (2 * config.relative_clip + 1) * asking // config.num_heads * (config.positions == "relative")
    encoder = attention + tables + norm + feed_forward + norm
    decoder = encoder + attention + norm
    at_input = config.num_positions * d * (config.positions == "learned") * (1 if config.tie_positions else 2)
    at_input += 2 * norm * config.embedding_norm
    encoders, decoders = depths(config)
    if config.heads:
        to_self, to_target, to_memory = split_heads_setting(config.heads)
        missing = config.num_heads * (encoders + 2 * decoders) - sum(to_self + to_target + to_memory)
        at_input -= missing * of_head + (to_self + to_target).count(0) * tables
    return at_input + encoders * encoder + decoders * decoder + 2 * norm * config.pre_norm


def _count_recurrent(config):
    """The weights of the layers of a `RecurrentNetwork`."""
    d, above = config.d_model, config.num_layers - 1

    def cell(width, units):
        return CELLS[config.architecture].gates * units * (width + units + 1)

    encoder = config.num_layers * (2 * cell(d, d // 2) if config.bidirectional else cell(d, d))
    decoder = cell(2 * d if config.input_feeding else d, d) + above * cell(d, d)
    score = {"none": 0, "dot": 0, "general": d * d, "additive": 2 * d * d + d, "concat": 2 * d * d + d}
    has_centre = config.attention != "none" and config.attention_span == "local_p"
    return encoder + decoder + score[config.attention] + has_centre * (d * d + d) + 2 * d * d


def widths(config):
    """The numbers of all heads of one position: of the queries and the means of values, and of the keys and values."""
    d_key = config.d_key or config.d_model // config.num_heads
    both = d_key + (config.d_value or d_key)
    return config.num_heads * both, (config.num_key_value_heads or config.num_heads) * both


def depths(config):
    """The numbers of layers of the encoder and of the decoder."""
    return config.num_layers, config.num_decoder_layers or config.num_layers


def estimate(config, data, strategy):
    """The `Memory` that the training of a model of ours needs on this machine.

    Args:
        config: `Config`.
        data: `Data`.
        strategy: tf.distribute.Strategy.
    """
    on_gpu, replicas = bool(tf.config.list_physical_devices("GPU")), strategy.num_replicas_in_sync
    sharing = 1 if on_gpu or replicas == 1 else len(strategy.extended.worker_devices)  # replicas in one memory
    parameters = count_parameters(config, *(tokenizer.vocabulary_size for tokenizer in data.tokenizers))
    copies = FLOAT32 * parameters * sharing
    size = 2 if on_gpu and resolve_precision(config.precision) != "float32" else FLOAT32  # CPUs compute in float32
    vocabulary = data.target_tokenizer.vocabulary_size
    activations = max(
        -(-rows // replicas) * sharing * count_activations(config, source, target, vocabulary)
        for rows, source, target in batch_shapes(data.train, config.batch_tokens)
    )
    return Memory(
        weights=copies * (1 if config.ema_decay is None else 2),
        optimizer=copies * SLOTS[config.optimizer],
        gradients=copies * (1 if config.accumulate_steps == 1 else 2),
        activations=size * activations,
    )


def count_activations(config, source, target, vocabulary):
    """The numbers that one row of a batch keeps: of every layer, and the probabilities of the target tokens.

    Args:
        config: `Config`.
        source: S.
        target: T.
        vocabulary: V of the target.
    """
    if config.architecture != "transformer":
        by_position = KEPT_BY_CELL * CELLS[config.architecture].gates * config.d_model * (source + target)
        has_width = config.attention in ("additive", "concat")  # their scores are made of vectors
        by_score = KEPT_BY_SCORE * source * target * (config.d_model if has_width else 1)
        return config.num_layers * by_position + by_score + target * vocabulary
    d, f = config.d_model, config.d_ff
    asking, asked = (KEPT_OF_HEADS * width for width in widths(config))
    to_self = config.num_heads * (KEPT_OF_DISTANCES if config.positions == "relative" else 1)
    encoder = source * (KEPT_BY_ENCODER * d + asking + asked + f + to_self * source)
    decoder = target * (KEPT_BY_DECODER * d + 2 * asking + asked + f + to_self * target)
    decoder += source * (asked + config.num_heads * target)  # of memory
    encoders, decoders = depths(config)
    return encoders * encoder + decoders * decoder + target * vocabulary


def available_memory():
    """The bytes that there are for a training: of each GPU if TensorFlow has a limit for it, else of this machine.

    Returns:
        (int or None where TensorFlow does not know, what it is for people).
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return psutil.virtual_memory().available, "free memory"
    devices = tf.config.get_logical_device_configuration(gpus[0]) or []
    limits = [device.memory_limit for device in devices if device.memory_limit]
    return (min(limits) * MIB if limits else None), "memory of a GPU"


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
