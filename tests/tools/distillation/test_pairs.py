from fractions import Fraction

import pytest

from keras_transformer.data.corpora import Corpus
from keras_transformer.tools.distillation.pairs import texts_of

TRAIN, VALIDATION, TEST = [("one", "eins"), ("two", "zwei"), ("one", "ein")], [("six", "sechs")], [("ten", "zehn")]


@pytest.mark.parametrize("test", [None, TEST])
def test_held_out_pairs_stay_as_they_are_and_every_source_is_repeated(test):
    corpus = Corpus("mine", "en", "de", TRAIN, VALIDATION, test, {}, weight=Fraction(1))
    expected = {"val.en": ["six"], "val.de": ["sechs"], "train.en": ["one", "one", "two", "two", "one", "one"]}
    expected |= {"texts.en": ["one", "two", "one"]} | ({"test.en": ["ten"], "test.de": ["zehn"]} if test else {})
    assert {name: [*lines] for name, lines in texts_of(corpus, 2).items()} == expected
