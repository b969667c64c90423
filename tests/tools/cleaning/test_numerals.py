from fractions import Fraction

import pytest

from keras_transformer.tools.cleaning.numerals import NumberForms


@pytest.fixture(scope="module")
def english_and_german():
    return NumberForms(["en", "de"])


def values(languages, text):
    return [set(number.values) for number in NumberForms(languages).numbers(text)]


def test_marks_within_a_number_are_read_in_every_way_that_fits(english_and_german):
    read = {"1,250": {1250, Fraction("1.25")}, "1.250,50": {Fraction("1250.5")}, "1,00,000": {100_000}}
    read |= {
        "1 234 567": {1_234_567},
        "１２．５": {Fraction("12.5")},
        "٣٫٥": {Fraction("3.5")},
        "2½": {Fraction("2.5")},
    }
    read |= {"10²": {10}, "3/4": {Fraction(3, 4)}, "1.2.3": set()}
    for text, expected in read.items():
        assert [number.values for number in english_and_german.numbers(text)] == [expected]
    assert [number.parts for number in english_and_german.numbers("In 2015 300 came.")] == [(2015,), (300,)]
    assert english_and_german.numbers("9" * 5000) == []


def test_words_of_scale_are_those_of_the_languages_and_of_unicode():
    assert values(["ko"], "1억 2천만, 3만 5천") == [{120_000_000}, {35_000}]
    assert values(["ja"], "3億3千万") == [{330_000_000}]
    assert values(["ru"], "5 миллионами") == [{5_000_000}]
    assert values(["en", "hi"], "1.5 Cr, 2 करोड़") == [{15_000_000}, {20_000_000}]
    assert values(["en"], "5 m, 5M") == [{5_000_000}] * 2
    assert values(["en"], "5 miles, 5 Kinder") == [{5}] * 2


OTHER_NUMBERS = (
    "He is 25. | Er ist 26.; 1,250 books | 1.950 Bücher; in 1990 | 1980; in 1997 | 1998; 12. A house | 13. Ein Haus; "
    "2 of 3 | 2 von 4; 3 and 3 | 3 und 4; 1.5 | 1,6; 8:30 p.m. | 20:45 Uhr; 10 km | 00 km; May 5 | 8. Mai; "
    "5 million | 6 Millionen; 20 km | 200 km; 3,000 people | 5000 Menschen"
).split("; ")


@pytest.mark.parametrize("pair", OTHER_NUMBERS)
def test_other_numbers_are_found_in_either_direction(english_and_german, pair):
    source, target = pair.split(" | ")
    assert english_and_german.differ(source, target) and english_and_german.differ(target, source)


def test_a_number_on_one_side_alone_can_be_a_word_on_the_other(english_and_german):
    assert not english_and_german.differ("2 cats and 3 dogs", "zwei Katzen und 3 Hunde")
    # A language that CLDR does not know has the signs of all.
    assert not NumberForms(["source", "target"]).differ("10,000", "1万")
