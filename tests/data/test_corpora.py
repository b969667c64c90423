import random
import shutil
from dataclasses import replace
from fractions import Fraction

import pytest

from keras_transformer.data import corpora
from keras_transformer.data.corpora import (
    Corpus,
    InTurn,
    epoch_weights,
    hash_pairs,
    hold_out,
    identity_of,
    mix,
    open_corpora,
    open_corpus,
    pairs_corpus,
    split_pair,
    split_weight,
)
from keras_transformer.errors import CorpusError


def write(directory, **texts):
    directory.mkdir(exist_ok=True)
    for name, lines in texts.items():
        stem, _, language = name.partition("_")
        (directory / f"{stem}.{language.replace('_', '-')}").write_text("".join(f"{line}\n" for line in lines))
    return directory


@pytest.fixture
def cldr(monkeypatch):
    """Replaces the locale data by a corpus that names the arguments."""

    def cldr_corpus(source, target, seed):
        return Corpus(f"seed {seed}", source, target, [], [], [], {})

    monkeypatch.setattr("keras_transformer.tools.cldr.corpus.cldr_corpus", cldr_corpus)


def message(spec, source_lang=None, target_lang=None):
    with pytest.raises(CorpusError) as caught:
        open_corpus(spec, source_lang, target_lang, seed=7)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FORMS = ["cldr:A-B", "files:DIR", "tfds:NAME"]


@pytest.mark.parametrize(
    ("spec", "flags", "said"),
    [
        *[(spec, (), FORMS) for spec in ("", "en-de", "cldr:", "http://x.org/y", "Files:x")],
        *[("cldr:en-de", flags, ["en to de or de to en", "fr"]) for flags in (("fr", None), (None, "fr"))],
        *[(f"cldr:{locales}", (), ["two different locales"]) for locales in ("en", "-de", "en-en")],
        ("files:x", ("en", "en"), ["both are 'en'"]),
    ],
)
def test_a_corpus_of_no_form_or_of_impossible_languages_is_refused_in_one_line(cldr, spec, flags, said):
    found = message(spec, *flags)
    assert [part for part in said if part not in found] == [] and (said != FORMS or repr(spec) in found)


def test_cldr_translates_either_way_and_forwards_by_default(cldr):
    for spec, flags, direction in (
        ("cldr:en-de", (None, None), ("en", "de")),
        ("cldr:en-de", (None, "en"), ("de", "en")),
        ("cldr:pt_BR-zh_Hant", ("zh_Hant", None), ("zh_Hant", "pt_BR")),
    ):
        corpus = open_corpus(spec, *flags, seed=7)
        assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("seed 7", *direction)


def test_files_take_the_text_after_the_first_colon_and_the_direction_of_the_flags(tmp_path):
    directory = write(tmp_path / "a:b", train_en=["one", "two"], train_de=["eins", "zwei"])
    corpus = open_corpus(f"files:{directory}", "de", "en", seed=7)
    assert (corpus.name, list(corpus.train)) == (f"files:{directory}", [("eins", "one")])


def test_what_follows_the_last_colon_is_a_weight_if_it_is_a_number_and_no_directory(tmp_path):
    (tmp_path / "a:2").mkdir()
    whole = ["files:data/a", "files:C:\\data\\a", "files:a:b", "files:3", "files:a:-1", "files:a:nan"]
    for spec in [*whole, "tfds:ted/pt_to_en:1.0.0", f"files:{tmp_path}/a:2"]:
        assert split_weight(spec) == (spec, 1) and split_weight(f"{spec}:3") == (spec, 3)
    for weight, expected in {"0.3": Fraction(3, 10), ".5": Fraction(1, 2)}.items():
        assert split_weight(f"cldr:en-de:{weight}") == ("cldr:en-de", expected)
    for weight in ("0", "0.0", "1001", "0.12345"):
        with pytest.raises(
            CorpusError, match=f"above 0, at most 1,000, and .* 4 decimals. Received: files:a:{weight}$"
        ):
            split_weight(f"files:a:{weight}")


