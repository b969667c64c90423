"""Dates, times, intervals and relative times that Unicode CLDR can write in any locale, as `Form`s."""

import calendar
import datetime
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from random import Random

from babel import Locale, dates

from keras_transformer.tools.cldr.wordings import Form, draw_count


def _skeleton(name: str) -> Callable[[datetime.date, Locale], str]:
    return lambda day, locale: dates.format_skeleton(name, day, fuzzy=False, locale=locale)


def _write_moment(moment: datetime.datetime, locale: Locale) -> str:
    pattern = dates.get_datetime_format("long", locale=locale).replace("'", "")
    time = dates.format_time(moment.time(), "short", locale=locale)
    return pattern.replace("{0}", time).replace("{1}", dates.format_date(moment, "long", locale))


# If two styles share a wording, the earlier style keeps the wording, so full styles come before abbreviated styles. No
# style writes a year with two digits, because "1/3/22" hides the century that another locale writes out.
DATE_STYLES: dict[str, Callable[[datetime.datetime, Locale], str]] = {
    "long": lambda day, locale: dates.format_date(day, "long", locale),
    "full": lambda day, locale: dates.format_date(day, "full", locale),
    "month and day": _skeleton("MMMMd"),
    "month and year": _skeleton("yMMMM"),
    "with time": _write_moment,
    "numeric": _skeleton("yMd"),
    "abbreviated": _skeleton("yMMMd"),
    "abbreviated full": _skeleton("yMMMEd"),
}


def _draw_moment(rng: Random, month: int) -> datetime.datetime:
    year = rng.randint(1900, 2099)
    day = rng.randint(1, calendar.monthrange(year, month)[1])
    return datetime.datetime(year, month, day, rng.randrange(24), rng.randrange(60))


def date_forms() -> Iterator[Form]:
    """Yields forms of dates: in full, abbreviated, in digits, and with the time of day."""
    for style, write in DATE_STYLES.items():
        for month in range(1, 13):
            probe = datetime.datetime(2022, month, 3, 15, 45)
            yield Form("dates", f"{style} {month}", partial(_draw_moment, month=month), write, (probe,))


def _draw_time(rng: Random, hour: int) -> datetime.time:
    return datetime.time(hour, rng.randrange(60), rng.randrange(60))


def _write_time(time: datetime.time, locale: Locale, style: str) -> str:
    return dates.format_time(time, style, locale=locale)


def time_forms() -> Iterator[Form]:
    """Yields forms of times, to the minute and to the second; "3:45 PM" where the locale has a 12-hour clock."""
    for style in ("short", "medium"):
        for hour in range(24):
            draw = partial(_draw_time, hour=hour)
            probe = datetime.time(hour, 5, 10)
            yield Form("times", f"{style} {hour}", draw, partial(_write_time, style=style), (probe,))


Ends = tuple[datetime.date, datetime.date] | tuple[datetime.time, datetime.time]

# Skeleton -> the shortest and the longest interval in days. An interval of 32 days always ends in another month.
INTERVALS = {"yMMMd": (1, 60), "MMMd": (1, 60), "yMMMM": (32, 500)}


def _draw_days(rng: Random, month: int, skeleton: str) -> Ends:
    start = _draw_moment(rng, month).date()
    return start, start + datetime.timedelta(days=rng.randint(*INTERVALS[skeleton]))


def _draw_hours(rng: Random, hour: int) -> Ends:
    start = hour * 60 + rng.randrange(59)
    end = rng.randint(start + 1, min(start + 12 * 60, 24 * 60 - 1))
    return datetime.time(*divmod(start, 60)), datetime.time(*divmod(end, 60))


def _write_interval(ends: Ends, locale: Locale, skeleton: str) -> str:
    # Without an entry Babel falls back to another style of date. The source would then not determine the target.
    if skeleton not in locale.interval_formats:
        raise LookupError(skeleton)
    return dates.format_interval(*ends, skeleton, fuzzy=False, locale=locale)


def _write_hours(ends: Ends, locale: Locale) -> str:
    return _write_interval(ends, locale, "Hm" if "H" in locale.time_formats["short"].pattern else "hm")


def interval_forms() -> Iterator[Form]:
    """Yields forms from one day, month or time of day to another: "Jan 3 – 7, 2022"."""
    for skeleton in INTERVALS:
        for month in range(1, 13):
            draw = partial(_draw_days, month=month, skeleton=skeleton)
            probe = (datetime.date(2022, month, 3), datetime.date(2023, month, 5))
            yield Form("intervals", f"{skeleton} {month}", draw, partial(_write_interval, skeleton=skeleton), (probe,))
    for hour in range(24):
        probe = (datetime.time(hour, 5), datetime.time(hour, 20))
        yield Form("intervals", f"hours {hour}", partial(_draw_hours, hour=hour), _write_hours, (probe,))


SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}


def _write_relative(count: int, locale: Locale, unit: str, length: str) -> str:
    # The infinite threshold keeps the unit: Babel writes 90 minutes, not two hours.
    seconds = count * SECONDS[unit]
    return dates.format_timedelta(seconds, unit, inf, add_direction=True, format=length, locale=locale)


def relative_time_forms() -> Iterator[Form]:
    """Yields forms of times relative to now: "in 3 hours", "5 years ago"."""
    for length in ("long", "short"):
        for unit in SECONDS:
            write = partial(_write_relative, unit=unit, length=length)
            for sign in (1, -1):
                probes = tuple(sign * count for count in (1, 2, 3, 5, 11, 100))
                draw = partial(lambda rng, sign: sign * draw_count(rng), sign=sign)
                yield Form("relative times", f"{length} {unit} {sign:+}", draw, write, probes)
