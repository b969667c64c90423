from fractions import Fraction
from types import SimpleNamespace

import pytest

from keras_transformer.data.corpora import Corpus
from keras_transformer.tools.distillation.pairs import Teaching, texts_of

TRAIN, VALIDATION, TEST = [("one", "eins"), ("two", "zwei"), ("one", "ein")], [("six", "sechs")], [("ten", "zehn")]


class Teacher:
    def translate(self, texts, on_progress):
        return [f"{text}\nbest" for text in texts]

    def alternatives(self, texts, on_progress):
        return [[SimpleNamespace(text=f"{text}\n{number}") for number in range(4)] for text in texts]


def test_a_teacher_writes_as_many_lines_as_are_wanted_best_first():
    assert Teaching().lines(Teacher(), ["a", ""]) == [["a best"], [" best"]] and Teaching().lines_each == 1
    assert Teaching(3).lines(Teacher(), ["a"]) == [["a 0", "a 1", "a 2"]] and Teaching(3).lines_each == 3


@pytest.mark.parametrize("test", [None, TEST])
def test_held_out_pairs_stay_as_they_are_and_every_source_is_repeated(test):
    corpus = Corpus("mine", "en", "de", TRAIN, VALIDATION, test, {}, weight=Fraction(1))
    expected = {"val.en": ["six"], "val.de": ["sechs"], "train.en": ["one", "one", "two", "two", "one", "one"]}
    expected |= {"texts.en": ["one", "two", "one"]} | ({"test.en": ["ten"], "test.de": ["zehn"]} if test else {})
    assert {name: [*lines] for name, lines in texts_of(corpus, 2).items()} == expected
