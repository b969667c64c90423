"""SavedModels that earlier versions wrote, made so that Python loads them rightly."""

import contextlib
import tempfile
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.errors import FileError


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
