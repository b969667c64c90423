from dataclasses import replace
from fractions import Fraction

import pytest

from keras_transformer.data.corpus import Corpus, InTurn
from keras_transformer.data.mixture import epoch_weights, mix
from keras_transformer.errors import CorpusError

PAIRS = {"files:a": [("one", "eins"), ("two", "zwei")], "tfds:b": [("three", "drei")], "cldr:en-de": [("four", "vier")]}


def corpus(name, **others):
    made = Corpus(
        name, "en", "de", PAIRS[name], [(name, "val")], [(name, "test")], {"train.en": f"of {name}"}, ("note",)
    )
    return replace(made, **others)


def test_a_corpus_alone_is_not_changed():
    alone = corpus("files:a", weight=Fraction(3, 10))
    assert mix([alone]) is alone


def test_all_pairs_are_trained_on_in_turn_and_the_first_corpus_is_validated_on():
    mixed = mix([corpus(name) for name in PAIRS])
    assert isinstance(mixed.train, InTurn)
    for _ in range(2):
        assert list(mixed.train) == [*PAIRS["files:a"], *PAIRS["tfds:b"], *PAIRS["cldr:en-de"]]
    assert (mixed.validation, mixed.test) == ([("files:a", "val")], [("files:a", "test")])
    assert [other.name for other in mixed.others] == ["tfds:b", "cldr:en-de"]
    assert mixed.notes == ("files:a: note", "tfds:b: note", "cldr:en-de: note")


def test_a_change_of_any_corpus_is_a_change_of_the_mixture_by_its_name():
    before, after = (
        mix([corpus("files:a"), corpus("tfds:b", fingerprint={"train.en": content})]).identity for content in "xy"
    )
    assert [name for name in before if before[name] != after[name]] == ["tfds:b train.en"]


def test_a_corpus_is_named_once():
    with pytest.raises(CorpusError, match="tfds:b is named twice: name it once, with a weight, such as tfds:b:2"):
        mix([corpus("files:a"), corpus("tfds:b"), corpus("tfds:b", weight=Fraction(3))])
    with pytest.raises(CorpusError, match="files:a is in `dataset`, .* leave out `replay`"):
        mix([corpus("files:a"), corpus("files:a", is_replayed=True)])


def test_all_corpora_have_one_direction():
    with pytest.raises(CorpusError, match="files:a is en to de, but tfds:b is de to en: give `source_lang`"):
        mix([corpus("files:a"), corpus("tfds:b", source_lang="de", target_lang="en")])


def test_weights_are_those_of_the_corpora_where_nothing_is_replayed():
    corpora = [corpus("files:a", weight=Fraction(3, 10)), corpus("tfds:b")]
    assert epoch_weights(corpora, [200, 31], 0.0) == [Fraction(3, 10), 1]


@pytest.mark.parametrize("replay", [0.2, 0.5, 0.01, 0.9])
@pytest.mark.parametrize(("weight", "sizes"), [("1", [20_000, 29_000]), ("0.3", [20_000, 7]), ("2", [13, 29_000])])
def test_replayed_pairs_are_the_share_of_an_epoch_that_was_asked_for(replay, weight, sizes):
    corpora = [corpus("files:a", weight=Fraction(weight)), corpus("tfds:b", is_replayed=True)]
    new, old = (size * w for size, w in zip(sizes, epoch_weights(corpora, sizes, replay), strict=True))
    assert new == sizes[0] * Fraction(weight) and old.denominator == 1
    assert abs(old - replay * (new + old)) <= 1


def test_replayed_corpora_divide_their_share_by_their_weights_to_the_pair():
    corpora = [
        corpus("files:a"),
        corpus("tfds:b", is_replayed=True, weight=Fraction(1, 2)),
        corpus("cldr:en-de", is_replayed=True, weight=Fraction(3)),
    ]
    sizes = [1003, 700, 211]
    new, first, second = (size * w for size, w in zip(sizes, epoch_weights(corpora, sizes, 0.2), strict=True))
    assert (new, first + second) == (1003, round(1003 / 4))
    assert abs(first / second - Fraction(350, 633)) < Fraction(1, 50)
