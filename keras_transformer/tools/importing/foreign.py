"""A model of another program, as its importer hands it over: settings, vocabularies, and weights by our names."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keras_transformer.models.transformer import Transformer
from keras_transformer.tools.importing.pieces import NO_ROW, Vocabulary
from keras_transformer.tools.importing.tensors import ImportedModelError

ROWS_AT_A_TIME = 1 << 14
IMPOSSIBLE_LOGIT = -100.0  # of ids that they do not have: exp(-100) is nothing, and a loss with it stays small


@dataclass(frozen=True)
class ForeignModel:
    """All that a run is made of.

    Attributes:
        settings: dict, of `Config`: those of the model, and its languages.
        tokenizers: SentencePiece models with our ids, bytes, of source and target; one for both if they are the same.
        source, target: `Vocabulary`; the same object if they share it.
        weight: function from the path of one of our weights to their array, laid out as ours, with their rows.
    """

    settings: dict
    tokenizers: list
    source: Vocabulary
    target: Vocabulary
    weight: Callable[[str], np.ndarray]

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
        model = Transformer.from_settings(config, **sizes)
        for weight in model.weights:
            self.assign(weight)
        return model

    def assign(self, weight):
        """Assigns their values to one of our weights, a Keras variable. Raises ImportedModelError."""
        values = self.weight(weight.path)
        if weight.path == "logits/bias":
            values = self.bias(values)
        elif weight.path.endswith("matrix"):
            rows = (self.source if weight.path.startswith("source") else self.target).rows
            check_shape(weight, (len(rows), values.shape[1]))
            return assign_rows(weight, values, rows)
        check_shape(weight, values.shape)
        weight.assign(np.asarray(values, "float32"))

    def bias(self, theirs):
        """The bias of the logits (V,), which hides our ids that they do not have; theirs may be None."""
        rows = self.target.rows
        bias = np.zeros(len(rows), "float32") if theirs is None else np.asarray(theirs, "float32")[rows]
        bias[self.target.hidden] = IMPOSSIBLE_LOGIT
        return bias


def check_shape(weight, shape):
    """Raises ImportedModelError if one of our weights has another shape than theirs."""
    if tuple(weight.shape) != tuple(shape):
        raise ImportedModelError(
            f"{weight.path} has the shape {tuple(shape)} there, and {tuple(weight.shape)} by the settings"
        )


def assign_rows(weight, matrix, rows):
    """Assigns `rows` of their matrix (V', D) to one of our matrices (V, D), zeros for `NO_ROW`.

    It takes some rows at a time: otherwise a large vocabulary would be in memory three times.
    """
    if rows.max() >= len(matrix):
        raise ImportedModelError(f"a matrix has {len(matrix)} rows for {rows.max() + 1} pieces")
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        some = rows[start : start + ROWS_AT_A_TIME]
        vectors = np.asarray(matrix[np.maximum(some, 0)], "float32")
        vectors[some == NO_ROW] = 0
        weight.value[start : start + len(some)].assign(vectors)
