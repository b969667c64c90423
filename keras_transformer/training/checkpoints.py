"""The files of a run directory, and writing them so that an interruption leaves the old one or the new one."""

import json
import os
from pathlib import Path

import keras
import numpy as np

PROGRESS = "progress"  # key of the JSON text beside the variables


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message is one clear line."""


class RunDirectory:
    """What train.py leaves in `--model_dir`.

        config.yaml              all settings, as resolved
        tokenizer.model          SentencePiece
        tokens/                  the tokenised corpus; may be removed, and is then made again
        samples.txt              validation sentences that export.py compares translations on
        checkpoints/last.npz     everything that resuming needs: weights, optimizer, dropout seeds, progress
        checkpoints/best.npz     the weights that validated best
        checkpoints/epoch_N.npz  the weights after the last few epochs, to be averaged
        model.keras              the finished model: their average
        logs/                    TensorBoard

    Args:
        path: directory; made if there is none.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.tokenizer = self.path / "tokenizer.model"
        self.tokens = self.path / "tokens"
        self.samples = self.path / "samples.txt"
        self.checkpoints = self.path / "checkpoints"
        self.last = self.checkpoints / "last.npz"
        self.best = self.checkpoints / "best.npz"
        self.model = self.path / "model.keras"
        self.logs = self.path / "logs"
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def epoch(self, number):
        """The weights after epoch `number`, counted from 1."""
        return self.checkpoints / f"epoch_{number:04d}.npz"

    def epochs(self):
        """The weights after the last few epochs, oldest first."""
        return sorted(self.checkpoints.glob("epoch_*.npz"))


def write_atomically(path, write):
    """Calls `write` with a temporary path beside `path`, of the same suffix, and renames the result into place."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_variables(path, variables, progress=None):
    """Writes Keras variables, and what else must be remembered (`progress`, a JSON-able dict), to an .npz file."""
    arrays = {_key(i, variable): keras.ops.convert_to_numpy(variable) for i, variable in enumerate(variables)}
    arrays[PROGRESS] = np.array(json.dumps(progress))
    write_atomically(path, lambda temporary: np.savez(temporary, **arrays))


def load_variables(path, variables):
    """Assigns what `save_variables` wrote to the same variables of an equal model, and returns its `progress`.

    Raises:
        CheckpointError: if the file is damaged, or was written by a different model.
    """
    try:
        with np.load(path) as arrays:
            values = [arrays[_key(i, variable)] for i, variable in enumerate(variables)]
            progress = json.loads(str(arrays[PROGRESS]))
            more = len(arrays.files) - len(variables) - 1
    except KeyError as error:
        raise CheckpointError(f"{path} was written by a different model: it has no {error}") from None
    except Exception as error:  # whatever zipfile and NumPy raise for a damaged file
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if more:
        raise CheckpointError(f"{path} was written by a different model: it has {more} variables more")
    for variable, value in zip(variables, values, strict=True):
        if tuple(variable.shape) != value.shape:
            raise CheckpointError(
                f"{path} was written by a different model: {variable.path} has shape {value.shape}, "
                f"not {tuple(variable.shape)}"
            )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return progress


def average_variables(paths, variables):
    """Assigns the mean of several files of `save_variables` to the variables, summed in float64."""
    sums = [np.zeros(variable.shape, np.float64) for variable in variables]
    for path in paths:
        load_variables(path, variables)
        for total, variable in zip(sums, variables, strict=True):
            total += keras.ops.convert_to_numpy(variable)
    for total, variable in zip(sums, variables, strict=True):
        variable.assign(total / len(paths))


def _key(index, variable):
    return f"{index:04d}/{variable.path}"
