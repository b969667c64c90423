"""An export from Python: it translates as the run does from which it was made."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.errors import FileError, UserError
from keras_transformer.protection import NO_PLACEHOLDERS, PLACEHOLDERS
from keras_transformer.tools.exported import find_saved_model, read_export
from keras_transformer.translation.lines import BATCH_SIZE
from keras_transformer.translation.translator import Glossary, TextTranslator


def load_export(path: str | os.PathLike, checkpoint: str | int = "average", **settings: Any) -> "SavedModelTranslator":
    """The `SavedModelTranslator` of an export, for `runs.load`. Raises UserError for settings that it has inside."""
    names = ("beam_size", "length_penalty", "split_sentences", "shortlist")
    search = [name for name in names if settings.pop(name, None) is not None]
    if search or checkpoint != "average":
        name = search[0] if search else "checkpoint"
        also = ", or to `translate`" if name in ("beam_size", "length_penalty") else ""
        raise UserError(f"`{name}` is part of an export: give it to export.py{also}")
    return SavedModelTranslator(path, **settings)


class SavedModelTranslator(TextTranslator):
    """The same interface over an exported SavedModel, which has model, tokenizers and search inside.

    Args:
        path: EXPORT_DIR/VERSION, or EXPORT_DIR for its latest version.
        batch_size: most texts translated at a time; fewer of more than `USUAL` characters.
        glossary, protect: see `TextTranslator`.

    Attributes:
        files: as those of `Translator`.

    Raises:
        UserError: if there is no SavedModel, or it has no placeholders for `glossary` or `protect`.
    """

    def __init__(
        self, path: str | os.PathLike, batch_size: int = BATCH_SIZE, glossary: Glossary = None, protect: bool = False
    ):
        self.path = find_saved_model(path)
        tags, languages = read_export(self.path)
        super().__init__(batch_size, glossary, protect, tags)
        self.languages = languages
        self.files = [self.path / "saved_model.pb"]
        with tokenizers_apart(self.path) as path:
            self._loaded = tf.saved_model.load(os.fspath(path))
        if self.protection:  # a model with placeholders reads one as one piece
            inputs = {"text": PLACEHOLDERS[:1], **self.codes(1)}
            found = self._call("explain", {name: tf.constant(list(values)) for name, values in inputs.items()})
            if PLACEHOLDERS[0].encode() not in found["source_pieces"].numpy():
                raise UserError(NO_PLACEHOLDERS)

    @property
    def width(self) -> int:
        """As `Translator.width`."""
        return self._signature("alternatives").structured_outputs["scores"].shape[1]

    def _call(self, signature, inputs):
        return self._signature(signature)(**inputs)

    def _signature(self, name):
        if name not in self._loaded.signatures:
            raise UserError(f"{self.path} has no signature `{name}`: export the run again with export.py")
        return self._loaded.signatures[name]


@contextlib.contextmanager
def tokenizers_apart(directory):
    """A context with a directory of a SavedModel in which Python's loader tells all tokenizers apart.

    Before version 0.2, the two tokenizers of an export had one name, and Python's loader gives both the model of one.

    Args:
        directory: Path of the SavedModel.

    Yields:
        Path: `directory` if the names differ; otherwise a temporary directory, whose tokenizers have other names.

    Raises:
        FileError: if the SavedModel cannot be read or is damaged.
    """
    path = directory / "saved_model.pb"
    try:
        saved = SavedModel.FromString(path.read_bytes())
    except OSError as error:
        raise FileError.of("read", path, error) from error
    except DecodeError as error:
        raise FileError(f"{path} is damaged: export the run again") from error
    functions = [function for graph in saved.meta_graphs for function in graph.graph_def.library.function]
    makers = [node for function in functions for node in function.node_def if node.op == "SentencepieceOp"]
    if len({node.name for node in makers}) == len(makers):
        yield directory
        return
    with tempfile.TemporaryDirectory() as temporary:
        for other in set(directory.absolute().iterdir()) - {path.absolute()}:
            Path(temporary, other.name).symlink_to(other)
        for number, node in enumerate(makers):
            node.attr["shared_name"].s = b"tokenizer_%d" % number
        Path(temporary, path.name).write_bytes(saved.SerializeToString())
        yield Path(temporary)
