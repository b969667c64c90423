import dataclasses

import pytest

from keras_transformer.data.corpus import BothSides, Corpus, OneSide, held_out_size
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
