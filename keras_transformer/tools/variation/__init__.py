"""Training pairs in other forms, other ones in each epoch.

With placeholders, in capitals, with typos, with symbols, and in other pieces.
"""

import functools
from dataclasses import replace

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.tools.variation.moved_links import moved
from keras_transformer.tools.variation.protected_pairs import PairProtection
from keras_transformer.tools.variation.subword_dropout import SubwordDropout, check_bpe
from keras_transformer.tools.variation.typed_text import CHANGES, TypedPairs, with_cases

__all__ = ["change_of", "check_bpe", "with_cases"]

WITH_SUBWORD_DROPOUT = 0.9  # the share of a run, from its start, that has subword dropout


def change_of(config, data, batches):
    """What changes the pairs of a training batch, as the settings of a run ask for.

    Args:
        config: `Config`.
        data: `Data`.
        batches: int, the batches of the whole run. The last tenth of them has no subword dropout, so the model ends
            with the pieces that it gets in translation.

    Returns:
        function (`EncodedPairs`, NumPy generator, number of the batch) -> `EncodedPairs`, for `training_batches`.
    """
    models = [tokenizer.model for tokenizer in data.tokenizers]
    steps = [PairProtection(data.train, *models, config.protect, config.max_length)] if config.protect else []
    typed = [change(getattr(config, name)) for name, change in CHANGES.items() if getattr(config, name)]
    steps += [TypedPairs(*models, typed, config.max_length)] if typed else []
    rate = config.subword_dropout_rate
    drops = [SubwordDropout(model, rate) for model in models] if rate else []
    widths = [np.array([len(piece.piece) for piece in ModelProto.FromString(model).pieces]) for model in models]

    def vary(pairs, rng, number):
        varied = functools.reduce(lambda before, step: step(before, rng), steps, pairs)
        if drops and number < WITH_SUBWORD_DROPOUT * batches:
            sides = zip(drops, (varied.source, varied.target), strict=True)
            source, target = (drop(side, rng) for drop, side in sides)
            varied = replace(varied, source=source, target=target)
        return varied if pairs.links is None else replace(varied, links=moved(pairs, varied, widths))

    return vary