LEFT_OUT_NOTE = "left out of training, because another corpus holds the same out"
PAIRS = {"files:a": [("one", "eins"), ("two", "zwei")], "tfds:b": [("three", "drei")], "cldr:en-de": [("four", "vier")]}


def corpus(name, **others):
    made = Corpus(
        name, "en", "de", PAIRS[name], [(name, "val")], [(name, "test")], {"train.en": f"of {name}"}, ("note",)
    )
    return replace(made, **others)


def test_all_pairs_are_trained_on_in_turn_and_the_first_corpus_is_validated_on():
    alone = corpus("files:a", weight=Fraction(3, 10))
    assert mix([alone]) is alone
    mixed = mix([corpus(name) for name in PAIRS])
    assert isinstance(mixed.train, InTurn)
    for _ in range(2):
        assert list(mixed.train) == [*PAIRS["files:a"], *PAIRS["tfds:b"], *PAIRS["cldr:en-de"]]
    assert (mixed.validation, mixed.test) == ([("files:a", "val")], [("files:a", "test")])
    assert [other.name for other in mixed.others] == ["tfds:b", "cldr:en-de"]
    assert mixed.notes == ("files:a: note", "tfds:b: note", "cldr:en-de: note")


def test_replayed_corpora_divide_the_share_of_an_epoch_that_was_asked_for_by_their_weights_to_the_pair():
    corpora = [
        corpus("files:a", weight=Fraction(2)),
        corpus("tfds:b", is_replayed=True, weight=Fraction(1, 2)),
        corpus("cldr:en-de", is_replayed=True, weight=Fraction(3)),
    ]
    sizes = [1003, 700, 211]
    for replay in (0.01, 0.2, 0.9):
        new, *old = (size * w for size, w in zip(sizes, epoch_weights(corpora, sizes, replay), strict=True))
        assert new == 2 * 1003 and abs(sum(old) - replay * (new + sum(old))) <= 1
        assert abs(old[0] - sum(old) * Fraction(350, 350 + 633)) <= 1 and old[0].denominator == old[1].denominator == 1
    assert epoch_weights([corpora[0], corpus("tfds:b")], [200, 31], 0.0) == [2, 1]  # where nothing is replayed


def test_what_follows_the_last_at_sign_is_a_pair_of_languages_if_it_is_no_directory(tmp_path):
    (tmp_path / "a@en-de").mkdir()
    for spec in ("files:data/a", "files:me@host/a", "tfds:ted/pt_to_en:1.0.0", f"files:{tmp_path}/a@en-de"):
        assert split_pair(spec) == (spec, None) and split_pair(f"{spec}@de-en") == (spec, ("de", "en"))
        assert split_pair(f"{spec}@pt_BR-zh_Hant") == (spec, ("pt_BR", "zh_Hant"))
    for text in ("", "en", "en-", "-en", "pt-BR-en"):
        with pytest.raises(CorpusError, match=f"such as @en-de or @pt_BR-en, .*. Received: files:a@{text}$") as caught:
            split_pair(f"files:a@{text}")
        assert "\n" not in str(caught.value)


def test_a_directory_is_one_corpus_however_it_is_written(tmp_path, monkeypatch):
    (tmp_path / "a:1").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    specs = [f"files:{place}@en-de:2" for place in ("a:1", "./a:1/", f"{tmp_path}/a:1", "~/a:1")]
    assert len(set(map(identity_of, specs))) == 1
    for other in ("files:a:1@en-de", "files:a:1:2", "files:a@en-de:2", "tfds:a:1@en-de:2", "files:~unknown/a"):
        assert identity_of(other) == identity_of(other) != identity_of(specs[0])
    with pytest.raises(CorpusError, match="no such directory: ~unknown/a"):
        open_corpora(["files:~unknown/a"], "en", "de")
    with pytest.raises(CorpusError, match="no such directory: ~unknown/a"):
        open_corpora(["tfds:~unknown/a"])


