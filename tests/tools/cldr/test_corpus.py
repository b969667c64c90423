"""The CLDR corpus: the same for everyone, one answer per question, and nothing in the test that training left out."""

import functools
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

SIZES = {"train_size": 5003, "validation_size": 101, "test_size": 607}
SMALL = {"train_size": 2003, "validation_size": 23, "test_size": 103}


@pytest.fixture(scope="module")
def corpus():
    return cldr_corpus("en", "de", **SIZES)


@pytest.fixture(scope="module")
def full_corpus():
    return cldr_corpus("en", "de")


@functools.cache
def locales_and_forms(*languages):
    locales = [*map(isolated_locale, languages)]
    return *locales, *phrase_forms(*locales)


def words(texts):
    return Counter(word for text in texts for word in text.split() if not any(map(str.isdecimal, word)))


def test_same_seed_gives_the_same_corpus_and_another_seed_another(corpus):
    again, other = (cldr_corpus("en", "de", seed=seed, **SIZES) for seed in (0, 1))
    assert again == corpus and set(other.test) != set(corpus.test)
    assert again.fingerprint == corpus.fingerprint != other.fingerprint


@pytest.mark.slow
def test_same_seed_gives_the_same_corpus_in_another_process_after_any_other_work(corpus):
    code = (
        "from hashlib import sha256; from keras_transformer.tools.cldr.corpus import cldr_corpus\n"
        f"cldr_corpus('ja', 'fr', **{SMALL})\n"
        f"corpus = cldr_corpus('en', 'de', **{SIZES})\n"
        "print(sha256(repr((corpus.train, corpus.validation, corpus.test)).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "PYTHONPATH": str(Path(__file__).parents[2])}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    here = sha256(repr((corpus.train, corpus.validation, corpus.test)).encode()).hexdigest()
    assert said.stdout.strip() == here


def test_splits_have_the_sizes_asked_for_and_no_source_occurs_twice(corpus):
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == tuple(SIZES.values())
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("cldr:en-de", "en", "de")
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len({source for source, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("languages", [("en", "es"), ("ja", "en")])
def test_two_forms_with_the_same_text_have_the_same_translation(languages):
    source, target, _, forms = locales_and_forms(*languages)
    rng, answers = Random(0), {}
    for form in forms:
        for _ in range(5):
            value = form.draw(rng)
            question, answer = form.say(value, source), form.say(value, target)
            assert question and answer and answers.setdefault(question, answer) == answer, form.key


def test_a_wording_shared_by_two_forms_stays_with_the_first():
    keys = {form.key for form in locales_and_forms("en", "es")[-1]}
    assert "long 5" in keys and "abbreviated 4" in keys
    assert "abbreviated 5" not in keys  # "May 3, 2022" is "3 de mayo de 2022" in full, "3 may 2022" abbreviated.


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("name", "least"), [("corpus", 1), pytest.param("full_corpus", 5, marks=pytest.mark.slow)])
def test_every_word_held_out_is_met_in_training_and_in_the_full_corpus_often(request, name, least, side):
    corpus = request.getfixturevalue(name)
    learnt = words(pair[side] for pair in corpus.train)
    asked = words(pair[side] for pair in [*corpus.validation, *corpus.test])
    assert min(learnt[word] for word in asked) >= least


def test_every_bare_name_is_in_training(corpus):
    english, german, names, _ = locales_and_forms("en", "de")
    said = {name.say(None, english): name.say(None, german) for name in names}
    assert said.items() <= dict(corpus.train).items()
    assert said.items() >= {("Germany", "Deutschland"), ("Swahili", "Suaheli"), ("Wednesday", "Mittwoch")}


FAMILIES = {
    "dates": r"(\w+, )?\w+ \d+, \d{4}(, .*)?|\d+/\d+/\d+|\w+ \d+",
    "times": r"\d+:\d\d(:\d\d)? [AP]M",
    "intervals": r".+ – .+",
    "relative times": r"in \d+ .*|\d+ .* ago",
    "numbers": r"[-\d,.]+(%| \w+illion)?",
    "currencies": r".*(dollar|krone|dinar|peso|franc).*|\D+[\d,.]+\d\d",
    "units": r"[\d,.]+ .*(meter|gram|liter|hour|day|week|month|year|second|mile|byte|watt|kilo|joule|calor|feet).*",
    "lists": r".* (and|or) \D+",
}


def test_every_family_is_held_out(corpus):
    for family, pattern in FAMILIES.items():
        share = sum(bool(re.fullmatch(pattern, source)) for source, _ in corpus.test) / len(corpus.test)
        assert share > 0.3 * SHARES[family] / sum(SHARES.values()), family


def test_phrases_are_short_and_plainly_typed_and_those_held_out_no_copies_of_their_source(corpus):
    for text in (text for pair in corpus.train for text in pair):
        assert 0 < len(text) <= MAX_CHARACTERS
        assert not set(text) & set("\u00a0\u202f\u2009\u200e\u200f\u061c\n")
        assert text == text.strip()
    assert sum(source == target for source, target in corpus.test) < len(corpus.test) / 10


def test_lists_are_held_out_of_languages_without_spaces():
    test = cldr_corpus("en", "th", train_size=5003, validation_size=0, test_size=307).test
    assert sum(" and " in source or " or " in source for source, _ in test) > 0.1 * len(test)


@pytest.mark.parametrize("languages", ["pt-BR ar", "he zh_Hant"])
def test_any_two_locales_make_a_corpus(languages):
    corpus = cldr_corpus(*languages.split(), **SMALL)
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len({source for source, _ in pairs}) == sum(SMALL.values())
    assert all(source and target for source, target in pairs)


def test_unknown_and_equal_locales_and_sizes_out_of_reach_are_refused_in_one_line():
    unknown = [(("en", x), {}, f"Unknown locale `{x}`. Use one of Babel's, such as") for x in ("xx", "", "../en")]
    for codes, sizes, said in (
        *unknown,
        (("zh_TW", "zh_Hant_TW"), {}, "two different locales"),
        (("en", "de"), {"train_size": 100}, "all 316 bare names"),
        (("en", "de"), {"train_size": 400, "validation_size": 307, "test_size": 0}, "too few to hold out 307"),
    ):
        with pytest.raises(CorpusError, match=said) as error:
            cldr_corpus(*codes, **sizes)
        assert "\n" not in str(error.value)
