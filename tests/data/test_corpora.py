import sys
import types
from fractions import Fraction

import pytest

from keras_transformer.data.corpora import open_corpora, open_corpus, split_weight
from keras_transformer.data.corpus import Corpus
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
    opened = open_corpora(["cldr:en-de:0.3", f"files:{tmp_path}:2"], "en", "de", seed=7)
    assert [(each.name, each.weight) for each in opened] == [("seed 7", Fraction(3, 10)), (f"files:{tmp_path}", 2)]
