"""Greedy search: the most likely token at every step."""

from keras_transformer.decoding.next_token import most_likely
from keras_transformer.decoding.single import follow


def greedy_search(step, cache, limits, **options):
    """Extends one hypothesis per row by its most likely token: what `beam_search` finds with a beam of 1.

    Arguments and result: see `follow`.
    """

    def choose(logits, position, options):
        return most_likely(logits, 1)

    return follow(choose, (), step, cache, limits, **options)
