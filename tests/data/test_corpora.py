import sys
import types
from dataclasses import replace
from fractions import Fraction

import pytest

from keras_transformer.data.corpora import epoch_weights, mix, open_corpora, open_corpus, split_pair, split_weight
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


# Corpora of several directions.


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("files:data/a", ("files:data/a", None)),
        ("files:data/a@en-de", ("files:data/a", ("en", "de"))),
        ("files:data/a@pt_BR-zh_Hant", ("files:data/a", ("pt_BR", "zh_Hant"))),
        ("files:me@host/a", ("files:me@host/a", None)),
        ("files:me@host/a@de-en", ("files:me@host/a", ("de", "en"))),
        ("tfds:ted/pt_to_en:1.0.0@en-pt", ("tfds:ted/pt_to_en:1.0.0", ("en", "pt"))),
    ],
)
def test_what_follows_the_last_at_sign_is_a_pair_of_languages(spec, expected):
    assert split_pair(spec) == expected


def test_a_directory_whose_name_ends_like_a_pair_is_a_directory(tmp_path):
    (tmp_path / "a@en-de").mkdir()
    assert split_pair(f"files:{tmp_path}/a@en-de") == (f"files:{tmp_path}/a@en-de", None)
    assert split_pair(f"files:{tmp_path}/a@en-de@de-en") == (f"files:{tmp_path}/a@en-de", ("de", "en"))


@pytest.mark.parametrize("text", ["", "en", "en-", "-en", "pt-BR-en", "en-de-fr"])
def test_a_pair_is_two_languages_with_one_hyphen_between_them(text):
    with pytest.raises(CorpusError, match=f"such as @en-de or @pt_BR-en, .*. Received: files:a@{text}$") as caught:
        split_pair(f"files:a@{text}")
    assert "\n" not in str(caught.value)


def write(directory, **texts):
    directory.mkdir(exist_ok=True)
    for name, lines in texts.items():
        stem, _, language = name.partition("_")
        (directory / f"{stem}.{language.replace('_', '-')}").write_text("".join(f"{line}\n" for line in lines))
    return directory


def test_every_corpus_may_say_its_own_languages(cldr, tmp_path):
    directory = write(tmp_path / "a", train_en=["one", "two"], train_de=["eins", "zwei"])
    specs = [f"files:{directory}", f"files:{directory}@de-en:0.5", "cldr:en-de@de-en"]
    opened = open_corpora(specs, "en", "de", seed=7)
    assert [(each.name, each.source_lang, each.target_lang, each.weight) for each in opened] == [
        (f"files:{directory}", "en", "de", 1),
        (f"files:{directory}@de-en", "de", "en", Fraction(1, 2)),
        ("seed 7", "de", "en", 1),
    ]
    assert list(opened[1].train) == [("eins", "one")] and list(opened[1].validation) == [("zwei", "two")]


def test_a_code_of_several_parts_finds_its_files_with_either_sign(tmp_path):
    directory = write(tmp_path / "a", train_pt_BR=["um", "dois"], train_en=["one", "two"])
    opened = open_corpus(f"files:{directory}@pt_BR-en", "en", "de")
    assert (opened.name, opened.source_lang) == (f"files:{directory}@pt_BR-en", "pt-BR")
    assert list(opened.train) == [("um", "one")]


def test_a_corpus_without_its_languages_is_refused_and_told_both_ways(tmp_path):
    directory = write(tmp_path / "a", train_en=["one", "two"], train_de=["eins", "zwei"])
    expected = f"files:{directory}@SOURCE-TARGET, or both `source_lang` and `target_lang`. The directory has de, en.$"
    with pytest.raises(CorpusError, match=expected):
        open_corpora([f"files:{directory}@en-de", f"files:{directory}"])


def test_a_corpus_is_named_once_in_each_direction():
    one, same = corpus("files:a"), replace(corpus("files:a"), name="files:a@en-de")
    with pytest.raises(CorpusError, match="files:a@en-de is named twice"):
        mix([one, same])
    back = replace(one, name="files:a@de-en", source_lang="de", target_lang="en")
    mixed = mix([one, back])
    assert mixed.is_multilingual and mixed.directions == [("en", "de"), ("de", "en")]
    assert mixed.identity["languages"] == "en to de, de to en"
    assert mix([one, corpus("tfds:b")]).identity["languages"] == "en to de"