def test_every_corpus_may_say_its_own_languages(cldr, tmp_path):
    directory = write(tmp_path / "a", train_en=["one", "two"], train_de=["eins", "zwei"], train_pt_BR=["um", "dois"])
    specs = [f"files:{directory}", f"files:{directory}@de-en:0.5", "cldr:en-de@de-en", f"files:{directory}@pt_BR-en"]
    opened = open_corpora(specs, "en", "de", seed=7)
    assert [(each.name, each.source_lang, each.target_lang, each.weight) for each in opened] == [
        (f"files:{directory}", "en", "de", 1),
        (f"files:{directory}@de-en", "de", "en", Fraction(1, 2)),
        ("seed 7", "de", "en", 1),
        (f"files:{directory}@pt_BR-en", "pt-BR", "en", 1),  # a code finds its files with either sign
    ]
    with pytest.raises(CorpusError, match="`skip_bad_lines` needs a corpus files:DIR. Received: cldr:en-de"):
        open_corpora(["cldr:en-de"], skip_bad_lines=True)
    assert list(opened[1].train) == [("eins", "one")] and list(opened[1].validation) == [("zwei", "two")]
    assert list(opened[3].train) == [("um", "one")]
    expected = f"files:{directory}@SOURCE-TARGET, or both `source_lang` and `target_lang`. The directory has de, en, pt"
    for flags in ((None, None), ("en", None)):
        with pytest.raises(CorpusError, match=expected):
            open_corpora([f"files:{directory}@en-de", f"files:{directory}"], *flags)


def test_a_corpus_is_named_once_in_each_direction():
    one, same = corpus("files:a"), replace(corpus("files:a"), name="files:a@en-de")
    with pytest.raises(CorpusError, match="files:a@en-de is named twice: name it once, with a weight, such as files:a"):
        mix([one, corpus("tfds:b"), same])
    with pytest.raises(CorpusError, match="files:a is in `dataset`, .* leave out `replay`"):
        mix([one, corpus("files:a", is_replayed=True)])
    with pytest.raises(CorpusError, match="files:./tests/ is named twice"):
        mix([replace(one, name="files:tests"), replace(one, name="files:./tests/")])
    back = replace(one, name="files:a@de-en", source_lang="de", target_lang="en")
    mixed = mix([one, back])
    assert mixed.is_multilingual and mixed.directions == [("en", "de"), ("de", "en")]
    assert mixed.identity["languages"] == "en to de, de to en"
    assert mix([one, corpus("tfds:b")]).identity["languages"] == "en to de"
    back = replace(one, source_lang="de", target_lang="en", train=[("zwei", "two")])
    mixed = mix([back, replace(one, is_replayed=True)])
    names = [*mixed.train.splits]
    assert names == [mixed.name, mixed.others[0].name] == ["files:a@de-en", "files:a@en-de"]


def test_no_corpus_trains_on_what_another_one_holds_out_in_either_direction():
    """What a corpus trains on itself is not held out: very small corpora, and greetings in a validation file."""
    one = corpus("files:a", train=[("b", "B"), ("x", "X")], validation=[("a", "A"), ("x", "X")], test=[("c", "C")])
    back = {"source_lang": "de", "target_lang": "en", "validation": [("E", "e")], "test": None}
    two = corpus("tfds:b", **back, train=[("A ", "a\u00ad"), ("X", "x"), ("C", "c"), ("a", "A"), ("D", "d")])
    three = corpus("cldr:en-de", train=[("a", "A"), ("e", "E"), ("f", "F")], validation=[("g", "G")], test=None)
    mixed = mix([one, two, three])
    assert {name: list(pairs) for name, pairs in mixed.train.splits.items()} == {
        "files:a": [("b", "B"), ("x", "X")],
        "tfds:b": [("X", "x"), ("a", "A"), ("D", "d")],
        "cldr:en-de": [("f", "F")],
    }
    notes = [note for note in mixed.notes if "left out" in note]
    assert notes == [f"{name}: 2 pairs are {LEFT_OUT_NOTE}" for name in ("tfds:b", "cldr:en-de")]
    with pytest.raises(CorpusError, match="^tfds:b has no pair to train on that another corpus does not hold out"):
        mix([corpus("files:a", test=PAIRS["tfds:b"]), corpus("tfds:b")])


