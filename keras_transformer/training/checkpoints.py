"""The files of a run directory. An interruption while one is written leaves the old file or the new one."""

import json
import os
import re
from pathlib import Path

import filelock
import keras
import numpy as np

from keras_transformer.errors import CheckpointError, DamagedCheckpoint
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET

PROGRESS = "progress"  # key of the JSON text beside the variables


class RunDirectory:
    """The files of `--model_dir`.

        config.yaml              all settings, as resolved
        tokenizer.model          SentencePiece; or source_tokenizer.model and target_tokenizer.model
        tokens/                  the tokenised corpus; if it is removed, the next start makes it again
        samples.txt              validation sentences that export.py compares translations on
        checkpoints/last.npz     everything that resuming needs: weights, optimizer, dropout seeds, progress
        checkpoints/previous.npz the checkpoint before last.npz
        checkpoints/best.npz     the weights that validated best
        checkpoints/epoch_N.npz  the weights after the last few epochs, to be averaged
        model.keras              the finished model: their average
        results.yaml             its score on the test set, or else on the validation set
        logs/                    TensorBoard
        .lock                    held by the process that trains

    Args:
        path: directory; made if it does not exist.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.tokens = self.path / "tokens"
        self.samples = self.path / "samples.txt"
        self.checkpoints = self.path / "checkpoints"
        self.last = self.checkpoints / "last.npz"
        self.previous = self.checkpoints / "previous.npz"
        self.best = self.checkpoints / "best.npz"
        self.model = self.path / "model.keras"
        self.results = self.path / "results.yaml"
        self.logs = self.path / "logs"
        self.checkpoints.mkdir(parents=True, exist_ok=True)

    def tokenizer_files(self, share_vocabulary):
        """The paths of the tokenizers: one if both sides share it, else those of source and target."""
        return [self.path / name for name in ([SHARED] if share_vocabulary else [SOURCE, TARGET])]

    def claim(self):
        """Reserves the directory for this process until it ends, and removes unfinished files of one that was killed.

        Raises:
            CheckpointError: if another process has reserved it.
        """
        self._lock = filelock.FileLock(self.path / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            raise CheckpointError(
                f"{self.path} is in use by another training process: wait for its end, or choose another --model_dir"
            ) from None
        for unfinished in self.path.rglob(".*.partial.*"):
            unfinished.unlink()

    def has_checkpoint(self):
        """Whether there is a run to resume."""
        return self.last.exists() or self.previous.exists()

    def epoch(self, number):
        """The weights after epoch `number`, counted from 1."""
        return self.checkpoints / f"epoch_{number:04d}.npz"

    def epochs(self):
        """The weights after the last few epochs, oldest first."""
        return sorted(self.checkpoints.glob("epoch_*.npz"))


def write_atomically(path, write, previous=None):
    """Calls `write` with a temporary path beside `path`, of the same suffix, and renames the result into place.

    Args:
        path: of the file.
        write: function of a path.
        previous: path to which the old file is renamed; None removes the old file.

    Raises:
        OSError: with the name of `path`, if it cannot be written; the old file is then as it was.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        write(temporary)
        _flush_to_disk(temporary)
        if previous and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        _flush_to_disk(path.parent)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _flush_to_disk(path):
    """Without fsync, a power failure can leave a file that exists but is empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_variables(path, variables, progress=None, previous=None):
    """Writes Keras variables, and `progress`, a dict that JSON can hold, to an .npz file.

    `previous` is that of `write_atomically`.
    """
    arrays = {_key(i, variable): keras.ops.convert_to_numpy(variable) for i, variable in enumerate(variables)}
    arrays[PROGRESS] = np.array(json.dumps(progress))
    write_atomically(path, lambda temporary: np.savez(temporary, **arrays), previous)


def load_variables(path, variables):
    """Assigns the values in a file of `save_variables` to the variables of an equal model. Returns its `progress`.

    Raises:
        DamagedCheckpoint: if the file cannot be read.
        CheckpointError: if it was written by a different model.
    """
    try:
        with open(path, "rb") as file, np.load(file) as arrays:  # NumPy would not close a damaged file
            values = [arrays[_key(i, variable)] for i, variable in enumerate(variables)]
            progress = json.loads(str(arrays[PROGRESS]))
            more = len(arrays.files) - len(variables) - 1
    except KeyError as error:
        raise CheckpointError(f"{path} was written by a different model: it has no {error}") from None
    except Exception as error:  # of zipfile or NumPy, depending on where the file is damaged
        raise DamagedCheckpoint(f"cannot read {path}: {error}") from error
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


def load_last(run, variables):
    """`load_variables` of last.npz. If `last.npz` is damaged, of previous.npz, which is then renamed to last.npz.

    Raises:
        CheckpointError: if neither can be read, or they were written by a different model.
    """
    damages = []
    for path in (run.last, run.previous):
        try:
            progress = load_variables(path, variables)
        except DamagedCheckpoint as error:
            damages.append(str(error))
            continue
        if damages:
            print(f"damaged     {damages[0]}; going back to {path.name}", flush=True)
            os.replace(path, run.last)
        return progress
    raise CheckpointError(f"{'; '.join(damages)}. Remove both to train from the start, or choose another --model_dir")


def load_each(paths, variables):
    """`load_variables` of one file after the other. A line on the screen names each file that cannot be read.

    Yields:
        The path of every file, after it has been loaded.

    Raises:
        CheckpointError: after the last file, if none could be read; or if one was written by a different model.
    """
    is_any_left = False
    for path in paths:
        try:
            load_variables(path, variables)
        except DamagedCheckpoint as error:
            print(f"left out    {error}", flush=True)
            continue
        is_any_left = True
        yield path
    if not is_any_left:
        raise CheckpointError(
            f"no weights can be read from {path.parent}: train on with more --epochs, which writes new ones"
        )


def average_variables(paths, variables):
    """Assigns the mean of several files of `save_variables` to the variables, summed in float64.

    Returns:
        The number of files that could be read.

    Raises:
        CheckpointError: as `load_each`.
    """
    sums, count = [np.zeros(variable.shape, np.float64) for variable in variables], 0
    for _ in load_each(paths, variables):
        count += 1
        for total, variable in zip(sums, variables, strict=True):
            total += keras.ops.convert_to_numpy(variable)
    for total, variable in zip(sums, variables, strict=True):
        variable.assign(total / count)
    return count


def _key(index, variable):
    # Keras numbers the seed generators of its own layers through the whole process: a second model has other numbers.
    return f"{index:04d}/{re.sub('seed_generator_[0-9]+/', 'seed_generator/', variable.path)}"
