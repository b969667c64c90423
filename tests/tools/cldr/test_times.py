"""Forms of dates, times, intervals and relative times against translations written by hand."""

from datetime import date, datetime, time
from itertools import chain
from random import Random

import pytest

from keras_transformer.tools.cldr import times
from keras_transformer.tools.cldr.wordings import isolated_locale

EN, DE, FR = map(isolated_locale, ("en", "de", "fr"))
MAKERS = (
    times.date_forms,
    times.time_forms,
    times.interval_forms,
    times.relative_time_forms,
)
FORMS = {form.key: form for form in chain.from_iterable(maker() for maker in MAKERS)}
MOMENT = datetime(2022, 1, 3, 15, 45)


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
    ],
)
def test_times_and_dates_are_written_as_people_write_them(key, value, english, german):
    assert [FORMS[key].say(value, locale) for locale in (EN, DE)] == [english, german]


def test_intervals_end_after_they_start():
    rng = Random(11)
    for form in times.interval_forms():
        for start, end in (form.draw(rng) for _ in range(20)):
            assert start < end


def test_french_writes_spaces_that_can_be_typed_and_a_style_that_a_locale_lacks_is_none_and_no_other_style():
    assert FORMS["full 1"].say(MOMENT, FR) == "lundi 3 janvier 2022"
    assert FORMS["long week -1"].say(-2, FR) == "il y a 2 semaines"
    # Babel cannot tell the parts of the day that zh_Hant parts such an interval by.
    assert FORMS["hours 9"].say((time(9, 5), time(9, 20)), isolated_locale("zh_Hant")) is None
