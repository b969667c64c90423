"""How well a model predicts given translations."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.errors import UserError
from keras_transformer.evaluation import check_counts, reference_sets

if TYPE_CHECKING:  # the translator loads TensorFlow
    from keras_transformer.translation.translator import TextTranslator


def perplexity(
    translator: "TextTranslator",
    texts: Sequence[str],
    references: Sequence,
    on_progress: Callable[[int], Any] | None = None,
) -> tuple[float, int]:
    """How well a model predicts given translations: exp of the mean cross-entropy per piece.

    Args:
        translator: `TextTranslator`, of a run or of an export.
        texts: sequence of str.
        references: as for `measure`; all of them count.
        on_progress: called with the number of texts done since its last call.

    Returns:
        (float, the perplexity; int, the number of pieces in the mean, ends of sentences included). Never compare
        perplexities of different tokenizers.

    Raises:
        UserError: if there is not one reference for each text, or nothing but blank lines.
    """
    texts, references = check_counts(texts=texts, references=references)
    sets = reference_sets(references)
    found = translator.score(texts * len(sets), sum(sets, []), on_progress)
    log_probabilities = [value for row in found for value in row.token_scores]
    if not log_probabilities:
        raise UserError("there are only blank lines: nothing has a perplexity")
    return math.exp(-math.fsum(map(float, log_probabilities)) / len(log_probabilities)), len(log_probabilities)


def describe_perplexity(translator, texts: Sequence[str], references: Sequence) -> str:
    """A line with `perplexity` and its logarithm, the loss."""
    value, pieces = perplexity(translator, texts, references)
    return f"loss {math.log(value):.4f}, perplexity {value:.3f} of {pieces:,} pieces"
