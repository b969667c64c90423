"""A model of another program, as its importer hands it over: settings, vocabularies, and weights by our names."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from keras_transformer.models.transformer import Transformer
from keras_transformer.private_api import made_from
from keras_transformer.tags import LanguageTags
from keras_transformer.tools.importing.pieces import NO_ROW, Vocabulary
from keras_transformer.tools.importing.tensors import ImportedModelError

IMPOSSIBLE_LOGIT = -100.0  # of ids that they do not have: exp(-100) is nothing, and a loss with it stays small


@dataclass(frozen=True)
class ForeignModel:
    """All that a run is made of.

    Attributes:
        settings: dict of settings of `Config` that describe the model and its languages.
        tokenizers: SentencePiece models with our ids, bytes, of source and target; one for both if they are the same.
        source, target: `Vocabulary`; the same object with the setting `share_vocabulary`.
        weight: function from the path of one of our weights to their array, laid out as ours, with their rows.
        tags: `LanguageTags` of a run of several languages, by our ids; None for one direction.
    """

    settings: dict
    tokenizers: list
    source: Vocabulary
    target: Vocabulary
    weight: Callable[[str], np.ndarray]
    tags: LanguageTags | None = None

    def make(self, config):
        """The `Transformer` with their weights.

        Args:
            config: `Config` with the settings.

        Raises:
            ImportedModelError: if a weight is missing, or has another shape.
        """
        sizes = {"vocabulary_size": len(self.source.rows)}
        if not config.share_vocabulary:
            sizes["target_vocabulary_size"] = len(self.target.rows)
        return made_from(partial(Transformer.from_settings, config, **sizes), self.check, self.values)

    def check(self, weight):
        """Raises ImportedModelError if they have no values for one of our weights, or of another shape."""
        theirs, rows = self.weight(weight.path), self.rows(weight.path)
        if rows is None:
            shape = theirs.shape
        elif theirs is not None and rows.max() >= len(theirs):
            raise ImportedModelError(f"a matrix has {len(theirs)} rows for {rows.max() + 1} pieces")
        else:
            shape = (len(rows), *(() if theirs is None else theirs.shape[1:]))
        if tuple(weight.shape) != tuple(shape):
            raise ImportedModelError(
                f"{weight.path} has the shape {tuple(shape)} there, and {tuple(weight.shape)} by the settings"
            )

    def rows(self, path):
        """For each of our ids its row of a weight of theirs; None for a weight that does not belong to a vocabulary."""
        if path != "logits/bias" and not path.endswith("matrix"):
            return None
        return (self.source if path.startswith("source") else self.target).rows

    def values(self, path):
        """The values of one of our weights, float32: theirs in our order, and zeros for ids that they do not have.

        The bias of the logits hides the ids that they do not have.
        """
        theirs, rows = self.weight(path), self.rows(path)
        if theirs is not None and not np.isfinite(theirs).all():
            raise ImportedModelError(f"the weights for {path} have values that are no finite numbers: NaN or infinity")
        if rows is None:
            return np.asarray(theirs, "float32")
        values = np.zeros((len(rows), *(() if theirs is None else theirs.shape[1:])), "float32")
        if theirs is not None:
            values[rows != NO_ROW] = theirs[rows[rows != NO_ROW]]
        if path == "logits/bias":
            values[self.target.hidden] = IMPOSSIBLE_LOGIT
        return values
