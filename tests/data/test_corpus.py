import dataclasses
import random

import pytest

from keras_transformer.data.corpus import BothSides, Corpus, OneSide, held_out_size, hold_out
from keras_transformer.errors import CorpusError


@pytest.mark.parametrize(
    ("pairs", "size"),
    [(2, 1), (19, 1), (39, 1), (40, 2), (2_000, 100), (19_999, 999), (20_000, 1000), (5_000_000, 1000)],
)
def test_five_percent_but_at_most_a_thousand_pairs_are_held_out(pairs, size):
    assert held_out_size(pairs) == size


@pytest.mark.parametrize(("pairs", "said"), [(0, "0 training pairs are"), (1, "1 training pair is")])
def test_too_few_pairs_to_hold_any_out_are_refused(pairs, said):
    with pytest.raises(CorpusError, match=f"{said} too few"):
        held_out_size(pairs)


def test_every_kth_pair_is_held_out_and_the_rest_stays_in_order():
    pairs = [(str(number), str(number)) for number in range(1, 48)]
    train, validation, note = hold_out(pairs)
    assert validation == (("23", "23"), ("46", "46"))  # 5 % of 47 is 2, so every 23rd
    assert list(train) == list(train) == [pair for pair in pairs if pair not in validation] and len(train) == 45
    assert note == "no validation split: 2 of the 47 training pairs were held out for it"


@pytest.mark.parametrize("copies", [2, 7])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_no_copy_of_a_pair_that_is_held_out_stays_in_training(copies, is_shuffled):
    pairs = [(f"s{number}", f"t{number % 29}") for number in range(211)] * copies
    if is_shuffled:
        random.Random(3).shuffle(pairs)
    train, validation, note = hold_out(pairs)
    assert len(validation) == len(set(validation)) == 10 and not set(validation) & set(train)
    assert len(train) == len(list(train)) == 201 * copies
    assert f"and {10 * (copies - 1)} copies of these left out of training" in note


def test_so_few_different_pairs_are_all_trained_on_and_that_is_said():
    train, validation, note = hold_out([("yes", "ja"), ("no", "nein"), ("maybe", "vielleicht")] * 40)
    assert (len(train), len(validation)) == (114, 6) and set(train) == {*validation} | set(train)
    assert len(set(train)) == 3 and "There are only 3 different pairs" in note


def test_a_corpus_is_immutable_and_has_no_notes_unless_given():
    corpus = Corpus("files:x", "en", "de", [("a", "b")], [("c", "d")], None, {"x": "23"})
    assert corpus.notes == () and corpus.identity == {"languages": "en to de", "x": "23"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.name = "other"


def test_both_sides_of_a_split_are_read_again_at_every_iteration():
    sides = BothSides([("a", "b"), ("c", "d")])
    assert [list(sides), list(sides)] == [["a", "b", "c", "d"]] * 2


@pytest.mark.parametrize(("side", "sentences"), [(0, ["a", "c"]), (1, ["b", "d"])])
def test_one_side_of_a_split_is_read_again_at_every_iteration(side, sentences):
    split = OneSide([("a", "b"), ("c", "d")], side)
    assert [list(split), list(split)] == [sentences] * 2
