"""COMET (Rei et al. 2020): a neural network judges a translation beside its source and its reference."""

import contextlib
import logging
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_transformer.errors import UserError

CHECKPOINT, SETTINGS = Path("checkpoints", "model.ckpt"), "hparams.yaml"  # of a model's directory
MOST = 32  # sentences at a time: its encoder is large, and a list is not sorted by length
INSTALL = (
    "pip install 'unbabel-comet>=2.2.3'. It and TensorFlow need different versions of protobuf, so give it an "
    "environment of its own, and evaluate files of translations there"
)
# What the package raises for damaged files and for an encoder that is not on the disk. TypeError: it is an older one.
UNREADABLE = (OSError, TypeError, ValueError, RuntimeError, LookupError, EOFError, pickle.UnpicklingError)


def load_comet(directory):
    """Opens a model of COMET that is on the disk. Nothing is downloaded.

    Args:
        directory: path, with hparams.yaml and checkpoints/model.ckpt. The tokenizer of its encoder must be in the cache
            of Hugging Face.

    Returns:
        A `CometModel` of the package unbabel-comet.

    Raises:
        UserError: if the package is not installed, if there is no model, or if the model cannot be opened.
    """
    for part in (CHECKPOINT, SETTINGS):
        if not (Path(directory) / part).is_file():
            raise UserError(f"no COMET model at {directory}: there is no file {part}")
    load_from_checkpoint = _imported()
    try:
        return load_from_checkpoint(str(Path(directory) / CHECKPOINT), local_files_only=True)
    except UNREADABLE as error:
        raise UserError(f"the COMET model {directory} cannot be opened: {' '.join(str(error).split())}") from error


def _imported():
    """The function of the package that opens a model."""
    try:
        with _root_logger_kept():
            from comet import load_from_checkpoint
    except ModuleNotFoundError as error:
        raise UserError(f"`comet` needs the package {error.name}, which is not installed: {INSTALL}") from error
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # it tells of GPUs and TPUs at every start
    return load_from_checkpoint


@contextlib.contextmanager
def _root_logger_kept():
    """A context that leaves the root logger as it was: the package makes it print the log of every library."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def comet_score(
    model, translations: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str], batch_size: int
) -> float:
    """The mean judgement of a model of COMET. Never compare those of different models.

    Args:
        model: as `load_comet` gives.
        translations: sequence of str.
        references: sequence of sequences of str, equally many for each sentence. The mean over all of them counts.
        sources: sequence of str.
        batch_size: int, sentences to read at a time; no more than `MOST`.
    """
    columns = zip(*references, strict=True)
    samples = [
        {"src": source, "mt": translation, "ref": reference}
        for column in columns
        for source, translation, reference in zip(sources, translations, column, strict=True)
    ]
    found = model.predict(samples, batch_size=min(batch_size, MOST), progress_bar=sys.stderr.isatty())
    return float(found.system_score)
