import numpy as np
import pytest

from keras_transformer.tools.planning.statistics import (
    character_lengths,
    count_characters,
    count_lopsided,
    count_repeated,
    spread,
)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([7], (7, 7, 7)),
        ([5, 7, 11, 13], (7, 13, 13)),  # of two in the middle the smaller: a length that occurs
        (range(101, 0, -1), (51, 96, 101)),
        ([3] * 19 + [1009], (3, 3, 1009)),
    ],
)
def test_spread_is_the_middle_the_95th_percentile_and_the_largest(lengths, expected):
    assert spread(np.array(lengths)) == expected


def test_characters_of_a_sentence_are_code_points():
    assert character_lengths(iter(["", "fünf", "e\u0301", "日本", "👍🏽 "])).tolist() == [0, 4, 2, 2, 3]


def test_a_pair_counts_as_repeated_every_time_after_the_first():
    pairs = [("a", "b"), ("b", "a"), ("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("a", "b"), ("a", "c")]
    assert count_repeated(iter(pairs)) == 3
    assert count_repeated(dict.fromkeys(pairs)) == 0
    assert count_repeated([]) == 0


def test_a_pair_is_lopsided_with_more_than_three_times_as_much_on_either_side():
    source, target = np.array([3, 10, 9, 1, 1, 7]), np.array([10, 3, 3, 3, 4, 7])
    assert count_lopsided(source, target) == 3


def test_every_character_is_counted_over_all_sentences():
    assert count_characters(iter(["ab a", "", "ß\tb"])) == {"a": 2, "b": 2, " ": 1, "ß": 1, "\t": 1}
