import json

import numpy as np
import pytest

from keras_transformer.tools.analysis.gates import attentions_of
from keras_transformer.tools.analysis.silencing import curve, least_important, losses
from tests import tiny

TEXTS, REFERENCES = ["a", "b", "c"], ["x", "y", "z"]
HEADS = 3 * 2  # one layer, two heads
WORTH = np.array([2, 3, 5, 7, 11, 13])  # of each head


class Choir:
    """Stands for a translator: says which heads of its model are silent, from the weights alone."""

    def __init__(self):
        self.model = tiny.transformer()

    def translate(self, texts):
        rows = [np.asarray(a.sublayer.output_projection.kernel).reshape(2, -1) for a in attentions_of(self.model)]
        silent = [head for head, of_head in enumerate(np.concatenate(rows)) if not of_head.any()]
        return [f"{text} {silent}" for text in texts]


@pytest.fixture(scope="module")
def choir():
    return Choir()


def score(translations, references):
    """What the heads that speak are worth together."""
    assert references == REFERENCES and len(translations) == len(TEXTS)
    return float(WORTH.sum() - sum(WORTH[head] for head in json.loads(translations[1].partition(" ")[2])))


def test_a_loss_is_the_score_of_all_heads_less_that_without_one(choir):
    done = []
    full, lost = losses(choir, TEXTS, REFERENCES, score, done.append)
    assert full == WORTH.sum() and lost.tolist() == WORTH.tolist() and done == [1] * (1 + HEADS)
    assert choir.translate(["all"]) == ["all []"]


def test_a_curve_silences_the_least_important_heads_and_of_equal_ones_the_earlier(choir):
    importance, done = [0.5, 0.1, 0.9, 0.2, 0.7, 0.3], []
    scores = curve(choir, TEXTS, REFERENCES, score, importance, [0, 1, 2, HEADS], done.append)
    assert scores.tolist() == [41, 41 - 3, 41 - 3 - 7, 0] and done == [1] * 4
    importance = np.array([5, 2, 7, 2, 3])
    chosen = [np.flatnonzero(least_important(importance, count)).tolist() for count in range(6)]
    assert chosen == [[], [1], [1, 3], [1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4]]
