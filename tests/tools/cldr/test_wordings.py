"""Forms of dates, times, numbers, money, measures and names against translations written by hand."""

from datetime import date, datetime, time
from decimal import Decimal
from random import Random

import pytest
from babel.dates import get_month_names

from keras_transformer.tools.cldr import times, wordings
from keras_transformer.tools.cldr.wordings import Form, isolated_locale, unambiguous

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
        ("month and day 1", MOMENT, "January 3", "3. Januar"),
        ("with time 1", MOMENT, "January 3, 2022, 3:45 PM", "3. Januar 2022, 15:45"),
        ("numeric 1", MOMENT, "1/3/2022", "3.1.2022"),
        ("abbreviated 1", MOMENT, "Jan 3, 2022", "3. Jan. 2022"),
        ("short 0", time(0, 5), "12:05 AM", "00:05"),
        ("medium 15", time(15, 5, 9), "3:05:09 PM", "15:05:09"),
        ("yMMMd 1", (date(2022, 1, 3), date(2022, 1, 7)), "Jan 3 – 7, 2022", "3.–7. Jan. 2022"),
        ("MMMd 1", (date(2022, 1, 3), date(2022, 3, 7)), "Jan 3 – Mar 7", "3. Jan. – 7. März"),
        ("hours 9", (time(9, 5), time(15, 20)), "9:05 AM – 3:20 PM", "09:05–15:20 Uhr"),
        ("long hour +1", 1, "in 1 hour", "in 1 Stunde"),
        ("long year -1", -5, "5 years ago", "vor 5 Jahren"),
        ("long minute +1", 90, "in 90 minutes", "in 90 Minuten"),
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
def test_times_amounts_and_names_are_written_as_people_write_them(key, value, english, german):
    assert [FORMS[key].say(value, locale) for locale in (EN, DE)] == [english, german]


def test_intervals_end_after_they_start():
    rng = Random(11)
    for form in times.interval_forms():
        for start, end in (form.draw(rng) for _ in range(20)):
            assert start < end


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


def test_invisible_characters_become_characters_that_a_keyboard_types_and_what_a_locale_lacks_is_none():
    form = Form("", "", lambda rng: None, lambda value, locale: "\u200f3:45\u202fPM\u2009–\u20095\u00a0PM\u061c", ())
    assert form.say(None, EN) == "3:45 PM – 5 PM"
    french = isolated_locale("fr")
    assert FORMS["full 1"].say(MOMENT, french) == "lundi 3 janvier 2022"
    assert FORMS["long week -1"].say(-2, french) == "il y a 2 semaines"
    assert FORMS["territories FR"].say(None, isolated_locale("jbo")) is None
    # Babel cannot tell the parts of the day that zh_Hant parts such an interval by.
    assert FORMS["hours 9"].say((time(9, 5), time(9, 20)), isolated_locale("zh_Hant")) is None


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
