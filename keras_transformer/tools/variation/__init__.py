"""Training pairs in other forms, other ones in each epoch: with placeholders, in capitals, with typos, with symbols."""

from keras_transformer.tools.variation.protected_pairs import PairProtection
from keras_transformer.tools.variation.typed_text import CHANGES, TypedPairs, with_cases

__all__ = ["changes_of", "with_cases"]


def changes_of(config, data):
    """The changes that the settings of a run ask for, in their order.

    Args:
        config: `Config`.
        data: `Data`.

    Returns:
        list of functions (`EncodedPairs`, NumPy generator) -> `EncodedPairs`.
    """
    models = [tokenizer.model for tokenizer in data.tokenizers]
    found = [PairProtection(data.train, *models, config.protect, config.max_length)] if config.protect else []
    typed = [change(getattr(config, name)) for name, change in CHANGES.items() if getattr(config, name)]
    return [*found, *([TypedPairs(*models, typed, config.max_length)] if typed else [])]