def test_a_run_of_one_direction_that_began_with_such_pairs_goes_on_with_them():
    alone = [corpus("files:a"), corpus("tfds:b", train=[("test", "x"), ("files:a", "test")])]
    new, as_before = mix(alone), mix(alone, {"languages": "en to de"})
    assert (len(list(new.train)), len(list(as_before.train))) == (3, 4)
    assert "pairs left out of tfds:b" in new.identity and "pairs left out of tfds:b" not in as_before.identity
    assert list(mix(alone, new.identity).train) == list(new.train)


def test_what_a_mixture_has_and_leaves_out_is_its_identity():
    """A run must not go on with other rows: a test set, which no fingerprint has, decides on them, too."""
    alone = [corpus(name) for name in PAIRS]
    assert [*mix(alone).identity] == ["languages", *(f"{name} train.en" for name in PAIRS)]
    back = replace(alone[1], source_lang="de", target_lang="en", train=[("test", "files:a"), ("d", "D")])
    assert len(list(mix([alone[0], back]).others[0].train)) == 1
    assert [*mix([alone[0], back]).identity] == ["languages", "files:a train.en", "tfds:b train.en"]
    before, after = (mix([alone[0], replace(alone[1], fingerprint={"train.en": x})]).identity for x in "xy")
    assert [name for name in before if before[name] != after[name]] == ["tfds:b train.en"]

    two = corpus("tfds:b", train=[("a", "A"), ("b", "B"), ("c", "C")])
    found = [mix([corpus("files:a", test=[pair]), two]).identity for pair in (("a", "A"), ("b", "B"), ("d", "D"))]
    parts = [identity.pop("pairs left out of tfds:b", None) for identity in found]
    assert len(set(parts)) == 3 and parts[2] is None and found[0] == found[1] == found[2]


@pytest.mark.parametrize("stem", ["train", "test"])
def test_a_file_of_columns_without_a_header_is_refused_in_two_directions(tmp_path, stem):
    pairs, header, stems = ["one\teins", "two\tzwei"], ["en\tde"], ("train", "val", "test")
    directory = write(tmp_path / "a", **{f"{name}_tsv": header * (name != stem) + pairs for name in stems})
    shutil.copytree(directory, tmp_path / "copy")
    for second in (directory, tmp_path / "copy"):
        opened = open_corpora([f"files:{directory}@en-de", f"files:{second}@de-en"])
        with pytest.raises(CorpusError, match=rf"{stem}\.tsv has no header, .*: put a first line .* en TAB de$"):
            mix([opened[0], replace(opened[1], is_replayed=True)])
    assert len(mix(open_corpora([f"files:{directory}@en-de", f"files:{tmp_path}/copy@en-de"])).others) == 1
    (directory / f"{stem}.tsv").write_text("de\ten\neins\tone\nzwei\ttwo\n")
    mixed = mix(open_corpora([f"files:{directory}@en-de", f"files:{directory}@de-en"]))
    assert [list(corpus.validation)[0] for corpus in (mixed, *mixed.others)] == [("one", "eins"), ("eins", "one")]


def test_a_new_kind_of_corpus_is_one_row(monkeypatch):
    def open_numbers(request):
        pairs = [(str(number), str(number)) for number in range(int(request.name))]
        return Corpus(request.spec, request.source_lang, request.target_lang, pairs, [("x", "x")], None, {})

    monkeypatch.setitem(corpora.KINDS, "numbers", corpora.Kind("numbers:N", "numbers below N", open_numbers))
    (opened,) = open_corpora(["numbers:7@en-de:0.5"])
    assert (opened.name, opened.source_lang, opened.weight) == ("numbers:7@en-de", "en", Fraction(1, 2))
    assert len(opened.train) == 7
    assert message("number:7").endswith("use cldr:A-B, files:DIR, tfds:NAME[/CONFIG] or numbers:N")


