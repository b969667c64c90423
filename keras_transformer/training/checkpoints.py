"""Weights in files: what resuming needs, and the models and translators that are made of a run."""

import contextlib
import json
import logging
import os
import re

import keras
import numpy as np

from keras_transformer.config import Config
from keras_transformer.data.full_stops import load_known
from keras_transformer.errors import CheckpointError, DamagedCheckpoint, counted
from keras_transformer.files import write_whole
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tags import load_tags
from keras_transformer.tokenizer import load_tokenizers
from keras_transformer.training.adapters import add_adapters, merged_weights, trained_variables
from keras_transformer.training.run_directory import epoch_number
from keras_transformer.translation.segments import EXTRA_LENGTH
from keras_transformer.translation.translator import Translator

log = logging.getLogger(__name__)
PROGRESS = "progress"  # key of the JSON text beside the variables


def save_variables(path, variables, progress=None, previous=None):
    """Writes Keras variables, and `progress`, a dict that JSON can hold, to an .npz file.

    `previous` is that of `write_whole`.
    """
    arrays = dict(zip(_keys(x.path for x in variables), map(keras.ops.convert_to_numpy, variables), strict=True))
    arrays[PROGRESS] = np.array(json.dumps(progress))
    write_whole(path, lambda temporary: np.savez(temporary, **arrays), previous)


def read_progress(run):
    """The `progress` of the newest checkpoint of a run that can be read, a dict. Raises CheckpointError."""
    return next(load_each([run.last, run.previous], []))[1]


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
    different = f"{path} was written by a different model:"
    try:
        with open(path, "rb") as file, np.load(file) as arrays:  # NumPy would not close a damaged file
            names = dict(zip(_keys(name.partition("/")[2] for name in arrays.files), arrays.files, strict=True))
            values = [arrays[names[key]] for key in _keys(x.path for x in variables)]
            progress = json.loads(str(arrays[PROGRESS]))
            more = len(arrays.files) - len(variables) - 1
    except KeyError as error:
        raise CheckpointError(f"{different} it has no {error}") from None
    except Exception as error:  # of zipfile or NumPy, depending on where the file is damaged
        raise DamagedCheckpoint(f"cannot read {path}: {error}") from error
    if more and is_whole:
        raise CheckpointError(f"{different} it has {counted(more, 'variable')} more")
    for variable, value in zip(variables, values, strict=True):
        if (shape := tuple(variable.shape)) != value.shape:
            raise CheckpointError(f"{different} {variable.path} has shape {value.shape}, not {shape}")
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
    raise CheckpointError(
        f"{'; '.join(damages)}. Remove {run.path} to train from the start, or choose another `model_dir`"
    )


def load_each(paths, variables):
    """`load_variables` of one file after the other. A line of the log names each file that cannot be read.

    Yields:
        The path of every file, after it has been loaded, and its `progress`.

    Raises:
        CheckpointError: after the last file, if none could be read; or if one was written by a different model.
    """
    paths, is_any_left = list(paths), False
    for path in paths:
        try:
            progress = load_variables(path, variables, is_whole=False)
        except DamagedCheckpoint as error:
            log.warning("left out    %s", error)
            continue
        is_any_left = True
        yield path, progress
    if not is_any_left:
        where = f"from {paths[0].parent}" if paths else "of any epoch"
        raise CheckpointError(f"no weights can be read {where}: go on with more `epochs`, which writes new ones")


def average_variables(paths, variables, results=None, values=None):
    """Assigns the mean of several files of `save_variables`, summed in float64.

    Args:
        paths: of the files.
        variables: the variables that are in the files, and get their values.
        results: the variables that get the mean; by default `variables`.
        values: function that gives the arrays of `results` when a file is loaded; by default the values of `variables`.

    Returns:
        list of the paths that could be read.

    Raises:
        CheckpointError: as `load_each`.
    """
    results = variables if results is None else results
    sums, read = [np.zeros(variable.shape, np.float64) for variable in results], []
    for path, _ in load_each(paths, variables):
        read.append(path)
        for total, value in zip(sums, values() if values else variables, strict=True):
            total += keras.ops.convert_to_numpy(value)
    for total, variable in zip(sums, results, strict=True):
        variable.assign(total / len(read))
    return read


