"""The files of a run directory. An interruption while one is written leaves the old file or the new one."""

import contextlib
import json
import logging
import os
import re
from pathlib import Path

import filelock
import keras
import numpy as np

from keras_transformer.config import Config
from keras_transformer.errors import CheckpointError, DamagedCheckpoint, FileError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET, load_tokenizers
from keras_transformer.translation.translator import Translator
from keras_transformer.wording import counted

log = logging.getLogger(__name__)
PROGRESS = "progress"  # key of the JSON text beside the variables


class RunDirectory:
    """The files of `--model_dir`.

        config.yaml              all settings, as resolved
        corpus.json              the hash of each part of the corpus, which must stay the same
        tokenizer.model          SentencePiece; or source_tokenizer.model and target_tokenizer.model
        tokens/                  the tokenised corpus; if it is removed, the next start makes it again
        samples.txt              validation sentences that export.py compares translations on
        model.json               what the model is made of, without weights
        checkpoints/last.npz     everything that resuming needs: weights, optimizer, dropout seeds, progress
        checkpoints/previous.npz the checkpoint before last.npz
        checkpoints/best.npz     the weights that validated best
        checkpoints/epoch_N.npz  the weights after the last few epochs, to be averaged
        model.keras              the finished model: their average; removed when the run goes on
        results.yaml             its score on the test set, or else on the validation set
        logs/                    TensorBoard
        run.log                  the lines of the console, with the time of each
        .lock                    held by the process that trains

    Args:
        path: directory; made when something is written into it.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.corpus = self.path / "corpus.json"
        self.tokens = self.path / "tokens"
        self.samples = self.path / "samples.txt"
        self.checkpoints = self.path / "checkpoints"
        self.last = self.checkpoints / "last.npz"
        self.previous = self.checkpoints / "previous.npz"
        self.best = self.checkpoints / "best.npz"
        self.architecture = self.path / "model.json"
        self.model = self.path / "model.keras"
        self.results = self.path / "results.yaml"
        self.logs = self.path / "logs"
        self.log = self.path / "run.log"

    def tokenizer_files(self, share_vocabulary):
        """The paths of the tokenizers: one if both sides share it, else those of source and target."""
        return [self.path / name for name in ([SHARED] if share_vocabulary else [SOURCE, TARGET])]

    @contextlib.contextmanager
    def claimed(self):
        """A context in which the directory is reserved for this process, and the log is kept in it.

        It makes the directory, and removes unfinished files of a process that was killed.

        Raises:
            CheckpointError: if another process has reserved it.
            FileError: if it cannot be made.
        """
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError.of("write", self.path, error) from error
        lock = filelock.FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise CheckpointError(
                f"{self.path} is in use by another training process: wait for its end, or choose another --model_dir"
            ) from None
        try:
            for unfinished in self.path.rglob(".*.partial.*"):
                unfinished.unlink()
            with _log_kept_in(self.log):
                yield
        finally:
            lock.release()

    def has_checkpoint(self):
        """Whether there is a run to resume."""
        return self.last.exists() or self.previous.exists()

    def epoch(self, number):
        """The weights after epoch `number`, counted from 1."""
        return self.checkpoints / f"epoch_{number:04d}.npz"

    def epochs(self):
        """The weights after the last few epochs, oldest first."""
        return sorted(self.checkpoints.glob("epoch_*.npz"), key=epoch_number)

    def epochs_to_average(self, count, best=None):
        """The weights after the last `count` epochs, or after as many around epoch `best`, oldest first.

        With `count` None, the weights of a fifth of the epochs: an average over more would hold weights of the warm-up.
        """
        paths = self.epochs()
        last = epoch_number(paths[-1]) if paths else 0
        count = count or max(1, (best or last) // 5)
        stop = last if best is None else min(last, best + (count - 1) // 2)
        return [self.epoch(number) for number in range(max(1, stop - count + 1), stop + 1)]

    def keep_architecture(self, network):
        """Writes model.json: the model, in float32, without its weights."""
        description = keras.saving.serialize_keras_object(network)
        description["config"]["dtype"] = "float32"
        text = json.dumps(description, indent=1)
        write_atomically(self.architecture, lambda path: path.write_text(text, encoding="utf-8"))

    def load_network(self, checkpoint="average"):
        """The model of the run, which may be under way or stopped, for inference in float32.

        Args:
            checkpoint: "average": that of the last epochs with which training ends, or would end if it ended now; the
                newest checkpoint if no epoch has ended. "best": the epoch that validated best. "last": the newest
                checkpoint. Or the number of one of the last epochs.

        Returns:
            `SequenceToSequence`, and a list of the paths that it was read from.

        Raises:
            CheckpointError: if there are no such weights, or they cannot be read.
        """
        if not self.config.exists():
            raise CheckpointError(f"no run in {self.path}: there is no config.yaml, which train.py writes")
        if checkpoint == "average" and self.model.exists():
            return load_model(self.model), [self.model]
        if not self.architecture.exists() or not self.has_checkpoint():
            raise CheckpointError(f"no weights in {self.path} yet: train.py first saves some after --save_minutes")
        network = keras.saving.deserialize_keras_object(json.loads(self.architecture.read_text(encoding="utf-8")))
        config = Config.load(self.config)
        if checkpoint == "average" and self.epochs():
            return network, self.average(network, config)
        if checkpoint == "average":
            log.info("no epoch has ended yet: the weights are those of the newest checkpoint")
        if checkpoint in ("average", "last"):
            return network, [next(load_each([self.last, self.previous], network.variables))]
        return network, [next(load_each([self._weights_after(checkpoint)], network.weights))]

    def average(self, network, config):
        """Assigns the weights with which training ends, or would end if it ended now.

        They are the average of the last epochs; with `patience`, of the epochs around the best one; with `ema_decay`,
        the exponential average at the end of the newest.

        Args:
            network: `SequenceToSequence`.
            config: `Config` of the run.

        Returns:
            list of the paths that could be read.

        Raises:
            CheckpointError: if the weights of no epoch can be read.
        """
        if config.ema_decay is not None:
            return [next(load_each(reversed(self.epochs()), network.weights))]
        best = read_progress(self)["best_epoch"] if config.patience else None
        return average_variables(self.epochs_to_average(config.average_epochs, best), network.weights)

    def _weights_after(self, checkpoint):
        path = self.best if checkpoint == "best" else self.epoch(int(checkpoint)) if checkpoint.isdecimal() else None
        if path is None:
            raise CheckpointError(f"--checkpoint must be average, best, last or a number. Received: {checkpoint!r}")
        if not path.exists():
            kept = ", ".join(str(epoch_number(path)) for path in self.epochs()) or "no epoch yet"
            raise CheckpointError(f"no weights of --checkpoint {checkpoint} in {self.path}: there are those of {kept}")
        return path

    def load_translator(self, checkpoint="average", strategy=None, **settings):
        """The `Translator` of the run.

        Args:
            checkpoint: see `load_network`.
            strategy: the weights are made under it, if there is one.
            settings: those of `Translator`. Beam size, length penalty and division into sentences are those of the
                run's config by default.

        Raises:
            UserError: as `load_network`, and if the tokenizer is missing.
        """
        with strategy.scope() if strategy else contextlib.nullcontext():
            network, files = self.load_network(str(checkpoint))
        config = Config.load(self.config)
        names = ("beam_size", "length_penalty", "split_sentences")
        settings |= {name: getattr(config, name) for name in names if settings.get(name) is None}
        tokenizers = load_tokenizers(self.path)
        translator = Translator(network, *tokenizers, max_length=config.max_length, strategy=strategy, **settings)
        translator.files = files
        return translator


def epoch_number(path):
    """The number of the epoch whose weights are in a file."""
    return int(path.stem.removeprefix("epoch_"))


@contextlib.contextmanager
def _log_kept_in(path):
    """A context in which the log of the library is written to a file, with the time of each line."""
    logger = logging.getLogger("keras_transformer")
    handler, level = logging.FileHandler(path, encoding="utf-8"), logger.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def write_atomically(path, write, previous=None):
    """Calls `write` with a temporary path beside `path`, of the same suffix, and renames the result into place.

    The directory is made if it does not exist.

    Args:
        path: of the file.
        write: function of a path.
        previous: path to which the old file is renamed; None removes the old file.

    Raises:
        FileError: if it cannot be written; the old file is then as it was.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _flush_to_disk(temporary)
        if previous and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        _flush_to_disk(path.parent)
    except OSError as error:
        raise FileError.of("write", path, error) from error
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


