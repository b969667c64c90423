"""Forms of numbers, money, measures and names against translations written by hand."""

from decimal import Decimal
from random import Random

import pytest
from babel.dates import get_month_names

from keras_transformer.tools.cldr import wordings
from keras_transformer.tools.cldr.wordings import Form, isolated_locale, unambiguous

EN, DE = isolated_locale("en"), isolated_locale("de")


def forms():
    names = list(wordings.name_forms())
    makers = (wordings.number_forms, wordings.currency_forms, wordings.unit_forms)
    made = names + [form for maker in makers for form in maker()] + list(wordings.list_forms(names))
    return {form.key: form for form in made}


FORMS = forms()


@pytest.mark.parametrize(
    ("key", "value", "english", "german"),
    [
        ("number 6.2", Decimal("1234.56"), "1,234.56", "1.234,56"),
        ("negative", Decimal("-1234.5"), "-1,234.5", "-1.234,5"),
        ("percent 3.1", Decimal("12.5"), "12.5%", "12,5 %"),
        ("name NOK", Decimal("2.50"), "2.50 Norwegian kroner", "2,50 Norwegische Kronen"),
        ("name JPY", Decimal("1500"), "1,500 Japanese yen", "1.500 Japanische Yen"),
        ("symbol EUR", Decimal("1234.5"), "€1,234.50", "1.234,50 €"),
        ("long speed-kilometer-per-hour", Decimal("1"), "1 kilometer per hour", "1 Kilometer pro Stunde"),
        ("long duration-week", Decimal("1.5"), "1.5 weeks", "1,5 Wochen"),
        ("short mass-kilogram", Decimal("3000"), "3,000 kg", "3.000 kg"),
        ("round 6", 12_000_000, "12 million", "12 Millionen"),
        ("duration-hour + duration-minute", (3, 1), "3 hours, 1 minute", "3 Stunden, 1 Minute"),
        ("territories FR", None, "France", "Frankreich"),
        ("languages sw", None, "Swahili", "Suaheli"),
        ("weekdays 0", None, "Monday", "Montag"),
        ("months 3", None, "March", "März"),
    ],
)
def test_amounts_and_names_are_written_as_people_write_them(key, value, english, german):
    assert [FORMS[key].say(value, locale) for locale in (EN, DE)] == [english, german]


def test_lists_join_names_of_one_family_with_and_or_or():
    names = [FORMS[f"territories {code}"] for code in ("FR", "JP", "CH")]
    form = FORMS["list of territories FR"]
    assert form.say(("standard", names), EN) == "France, Japan, and Switzerland"
    assert form.say(("standard", names), DE) == "Frankreich, Japan und Schweiz"
    assert form.say(("or", names[:2]), EN) == "France or Japan"
    assert form.say(("or", names[:2]), DE) == "Frankreich oder Japan"


def test_every_name_leads_a_list_of_others_of_its_family():
    rng = Random(3)
    for name in wordings.name_forms():
        _, drawn = FORMS[f"list of {name.key}"].draw(rng)
        assert drawn[0].key == name.key
        assert len({other.key for other in drawn}) == len(drawn) in (2, 3)
        assert {other.family for other in drawn} == {name.family}


def test_invisible_characters_become_characters_that_a_keyboard_types_and_no_words_are_none():
    form = Form("", "", lambda rng: None, lambda value, locale: "\u200f3:45\u202fPM\u2009–\u20095\u00a0PM\u061c", ())
    assert form.say(None, EN) == "3:45 PM – 5 PM"
    assert FORMS["territories FR"].say(None, isolated_locale("jbo")) is None


def form_saying(key, english, german):
    return Form("", key, lambda rng: None, lambda value, locale: {EN: english, DE: german}[locale], (None,))


def test_of_two_forms_with_one_wording_the_first_is_kept():
    country, language = form_saying("country", "Nauru", "Nauru"), form_saying("language", "Nauru", "Nauruisch")
    twin, mute = form_saying("twin", "Nauru", "Nauru"), form_saying("mute", "Yap", "")
    assert list(unambiguous([country, language, twin, mute], EN, DE)) == [country, twin]
    assert list(unambiguous([language, country], DE, EN)) == [language, country]


def test_the_phrases_of_one_locale_do_not_depend_on_another():
    for code, april in (("ja", "4月"), ("fr", "avril"), ("ja", "4月")):
        assert get_month_names("wide", "stand-alone", isolated_locale(code))[4] == april