def _keys(paths):
    """The key of each variable in a file: its path, and how often the path came before.

    Its place in the list is left out, because versions of Keras order the layers of a model differently. So is the
    number of a seed generator, because Keras counts them through the whole process: a second model has other numbers.
    """
    paths = [re.sub("seed_generator_[0-9]+/", "seed_generator/", path) for path in paths]
    return [f"{paths[:i].count(path):04d}/{path}" for i, path in enumerate(paths)]


def load_network(run, checkpoint="average", is_new=False):
    """The model of the run, which may be under way or stopped, for inference in float32.

    Args:
        run: `RunDirectory`.
        checkpoint: "average": that with which training ends, or would end if it ended now. It is the average of the
            last epochs; with `patience`, of the epochs around the best one; with `ema_decay`, the exponential average
            at the end of the newest. If no epoch has ended, it is the newest checkpoint. "best": the epoch that
            validated best. "last": the newest checkpoint. Or the number of one of the last epochs.
        is_new: whether to make the average again, from epochs alone.

    Returns:
        `SequenceToSequence`, and a list of the paths that it was read from.

    Raises:
        CheckpointError: if there are no such weights, or they cannot be read.
    """
    if not run.config.exists():
        raise CheckpointError(f"no run in {run.path}: there is no config.yaml, which train.py writes")
    if checkpoint == "average" and run.model.exists() and not is_new:
        return load_model(run.model), [run.model]
    if not run.architecture.exists() or not run.has_checkpoint():
        raise CheckpointError(f"no weights in {run.path} yet: training first saves some after `save_minutes`")
    network = trained = read_architecture(run)
    config = Config.load(run.config)
    if config.lora_rank:
        trained = read_architecture(run)
        add_adapters(trained, config.lora_rank)
        load_variables(run.frozen, trained.non_trainable_weights)
    variables = trained.trainable_weights
    if checkpoint == "average" and not run.epochs() and not is_new:
        log.info("no epoch has ended yet: the weights are those of the newest checkpoint")
        checkpoint = "last"
    if checkpoint == "average" and config.ema_decay is None:
        best = read_progress(run)["best_epoch"] if config.patience else None
        paths = run.epochs_to_average(config.average_epochs, best)
    else:
        if checkpoint == "average":
            paths = reversed(run.epochs())
        elif checkpoint == "last":
            paths, variables = [run.last, run.previous], trained_variables(trained)
        else:
            paths = [_weights_after(run, checkpoint)]
        paths = [next(load_each(paths, variables))[0]]
    return network, average_variables(paths, variables, network.weights, lambda: merged_weights(trained))


def read_architecture(run):
    """The model that `RunDirectory.keep_architecture` has described, with random weights."""
    return keras.saving.deserialize_keras_object(json.loads(run.architecture.read_text(encoding="utf-8")))


def _weights_after(run, checkpoint):
    path = run.best if checkpoint == "best" else run.epoch(int(checkpoint)) if checkpoint.isdecimal() else None
    if path is None:
        raise CheckpointError(f"`checkpoint` must be average, best, last or a number. Received: {checkpoint!r}")
    if not path.exists():
        kept = ", ".join(str(epoch_number(path)) for path in run.epochs()) or "no epoch yet"
        raise CheckpointError(f"no weights of `checkpoint` {checkpoint} in {run.path}: there are those of {kept}")
    return path


def load_translator(run, checkpoint="average", strategy=None, **settings):
    """The `Translator` of the run.

    Args:
        run: `RunDirectory`.
        checkpoint: see `load_network`.
        strategy: the weights are made under it, if there is one.
        settings: those of `Translator`. Beam size, length penalty and division into sentences are those of the
            run's config by default.

    Raises:
        UserError: as `load_network`, and if the tokenizer is missing.
    """
    with strategy.scope() if strategy else contextlib.nullcontext():
        network, files = load_network(run, str(checkpoint))
    config = Config.load(run.config)
    names = ("beam_size", "length_penalty", "split_sentences")
    settings |= {name: getattr(config, name) for name in names if settings.get(name) is None}
    found = {"known": load_known(run.full_stops), "tags": load_tags(run.path), "max_length": config.max_length}
    found["extra_length"] = run.read_decided().get("extra_length", EXTRA_LENGTH)
    translator = Translator(network, *load_tokenizers(run.path), strategy=strategy, **{**found, **settings})
    translator.files, translator.languages = files, run.languages()
    return translator