def read_progress(run):
    """The `progress` of the newest checkpoint of a run that can be read, a dict. Raises CheckpointError."""
    damages = []
    for path in (run.last, run.previous):
        try:
            return load_variables(path, [], is_whole=False)
        except DamagedCheckpoint as error:
            damages.append(str(error))
    raise CheckpointError("; ".join(damages))


def load_variables(path, variables, is_whole=True):
    """Assigns the values in a file of `save_variables` to the variables of an equal model. Returns its `progress`.

    Args:
        path: of the file.
        variables: list of Keras variables.
        is_whole: whether the file has no more variables than these.

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
    if more and is_whole:
        raise CheckpointError(f"{path} was written by a different model: it has {counted(more, 'variable')} more")
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
            log.warning("damaged     %s; going back to %s", damages[0], path.name)
            os.replace(path, run.last)
        return progress
    raise CheckpointError(f"{'; '.join(damages)}. Remove both to train from the start, or choose another --model_dir")


def load_each(paths, variables):
    """`load_variables` of one file after the other. A line of the log names each file that cannot be read.

    Yields:
        The path of every file, after it has been loaded.

    Raises:
        CheckpointError: after the last file, if none could be read; or if one was written by a different model.
    """
    is_any_left = False
    for path in paths:
        try:
            load_variables(path, variables, is_whole=False)
        except DamagedCheckpoint as error:
            log.warning("left out    %s", error)
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
        list of the paths that could be read.

    Raises:
        CheckpointError: as `load_each`.
    """
    sums, read = [np.zeros(variable.shape, np.float64) for variable in variables], []
    for path in load_each(paths, variables):
        read.append(path)
        for total, variable in zip(sums, variables, strict=True):
            total += keras.ops.convert_to_numpy(variable)
    for total, variable in zip(sums, variables, strict=True):
        variable.assign(total / len(read))
    return read


def _key(index, variable):
    # Keras numbers the seed generators of its own layers through the whole process: a second model has other numbers.
    return f"{index:04d}/{re.sub('seed_generator_[0-9]+/', 'seed_generator/', variable.path)}"
