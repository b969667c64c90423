import sys
import types
from dataclasses import replace
from fractions import Fraction

import pytest

from keras_transformer.data.corpora import epoch_weights, mix, open_corpora, open_corpus, split_weight
from keras_transformer.data.corpus import Corpus, InTurn
from keras_transformer.errors import CorpusError


@pytest.fixture
def cldr(monkeypatch):
    """Replaces the locale data by a corpus that names the arguments."""
    module = types.ModuleType("keras_transformer.data.cldr")
    module.cldr_corpus = lambda source, target, seed: Corpus(f"seed {seed}", source, target, [], [], [], {})
    monkeypatch.setitem(sys.modules, module.__name__, module)


def message(spec, source_lang=None, target_lang=None):
    with pytest.raises(CorpusError) as caught:
        open_corpus(spec, source_lang, target_lang, seed=7)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("spec", ["", "en-de", "cldr", "cldr:", "/data/multi30k", "http://x.org/y", "Files:x"])
def test_an_unknown_form_names_the_three_there_are(spec):
    found = message(spec)
    assert repr(spec) in found
    for form in ("cldr:A-B", "files:DIR", "tfds:NAME"):
        assert form in found


@pytest.mark.parametrize(
    ("spec", "flags", "direction"),
    [
        ("cldr:en-de", (None, None), ("en", "de")),
        ("cldr:en-de", ("en", None), ("en", "de")),
        ("cldr:en-de", ("de", None), ("de", "en")),
        ("cldr:en-de", (None, "en"), ("de", "en")),
        ("cldr:en-de", ("de", "en"), ("de", "en")),
        ("cldr:pt_BR-zh_Hant", ("zh_Hant", None), ("zh_Hant", "pt_BR")),
    ],
)
def test_cldr_translates_either_way_and_forwards_by_default(cldr, spec, flags, direction):
    corpus = open_corpus(spec, *flags, seed=7)
    assert (corpus.source_lang, corpus.target_lang) == direction
    assert corpus.name == "seed 7"


@pytest.mark.parametrize("flags", [("fr", None), (None, "fr"), ("en", "fr")])
def test_cldr_refuses_other_languages(cldr, flags):
    found = message("cldr:en-de", *flags)
    assert "en to de or de to en" in found and "fr" in found


@pytest.mark.parametrize("locales", ["en", "en-", "-de", "en-en"])
def test_cldr_needs_two_locales(cldr, locales):
    assert "two different locales" in message(f"cldr:{locales}")


def test_files_are_opened_in_the_direction_of_the_flags(tmp_path):
    for name, text in {"train.en": "one\n", "train.de": "eins\n", "val.en": "two\n", "val.de": "zwei\n"}.items():
        (tmp_path / name).write_text(text)
    corpus = open_corpus(f"files:{tmp_path}", "de", "en", seed=7)
    assert (corpus.name, list(corpus.train)) == (f"files:{tmp_path}", [("eins", "one")])


def test_a_colon_in_the_directory_belongs_to_it(tmp_path):
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "train.tsv").write_text("one\teins\ntwo\tzwei\n")
    assert list(open_corpus(f"files:{tmp_path}/a:b", "en", "de", seed=7).train) == [("one", "eins")]


@pytest.mark.parametrize("flags", [(None, None), ("en", None), (None, "de")])
def test_files_without_languages_name_the_flags_and_the_languages_there(tmp_path, flags):
    for language in ("en", "de", "fr"):
        (tmp_path / f"train.{language}").write_text("x\n")
    found = message(f"files:{tmp_path}", *flags)
    for part in ("`source_lang`", "`target_lang`", "de, en, fr"):
        assert part in found


@pytest.mark.parametrize("spec", ["cldr:en-de", "files:x", "tfds:x"])
def test_one_language_cannot_be_both_sides(spec):
    assert "both are 'en'" in message(spec, "en", "en")


def test_tfds_takes_the_text_after_the_colon(tmp_path):
    for name, text in {"en.train.txt": "one\ntwo\n", "de.train.txt": "eins\nzwei\n"}.items():
        (tmp_path / name).write_text(text)
    assert list(open_corpus(f"tfds:{tmp_path}", "en", "de", seed=7).train) == [("one", "eins")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("files:data/a", ("files:data/a", 1)),
        ("files:data/a:0.3", ("files:data/a", Fraction(3, 10))),
        ("files:data/a:3", ("files:data/a", 3)),
        ("files:data/a:.5", ("files:data/a", Fraction(1, 2))),
        ("files:C:\\data\\a", ("files:C:\\data\\a", 1)),
        ("files:C:\\data\\a:2", ("files:C:\\data\\a", 2)),
        ("files:a:b", ("files:a:b", 1)),
        ("files:3", ("files:3", 1)),
        ("files:a:-1", ("files:a:-1", 1)),
        ("files:a:nan", ("files:a:nan", 1)),
        ("tfds:ted/pt_to_en:1.0.0", ("tfds:ted/pt_to_en:1.0.0", 1)),
        ("cldr:en-de:0.25", ("cldr:en-de", Fraction(1, 4))),
    ],
)
def test_what_follows_the_last_colon_is_a_weight_if_it_is_a_number(spec, expected):
    assert split_weight(spec) == expected


def test_a_directory_whose_name_ends_like_a_weight_is_a_directory(tmp_path):
    (tmp_path / "a:2").mkdir()
    assert split_weight(f"files:{tmp_path}/a:2") == (f"files:{tmp_path}/a:2", 1)
    assert split_weight(f"files:{tmp_path}/a:2:3") == (f"files:{tmp_path}/a:2", 3)


@pytest.mark.parametrize("weight", ["0", "0.0", "1001", "0.12345"])
def test_a_weight_that_is_not_possible_is_refused(weight):
    with pytest.raises(
        CorpusError, match=f"above 0, at most 1,000, and have at most 4 decimals. Received: files:a:{weight}$"
    ):
        split_weight(f"files:a:{weight}")


def test_corpora_of_all_kinds_are_opened_with_their_weights(cldr, tmp_path):
    (tmp_path / "train.tsv").write_text("one\teins\ntwo\tzwei\n")
    with pytest.raises(CorpusError, match="`skip_bad_lines` needs a corpus files:DIR. Received: cldr:en-de"):
        open_corpora(["cldr:en-de"], skip_bad_lines=True)
    opened = open_corpora(["cldr:en-de:0.3", f"files:{tmp_path}:2"], "en", "de", seed=7)
    assert [(each.name, each.weight) for each in opened] == [("seed 7", Fraction(3, 10)), (f"files:{tmp_path}", 2)]


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
