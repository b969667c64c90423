"""The contract of a model: all that training, decoding, translation and export know about it."""

import re
import zipfile
from pathlib import Path
from typing import Any

import keras

from keras_transformer.config import Config
from keras_transformer.errors import ConfigError, UserError
from keras_transformer.layers.stacks import numbers_for


class SequenceToSequence(keras.Model):
    """A functional Keras model: ids of the source and of the shifted target in, logits of the next target token out.

    A subclass makes its layers in `__init__` and then calls `super().__init__`, which connects them by `encode`,
    `decode` and `logits`. Its arguments are the fields of a frozen dataclass, its `shape_class`. The model has one
    public attribute for each of them, and `shape`, which has all; `get_config` returns these.

    The six methods are pure: they change no state, and no argument is a flag. `memory` and `state` are
    nests of tensors whose first axis is B, so that rows can be selected. `step` over the positions 0 ... T-1 gives the
    states that `decode` gives at once.

    Args:
        shape: the arguments of the model, an object of its `shape_class`; None if `get_config` is its own.
        policy: the `keras.DTypePolicy` of all layers.
        **kwargs: those of `keras.Model`.

    Call arguments:
        inputs: {"source_ids": int (B, S), "target_ids": int (B, T) = bos y1 ... yn}, padded with 0.

    Returns:
        logits float32 (B, T, V): position t sees target_ids 0 ... t and predicts the token after it.

    Attributes:
        shape_class: the dataclass.
        architectures: values of the setting `architecture` that mean this model; () for a model without presets.
    """

    shape_class, architectures = None, ()

    def __init__(self, shape=None, *, policy, **kwargs):
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        logits = self.connect(source_ids, target_ids)
        super().__init__(inputs={"source_ids": source_ids, "target_ids": target_ids}, outputs=logits, **kwargs)
        self.dtype_policy = policy  # a functional model takes no dtype
        self.shape = shape
        vars(self).update(vars(shape) if shape else {})

    def connect(self, source_ids, target_ids):
        """The logits (B, T, V) of the functional model, from its inputs."""
        return self.logits(self.decode(target_ids, self.encode(source_ids)))

    def encode(self, source_ids):
        """Reads the source: source_ids int (B, S), padded with 0 -> memory, with its mask inside."""
        raise self._missing("encode")

    def decode(self, target_ids, memory):
        """Reads all target positions at once (teacher forcing): target_ids int (B, T) -> states (B, T, D)."""
        raise self._missing("decode")

    def start(self, memory, width, room=None):
        """The state before the first token, for `width` (W) hypotheses per row.

        With a `room`, int scalar, the state has places for so many positions, and its shapes never change: a compiled
        search needs this (`tools/engines/compiled.py`). Without one, it may grow. A state that never grows ignores it.
        """
        raise self._missing("start")

    def step(self, ids, parents, position, state, has_room=False):
        """Reads one position of W hypotheses per row.

        Args:
            ids: int (B, W), the tokens at `position`.
            parents: int (B, W), the hypothesis of the step before that each token continues; at position 0, any below
                W.
            position: int scalar, 0 for bos.
            state: from `start`, or from the step before.
            has_room: whether `start` had a `room` with a place for this position. After the last place, steps without a
                room may follow.

        Returns:
            states (B, W, D), and the state after this position. Without a room, an axis of this state may be longer
            than before if its size was 0 or unknown in `start`.
        """
        raise self._missing("step")

    def logits(self, states):
        """states (..., D) -> float32 (..., V), states output_matrix^T, plus `output_bias` if there is one."""
        raise self._missing("logits")

    def members(self):
        """The models whose probabilities are averaged: this model alone, or those of an `Ensemble`."""
        return (self,)

    @property
    def output_matrix(self):
        """The variable (V, D) of `logits`, for a loss that keeps no logits, and for a search that lays it out once."""
        raise self._missing("output_matrix")

    @property
    def output_bias(self):
        """The variable (V,) that `logits` adds; None, as here, if it adds nothing."""
        return None

    def align(self, target_ids, memory, training=False):
        """Shows which source positions each target position looks at.

        Args:
            target_ids, memory: those of `decode`.
            training: whether dropout acts, for a loss that reads the alignment.

        Returns:
            The states of `decode`, (B, T, D), and weights float32 (B, T, S). Row t of the weights belongs to the token
            that position t predicts, the one after target_ids[:, t]. A row sums to 1 over the tokens of the source, and
            is 0 on padding.
        """
        raise self._missing("align")

    def get_config(self):
        return {**vars(self.shape), "dtype": keras.dtype_policies.serialize(self.dtype_policy), "name": self.name}

    @classmethod
    def from_preset(cls, name: str, **arguments: Any) -> "SequenceToSequence":
        """A new model with the sizes of a preset.

        Args:
            name: a preset, such as "quickstart", "tiny", "gru", "base".
            arguments: arguments of the model that differ from the preset.

        Raises:
            ConfigError: if there is no such preset, or it is one of another model.

        Example:

        ```python
        Transformer.from_preset("tiny", vocabulary_size=8000).num_layers  # 4
        ```
        """
        config = Config(preset=name)
        if cls.architectures and config.architecture not in cls.architectures:
            raise ConfigError(f"the preset {name} has the architecture {config.architecture}: no {cls.__name__}")
        return cls.from_settings(config, **arguments)

    @classmethod
    def from_settings(cls, config, **arguments):
        """A new model from the settings of a `Config` that are arguments of the model; `arguments` override them."""
        return cls(**{**numbers_for(cls.shape_class, config), **arguments})

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)

    def _missing(self, method):
        return AttributeError(f"{type(self).__name__} has no `{method}`: a SequenceToSequence must define it")


def load_model(path):
    """Reads a `SequenceToSequence` from a .keras file, for inference.

    Raises:
        UserError: if the file cannot be read, or holds another model.
    """
    if not Path(path).exists():
        raise UserError(f"cannot read a model from {path}: there is no such file")
    try:
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # of zipfile, JSON, HDF5 or Keras, depending on where the file is damaged
        raise UserError(f"cannot read a model from {path}: {_reason(path, error)}") from error
    if not isinstance(model, SequenceToSequence):
        raise UserError(f"{path} holds a {type(model).__name__}, not a SequenceToSequence")
    return model


def _reason(path, error):
    """The cause of an error of Keras, and the remedy. Keras itself may advise to load a file that it calls unsafe."""
    if "unsafe" in str(error):
        return "it holds Python code, which is never run; use a model that this package has saved"
    unknown = re.search("Could not locate class '(.+?)'", str(error))
    if unknown and zipfile.is_zipfile(path):
        return f"the class {unknown[1]} is not known; import its module first"
    return (
        f"the file is damaged ({type(error).__name__}). Put a copy in its place, or remove it and train again with the "
        "same command, which makes it from the checkpoints"
    )
