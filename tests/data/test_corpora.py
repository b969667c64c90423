import sys
import types

import pytest

from keras_transformer.data.corpora import open_corpus
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
    for part in ("--source_lang", "--target_lang", "de, en, fr"):
        assert part in found


@pytest.mark.parametrize("spec", ["cldr:en-de", "files:x", "tfds:x"])
def test_one_language_cannot_be_both_sides(spec):
    assert "both 'en'" in message(spec, "en", "en")


def test_tfds_takes_the_text_after_the_colon(tmp_path):
    for name, text in {"en.train.txt": "one\ntwo\n", "de.train.txt": "eins\nzwei\n"}.items():
        (tmp_path / name).write_text(text)
    assert list(open_corpus(f"tfds:{tmp_path}", "en", "de", seed=7).train) == [("one", "eins")]
