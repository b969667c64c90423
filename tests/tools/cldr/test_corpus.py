"""The CLDR corpus: the same for everyone, one answer per question, and nothing in the test that training left out."""

import os
import re
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from keras_transformer.errors import CorpusError
from keras_transformer.tools.cldr.corpus import MAX_CHARACTERS, SHARES, cldr_corpus, phrase_forms
from keras_transformer.tools.cldr.wordings import isolated_locale

SIZES = {"train_size": 5003, "validation_size": 101, "test_size": 103}


@pytest.fixture(scope="module")
def corpus():
    return cldr_corpus("en", "de", **SIZES)


@pytest.fixture(scope="module")
def full_corpus():
    return cldr_corpus("en", "de")


def words(texts):
    return Counter(word for text in texts for word in text.split() if not any(map(str.isdecimal, word)))


def test_splits_have_the_sizes_asked_for(corpus):
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == tuple(SIZES.values())
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("cldr:en-de", "en", "de")


def test_same_seed_gives_the_same_corpus_and_another_seed_another(corpus):
    again = cldr_corpus("en", "de", **SIZES)
    assert again == corpus
    other = cldr_corpus("en", "de", seed=1, **SIZES)
    assert set(other.test) != set(corpus.test)
    assert again.fingerprint == corpus.fingerprint != other.fingerprint


@pytest.mark.slow
def test_same_seed_gives_the_same_corpus_in_another_process_after_any_other_work(corpus):
    code = (
        "from hashlib import sha256; from keras_transformer.tools.cldr.corpus import cldr_corpus\n"
        "cldr_corpus('ja', 'fr', train_size=1800, validation_size=2, test_size=2)\n"
        f"corpus = cldr_corpus('en', 'de', **{SIZES})\n"
        "print(sha256(repr((corpus.train, corpus.validation, corpus.test)).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "PYTHONPATH": str(Path(__file__).parents[2])}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    here = sha256(repr((corpus.train, corpus.validation, corpus.test)).encode()).hexdigest()
    assert said.stdout.strip() == here


def test_no_source_occurs_twice_in_or_across_splits(corpus):
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len({source for source, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en"), ("en", "es"), ("ja", "en")])
def test_two_forms_with_the_same_text_have_the_same_translation(languages):
    source, target = map(isolated_locale, languages)
    rng, answers = Random(0), {}
    for form in phrase_forms(source, target)[1]:
        for _ in range(5):
            value = form.draw(rng)
            question = form.say(value, source)
            assert answers.setdefault(question, form.say(value, target)) == form.say(value, target), question


def test_a_wording_shared_by_two_forms_stays_with_the_first():
    keys = {form.key for form in phrase_forms(isolated_locale("en"), isolated_locale("es"))[1]}
    assert "long 5" in keys and "abbreviated 4" in keys
    assert "abbreviated 5" not in keys  # "May 3, 2022" is "3 de mayo de 2022" in full, "3 may 2022" abbreviated.


@pytest.mark.parametrize("side", [0, 1])
def test_every_word_held_out_is_met_in_training(corpus, side):
    learnt = words(pair[side] for pair in corpus.train)
    asked = words(pair[side] for pair in [*corpus.validation, *corpus.test])
    assert asked
    assert set(asked) <= set(learnt)


@pytest.mark.parametrize("side", [0, 1])
def test_every_word_held_out_of_the_full_corpus_is_met_often(full_corpus, side):
    learnt = words(pair[side] for pair in full_corpus.train)
    asked = words(pair[side] for pair in [*full_corpus.validation, *full_corpus.test])
    assert min(learnt[word] for word in asked) >= 5


def test_every_bare_name_is_in_training(corpus):
    train = dict(corpus.train)
    assert train["Germany"] == "Deutschland"
    assert train["Swahili"] == "Suaheli"
    assert train["Wednesday"] == "Mittwoch"
    assert train["May"] == "Mai"
    english, german = isolated_locale("en"), isolated_locale("de")
    names, _ = phrase_forms(english, german)
    assert {name.say(None, english): name.say(None, german) for name in names}.items() <= train.items()


@pytest.mark.parametrize(
    ("family", "pattern"),
    [
        ("dates", r"(\w+, )?\w+ \d+, \d{4}(, .*)?|\d+/\d+/\d+|\w+ \d+"),
        ("times", r"\d+:\d\d(:\d\d)? [AP]M"),
        ("intervals", r".+ – .+"),
        ("relative times", r"in \d+ .*|\d+ .* ago"),
        ("numbers", r"[-\d,.]+(%| \w+illion)?"),
        ("currencies", r".*(dollar|krone|dinar|peso|franc).*|\D+[\d,.]+\d\d"),
        (
            "units",
            r"[\d,.]+ .*(meter|gram|liter|hour|day|week|month|year|second|mile|byte|watt|kilo|joule|calor|feet).*",
        ),
        ("lists", r".* (and|or) \D+"),
    ],
)
def test_every_family_is_held_out(full_corpus, family, pattern):
    share = sum(bool(re.fullmatch(pattern, source)) for source, _ in full_corpus.test) / len(full_corpus.test)
    assert share > 0.3 * SHARES[family] / sum(SHARES.values())


@pytest.mark.parametrize("target_lang", ["ja", "zh", "th"])
def test_lists_are_held_out_of_languages_without_spaces(target_lang):
    test = cldr_corpus("en", target_lang, train_size=5003, validation_size=0, test_size=307).test
    assert sum(" and " in source or " or " in source for source, _ in test) > 0.1 * len(test)


def test_phrases_are_short_and_plainly_typed(corpus):
    for text in (text for pair in corpus.train for text in pair):
        assert 0 < len(text) <= MAX_CHARACTERS
        assert not set(text) & set("\u00a0\u202f\u2009\u200e\u200f\u061c\n")
        assert text == text.strip()


def test_held_out_phrases_are_not_copies_of_their_source(corpus):
    assert sum(source == target for source, target in corpus.test) < len(corpus.test) / 10


@pytest.mark.parametrize("languages", ["en ja", "pt_BR ar", "en zh_Hant", "ru pl", "he en", "en sa"])
def test_any_two_locales_make_a_corpus(languages):
    corpus = cldr_corpus(*languages.split(), train_size=2003, validation_size=23, test_size=29)
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len({source for source, _ in pairs}) == 2003 + 23 + 29
    assert all(source and target for source, target in pairs)


def test_hyphenated_locales_are_understood():
    sizes = {"train_size": 1801, "validation_size": 2, "test_size": 3}
    assert cldr_corpus("pt-BR", "en", **sizes).train == cldr_corpus("pt_BR", "en", **sizes).train


@pytest.mark.parametrize("code", ["klingon", "xx", "", "en_XX", "../en"])
def test_unknown_locale_is_one_clear_line(code):
    with pytest.raises(CorpusError, match="Unknown locale `.*`. Use one of Babel's, such as en, de") as error:
        cldr_corpus("en", code)
    assert f"`{code}`" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("codes", [("en", "en"), ("zh_TW", "zh_Hant_TW")])
def test_the_same_locale_twice_is_refused(codes):
    with pytest.raises(CorpusError, match="two different locales"):
        cldr_corpus(*codes)


def test_sizes_out_of_reach_are_refused():
    with pytest.raises(CorpusError, match="all 316 bare names"):
        cldr_corpus("en", "de", train_size=100)
    with pytest.raises(CorpusError, match="too few to hold out 997"):
        cldr_corpus("en", "de", train_size=500, validation_size=997, test_size=0)