def test_corpora_are_taken_in_proportion_to_the_root_of_their_sizes():
    """Arivazhagan et al. 2019. The square roots of 900 and 100 are as 3 to 1. An epoch keeps its size."""
    for temperature, expected in ((1, [900, 100]), (2, [750, 250]), (1e9, [500, 500])):
        for sizes, weights in (([900, 100], ["1", "1"]), ([300, 1000], ["3", "0.1"])):
            corpora = [corpus(name, weight=Fraction(weight)) for name, weight in zip(PAIRS, weights, strict=False)]
            found = epoch_weights(corpora, sizes, 0.0, temperature)
            assert [weight * size for weight, size in zip(found, sizes, strict=True)] == expected
    sizes = [1_000_003, 701, 3]
    found = epoch_weights([corpus(name) for name in PAIRS], sizes, 0.0, 5.0)
    taken = [weight * size for weight, size in zip(found, sizes, strict=True)]
    assert sum(taken) == sum(sizes) and all(count.denominator == 1 for count in taken)
    for count, size in zip(taken, sizes, strict=True):
        assert abs(count - sum(sizes) * size**0.2 / sum(each**0.2 for each in sizes)) <= 1


# Parts of a corpus.


def test_five_percent_but_at_most_a_thousand_pairs_are_held_out():
    for size, held_out in {2: 1, 39: 1, 40: 2, 2_000: 100, 19_999: 999, 20_001: 1000, 40_000: 1000}.items():
        assert len(hold_out([(str(number), "x") for number in range(size)])[1]) == held_out
    for pairs, said in (([], "0 pairs are"), ([("one", "eins"), ("two", " ")], "1 pair is")):
        assert f"{said} too few" in str(pytest.raises(CorpusError, hold_out, pairs).value)


def test_every_kth_pair_is_held_out_and_the_rest_stays_in_order():
    pairs = [(str(number), str(number)) for number in range(1, 48)]
    train, validation, note = hold_out(pairs)
    assert validation == (("23", "23"), ("46", "46"))  # 5 % of 47 is 2, so every 23rd
    assert list(train) == list(train) == [pair for pair in pairs if pair not in validation] and len(train) == 45
    assert note == "no validation split: 2 of the 47 training pairs were held out for it"
    given = pairs_corpus(pairs)
    assert given.train.pairs == pairs  # a file of links has a line for each of them
    assert given.fingerprint == {"train": hash_pairs(list(train)), "validation": hash_pairs(list(validation))}
    pairs[4], pairs[30] = ("", "5"), ("23\u200b ", "23")  # neither moves the others: a run goes on with the same
    assert hold_out(pairs)[1] == validation and len(hold_out(pairs)[0]) == 44
    pairs[22] = ("\u00ad", "23")  # a blank pair is never held out, the next one is
    assert [source for source, _ in hold_out(pairs)[1]] == ["24", "46"]


def test_no_copy_of_a_pair_that_is_held_out_stays_in_training():
    pairs = [(f"s{number}", f"t{number % 29}") for number in range(211)] * 7
    random.Random(3).shuffle(pairs)
    train, validation, note = hold_out(pairs)
    assert len(validation) == len(set(validation)) == 10 and not set(validation) & set(train)
    assert len(train) == len(list(train)) == 201 * 7 and "and 60 copies of these left out of training" in note
    train, validation, note = hold_out([("yes", "ja"), ("no", "nein"), ("maybe", "vielleicht")] * 40)
    assert (len(train), len(validation)) == (114, 6) and set(train) == {*validation} | set(train)
    assert len(set(train)) == 3 and "There are only 3 different pairs" in note  # so few are all trained on
