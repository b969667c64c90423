"""The CLDR corpus: forms against translations written by hand; one answer per question; nothing held out for ever."""

import os
import re
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from babel.dates import get_month_names

from keras_transformer.errors import CorpusError
from keras_transformer.tools.cldr import times, wordings
from keras_transformer.tools.cldr.corpus import MAX_CHARACTERS, SHARES, cldr_corpus, phrase_forms
from keras_transformer.tools.cldr.wordings import Form, isolated_locale

EN, DE = isolated_locale("en"), isolated_locale("de")


def forms():
    names = list(wordings.name_forms())
    made = [*names, *wordings.number_forms(), *wordings.currency_forms(), *wordings.unit_forms()]
    made += [*times.date_forms(), *times.time_forms(), *times.interval_forms(), *times.relative_time_forms()]
    return {form.key: form for form in [*made, *wordings.list_forms(names)]}


FORMS, MOMENT = forms(), datetime(2022, 1, 3, 15, 45)


@pytest.mark.parametrize(
    ("key", "value", "english", "german"),
    [
        ("long 1", MOMENT, "January 3, 2022", "3. Januar 2022"),
        ("full 1", MOMENT, "Monday, January 3, 2022", "Montag, 3. Januar 2022"),
        ("with time 1", MOMENT, "January 3, 2022, 3:45 PM", "3. Januar 2022, 15:45"),
        ("short 0", time(0, 5), "12:05 AM", "00:05"),
        ("yMMMd 1", (date(2022, 1, 3), date(2022, 1, 7)), "Jan 3 – 7, 2022", "3.–7. Jan. 2022"),
        ("hours 9", (time(9, 5), time(15, 20)), "9:05 AM – 3:20 PM", "09:05–15:20 Uhr"),
        ("long hour +1", 1, "in 1 hour", "in 1 Stunde"),
        ("long year -1", -5, "5 years ago", "vor 5 Jahren"),
        ("number 6.2", Decimal("1234.56"), "1,234.56", "1.234,56"),
        ("percent 3.1", Decimal("12.5"), "12.5%", "12,5 %"),
        ("name NOK", Decimal("2.50"), "2.50 Norwegian kroner", "2,50 Norwegische Kronen"),
        ("symbol EUR", Decimal("1234.5"), "€1,234.50", "1.234,50 €"),
        ("long speed-kilometer-per-hour", Decimal("1"), "1 kilometer per hour", "1 Kilometer pro Stunde"),
        ("long duration-week", Decimal("1.5"), "1.5 weeks", "1,5 Wochen"),
        ("round 6", 12_000_000, "12 million", "12 Millionen"),
        ("territories FR", None, "France", "Frankreich"),
        ("months 3", None, "March", "März"),
    ],
)
def test_times_amounts_and_names_are_written_as_people_write_them(key, value, english, german):
    assert [FORMS[key].say(value, locale) for locale in (EN, DE)] == [english, german]


def test_intervals_end_after_they_start():
    rng = Random(11)
    for form in times.interval_forms():
        for start, end in (form.draw(rng) for _ in range(20)):
            assert start < end


def test_lists_join_names_of_one_family_with_and_or_or_and_every_name_leads_one():
    names = [FORMS[f"territories {code}"] for code in ("FR", "JP", "CH")]
    say = FORMS["list of territories FR"].say
    assert say(("standard", names), EN) == "France, Japan, and Switzerland"
    assert say(("standard", names), DE) == "Frankreich, Japan und Schweiz"
    assert (say(("or", names[:2]), EN), say(("or", names[:2]), DE)) == ("France or Japan", "Frankreich oder Japan")
    rng = Random(3)
    for name in wordings.name_forms():
        _, drawn = FORMS[f"list of {name.key}"].draw(rng)
        assert drawn[0].key == name.key and len({other.key for other in drawn}) == len(drawn) in (2, 3)
        assert {other.family for other in drawn} == {name.family}


def test_invisible_characters_become_characters_that_a_keyboard_types_and_what_a_locale_lacks_is_none():
    form = Form("", "", lambda rng: None, lambda value, locale: "\u200f3:45\u202fPM\u2009–\u20095\u00a0PM\u061c", ())
    assert form.say(None, EN) == "3:45 PM – 5 PM"
    french = isolated_locale("fr")
    assert FORMS["full 1"].say(MOMENT, french) == "lundi 3 janvier 2022"
    assert FORMS["long week -1"].say(-2, french) == "il y a 2 semaines"
    assert FORMS["territories FR"].say(None, isolated_locale("jbo")) is None
    # Babel cannot tell the parts of the day that zh_Hant parts such an interval by.
    assert FORMS["hours 9"].say((time(9, 5), time(9, 20)), isolated_locale("zh_Hant")) is None


def test_the_phrases_of_one_locale_do_not_depend_on_another():
    for code, april in (("ja", "4月"), ("fr", "avril"), ("ja", "4月")):
        assert get_month_names("wide", "stand-alone", isolated_locale(code))[4] == april


SIZES = {"train_size": 5003, "validation_size": 101, "test_size": 607}
SMALL = {"train_size": 2003, "validation_size": 23, "test_size": 103}


@pytest.fixture(scope="module")
def corpus():
    return cldr_corpus("en", "de", **SIZES)


@pytest.fixture(scope="module")
def full_corpus():
    return cldr_corpus("en", "de")


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


def test_splits_have_the_sizes_asked_for_no_source_occurs_twice_and_every_bare_name_is_in_training(corpus):
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == tuple(SIZES.values())
    assert (corpus.name, corpus.source_lang, corpus.target_lang) == ("cldr:en-de", "en", "de")
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len({source for source, _ in pairs}) == len(pairs)
    said = {name.say(None, EN): name.say(None, DE) for name in phrase_forms(EN, DE)[0]}
    assert said.items() <= dict(corpus.train).items()
    assert said.items() >= {("Germany", "Deutschland"), ("Swahili", "Suaheli"), ("Wednesday", "Mittwoch")}


@pytest.mark.parametrize("languages", [("en", "es"), ("ja", "en")])
def test_two_forms_with_the_same_text_have_the_same_translation(languages):
    source, target = map(isolated_locale, languages)
    rng, answers = Random(0), {}
    for form in phrase_forms(source, target)[1]:
        for _ in range(5):
            value = form.draw(rng)
            question, answer = form.say(value, source), form.say(value, target)
            assert question and answer and answers.setdefault(question, answer) == answer, form.key


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("name", "least"), [("corpus", 1), pytest.param("full_corpus", 5, marks=pytest.mark.slow)])
def test_every_word_held_out_is_met_in_training_and_in_the_full_corpus_often(request, name, least, side):
    corpus = request.getfixturevalue(name)
    learnt = words(pair[side] for pair in corpus.train)
    asked = words(pair[side] for pair in [*corpus.validation, *corpus.test])
    assert min(learnt[word] for word in asked) >= least


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


def test_every_family_is_held_out_and_phrases_are_short_plainly_typed_and_no_copies_of_their_source(corpus):
    for family, pattern in FAMILIES.items():
        share = sum(bool(re.fullmatch(pattern, source)) for source, _ in corpus.test) / len(corpus.test)
        assert share > 0.3 * SHARES[family] / sum(SHARES.values()), family
    for text in (text for pair in corpus.train for text in pair):
        assert 0 < len(text) <= MAX_CHARACTERS
        assert not set(text) & set("\u00a0\u202f\u2009\u200e\u200f\u061c\n") and text == text.strip()
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