def test_a_corpus_that_is_replayed_in_the_other_direction_has_a_name_of_its_own():
    back = replace(corpus("files:a"), source_lang="de", target_lang="en", train=[("zwei", "two")])
    mixed = mix([back, corpus("files:a", is_replayed=True)])
    assert [*mixed.train.splits] == ["files:a@de-en", "files:a@en-de"]
    assert [mixed.name, mixed.others[0].name] == [*mixed.train.splits]


def test_no_corpus_trains_on_what_another_one_holds_out_in_either_direction():
    """What a corpus trains on itself is not held out: very small corpora, and greetings in a validation file."""
    one = corpus("files:a", train=[("b", "B"), ("x", "X")], validation=[("a", "A"), ("x", "X")], test=[("c", "C")])
    back = {"source_lang": "de", "target_lang": "en", "validation": [("E", "e")], "test": None}
    two = corpus("tfds:b", **back, train=[("A", "a"), ("X", "x"), ("C", "c"), ("a", "A"), ("D", "d")])
    three = corpus("cldr:en-de", train=[("a", "A"), ("e", "E"), ("f", "F")], validation=[("g", "G")], test=None)
    mixed = mix([one, two, three])
    assert {name: list(pairs) for name, pairs in mixed.train.splits.items()} == {
        "files:a": [("b", "B"), ("x", "X")],
        "tfds:b": [("X", "x"), ("a", "A"), ("D", "d")],
        "cldr:en-de": [("f", "F")],
    }
    notes = [note for note in mixed.notes if "left out" in note]
    assert notes == [
        "tfds:b: 2 pairs are left out of training, because another corpus holds the same out",
        "cldr:en-de: 2 pairs are left out of training, because another corpus holds the same out",
    ]
    same = [replace(each, source_lang="en", target_lang="de") for each in (one, two, three)]
    assert [len(list(pairs)) for pairs in mix(same).train.splits.values()] == [2, 5, 3]  # as it was before


@pytest.mark.parametrize("kind", ["files", "cldr"])
def test_pairs_held_out_in_one_direction_are_not_trained_on_in_the_other(kind, tmp_path):
    words = [f"{number}" for number in range(97)]
    directory = write(tmp_path / "a", train_en=words, train_de=[f"{word} Uhr" for word in words])
    specs = (
        [f"files:{directory}@en-de", f"files:{directory}@de-en"] if kind == "files" else ["cldr:en-de", "cldr:de-en"]
    )
    mixed = mix(open_corpora(specs))
    there, back = (set(pairs) for pairs in mixed.train.splits.values())
    for each, others in ((mixed, back), (mixed.others[0], there)):
        held_out = {(target, source) for source, target in (*each.validation, *(each.test or ()))}
        assert held_out and not held_out & others


# Sampling by temperature.


@pytest.mark.parametrize(("temperature", "expected"), [(1, [900, 100]), (2, [750, 250]), (1e9, [500, 500])])
def test_corpora_are_taken_in_proportion_to_the_root_of_their_sizes(temperature, expected):
    """Arivazhagan et al. 2019. The square roots of 900 and 100 are as 3 to 1. An epoch keeps its 1,000 pairs."""
    for sizes, weights in (([900, 100], ["1", "1"]), ([300, 1000], ["3", "0.1"])):
        corpora = [corpus(name, weight=Fraction(weight)) for name, weight in zip(PAIRS, weights, strict=False)]
        found = epoch_weights(corpora, sizes, 0.0, temperature)
        assert [weight * size for weight, size in zip(found, sizes, strict=True)] == expected


def test_an_epoch_keeps_its_size_and_takes_every_corpus():
    sizes = [1_000_003, 701, 3]
    found = epoch_weights([corpus(name) for name in PAIRS], sizes, 0.0, 5.0)
    taken = [weight * size for weight, size in zip(found, sizes, strict=True)]
    assert sum(taken) == sum(sizes) and all(count.denominator == 1 for count in taken)
    shares = [size**0.2 for size in sizes]
    for count, share in zip(taken, shares, strict=True):
        assert abs(count - sum(sizes) * share / sum(shares)) <= 1
