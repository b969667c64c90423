"""A new run can start from the weights and tokenizers of a finished run: the setting `init_from`."""

from pathlib import Path

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from keras import ops
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.config import Config, settings_of_model
from keras_transformer.errors import ConfigError
from keras_transformer.models.sequence_to_sequence import load_model
from keras_transformer.tokenizer import SHARED, SOURCE, TARGET
from keras_transformer.training.adapters import own_weights

SPACE = "\u2581"  # "▁", which stands for a space in a piece


class Origin:
    """A finished run from whose weights and tokenizers a new run starts (`init_from`).

    Args:
        config: `Config` of the new run.

    Raises:
        ConfigError: if `init_from` holds no finished model, or one of another shape; it names the settings that differ.
    """

    def __init__(self, config):
        self.path = Path(config.init_from)
        self._check_has("config.yaml", "model.keras")
        before = Config.load(self.path / "config.yaml")
        self._check_has(*([SHARED] if before.has_one_tokenizer else [SOURCE, TARGET]))
        names = ["architecture"]
        if before.architecture == config.architecture:  # else no other setting can be compared
            names = [name for name in settings_of_model(before) if name not in ("share_tokenizer", "tags")]
        values = {name: (getattr(before, name), getattr(config, name)) for name in names}
        if before.share_vocabulary == config.share_vocabulary:
            values["share_tokenizer"] = before.has_one_tokenizer, config.has_one_tokenizer
        different = [f"{name} is {old}, not {new}" for name, (old, new) in values.items() if old != new]
        if different:
            raise ConfigError(f"{config.init_from} holds another model: {', '.join(different)}")

    def _check_has(self, *names):
        for name in names:
            if not (self.path / name).exists():
                raise ConfigError(f"`init_from` must hold a finished run. Received: {self.path}, without {name}")

    def load(self, network, tokenizer_files):
        """Assigns the weights of the finished model. Rows of new pieces are means, see `mean_rows`.

        Args:
            network: `SequenceToSequence` of the same shape.
            tokenizer_files: paths of the tokenizers of the new run, of both sides or of source and target.

        Raises:
            ConfigError: if they are not those of the origin, with new pieces behind them or without; and for new pieces
                beside adapters.
        """
        models = [(self.path / path.name).read_bytes() for path in tokenizer_files]
        added = [new_in(path.read_bytes(), model) for path, model in zip(tokenizer_files, models, strict=True)]
        for path, pieces in zip(tokenizer_files, added, strict=True):
            if pieces is None:
                raise ConfigError(f"{path} is not {self.path / path.name}, with which the first weights were trained")
        starts = load_model(self.path / "model.keras").weights
        for weight, start in zip(own_weights(network), starts, strict=True):
            rows = ops.convert_to_numpy(start)
            if weight.shape != start.shape:
                if not weight.trainable:
                    raise ConfigError(
                        "new pieces and tags of languages must learn their vectors, which adapters do not: leave out "
                        "`lora_rank`"
                    )
                side = 0 if "source_embedding" in weight.path else -1
                rows = np.concatenate([rows, mean_rows(rows, models[side], added[side])])
            weight.assign(rows)


def new_in(model, old):
    """The pieces of a tokenizer behind those of an older one: list of str; None if it does not begin with the old
    pieces."""
    try:
        pieces, first = (ModelProto.FromString(each).pieces for each in (model, old))
    except DecodeError:  # it is no SentencePiece model at all
        return None
    return [piece.piece for piece in pieces[len(first) :]] if list(pieces[: len(first)]) == list(first) else None


def mean_rows(matrix, old, pieces):
    """The rows of new pieces: the mean of the rows of the old pieces that spell them.

    Args:
        matrix: float (V, D), the rows of the old pieces, or float (V,), a number for each.
        old: the old SentencePiece model, bytes.
        pieces: list of N str.

    Returns:
        float (N, D) or (N,).
    """
    rows = [np.mean(matrix[ids], axis=0) for ids in spell(old, pieces)]
    return np.reshape(rows, (len(pieces), *matrix.shape[1:])).astype(matrix.dtype)


def spell(model, pieces):
    """Divides pieces into those of a tokenizer.

    Args:
        model: a SentencePiece model, bytes.
        pieces: list of str.

    Returns:
        list of lists of int, the ids.
    """
    description = ModelProto.FromString(model)
    description.normalizer_spec.add_dummy_prefix = False
    description.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=description.SerializeToString())
    return processor.encode([piece.replace(SPACE, " ") for piece in pieces])
