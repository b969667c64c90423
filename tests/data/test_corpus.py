import dataclasses

import pytest

from keras_transformer.data.corpus import BothSides, Corpus, CorpusError, held_out_size


@pytest.mark.parametrize(
    ("pairs", "size"),
    [(2, 1), (19, 1), (39, 1), (40, 2), (2_000, 100), (19_999, 999), (20_000, 1000), (5_000_000, 1000)],
)
def test_five_percent_but_at_most_a_thousand_pairs_are_held_out(pairs, size):
    assert held_out_size(pairs) == size


@pytest.mark.parametrize("pairs", [0, 1])
def test_too_few_pairs_to_hold_any_out_are_refused(pairs):
    with pytest.raises(CorpusError, match=f"{pairs} training pair"):
        held_out_size(pairs)


def test_a_corpus_is_immutable_and_has_no_notes_unless_given():
    corpus = Corpus("files:x", "en", "de", [("a", "b")], [("c", "d")], None, "of x")
    assert corpus.notes == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.name = "other"


def test_a_corpus_error_is_a_value_error():
    assert issubclass(CorpusError, ValueError)


def test_both_sides_of_a_split_are_read_again_at_every_iteration():
    sides = BothSides([("a", "b"), ("c", "d")])
    assert [list(sides), list(sides)] == [["a", "b", "c", "d"]] * 2
