"""Finds the heads that a translation needs: silences one head alone, or the least important heads together."""

import numpy as np

from keras_transformer.tools.analysis.gates import count_heads, silenced


def losses(translator, texts, references, score, on_progress=None):
    """The score that each of the N heads is worth: the loss while it alone is silent. Translates all texts N + 1 times.

    Args:
        translator: `Translator`, whose model is a `Transformer`.
        texts: list of str.
        references: list of str, their translations.
        score: function (translations, references) -> float, such as BLEU.
        on_progress: called with 1 after each translation of all texts.

    Returns:
        float, the score with all heads, and float64 (N,), that score minus the score without the head.
    """
    number = count_heads(translator.model)
    silences = [np.zeros(number, bool), *np.eye(number, dtype=bool)]
    scores = [_scored(translator, texts, references, score, silence, on_progress) for silence in silences]
    return scores[0], scores[0] - np.array(scores[1:])


def curve(translator, texts, references, score, importance, counts, on_progress=None):
    """The score while the least important heads are silent.

    Args:
        translator, texts, references, score, on_progress: as for `losses`.
        importance: (N,), that of `Heads`, or another order.
        counts: list of int, the numbers of silent heads.

    Returns:
        float64 array, the score of each of `counts`.
    """
    rows = [least_important(importance, count) for count in counts]
    return np.array([_scored(translator, texts, references, score, row, on_progress) for row in rows])


def least_important(importance, count):
    """Which of N heads are the `count` least important: bool (N,). Of equal heads, the earlier ones are taken."""
    chosen = np.zeros(len(importance), bool)
    chosen[np.argsort(importance, kind="stable")[:count]] = True
    return chosen


def _scored(translator, texts, references, score, silence, on_progress):
    with silenced(translator.model, silence):
        found = score(translator.translate(texts), references)
    if on_progress:
        on_progress(1)
    return found
